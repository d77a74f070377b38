"""Parse LLVM text and run LLVM's passes over it, without the leak and the miscompile of the tools underneath.

In: text. Out: a verified module, changed in place by `optimise` or `simplify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """Run LLVM's default pipeline of `level` (0 to 3) over `module`."""
    with _pass_builder(target_machine, level) as builder:
        # A manager for one run: LLVM aborts when a default pipeline is run twice.
        _run(builder.getModulePassManager(), module, builder)


STRAIGHT = ("simplify_cfg", "sroa", "instruction_combine", "ipsccp", "simplify_cfg", "instruction_combine")
"""The passes of the default pipeline that do something for code without loops and calls.

They take a quarter of the pipeline's time. Control flow is simplified first, before an operand that only one arm needs is
moved there; ranges narrow 64-bit arithmetic to 32 bits.
"""

VECTORS = (
    "sroa",  # LOCAL arrays whose elements are known become registers
    "simplify_cfg",
    "instruction_combine",
    "loop_unroll",
    "sroa",  # and those whose elements are known since a loop is unrolled
    "instruction_combine",
    "dead_store_elimination",
    "simplify_cfg",
)
"""The passes that do something for code which is vectorised already.

Dead stores must go: LLVM 22.1 may abort the process where one masked store directly follows an equal one. Its instruction
selection then removes the first, finds the second equal to it, and goes on with a node that is deleted.
"""


def simplify(module: Any, target_machine: Any, names: Sequence[str]) -> None:
    """Run the passes of these `names` over `module`, in this order."""
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    with _pass_builder(target_machine, 2) as builder:
        _run(passes, module, builder)


@contextmanager
def _pass_builder(target_machine: Any, level: int) -> Iterator[Any]:
    """A builder of pass managers. The loop vectoriser stays off: LLVM 22.1 miscompiles `x[j * 16 + t % 16]` in a loop over t."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(target_machine, options)
    try:
        yield builder
    finally:
        builder.close()
        options.close()


def _run(passes: Any, module: Any, builder: Any) -> None:
    try:
        passes.run(module, builder)
    finally:
        _free(passes)


def _free(passes: Any) -> None:
    """Dispose of a pass manager; llvmlite 0.50 inherits a `_dispose` that does nothing and so leaks 30 KiB and more."""
    if type(passes)._dispose is ffi.ObjectRef._dispose:
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
        passes.detach()
    else:
        passes.close()
