"""A user's function that the library calls again and again: interpreted once, after which its ops are copied.

    sk.reduce(x, lambda a, b: a * b + a + b)     of 18 calls one is interpreted

That is done for run-time numbers, of which nothing but their types can matter. A function that does more than compute with them
(it assigns outside, prints while it is specialised, asks about arguments) is interpreted at each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stagekit.frontend.evaluation import Site
from stagekit.frontend.values import Number
from stagekit.ir import Block, Value


class _Recording(NamedTuple):
    """What a function emits, and what it returns: a number, or a tuple of them, the run-time ones those that the block yields."""

    block: Block
    result: Any


class Recorded:
    """A function that is called in one place. recordings: by the types of its arguments; None where it must be interpreted."""

    def __init__(self, site: Site, function: Any) -> None:
        self.site = site
        self.function = function
        self.recordings: dict[Any, _Recording | None] = {}

    def __call__(self, args: tuple[Any, ...]) -> Any:
        numbers = _flat(args)
        if not all(type(each) is Number for each in numbers):
            return self.site.invoke(self.function, list(args))
        key = _types(args)
        if key not in self.recordings:
            self.recordings[key] = self._record(args)
        recording = self.recordings[key]
        if recording is None:
            return self.site.invoke(self.function, list(args))
        values = self.site.tracer.builder.copy(recording.block, [each.value for each in numbers])
        return _replaced(recording.result, iter(values))

    def _record(self, args: tuple[Any, ...]) -> _Recording | None:
        """Interpret a call, of whose numbers only the types are known. Nothing of it remains where it is of no use."""
        tracer = self.site.tracer
        start, params = tracer.checkpoint(), [Value(each.value.type) for each in _flat(args)]
        with tracer.builder.block(params) as opened:
            result = self.site.invoke(self.function, list(_replaced(args, iter(params))))
            leaves = _flat((result,))
            tracer.builder.yield_(*[each.value for each in leaves if type(each) is Number])
        if all(isinstance(each, Number | int | float | np.generic) for each in leaves) and not tracer.has_changed(
            start
        ):
            return _Recording(opened.done(), result)
        tracer.journal.undo(start.journal)
        tracer.facts.withdraw(start.asked)
        tracer.forget(start)
        return None


def _flat(values: Iterable[Any]) -> list[Any]:
    """Return what stands in tuples, and in tuples in them."""
    return [leaf for value in values for leaf in (_flat(value) if type(value) is tuple else (value,))]


def _types(value: Any) -> Any:
    """Return the types of numbers, in tuples as they are."""
    return tuple(map(_types, value)) if type(value) is tuple else (value.value.type, value.is_weak)


def _replaced(value: Any, values: Iterator[Value]) -> Any:
    """Return numbers with other values for those known at run time, in tuples as they are."""
    if type(value) is tuple:
        return tuple([_replaced(each, values) for each in value])
    return Number(next(values), value.is_weak) if type(value) is Number else value
