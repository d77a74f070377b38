"""Why a specialisation is new, in words: compared with the one that was used before.

BLOCK 64 -> 128
global `EPS` changed 1e-05 -> 1e-06
`x` an array of float64, was an array of float32
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagekit.diagnostics import shown
from stagekit.frontend.parameters import ArgType, ArrayArg, Parameters, ScalarArg
from stagekit.frontend.state import ANOTHER_OBJECT, ById, freeze

if TYPE_CHECKING:
    from stagekit.jit.specialization import Specialization

FIRST_USE = "first use"


def why_new(outdated: Specialization | None, last: Specialization | None, values: Mapping[str, Any]) -> str:
    """outdated: one with the same constexprs that is no longer valid. last: the one used last. values: constexprs asked for."""
    if outdated is not None:
        return "; ".join(outdated.changes()) or FIRST_USE
    if last is None:
        return FIRST_USE
    before = last.constexprs
    changed = [name for name, value in values.items() if freeze(value) != freeze(before.get(name))]
    return ", ".join(_change(name, before.get(name), values[name]) for name in changed) or FIRST_USE


def _change(name: str, before: Any, now: Any) -> str:
    """Fresh objects of a class that says nothing of its state each make a kernel, which nobody may have meant."""
    is_lookalike = type(before) is type(now) and (isinstance(freeze(now), ById) or _value(before) == _value(now))
    if is_lookalike and not isinstance(now, type):
        return f"{name} is another `{type(now).__name__}`, which counts by identity ({ANOTHER_OBJECT})"
    return f"{name} {_value(before)} -> {_value(now)}"


def why_types(before: Sequence[ArgType] | None, now: Sequence[ArgType], parameters: Parameters) -> str | None:
    """What differs from the types compiled for before; None where there were none."""
    if before is None:
        return None
    rows = zip(parameters.run_time, before, now)
    return ", ".join(f"`{p.name}` {_of(new)}, was {_of(old)}" for p, old, new in rows if old != new)


def _of(kind: ArgType) -> str:
    if isinstance(kind, ArrayArg):
        layout = "" if kind.is_contiguous else " with strides"
        axes = "" if kind.rank == 1 else f" of {kind.rank} axes"
        return f"an array of {kind.dtype.name}{axes}{layout}"
    return f"a number ({kind.dtype.name})" if isinstance(kind, ScalarArg) else "None"


def _value(value: Any) -> str:
    return shown(value, most=40)
