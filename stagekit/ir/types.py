"""The types of IR values. There is one object of each; signedness is part of the type, as it is not of LLVM's.

f32                a scalar
vector<8 x f32>    eight scalars of one thread, which elementwise ops treat alike
ptr<f32, global>   a pointer to elements of f32 in global memory
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self, TypeVar

from stagekit import dtypes
from stagekit.dtypes import DType

T = TypeVar("T")
_INTERNED: dict[tuple[Any, ...], Any] = {}  # every type by class and fields, so that equal types are identical


class Space(Enum):
    """Where a pointer points."""

    __hash__ = object.__hash__  # `Enum` hashes the name anew each time

    GLOBAL = "global"  # visible to the whole grid
    SHARED = "shared"  # one copy per block
    LOCAL = "local"  # one copy per thread
    CONSTANT = "constant"  # part of the code: nothing writes it
    CLUSTER = "cluster"  # shared memory of any block of the cluster: an address that `map_shared_rank` made


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Scalar:
    """One number of `dtype`."""

    dtype: DType

    def __new__(cls, dtype: DType) -> Self:
        found: Self | None = _INTERNED.get((cls, dtype))
        return found or _intern(cls, dtype=dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scalar, (self.dtype,)

    def __str__(self) -> str:
        return self.dtype.short


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Pointer:
    """A typed address. Offsets count elements of `dtype`."""

    dtype: DType
    space: Space

    def __new__(cls, dtype: DType, space: Space) -> Self:
        found: Self | None = _INTERNED.get((cls, dtype, space))
        return found or _intern(cls, dtype=dtype, space=space)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pointer, (self.dtype, self.space)

    def __str__(self) -> str:
        return f"ptr<{self.dtype.short}, {self.space.value}>"


VECTOR_WIDTHS: Final = (2, 4, 8)
"""The numbers of lanes that a vector may have."""


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Vector:
    """`count` scalars of `dtype` that one thread holds: its lanes."""

    dtype: DType
    count: int

    def __new__(cls, dtype: DType, count: int) -> Self:
        found: Self | None = _INTERNED.get((cls, dtype, count))
        return found or _intern(cls, dtype=dtype, count=count)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vector, (self.dtype, self.count)

    def __str__(self) -> str:
        return f"vector<{self.count} x {self.dtype.short}>"


Type = Scalar | Pointer | Vector


def of_dtype(dtype: DType, like: Type) -> Scalar | Vector:
    """Return the type of `dtype` that has as many lanes as `like`."""
    return Vector(dtype, like.count) if type(like) is Vector else Scalar(dtype)


def _intern(cls: type[T], **fields: Any) -> T:
    """Return the only type of this class with these fields, which another thread may just have made."""
    new = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    interned: T = _INTERNED.setdefault((cls, *fields.values()), new)
    return interned


BOOL = Scalar(dtypes.bool_)
INDEX = Scalar(dtypes.INDEX)
I32 = Scalar(dtypes.int32)
U32 = Scalar(dtypes.uint32)
U64 = Scalar(dtypes.uint64)
