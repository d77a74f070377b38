"""Vectors of a thread: two, four or eight numbers, which lie side by side in memory and are loaded and stored together.

    quads = A.vector(4)               # a view of A by fours along its last axis
    v = quads[i]                      # A[4 * i] to A[4 * i + 3]: one access of 16 bytes, if they are float32
    B.vector(4)[i] = v * 2 + v[0]     # arithmetic by element; one number goes with all

An access is as wide as the address is known to be aligned, by a declared `align`, or as a fact of the arguments: launches whose
arrays lie elsewhere run code with narrower accesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.placing import is_int, require_dtype
from stagekit.lib.tile import ByElement, Traced

WIDTHS = (2, 4, 8)
_WIDEST_BYTES = 16  # of one access on a GPU
_MULTIPLY = sk._operation("*")


class NumberVector(ByElement):
    """Two, four or eight numbers of one dtype that one thread has. Functions go by element, as operators do."""

    def __init__(self, held: Traced, count: int) -> None:
        self._held = held  # as one value of the IR
        self._count = count

    @property
    @sk._direct
    def lanes(self) -> list[Traced]:
        """The numbers of a vector."""
        return list(sk._lanes(self._held))

    @property
    def dtype(self) -> sk.DType:
        """The dtype of the numbers."""
        dtype: sk.DType = sk._dtype_of(self._held)
        return dtype

    def to(self, dtype: sk.DType | type[Any]) -> NumberVector:
        """Return the vector of these numbers converted to `dtype`."""
        require_dtype(".to", dtype)
        return self.each(dtype, self)

    def view(self, dtype: sk.DType | type[Any]) -> NumberVector:
        """Return the vector of the same bits as another dtype of the same size."""
        return self.each(sk._view, self, dtype)

    @sk._direct
    def each(self, function: Callable[..., Traced], *args: Any, **named: Any) -> NumberVector:
        """Return the vector of `function` of each number of the arguments, which are vectors like this one or numbers."""
        given = (*args, *named.values())
        counts = {len(each) for each in given if isinstance(each, NumberVector)}
        if len(counts) > 1:
            sk._refuse_shape(f"vectors of {' and '.join(map(str, sorted(counts)))} numbers in one operation", _ALIKE)
        (count,) = counts
        if sk._takes_vectors(function, given):
            held = function(*map(_held, args), **{name: _held(each) for name, each in named.items()})
            return NumberVector(held, count)
        rows = zip(*[each.lanes if isinstance(each, NumberVector) else [each] * count for each in given])
        positional = len(args)
        found = [function(*row[:positional], **dict(zip(named, row[positional:]))) for row in rows]
        return _of_lanes(found)

    @sk._direct
    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NumberVector:
        """Apply a function of the language to arguments of which this vector is the first that is one."""
        if any(hasattr(each, "space") for each in args) or function in (sk.load, sk.store):
            sk._refuse_index("a vector beside a pointer", "index the array by vectors: `A.vector(4)[i] = v`")
        return self.each(function, *args, **kwargs)

    def __stagekit_describe__(self) -> str:
        return f"a vector of {self._count} numbers"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return self.lanes  # in a kernel, which iterates over any sequence

    def __getitem__(self, place: Any) -> Traced:
        """Return the number at a place known at compile time."""
        if not is_int(place) or not -self._count <= place < self._count:
            hint = f"give an int known at compile time, below {self._count}; `sk.where` chooses at run time"
            sk._refuse_index("a number of a vector", hint)
        return self.lanes[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        sk.static_assert(False, "a vector is never changed: make another, as by `sk.vector(x, v[1])`")

    def __bool__(self) -> bool:
        sk.static_assert(False, "a vector has no single truth value: choose by `sk.where`, or ask for `any(v)`")
        return False


_ALIKE = "give vectors of as many numbers, or single ones"


def _held(value: Any) -> Any:
    return value._held if isinstance(value, NumberVector) else value


@sk._direct
def _of_lanes(numbers: list[Traced]) -> NumberVector:
    (held,) = sk._in_vectors(numbers, (len(numbers),))
    return NumberVector(held, len(numbers))


def vector(*numbers: Any) -> NumberVector:
    """The vector of two, four or eight numbers, which meet in one dtype as in arithmetic."""
    if len(numbers) not in WIDTHS:
        sk.static_assert(False, f"a vector has 2, 4 or 8 numbers, got {len(numbers)}")
    return NumberVector(sk._vector_of(*numbers), len(numbers))


class VectorView:
    """The elements of an array as vectors of neighbours along its last axis, whose index counts vectors."""

    def __init__(self, array: Any, width: int) -> None:
        self._array = array
        self.width = width

    @property
    def dtype(self) -> sk.DType:
        """The dtype of the elements."""
        dtype: sk.DType = self._array.dtype
        return dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the array, the last in whole vectors: what is left of a row is none."""
        return (*self._array.shape[:-1], self._array.shape[-1] // self.width)

    def __len__(self) -> int:
        size: int = self.shape[0]
        return size

    def __getitem__(self, index: Any) -> NumberVector:
        return self.load(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.store(index, value)

    def load(self, index: Any, mask: Any = None, other: Any = None) -> NumberVector:
        """Return the vector at an index; where `mask` is off nothing is read, and it is `other`, a number or a vector, else 0."""
        pointer = self._pointer(index)
        held = sk._load_vector(pointer, self.width, self._align(pointer), mask=mask, other=_held(other))
        return NumberVector(held, self.width)

    def store(self, index: Any, value: Any, mask: Any = None) -> None:
        """Write a vector, or one number to all of its places, where `mask` is on."""
        dtype = self.dtype
        if isinstance(value, NumberVector) and len(value) != self.width:
            sk._refuse_shape(f"a vector of {len(value)} numbers in place of {self.width}", _ALIKE)
        held = (
            value.to(dtype)._held if isinstance(value, NumberVector) else _of_lanes([dtype(value)] * self.width)._held
        )
        pointer = self._pointer(index)
        sk._store_vector(pointer, held, self._align(pointer), mask=mask)

    def _pointer(self, index: Any) -> Traced:
        places = index if isinstance(index, tuple) else (index,)
        if len(places) != self._array.ndim:
            sk._refuse_index(
                f"{len(places)} of {self._array.ndim} axes", "give an index for each axis, the last in vectors"
            )
        return self._array.ptr_to(*places[:-1], _first_of(places[-1], self.width))

    def _align(self, pointer: Traced) -> int:
        """Return of how many bytes the address is known to be a multiple, as far as that makes an access wider."""
        size: int = self.dtype.itemsize
        wide = min(size * self.width, _WIDEST_BYTES)
        while wide > size and not sk._is_multiple(pointer, wide):
            wide //= 2
        align: int = max(wide, size)
        return align

    def __stagekit_describe__(self) -> str:
        return f"an array by vectors of {self.width}"


@sk._direct
def _first_of(place: Any, width: int) -> Traced:
    """Return the index of the first element of a vector, in 64 bits."""
    found = sk._linear(place)
    if found is None or found[1] or (is_int(place) and place < 0):
        sk._refuse_index("the index of a vector", "it must be an integer that counts from the start")
    return _MULTIPLY(found[0], width)


@sk._direct
def _has_neighbours(strides: tuple[Any, ...]) -> bool:
    return bool(strides) and is_int(strides[-1]) and strides[-1] == 1


@sk._method_of_arrays(
    "vector(width)",
    "The array by vectors of 2, 4 or 8 neighbours along its last axis, which are loaded and stored together: `A.vector(4)[i]`.",
)
def vector_view(array: Any, width: Any) -> VectorView:
    if width not in WIDTHS:
        sk.static_assert(False, f"a vector has 2, 4 or 8 numbers, got {width!r}")
    if not _has_neighbours(array.strides):
        text = "vectors of an array whose last axis is not known to have no gaps"
        hint = "declare it, as by `sk.Tensor((None, None), dtype, strides=(None, 1))`, or pass a copy without gaps"
        sk._refuse_shape(text, hint)
    return VectorView(array, width)
