"""Structured arrays: what a kernel sees of a NumPy array with named fields, by field or by element.

A.x[i], A["x"][i]       an element of the field `x`, an array with steps over the other fields
A[i].x                  the same; `A[i].x = v` writes it, `A[i] = B[j]` and `A[i] = (1, 2.5)` write all fields
A[i].place.x            fields in fields
A[2:], A.shape, len(A)  as of other arrays
"""

from __future__ import annotations

from typing import Any

import stagekit as sk

Fields = dict[str, Any]  # by name, an array or a structured one


class StructuredArray:
    """Arrays of one shape that lie in each other, by the names of their fields."""

    def __init__(self, fields: Fields, ndim: int) -> None:
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "ndim", ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the array, one for each axis."""
        name, *_ = self._fields
        return tuple(self._fields[name].shape[: self.ndim])

    @property
    def size(self) -> Any:
        """The number of elements."""
        total = 1
        for extent in self.shape:
            total = total * extent
        return total

    def __len__(self) -> Any:
        return self.shape[0]

    __iter__ = None

    def __getattr__(self, name: str) -> Any:
        return _field(self._fields, name)

    def __setattr__(self, name: str, value: Any) -> None:
        sk.static_assert(False, f"`.{name} = ...` of a structured array: assign elements, `A.{name}[i] = v`")

    def __getitem__(self, index: Any) -> Any:
        """Return the field of this name, one element, or a view."""
        if isinstance(index, str):
            return _field(self._fields, index)
        places = index if isinstance(index, tuple) else (index,)
        if len(places) == self.ndim and not any(isinstance(each, slice) or each is ... for each in places):
            return ArrayRecord(self._fields, places)
        kept = self.ndim - sum(1 for each in places if not (isinstance(each, slice) or each is ...))
        return StructuredArray({name: field[index] for name, field in self._fields.items()}, kept)

    def __setitem__(self, index: Any, value: Any) -> None:
        element = self[index]
        if not isinstance(element, ArrayRecord):
            sk._refuse_index("a whole field, or a slice, of a structured array", "assign elements in a loop")
        _assign(element, value)

    def __stagekit_describe__(self) -> str:
        return f"a structured array with the fields {', '.join(self._fields)}"


class ArrayRecord:
    """One element of a structured array. Reading a field loads it, assigning stores it."""

    def __init__(self, fields: Fields, places: tuple[Any, ...]) -> None:
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_places", places)

    def __getattr__(self, name: str) -> Any:
        return _field(self._fields, name)[self._places]

    def __getitem__(self, name: Any) -> Any:
        return _field(self._fields, name)[self._places]

    def __setattr__(self, name: str, value: Any) -> None:
        _put(_field(self._fields, name), self._places, value)

    def __setitem__(self, name: Any, value: Any) -> None:
        _put(_field(self._fields, name), self._places, value)

    __iter__ = None

    def __stagekit_describe__(self) -> str:
        return f"an element with the fields {', '.join(self._fields)}"


def _field(fields: Fields, name: Any) -> Any:
    if name not in fields:
        sk.static_assert(False, f"there is no field {name!r}: the fields are {_listed(fields)}")
    return fields[name]


@sk._direct
def _listed(fields: Fields) -> str:
    return ", ".join(fields)


def _put(field: Any, places: tuple[Any, ...], value: Any) -> None:
    if isinstance(field, StructuredArray):
        _assign(field[places], value)
    elif field.ndim > len(places):  # a field that is an array itself
        row = field[places]
        for place in range(len(row)):
            _put(row, (place,), value[place])
    else:
        field[places] = value


def _assign(element: ArrayRecord, value: Any) -> None:
    """Write all fields: from an element with the same ones, or from a tuple."""
    names = [*element._fields]
    is_alike = isinstance(value, ArrayRecord) and [*value._fields] == names
    if not is_alike and not (isinstance(value, tuple) and len(value) == len(names)):
        sk.static_assert(
            False,
            f"an element takes a tuple of {len(names)} values, for {_listed(element._fields)}, or an element like it",
        )
    values = [value[name] for name in names] if is_alike else value
    for name, each in zip(names, values):
        element[name] = each


class PackedField:
    """A field whose elements lie anywhere: each is put together of its bytes, which are the last axis of `held`."""

    def __init__(self, held: Any, dtype: sk.DType) -> None:
        self._held = held
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        count: int = self._held.ndim - 1
        return count

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes, one for each axis."""
        return tuple(self._held.shape[:-1])

    def __len__(self) -> Any:
        return self.shape[0]

    __iter__ = None

    def __getitem__(self, index: Any) -> Any:
        """Return one element, or a view."""
        found = self._held[index]
        if found.ndim > 1:
            return PackedField(found, self.dtype)
        if self.dtype.part is not None:
            real, imag = self._parts_in(found)
            return sk.complex(real[()], imag[()])
        whole = _word_of(self.dtype)
        bits = whole(found[0])
        for place in sk.static_range(1, self.dtype.itemsize):
            bits |= whole(found[place]) << 8 * place
        return bits != 0 if self.dtype is sk.bool_ else bits.view(self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        found, number = self._held[index], self.dtype(value)
        if self.dtype.part is not None:
            real, imag = self._parts_in(found)
            real[()], imag[()] = number.real, number.imag
            return
        whole = _word_of(self.dtype)
        bits = whole(number) if self.dtype is sk.bool_ else number.view(whole)
        for place in sk.static_range(self.dtype.itemsize):
            found[place] = sk.uint8(bits >> 8 * place & 255)

    def _parts_in(self, held: Any) -> tuple[PackedField, PackedField]:
        """Return the parts of a complex number, of its bytes."""
        half = self.dtype.itemsize // 2
        return PackedField(held[:half], self.dtype.part), PackedField(held[half:], self.dtype.part)

    def __stagekit_describe__(self) -> str:
        return "a packed field"


def _word_of(dtype: sk.DType) -> sk.DType:
    """Return the unsigned integers of the same size."""
    found: sk.DType = {1: sk.uint8, 2: sk.uint16, 4: sk.uint32, 8: sk.uint64}[dtype.itemsize]
    return found


sk._structured_arrays(StructuredArray, PackedField)
