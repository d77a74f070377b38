"""What random programs have at hand: functions that take their arguments in every way.

They are a user's functions, so programs import them under another name than that of a module of stagekit.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk

Number = Any  # a number in CPython, a value of the kernel when staged


def mixed(p: Number, *, q: Number = 3, **rest: Number) -> Number:
    return int(p) - int(q) + sum(rest.values())


def total(*values: Number) -> Number:
    return sum(values) + len(values)


def power(x: Number, n: int) -> Number:
    return 1 if n <= 0 else x * power(x, n - 1)


def added(view: Any) -> Number:
    """The sum of the elements of an array, or of a part of one."""
    found = 0
    for i in range(len(view)):
        found += added(view[i]) if view.ndim > 1 else view[i]
    return found


def store(out: Any, row: Any, values: tuple[Number, ...]) -> None:
    """What a program gave, as a row of `out`."""
    place = out + row * len(values)
    for index, value in enumerate(values):
        sk.store(place + index, value)
