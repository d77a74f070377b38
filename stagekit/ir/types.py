"""The types of IR values: scalars and pointers. Hashable, compared by value; signedness lives here, never in LLVM's types.

f32            a scalar
ptr<f32, global>   a pointer to elements of f32 in global memory
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stagekit import dtypes
from stagekit.dtypes import DType


class Space(Enum):
    """Where a pointer points."""

    GLOBAL = "global"  # visible to the whole grid
    SHARED = "shared"  # one copy per block
    LOCAL = "local"  # one copy per thread


@dataclass(frozen=True, slots=True)
class Scalar:
    dtype: DType

    def __str__(self) -> str:
        return self.dtype.short


@dataclass(frozen=True, slots=True)
class Pointer:
    """A typed address. Offsets count elements of `dtype`."""

    dtype: DType
    space: Space

    def __str__(self) -> str:
        return f"ptr<{self.dtype.short}, {self.space.value}>"


Type = Scalar | Pointer

BOOL = Scalar(dtypes.bool_)
INDEX = Scalar(dtypes.INDEX)
I32 = Scalar(dtypes.int32)
U32 = Scalar(dtypes.uint32)
