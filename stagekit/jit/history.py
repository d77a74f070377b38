"""What a kernel was traced, compiled and loaded for, and why: what `kernel.explain()` tells.

    history.note("compiled", "cpu", "BLOCK 64 -> 128", began_s)
    history.text()      "compiled for cpu: BLOCK 64 -> 128 (12.0 ms)"

Why a specialisation is new is said by comparison with the one that was used before: "BLOCK 64 -> 128", "global `EPS` changed
1e-05 -> 1e-06", "`x` an array of float64, was an array of float32". `counts()` adds up what all kernels of this process did.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from stagekit.diagnostics import shown
from stagekit.forks import new_lock
from stagekit.frontend.parameters import ArgType, ArrayArg, ConstantArg, Parameters, ScalarArg, StructureArg
from stagekit.frontend.state import ANOTHER_OBJECT, ById, freeze
from stagekit.frozen import frozen

Kind = Literal["traced", "compiled", "read"]
"""read: machine code from the disk cache."""

FIRST_USE = "first use"
_MAX_EVENTS = 64  # per kernel

_lock = new_lock()
_counts: Counter[str] = Counter()


def counts() -> dict[str, int]:
    """Return how often kernels of this process were traced, compiled and read."""
    with _lock:
        return dict(_counts)


@frozen()
class Event:
    """One step. what: the target it was for, empty where it serves all."""

    kind: Kind
    what: str
    why: str
    elapsed_s: float

    def __str__(self) -> str:
        what_happened = "machine code taken from the disk cache" if self.kind == "read" else self.kind
        where = f" for {self.what}" if self.what else ""
        return f"{what_happened}{where}: {self.why} ({1e3 * self.elapsed_s:.1f} ms)"


class History:
    """The last events of one kernel."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS)

    def note(self, kind: Kind, what: str, why: str, began_s: float) -> None:
        """Add a step that has ended now. began_s: when it began, by `time.perf_counter`."""
        self.events.append(Event(kind, what, why, time.perf_counter() - began_s))
        with _lock:
            _counts[kind] += 1

    def text(self) -> str:
        """Say what the last call that was not served from memory had to do, and why: one line per step."""
        last: list[Event] = []
        for event in reversed(self.events):
            if last and event.why != last[-1].why:
                break
            last.append(event)
        return "\n".join(map(str, reversed(last))) or "nothing was compiled yet"


# -- why --------------------------------------------------------------------------------------------------------------


def fixed_text(constexprs: Mapping[str, Any]) -> str:
    """Return ` with BLOCK=64`, or nothing where nothing is fixed."""
    fixed = ", ".join(f"{name}={shown(value)}" for name, value in constexprs.items())
    return f" with {fixed}" if fixed else ""


def why_new(changes: Sequence[str] | None, before: Mapping[str, Any] | None, values: Mapping[str, Any]) -> str:
    """Say why a specialisation is made.

    changes: what made one with the same constexprs invalid. before: the constexprs used last. values: those asked for.
    """
    if changes is not None:
        return "; ".join(changes) or FIRST_USE
    old = values if before is None else before
    changed = [name for name, value in values.items() if freeze(value) != freeze(old.get(name))]
    return ", ".join(_change(name, old.get(name), values[name]) for name in changed) or FIRST_USE


def _change(name: str, before: Any, now: Any) -> str:
    """Describe how a constexpr changed. An object that looks the same but counts by identity is called another one."""
    was, becomes = shown(before, most=40), shown(now, most=40)
    is_lookalike = type(before) is type(now) and (isinstance(freeze(now), ById) or was == becomes)
    if is_lookalike and not isinstance(now, type):
        return f"{name} is another `{type(now).__name__}`, which counts by identity ({ANOTHER_OBJECT})"
    return f"{name} {was} -> {becomes}"


def why_types(before: Sequence[ArgType] | None, now: Sequence[ArgType], parameters: Parameters) -> str:
    """Say what differs from the types compiled for before; nothing where there were none."""
    rows = zip(parameters.run_time, before or now, now)
    return ", ".join(f"`{p.name}` {_described(new)}, was {_described(old)}" for p, old, new in rows if old != new)


def _described(kind: ArgType) -> str:
    if isinstance(kind, ArrayArg):
        layout = "" if kind.is_contiguous else " with strides"
        axes = "" if kind.rank == 1 else f" of {kind.rank} axes"
        return f"an array of {kind.dtype.name}{axes}{layout}"
    if isinstance(kind, StructureArg):
        return f"{kind.form} ({', '.join(map(_described, kind.parts))})"
    if isinstance(kind, ConstantArg):
        return shown(kind.value, most=40)
    return f"a number ({kind.dtype.name})" if isinstance(kind, ScalarArg) else "None"
