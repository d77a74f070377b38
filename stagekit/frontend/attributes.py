"""Attributes of stand-ins: `x.dtype`, `x.to(dtype)`, `A.shape`, `A.T`, ... The reference is made from these rows too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.frontend.arrays import element_pointer, pointer_to
from stagekit.frontend.errors import BadOperands, NoAttribute
from stagekit.frontend.evaluation import Site
from stagekit.frontend.extents import combine_extents
from stagekit.frontend.numbers import default_dtype, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import suggest
from stagekit.frontend.values import Address, Array, BoundMethod, Extent, Number
from stagekit.ir import Pointer, of_dtype


def attribute(site: Site, owner: Any, name: str) -> Any:
    """Return an attribute of a stand-in: `x.dtype`, `x.to`, `A.shape`, ..."""
    table = ATTRIBUTES.get(type(owner), _NUMBER)
    found = table.get(name)
    if found is None:
        hint = _WAYS_OUT.get(name) or suggest(name, table) or f"it has: {', '.join(table)}"
        raise site.error(NoAttribute(describe(owner), name, hint))
    return found.read(site, owner)


_SHAPE = "pass the array in the shape that the kernel wants"
_REDUCE = "reduce in a loop, or load a tile and use `sk.reduce_sum`, `sk.reduce_max` or `sk.reduce_min`"
# What to write instead of an attribute that NumPy and torch have.
_WAYS_OUT = {
    **dict.fromkeys(("sum", "max", "min", "mean", "prod", "any", "all", "argmax", "argmin"), _REDUCE),
    **dict.fromkeys(("reshape", "ravel", "flatten", "squeeze"), _SHAPE),
    **dict.fromkeys(("astype", "type"), "convert a number by `x.to(dtype)`"),
    "item": "it is a number already",
    "view": "a number has it, a pointer `.to(dtype)`; pass an array in the shape and dtype that the kernel wants",
    "transpose": "write `.T`",
    "copy": "copy the elements in a loop",
    "__delitem__": "an element cannot be deleted",
}


def _to(site: Site, owner: Any) -> BoundMethod:
    def run(dtype: Any, *, bitcast: bool = False) -> Any:
        if isinstance(dtype, DType) and dtype.part is not None and not isinstance(owner, Address):
            return site.invoke(dtype, [owner])
        require_dtype(site, ".to", dtype)
        if bitcast:
            raise site.error(BadOperands(".to", "`bitcast=True`", "`x.view(dtype)` keeps the bits"))
        if isinstance(owner, Address):
            return Address(site.tracer.builder.bitcast(owner.value, Pointer(dtype, owner.type.space)))
        return site.tracer.arithmetic.convert(owner, dtype)

    run.__qualname__ = "to"  # in Python's errors
    return BoundMethod(owner, "to", run)


def require_dtype(site: Site, name: str, dtype: Any) -> None:
    """Refuse what is no dtype of real numbers."""
    if not isinstance(dtype, DType) or dtype.part is not None:
        is_complex = isinstance(dtype, DType)
        hint = f"a complex number is two of {dtype.part.name}" if is_complex else "give a dtype, such as sk.float32"
        raise site.error(BadOperands(name, describe(dtype), hint))


def _view(site: Site, owner: Any) -> Any:
    if isinstance(owner, np.generic) and not is_numeric(owner):
        return owner.view

    def run(dtype: Any) -> Any:
        is_numpys = isinstance(owner, np.generic) and not isinstance(dtype, DType)
        return site.static(owner.view, dtype) if is_numpys else viewed(site, owner, dtype)

    run.__qualname__ = "view"
    return BoundMethod(owner, "view", run)


def viewed(site: Site, number: Any, dtype: Any) -> Any:
    """Return the bits of a number as a number of `dtype`."""
    require_dtype(site, ".view", dtype)
    own = default_dtype(number)
    if dtype.bits != own.bits:
        alike = ", ".join(each.name for each in dtypes.ALL_DTYPES if each.bits == own.bits)
        hint = "convert it by `.to(dtype)`" if own is dtypes.bool_ else f"dtypes of the same size: {alike}"
        raise site.error(BadOperands(".view", f"{describe(number)} as {dtype.name}", hint))
    if isinstance(number, Number):
        return Number(site.tracer.builder.bitcast(number.value, of_dtype(dtype, number.value.type)))
    return number.view(dtype.numpy)


def _transposed(site: Site, array: Array) -> Array:
    is_contiguous = array.is_contiguous and array.ndim < 2
    return Array(array.name, array.base, array.shape[::-1], array.strides[::-1], is_contiguous, array.is_part)


def _size(site: Site, array: Array) -> Extent:
    total: Extent = 1
    for extent in array.shape:
        total = combine_extents(site, "*", total, extent)
    return total


class Attribute(NamedTuple):
    """An attribute of a stand-in: how it is written, how it is read, and what it is."""

    written: str
    read: Callable[[Site, Any], Any]
    doc: str


_Table = dict[str, Attribute]


def _table(*attributes: Attribute) -> _Table:
    return {each.written.partition("(")[0]: each for each in attributes}


_NUMBER = _table(
    Attribute("dtype", lambda site, x: default_dtype(x), "The dtype of a number."),
    Attribute("to(dtype)", _to, "A number, converted to a dtype: what `dtype(x)` gives."),
    Attribute("view(dtype)", _view, "The number of the same bits as another dtype of the same size."),
    Attribute("real", lambda site, x: x, "A number itself, as of a complex one its real part."),
    Attribute("imag", lambda site, x: site.tracer.arithmetic.convert(0, default_dtype(x)), "0, in the number's dtype."),
    Attribute("conjugate()", lambda site, x: BoundMethod(x, "conjugate", lambda: x), "A number itself."),
)


_ADDRESS = _table(
    Attribute("dtype", lambda site, p: p.dtype, "The dtype of what a pointer points to."),
    Attribute(
        "to(dtype)", _to, "The pointer to the same address, whose elements are read and written as another dtype."
    ),
    Attribute(
        "space", lambda site, p: p.type.space.value, 'Memory of a pointer: "global", "shared", "cluster" or "local".'
    ),
)

_ARRAY = _table(
    Attribute("dtype", lambda site, a: a.dtype, "The dtype of the elements of an array."),
    Attribute("shape", lambda site, a: a.shape, "The sizes of an array, one for each axis, as a tuple."),
    Attribute("ndim", lambda site, a: a.ndim, "The number of axes of an array."),
    Attribute("size", _size, "The number of elements of an array."),
    Attribute("strides", lambda site, a: a.strides, "The steps from an index to the next, for each axis, in elements."),
    Attribute("T", _transposed, "The view of an array with its axes in the opposite order."),
    Attribute("ptr", pointer_to, "The pointer to the first element of an array, also of one with gaps."),
    Attribute(
        "ptr_to(i, j, ...)",
        lambda site, a: BoundMethod(a, "ptr_to", lambda *index: element_pointer(site, a, index)),
        "The pointer to one element of an array, by its index on each axis.",
    ),
)

ATTRIBUTES: dict[type, _Table] = {Number: _NUMBER, Address: _ADDRESS, Array: _ARRAY}


F = TypeVar("F", bound=Callable[..., Any])


def method_of_arrays(written: str, doc: str) -> Callable[[F], F]:
    """Make a function of the library a method of arrays, which are its first argument."""

    def register(function: F) -> F:
        def read(site: Site, array: Array) -> BoundMethod:
            return BoundMethod(array, name, lambda *args, **named: site.invoke(function, [array, *args], named))

        (name,) = method = _table(Attribute(written, read, doc))
        _ARRAY.update(method)
        return function

    return register
