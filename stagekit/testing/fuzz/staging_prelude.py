"""What random programs have at hand: a class whose methods change it, and functions that take their arguments in every way.

They are a user's functions, so programs import them under another name than that of a module of stagekit.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk

Number = Any  # an int in CPython, a value of the kernel when staged


class Box:
    """Two numbers under names."""

    def __init__(self, x: Number, y: Number) -> None:
        self.x = x
        self.y = y

    def swap(self) -> Number:
        self.x, self.y = self.y, self.x
        return self.x

    def add(self, value: Number) -> None:
        if value > 5:
            self.x = (self.x + value) % 1009
            return
        self.y = value

    def count(self, rounds: Number) -> Number:
        for i in range(rounds):
            if i > self.x:
                return i
            self.y = (self.y + i) % 1009
        return rounds - 1

    @property
    def total(self) -> Number:
        return self.x + self.y

    def __add__(self, other: Box) -> Box:
        return Box(self.x + other.x, self.y + other.y)

    def __eq__(self, other: Any) -> Any:  # noqa: PYI032
        return self.x == other.x and self.y == other.y

    def __bool__(self) -> Any:
        return self.x > 2

    def __getitem__(self, index: int) -> Number:
        return (self.x, self.y)[index]


def mixed(p: Number, *, q: Number = 3, **rest: Number) -> Number:
    return p - q + sum(rest.values())


def total(*values: Number) -> Number:
    return sum(values) + len(values)


def power(x: Number, n: int) -> Number:
    return 1 if n <= 0 else x * power(x, n - 1)


def change(items: list[Number], value: Number) -> Number:
    items[0], items[1] = items[1], value
    if value > 4:
        return items[0]
    items[2] = (items[2] + value) % 1009
    return items[1]


def store(out: Any, row: Any, values: tuple[Number, ...]) -> None:
    """What a program gave, as a row of `out`."""
    place = out + row * len(values)
    for index, value in enumerate(values):
        sk.store(place + index, value)
