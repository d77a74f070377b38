"""Python's own functions: what each means on run-time values.

Each entry is keyed by the function itself, so shadowing and aliases follow Python's rules.
"""

from __future__ import annotations

from typing import Any

from stagekit.frontend.builtin_numbers import ON_NUMBERS
from stagekit.frontend.builtin_objects import ON_OBJECTS
from stagekit.frontend.builtin_sequences import ON_SEQUENCES
from stagekit.frontend.python_calls import Builtin

_STAGED: dict[Any, Builtin] = {**ON_NUMBERS, **ON_SEQUENCES, **ON_OBJECTS}
_BY_ID = {id(fn): staged for fn, staged in _STAGED.items()}


def find(fn: Any) -> Builtin | None:
    """The staged meaning of a Python builtin, or None. By identity: `fn` may be anything, even unhashable."""
    return _BY_ID.get(id(fn))


def all_staged() -> tuple[Any, ...]:
    """Every function of Python's that has a staged meaning."""
    return tuple(_STAGED)
