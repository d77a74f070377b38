"""How values of the language are held in LLVM, as scalars (`lanes` None) or as one vector per warp (`lanes` 32).

float32        ->  float     <32 x float>
bool           ->  i1 as a value, i8 in memory
bfloat16, f8   ->  i16, i8: bits only, since arithmetic on them is legalised away before emission
"""

from __future__ import annotations

import functools

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import Pointer, Scalar, Space, Type, Vector

Lanes = int | None

_FLOAT_TYPES = {dtypes.float16: "half", dtypes.float32: "float", dtypes.float64: "double"}
_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}

Spaces = tuple[tuple[Space, int], ...]  # LLVM's number of each address space

FLAT: Spaces = tuple([(space, 0) for space in Space])
"""Of a target whose pointers are all alike."""


@functools.cache
def scalar_type(dtype: DType) -> str:
    """The LLVM type of one value of `dtype`."""
    return _FLOAT_TYPES.get(dtype) or f"i{dtype.bits}"


def lanes_of(type_: Type) -> Lanes:
    """The number of lanes of a vector of the IR."""
    return type_.count if isinstance(type_, Vector) else None


@functools.cache
def vector_of(element: str, lanes: Lanes) -> str:
    """`element` itself, or a vector of it."""
    return element if lanes is None else f"<{lanes} x {element}>"


@functools.cache
def llvm_type(type_: DType | Type, lanes: Lanes, spaces: Spaces = FLAT) -> str:
    """The LLVM type that holds a value of `type_`."""
    if isinstance(type_, Pointer):
        return vector_of(pointer_type(dict(spaces)[type_.space]), lanes)
    if isinstance(type_, Vector):
        return vector_of(scalar_type(type_.dtype), type_.count)
    return vector_of(scalar_type(type_.dtype if isinstance(type_, Scalar) else type_), lanes)


@functools.cache
def memory_type(dtype: DType, lanes: Lanes) -> str:
    """The LLVM type of elements in memory; differs from the value's for bool alone."""
    return vector_of("i8" if dtype is dtypes.bool_ else scalar_type(dtype), lanes)


def pointer_type(space: int) -> str:
    return f"ptr addrspace({space})" if space else "ptr"


@functools.cache
def suffix(type_: str) -> str:
    """The overload suffix of an LLVM type: `f32` of `float`, `v32f32` of `<32 x float>`, `p3` of a shared pointer."""
    if type_.startswith("<"):
        count, _, element = type_[1:-1].partition(" x ")
        return f"v{count}{suffix(element)}"
    if type_.startswith("ptr"):
        return "p" + (type_.removeprefix("ptr addrspace(").removesuffix(")") if "(" in type_ else "0")
    return _SUFFIXES.get(type_, type_)
