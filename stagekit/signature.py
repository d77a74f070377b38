"""What a specialised kernel accepts: the one record from which the launcher, its checks and its error texts are made.

A user's arguments (`specs`, one per run-time parameter) become a flat list of native values (`slots`): a tensor gives
its address and those sizes and strides that are not fixed; a scalar gives itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.hostexpr import HostExpr
from stagekit.limits import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES


@frozen()
class ArraySpec:
    """An array argument. shape: per axis an exact size (int), a host expression that must hold, or None for any size.

    is_contiguous: C order without gaps is required (strides are then implied); else element strides are read per axis.
    is_written: the kernel writes it, so it must be writable. align: bytes, of the address.
    """

    name: str
    dtype: DType
    shape: tuple[HostExpr | None, ...]
    is_contiguous: bool
    is_written: bool
    align: int
    strides: tuple[HostExpr | None, ...] | None = None  # element strides that must hold, where they were declared

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        sizes = ", ".join(str(s) if isinstance(s, int) else "?" for s in self.shape)
        return f"{self.name}: Tensor(({sizes}{',' if len(self.shape) == 1 else ''}), {self.dtype.name})"


@frozen()
class PointerSpec:
    """An array of any shape and strides, taken by its address alone."""

    name: str
    dtype: DType
    is_written: bool
    align: int

    def __str__(self) -> str:
        return f"{self.name}: Pointer({self.dtype.name})"


@frozen()
class ScalarSpec:
    """A number, converted to `dtype` by correct rounding; an integer that does not fit is refused."""

    name: str
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}"


@frozen()
class NoneSpec:
    """An optional parameter that this specialisation fixed to None."""

    name: str

    def __str__(self) -> str:
        return f"{self.name}: None"


@frozen()
class TensorMapSpec:
    """A tensor map that a launch on a GPU builds, of the array `name` or of a view of it.

    address: in bytes. shape, strides: elements per axis and from one to the next, the last stride is to be 1. box: elements of a
    tile per axis. swizzle: bytes, 0 for none. fill: what a tile has outside the array, "zero" or "nan". is_written: the kernel
    stores tiles by it.
    """

    name: str
    number: int
    address: HostExpr
    shape: tuple[HostExpr, ...]
    strides: tuple[HostExpr, ...]
    dtype: DType
    box: tuple[int, ...]
    swizzle: int
    fill: str
    is_written: bool


TENSOR_MAP_UNIT = 16
"""Bytes of which addresses, strides and rows of a box are multiples. Source: CUDA driver API, cuTensorMapEncodeTiled."""

ArgSpec = ArraySpec | PointerSpec | ScalarSpec | NoneSpec


def values_of(spec: ArgSpec) -> int:
    """Return how many values are read of an argument: a number; or an address, sizes, and strides that are not implied."""
    if isinstance(spec, ArraySpec):
        return 1 + spec.rank * (1 if spec.is_contiguous else 2)
    return 0 if isinstance(spec, NoneSpec) else 1


def place_of(spec: ArgSpec, kind: str, axis: int) -> int:
    """Return which of these values a slot holds. kind, axis: of the slot."""
    rank = spec.rank if isinstance(spec, ArraySpec) else 0
    return {"size": 1 + axis, "stride": 1 + rank + axis}.get(kind, 0)


@frozen()
class ParamSlot:
    """One native kernel parameter: the address, one size (elements), one element stride, or the value of argument `argument`."""

    kind: Literal["address", "size", "stride", "value"]
    argument: int
    dtype: DType  # int64 for sizes and strides; the element dtype for addresses
    axis: int = 0

    @property
    def size_bytes(self) -> int:
        """Size among the native parameters, in bytes. The value is at the low end."""
        return 8


def slot_offsets(slots: Sequence[ParamSlot]) -> list[int]:
    """Return where each native parameter begins, in bytes, and last their size together."""
    return list(accumulate((slot.size_bytes for slot in slots), initial=0))


def map_offsets(slots: Sequence[ParamSlot], extra_bytes: int, maps: Sequence[TensorMapSpec]) -> list[int]:
    """Return where each tensor map begins among the native parameters of a GPU, and last the size of all.

    extra_bytes: of parameters between the slots and the maps.
    """
    start = slot_offsets(slots)[-1] + extra_bytes
    first = -(-start // TENSOR_MAP_ALIGN) * TENSOR_MAP_ALIGN if maps else start
    return [first + TENSOR_MAP_BYTES * place for place in range(len(maps) + 1)]


class KernelEntry(StrEnum):
    """The bodies that a kernel may have. What each takes for granted of its arguments are its facts.

    QUICK: all that its trace asked. GENERAL: what the quick entry does of arguments that do not overlap, nothing else.
    OVERLAPPING: nothing.
    """

    QUICK = "quick"
    GENERAL = "general"
    OVERLAPPING = "overlapping"


@frozen()
class Fact:
    """What code takes for granted of its arguments. holds: not 0 where it does. text: the same in words.

    otherwise: the entry that runs a launch for which it does not hold.
    """

    holds: HostExpr
    text: str
    otherwise: KernelEntry


class Choice(NamedTuple):
    """The entry that runs a launch. why: what does not hold of what the quick one takes for granted, in words."""

    entry: KernelEntry
    why: str


QUICK = Choice(KernelEntry.QUICK, "")


def choose(facts: Sequence[Fact], hold: Sequence[int]) -> Choice:
    """Choose the entry for a launch. facts: those of the quick entry. hold: for each, whether it holds."""
    failed = [fact for fact, holds in zip(facts, hold) if not holds]
    if not failed:
        return QUICK
    entry = (
        KernelEntry.OVERLAPPING
        if any(fact.otherwise is KernelEntry.OVERLAPPING for fact in failed)
        else KernelEntry.GENERAL
    )
    return Choice(entry, f"the {entry} entry, since this does not hold: {'; '.join(fact.text for fact in failed)}")


@frozen(repr=False)
class Signature:
    """Everything the launcher must know. defaults: per argument a Python default, or `...` where there is none.

    shared_needs: dynamic shared bytes, each of which a launch must give at least. facts: what the code takes for granted of its
    arguments. maps: on a GPU each is a native parameter behind the slots.
    """

    specs: tuple[ArgSpec, ...]
    slots: tuple[ParamSlot, ...]
    defaults: tuple[Any, ...] = ()
    shared_needs: tuple[HostExpr, ...] = ()
    facts: tuple[Fact, ...] = ()
    maps: tuple[TensorMapSpec, ...] = ()

    def __str__(self) -> str:
        defaults = self.defaults or (...,) * len(self.specs)
        texts = [str(s) if d is ... else f"{s} = {shown(d)}" for s, d in zip(self.specs, defaults)]
        return f"({', '.join(texts)})"

    def __repr__(self) -> str:
        return f"<Signature {self}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.specs)


@frozen()
class LaunchAttributes:
    """What a launch asks of a GPU beside its size; `LaunchConfig` says what each means. cluster: blocks per axis x, y, z."""

    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False


PLAIN_LAUNCH = LaunchAttributes()


@frozen()
class LaunchSpec:
    """A launch that the kernel computes itself: grid (blocks), block (threads) per axis x, y, z, and dynamic shared bytes."""

    grid: tuple[HostExpr, HostExpr, HostExpr]
    block: tuple[HostExpr, HostExpr, HostExpr]
    shared_bytes: HostExpr
    attributes: LaunchAttributes = PLAIN_LAUNCH
