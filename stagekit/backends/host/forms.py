"""How one value of the kernel is held for the 32 lanes of a warp. The more regular the form, the cheaper the code that uses it.

    Uniform   one scalar, the same in all lanes                         block index, sizes, loop counters
    Linear    base + offsets[lane] + sum(coefficient * steps[lane])     thread index, addresses computed from it
    Varying   <32 x T>, a number per lane                               what was loaded, or computed from it
    Mask      <32 x i1>, a bool per lane
    Gep       a base pointer, and an index in elements that is one of the first three

So `x[tid]`, whose index is `Linear(32 * warp, (0, 1, ..))`, is one vector load, and `x[y[tid]]`, whose index is `Varying`, a
gather.

An integer carries its `Interval`. A 64-bit integer whose interval fits 32 bits may be held as `<32 x i32>` (`is_narrow`). A
lane that is off holds any value at all. `vectors` makes vectors of the other forms: the one place where regularity is given up.
"""

from __future__ import annotations

import functools

from stagekit import dtypes
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir.intervals import Interval
from stagekit.limits import WARP

LANES = WARP
ALL_LANES = (1 << LANES) - 1

Steps = tuple[int, ...]  # one number per lane
CACHED_STEPS = 1024  # results that are one number per lane, or made of such: few different ones occur


@frozen()
class Uniform:
    """`text`: an LLVM scalar. interval: of an integer, else None. A known integer is always spelt as a literal."""

    text: str
    interval: Interval | None = None

    @property
    def constant(self) -> int | None:
        held = self.interval
        return held.lo if held is not None and held.lo == held.hi else None


@frozen()
class Linear:
    """`base + offsets[lane] + sum(coefficient * steps[lane])`, modulo 2**bits. At least one lane differs from another.

    Coefficients are never literals (those are merged into `offsets`) and no two have the same text.
    """

    base: Uniform
    offsets: Steps
    scaled: tuple[tuple[Uniform, Steps], ...] = ()

    @property
    def interval(self) -> Interval:
        """The interval of the mathematical sum: where it exceeds the dtype's, the sum may wrap."""
        total = known(self.base) + Interval(min(self.offsets), max(self.offsets))
        for coefficient, steps in self.scaled:
            total += known(coefficient) * Interval(min(steps), max(steps))
        return total

    @property
    def constants(self) -> Steps | None:
        """The value in each lane, if all are known now."""
        base = self.base.constant
        return None if base is None or self.scaled else tuple([base + offset for offset in self.offsets])


@frozen()
class Varying:
    """`text`: `<32 x T>`, or `<32 x i32>` for a 64-bit integer that `is_narrow`."""

    text: str
    interval: Interval | None = None
    is_narrow: bool = False

    def held(self, dtype: DType) -> DType:
        """Return the dtype of the vector's elements, for a form of `dtype`: int32 for a narrow 64-bit integer."""
        return dtypes.int32 if self.is_narrow else dtype

    def widened(self, w: Writer, dtype: DType) -> str:
        """Return the vector in the full width of `dtype`."""
        return arith.cast(w, dtypes.int32, dtype, LANES, self.text) if self.is_narrow else self.text


@frozen()
class Mask:
    """`text`: `<32 x i1>`. any, all: scalars that say the same of all lanes, where they were cheap to make.

    lanes: the bits, where they are known now.
    """

    text: str
    any: str | None = None
    all: str | None = None
    lanes: int | None = None

    def any_lane(self, w: Writer) -> str:
        """Return whether any lane is on, as a scalar."""
        return self.any or w.emit(f"icmp ne i32 {self.word(w)}, 0")

    def all_lanes(self, w: Writer) -> str:
        """Return whether every lane is on, as a scalar."""
        return self.all or w.emit(f"icmp eq i32 {self.word(w)}, -1")

    def word(self, w: Writer) -> str:
        """Return an i32 with a bit per lane."""
        if self.lanes is not None:
            return str(dtypes.int32.wrap(self.lanes))
        return w.emit(f"bitcast <{LANES} x i1> {self.text} to i32")

    def inverted(self, w: Writer) -> Mask:
        """Return the other lanes, of all 32."""
        if self.lanes is not None:
            return constant_mask(self.lanes ^ ALL_LANES)
        text = w.emit(f"xor <{LANES} x i1> {self.text}, splat (i1 true)")
        any_of, all_of = (None if each is None else w.emit(f"xor i1 {each}, true") for each in (self.all, self.any))
        return Mask(text, any=any_of, all=all_of)


Index = Uniform | Linear | Varying


@frozen()
class Gep:
    """`base` moved by `index` elements. base: a scalar pointer, or `<32 x ptr>` where lanes point into different arrays."""

    base: Uniform | Varying
    index: Index

    @property
    def is_uniform(self) -> bool:
        return isinstance(self.base, Uniform) and isinstance(self.index, Uniform)


Form = Uniform | Linear | Varying | Mask | Gep


@functools.cache
def unknown(dtype: DType) -> Interval | None:
    """Return the interval of a form of which only the dtype is known."""
    return Interval.of(dtype) if dtype.is_integer else None


def known(form: Form) -> Interval:
    """Return the interval of an integer form, which always has one."""
    if isinstance(form, Mask | Gep) or form.interval is None:
        raise TypeError(f"{form} is not an integer")
    return form.interval


def scalar_text(form: Form) -> str:
    """Return the scalar of a form that is the same in all lanes."""
    if not isinstance(form, Uniform):
        raise InternalError(f"{form} where a scalar is needed")
    return form.text


@functools.lru_cache(CACHED_STEPS)
def number(value: int) -> Uniform:
    """Return a known integer."""
    return Uniform(str(value), Interval.exactly(value))


TRUE, FALSE = Uniform("true"), Uniform("false")


def truth(holds: bool) -> Uniform:
    """Return a known bool."""
    return TRUE if holds else FALSE


def known_truth(form: Form) -> bool | None:
    """Return what a bool is in all lanes, if it is known now."""
    return {"true": True, "false": False}.get(form.text) if isinstance(form, Uniform) else None


ZERO = number(0)


@functools.lru_cache(CACHED_STEPS)
def constant_mask(lanes: int) -> Mask:
    """Return the mask of these lanes, given as bits."""
    bits = ", ".join([f"i1 {'true' if lanes >> lane & 1 else 'false'}" for lane in range(LANES)])
    text = "splat (i1 true)" if lanes == ALL_LANES else f"<{bits}>"
    return Mask(text, truth(lanes != 0).text, truth(lanes == ALL_LANES).text, lanes)
