"""What happens to a kernel between the front end and emission: an ordered list of passes per target, and the check after it.

    lowered = lower(traced, PassContext("cpu", 0, fastmath=False, debug=False), hooks=(VerifyEach(),))

In: IR as traced. Out: IR of which the target's emitter knows every op (`ILLEGAL` says which it does not know).
Hooks see what each pass returns; checking and printing hang on them. Passes know nothing of hooks, and read no switch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from stagekit import config
from stagekit.diagnostics import InternalError, StagekitError
from stagekit.frozen import frozen
from stagekit.ir import Function, Op, Vector, ops
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import Legal, verify
from stagekit.passes import Pass, PassContext
from stagekit.passes import expand as expanding
from stagekit.passes import legalize as legalizing
from stagekit.passes import records as recording
from stagekit.passes import scalarize as scalarizing
from stagekit.passes.cse import cse
from stagekit.passes.dce import dce
from stagekit.passes.expand import expand
from stagekit.passes.fold import fold
from stagekit.passes.join import join
from stagekit.passes.legalize import legalize
from stagekit.passes.prefetch import prefetch
from stagekit.passes.records import records
from stagekit.passes.scalarize import scalarize
from stagekit.passes.sink import sink

_EXPANDED: tuple[Pass, ...] = (
    records,  # before expand: it calls intrinsics
    expand,  # before legalize: expansions compute in every dtype
)
_COMPILED: tuple[Pass, ...] = (
    scalarize,  # after expand: a formula is built once for all lanes
    legalize,
    fold,  # the first to see what the two before it have built
    cse,
    dce,
)

PASSES: dict[str, tuple[Pass, ...]] = {
    "cuda": (
        prefetch,  # before records and expand, while ops have the names that were called
        *_EXPANDED,
        join,  # early, since what follows takes time for each operand
        *_COMPILED,
        sink,
    ),
    "cpu": (*_EXPANDED, *_COMPILED),
    "interp": (expand, scalarize),  # it runs what was written: nothing folded, no load removed
}

_Illegal = Callable[[Any, PassContext], str | None]
_AFTER_EXPAND: dict[type[Op], _Illegal] = {ops.IntrinsicOp: expanding.illegal, ops.InlineAsm: expanding.illegal}
_COMPILABLE: dict[type[Op], _Illegal] = {
    **_AFTER_EXPAND,
    **dict.fromkeys((ops.Assert, ops.Print, ops.Breakpoint), recording.illegal),
    **dict.fromkeys((ops.Binary, ops.Unary, ops.Compare, ops.Cast), legalizing.illegal),
}
ILLEGAL: dict[str, dict[type[Op], _Illegal]] = {"cuda": _COMPILABLE, "cpu": _COMPILABLE, "interp": _AFTER_EXPAND}
"""Per target and op class, a function that returns why the emitter would not know an op, or None."""

Hook = Callable[[str, Function], object]
"""Called with the name of each stage and the function after it: `trace`, which is the front end's, and every pass."""


def lower(fn: Function, context: PassContext, hooks: Sequence[Hook]) -> Function:
    """Run the target's passes on `fn` and verify the result. hooks: from `hooks_from_config`, or one's own."""
    lowered = run_passes(fn, PASSES[context.target], context, hooks)
    verify(lowered, legal(context))
    return lowered


def legal(context: PassContext) -> Legal:
    """Return the function that says why the emitter of this target would not know an op, or None."""
    rules = ILLEGAL[context.target]

    def objection(op: Op) -> str | None:
        rule = rules.get(type(op))
        if rule and (reason := rule(op, context)):
            return reason
        for result in op.results:
            if type(result.type) is Vector:
                return scalarizing.illegal(op, context)
        return None

    return objection


def run_passes(fn: Function, passes: Iterable[Pass], context: PassContext, hooks: Sequence[Hook]) -> Function:
    """Run `passes` on `fn` in order. A crash inside one becomes an InternalError that names it and shows the IR it was given."""
    for hook in hooks:
        hook("trace", fn)
    for each in passes:
        try:
            fn = each(fn, context)
        except (StagekitError, InternalError, RecursionError):  # the last is tried again with a larger stack
            raise
        except Exception as error:
            message = f"pass `{each.__name__}` failed on `{fn.name}`: {error!r}\n{print_function(fn)}"
            raise InternalError(message) from error
        for hook in hooks:
            hook(each.__name__, fn)
    return fn


# -- hooks ------------------------------------------------------------------------------------------------------------


class VerifyEach:
    """Verify the IR that comes from the front end and from every pass, and name the pass that broke it."""

    def __init__(self) -> None:
        self.verified: Function | None = None

    def __call__(self, stage: str, fn: Function) -> None:
        try:
            if fn is not self.verified:
                verify(fn)
        except InternalError as error:
            error.add_note(f"after pass `{stage}`")
            raise
        self.verified = fn


@frozen(slots=False)
class Dump:
    """Print stages as they pass by. stages: names, or `all`. folder: where files go, None for stderr.

    A file is called `NN-stage.txt`, NN being the number of files already there: several kernels may share a folder.
    """

    stages: frozenset[str]
    folder: Path | None

    def __call__(self, stage: str, fn: Function) -> None:
        self.show(stage, lambda: print_function(fn))

    def show(self, stage: str, text: Callable[[], str]) -> None:
        """Print a stage if it is wanted. text: gives IR, or what a backend made of it."""
        if stage not in self.stages and "all" not in self.stages:
            return
        if self.folder is None:
            sys.stderr.write(f"// ---- {stage} ----\n{text()}\n")
            return
        content = text()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            number = len(list(self.folder.iterdir()))
            (self.folder / f"{number:02}-{stage}.txt").write_text(content, encoding="utf-8")
        except OSError as error:
            wanted = f"a folder that can be written to ({error.strerror})"
            raise config.DUMP_DIR.refusal(str(self.folder), wanted) from error


def dump_from_config() -> Dump:
    """Return what STAGEKIT_DUMP and STAGEKIT_DUMP_DIR ask for now."""
    stages = frozenset(s.strip() for s in config.DUMP.get().split(",") if s.strip())
    folder = config.DUMP_DIR.get()
    return Dump(stages, Path(folder) if folder else None)


def hooks_from_config() -> tuple[Hook, ...]:
    """Return the hooks that the switches ask for; none by default."""
    dump = dump_from_config()
    verifying: tuple[Hook, ...] = (VerifyEach(),) if config.VERIFY.get() == "each" else ()
    return (*verifying, dump) if dump.stages else verifying
