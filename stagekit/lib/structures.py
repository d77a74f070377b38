"""What threads combine or hand to each other: a number, or a tuple, list, dict, NamedTuple or object that holds numbers.

    Structure("block_reduce", Candidate(score, index)).moved(lambda number: sk.shfl_sync(mask, number, 0))

Its form is known at compile time, and the same in every thread. What is no number in it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.combining import Combine, Combiner, Values, checked
from stagekit.lib.tile import Tile, Traced


class Structure:
    """A value that the function `user` was given, and the numbers in it, each of one dtype."""

    def __init__(self, user: str, value: Any) -> None:
        self.user, self.value = user, value
        if isinstance(value, Tile):
            sk.static_assert(False, f"{user} takes what one thread has; for the elements of a tile there is sk.reduce")
        numbers = sk._numbers_of(value)
        if not numbers:
            text = f"{user} takes a number, or a tuple, list or object that holds numbers, got {type(value).__name__}"
            sk.static_assert(False, text)
        self.dtypes = [sk._dtype_of(number) for number in numbers]
        self.numbers: Values = tuple([dtype(number) for dtype, number in zip(self.dtypes, numbers)])

    def of(self, numbers: Values) -> Any:
        """Return a value of this form that has these numbers."""
        return sk._with_numbers(self.value, numbers)

    def moved(self, move: Callable[[Traced], Traced]) -> Any:
        """Return the value with each number replaced by what `move` makes of it."""
        return self.of(tuple([move(number) for number in self.numbers]))

    def combiner(self, combine: Combine, identity: Any = None) -> Combiner:
        """Return what combines the numbers of two such values, by a function of two values and a value that changes none."""
        if not callable(combine):
            sk.static_assert(False, f"{self.user}: combine must be a function of two values, got {combine!r}")
        neutral = None if identity is None else self.numbers_like(identity, "identity")
        if sk._numbers_of(self.value) == [self.value]:
            return Combiner(checked(self.user, combine), self.dtypes, neutral, is_single=True)
        inner = checked(self.user, combine)

        def of_numbers(a: Values, b: Values) -> Values:
            return self.numbers_like(inner(self.of(a), self.of(b)), "what the combiner gives")

        return Combiner(of_numbers, self.dtypes, neutral, is_single=False)

    def numbers_like(self, value: Any, what: str) -> Values:
        """Return the numbers of another value, which must have this one's form: literals in its dtypes."""
        if not sk._is_like(value, self.value):
            sk.static_assert(False, f"{self.user}: {what} has another form than the value: give one that has its parts")
        found = sk._numbers_of(value)
        return tuple([d(n) if type(n) in (bool, int, float) else n for d, n in zip(self.dtypes, found)])
