"""Run passes in order, with hooks that see what each gives; checking and printing hang on them.

    run_passes(fn, PASSES["cpu"], PassContext("cpu", 0, fastmath=False, debug=False), hooks=(VerifyEach(),))

Passes know nothing of hooks, and read no switch: this module does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stagekit import config
from stagekit.diagnostics import InternalError, StagekitError
from stagekit.ir import Function
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify


@dataclass(frozen=True, slots=True)
class PassContext:
    """All that a pass knows besides the function. capability: cuda only, ten times the version, else 0."""

    target: str
    capability: int
    fastmath: bool
    debug: bool


class Pass(Protocol):
    """Valid IR in, valid IR out, named by its verb. Nothing to do: the same function object."""

    __name__: str

    def __call__(self, fn: Function, context: PassContext, /) -> Function: ...


Hook = Callable[[str, Function], object]
"""Called with the name of each stage and what it gave: `trace`, which is what the front end did, and every pass."""


def run_passes(fn: Function, passes: Iterable[Pass], context: PassContext, hooks: Sequence[Hook]) -> Function:
    """`fn` after all `passes`. A crash inside one becomes an InternalError that names it and shows the IR it was given."""
    for hook in hooks:
        hook("trace", fn)
    for each in passes:
        fn = _run_one(each, fn, context)
        for hook in hooks:
            hook(each.__name__, fn)
    return fn


def _run_one(each: Pass, fn: Function, context: PassContext) -> Function:
    try:
        return each(fn, context)
    except (StagekitError, InternalError, RecursionError):  # the last is tried again with a larger stack
        raise
    except Exception as error:
        message = f"pass `{each.__name__}` failed on `{fn.name}`: {error!r}\n{print_function(fn)}"
        raise InternalError(message) from error


class VerifyEach:
    """Check the IR that comes from the front end and from every pass, and name the pass that broke it."""

    def __init__(self) -> None:
        self.checked: Function | None = None

    def __call__(self, stage: str, fn: Function) -> None:
        try:
            if fn is not self.checked:
                verify(fn)
        except InternalError as error:
            error.add_note(f"after pass `{stage}`")
            raise
        self.checked = fn


@dataclass(frozen=True)
class Dump:
    """Show stages as they pass by. stages: names, or `all`. folder: where files go, None for stderr.

    A file is called `NN-stage.txt`, NN being the number of files already there: several kernels may share a folder.
    """

    stages: frozenset[str]
    folder: Path | None

    def __call__(self, stage: str, fn: Function) -> None:
        self.show(stage, lambda: print_function(fn))

    def show(self, stage: str, text: Callable[[], str]) -> None:
        """Show a stage if it is wanted. text: IR, or what a backend made of it."""
        if stage not in self.stages and "all" not in self.stages:
            return
        if self.folder is None:
            sys.stderr.write(f"// ---- {stage} ----\n{text()}\n")
            return
        try:
            self._write(self.folder, stage, text())
        except OSError as error:
            wanted = f"a folder that can be written to ({error.strerror})"
            raise config.DUMP_DIR.refusal(str(self.folder), wanted) from error

    def _write(self, folder: Path, stage: str, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        (folder / f"{number:02}-{stage}.txt").write_text(text, encoding="utf-8")


def dump_from_config() -> Dump:
    """What STAGEKIT_DUMP and STAGEKIT_DUMP_DIR ask for now."""
    stages = frozenset(s.strip() for s in config.DUMP.get().split(",") if s.strip())
    folder = config.DUMP_DIR.get()
    return Dump(stages, Path(folder) if folder else None)


def hooks_from_config() -> tuple[Hook, ...]:
    """The hooks that the switches ask for; none by default."""
    dump = dump_from_config()
    verifying: tuple[Hook, ...] = (VerifyEach(),) if config.VERIFY.get() == "each" else ()
    return (*verifying, dump) if dump.stages else verifying
