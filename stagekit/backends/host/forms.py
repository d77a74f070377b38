"""How the value of one op is held for the 32 lanes of a warp. The more regular the form, the cheaper what is made of it.

    Uniform   one scalar for all lanes                                  block index, sizes, loop counters
    Linear    base + offsets[lane] + sum(coefficient * steps[lane])     thread index, addresses computed from it
    Vector    <32 x T>                                                  whatever was loaded or computed per lane
    Mask      <32 x i1>                                                 a bool per lane
    Address   a pointer and an index in elements, in one of the forms above

Integers carry an `Interval`; a 64-bit integer whose interval fits 32 bits may be held as `<32 x i32>` (`is_narrow`). In a lane
that is switched off a form holds any value at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagekit.dtypes import DType
from stagekit.ir.intervals import Interval
from stagekit.limits import WARP

LANES = WARP
ALL_LANES = (1 << LANES) - 1

Steps = tuple[int, ...]  # one number per lane


@dataclass(frozen=True, slots=True)
class Uniform:
    """`text`: an LLVM scalar. interval: of an integer, else None. A known integer is always spelt as a literal."""

    text: str
    interval: Interval | None = None

    @property
    def constant(self) -> int | None:
        return self.interval.constant if self.interval else None


@dataclass(frozen=True, slots=True)
class Linear:
    """`base + offsets[lane] + sum(coefficient * steps[lane])`, modulo 2**bits. At least one lane differs from another.

    Coefficients are never literals (those are merged into `offsets`) and no two have the same text.
    """

    base: Uniform
    offsets: Steps
    scaled: tuple[tuple[Uniform, Steps], ...] = ()

    @property
    def interval(self) -> Interval:
        """Of the mathematical sum: a range outside the dtype's means that it may wrap."""
        total = known(self.base) + Interval(min(self.offsets), max(self.offsets))
        for coefficient, steps in self.scaled:
            total += known(coefficient) * Interval(min(steps), max(steps))
        return total

    @property
    def constants(self) -> Steps | None:
        """The value in each lane, if it is known now."""
        base = self.base.constant
        return None if base is None or self.scaled else tuple(base + o for o in self.offsets)


@dataclass(frozen=True, slots=True)
class Vector:
    """`text`: `<32 x T>`, or `<32 x i32>` for a 64-bit integer that `is_narrow`."""

    text: str
    interval: Interval | None = None
    is_narrow: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """`text`: `<32 x i1>`. any, all: scalars that say the same of all lanes, where they were cheap to make.

    lanes: the bits, where they are known now.
    """

    text: str
    any: str | None = None
    all: str | None = None
    lanes: int | None = None


Index = Uniform | Linear | Vector


@dataclass(frozen=True, slots=True)
class Address:
    """`base` moved by `index` elements. base: a scalar pointer, or `<32 x ptr>` where lanes point into different arrays."""

    base: Uniform | Vector
    index: Index


Form = Uniform | Linear | Vector | Mask | Address


def unknown(dtype: DType) -> Interval | None:
    """The interval of a form of which only the dtype is known."""
    return Interval.of(dtype) if dtype.is_integer else None


def known(form: Form) -> Interval:
    """The interval of an integer form, which always has one."""
    if isinstance(form, Mask | Address) or form.interval is None:
        raise TypeError(f"{form} is not an integer")
    return form.interval


def number(value: int) -> Uniform:
    """A known integer."""
    return Uniform(str(value), Interval.exactly(value))


ZERO = number(0)


def lane_bits(lanes: int) -> str:
    """The constant `<32 x i1>` with these bits."""
    if lanes == ALL_LANES:
        return "splat (i1 true)"
    return f"<{', '.join('i1 true' if lanes >> i & 1 else 'i1 false' for i in range(LANES))}>"


def constant_mask(lanes: int) -> Mask:
    return Mask(lane_bits(lanes), _truth(lanes != 0), _truth(lanes == ALL_LANES), lanes)


def _truth(holds: bool) -> str:
    return "true" if holds else "false"
