"""Stop at a kernel's `breakpoint()`: the debugger sees a frame of the kernel at that line, with the values of its variables.

The frame is that of a line of code that stands where the user's `breakpoint()` stands, in a function of the kernel's name. It
calls Python's own `breakpoint`, so `PYTHONBREAKPOINT` and `sys.breakpointhook` mean what they always do.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Sequence
from typing import Any

from stagekit.config import breakpoints_are_off
from stagekit.diagnostics import Diagnostic, frame_of_user, warn
from stagekit.frontend.breakpoints import Scene

_CALLS = "__breakpoint__"  # the name under which the frame has what it is still to call


class BreakpointIgnored(Diagnostic):
    title = "A breakpoint in compiled code does nothing"
    label = "`{kernel}` runs on {target}, where no debugger can stop in it"
    help = "run it in the interpreter: `sk.sanitize({kernel})`, or set STAGEKIT_TARGET=interp"


class Stops:
    """The stops of one launch. Who steps on from one gets to the kernel's next breakpoint, or to where the launch returns."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.scenes = scenes
        self.tracing: Any = None  # of a debugger that steps

    def stop(self, number: int, stopped: Any) -> None:
        """Let Python's `breakpoint` stop at a scene. stopped: threads of a block, which know their values."""
        scene, place = self.scenes[number], {"block_idx": stopped.block_idx, "thread_idx": stopped.thread_idx}
        variables = place | {name: show(stopped) for name, show in scene.variables.items()}
        # Debuggers up to Python 3.12 stop where the next line begins. To jump back begins the same line again.
        untrace = map(setattr, _frames_of_ours(), itertools.repeat("f_trace"), itertools.repeat(None))
        calls = [functools.partial(list, untrace), functools.partial(breakpoint, *scene.args, **scene.kwargs)]
        code, names = _code(scene), {**scene.globals, _CALLS: calls}
        # in one line, since a debugger that steps out of the kernel stops at the next
        _, self.tracing, _ = exec(code, names, variables), sys.gettrace(), sys.settrace(None)  # type: ignore[func-returns-value]

    def resume(self) -> None:
        """Let a debugger that steps go on where the launch has returned."""
        if self.tracing is not None:
            *_, entry = _frames_of_ours()
            sys.settrace(functools.partial(_trace_beyond, self.tracing, entry))


def _trace_beyond(tracing: Any, entry: types.FrameType, frame: types.FrameType, event: str, arg: Any) -> Any:
    """Trace by `tracing` what is not called from `entry`."""
    around: types.FrameType | None = frame
    while around is not None and around is not entry:
        around = around.f_back
    if around is entry:
        return None
    sys.settrace(tracing)
    return tracing(frame, event, arg)


def _frames_of_ours() -> list[types.FrameType]:
    """Return the frames from here up to the user's, which is left out."""
    found, user = [sys._getframe(1)], frame_of_user()
    while found[-1].f_back not in (None, user):
        found.append(found[-1].f_back)
    return found


def _code(scene: Scene) -> types.CodeType:
    text = "\n" * (scene.loc.line - scene.first_line) + f"while {_CALLS}: {_CALLS}.pop()()"
    code, name = compile(text, scene.loc.file, "exec"), scene.loc.function
    return code.replace(co_firstlineno=scene.first_line, co_name=name, co_qualname=name)


def warn_of_breakpoints(kernel: str, target: str) -> None:
    """Warn that `kernel`, which has breakpoints, is compiled; not where they are switched off."""
    if not breakpoints_are_off():
        told = BreakpointIgnored(kernel, target)
        warn(f"{told.title}: {told.label_text()}; {told.help_text()} [{told.id}]")
