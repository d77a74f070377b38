"""Parse LLVM text and run LLVM's passes over it, without the leak and the miscompile of the tools underneath.

In: text. Out: a verified module, changed in place by `run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

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


Pipeline = int | tuple[str, ...]
"""What `run` runs: the whole default pipeline of a level, or passes over the module by name, in this order."""

STRAIGHT = ("simplify_cfg", "sroa", "instruction_combine", "ipsccp", "simplify_cfg", "instruction_combine")
"""The passes of the default pipeline that do something for code without loops and calls.

They take a quarter of the pipeline's time. Control flow is simplified first, before an operand that only one arm needs is
moved there; ranges narrow 64-bit arithmetic to 32 bits.
"""

LOOPS = (
    "simplify_cfg",  # a condition of two parts becomes one block, so that the loop's body sees what its head computes
    "sroa",
    "ipsccp",  # ranges narrow 64-bit arithmetic to 32 bits
    "instruction_combine",
    "simplify_cfg",
    "loop_rotate",
    "loop_unroll",  # wholly, or by a factor where the count is known only at run time
    "instruction_combine",
    "simplify_cfg",  # joins what unrolling has made of inner loops
)
"""The passes of the default pipeline that do something for a module of one function with loops.

The default pipeline takes three times as long, and leaves more instructions: it moves out of loops what then takes registers. It
alone keeps arrays in registers, and narrows divisions of an index.
"""

VECTORS = ("sroa", "simplify_cfg", "instruction_combine", "dead_store_elimination")
"""The passes that do something for code which is vectorised already.

Dead stores must go: LLVM 22.1 may abort the process where one masked store directly follows an equal one. Its instruction
selection then removes the first, finds the second equal to it, and goes on with a node that is deleted.
"""

LOCAL_VECTORS = ("sroa", "simplify_cfg", "instruction_combine", "loop_unroll", "sroa", *VECTORS)
"""The same for LOCAL arrays, which become registers where their elements are known, also since a loop is unrolled."""


def run(module: Any, target_machine: Any, pipeline: Pipeline) -> None:
    """Run the passes of `pipeline` over `module`."""
    with _pass_builder(target_machine, pipeline if isinstance(pipeline, int) else 2) as builder:
        # A manager for one run: LLVM aborts when a default pipeline is run twice.
        _run_and_free(
            builder.getModulePassManager() if isinstance(pipeline, int) else _passes(pipeline), module, builder
        )


def _passes(names: Iterable[str]) -> Any:
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    return passes


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


def _run_and_free(passes: Any, module: Any, builder: Any) -> None:
    """Run a pass manager over a module. llvmlite 0.50 inherits a `_dispose` that does nothing: 30 KiB leak."""
    try:
        passes.run(module, builder)
    finally:
        if type(passes)._dispose is ffi.ObjectRef._dispose:
            NewPassManager._dispose(passes)
            passes.detach()
        else:
            passes.close()
