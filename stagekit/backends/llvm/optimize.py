"""Parse LLVM text and run LLVM's passes over it, without the leak and the miscompile of the tools underneath.

In: text. Out: a verified module, changed in place by `optimise`.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import ffi

from stagekit.backends.llvm import llvm
from stagekit.diagnostics import InternalError


def parse(text: str, context: Any = None) -> Any:
    """The verified module; text that LLVM refuses is our fault, and is shown."""
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the text that was made for it: {error}\n{_numbered(text)}") from error
    return module


def _numbered(text: str) -> str:
    return "\n".join(f"{number:5} {line}" for number, line in enumerate(text.splitlines(), 1))


def optimise(module: Any, target_machine: Any, level: int) -> None:
    """Run LLVM's default pipeline of `level` (0 to 3) over `module`.

    The loop vectoriser stays off: LLVM 22.1 miscompiles `x[j * 16 + t % 16]` in a loop over t.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(target_machine, options)
    # A manager for one run: LLVM aborts when a default pipeline is run twice.
    passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:
        _free(passes)
        builder.close()
        options.close()


def _free(passes: Any) -> None:
    """Dispose of a pass manager; llvmlite 0.50 inherits a `_dispose` that does nothing and so leaks 30 KiB and more."""
    if type(passes)._dispose is ffi.ObjectRef._dispose:
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
        passes.detach()
    else:
        passes.close()
