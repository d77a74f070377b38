"""The types of a call's arguments: what a specialisation is compiled for, and where it runs.

One reader per parameter is made once, from the annotation; a call goes through them in order. A call that does not bind to the
parameters is refused here, before anything is traced; a value that does not fit is left to the launch to report.
"""

from __future__ import annotations

import inspect
import types
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import StagekitError, shown
from stagekit.dtypes import DType, dtype_from_numpy, element_dtype
from stagekit.frontend.annotations import classes_of, is_instance, marked_parts, strip
from stagekit.frontend.errors import UnsupportedArgument, WrongStructure
from stagekit.frontend.markers import Optional, Pointer, Tensor, _Constexpr, constexpr
from stagekit.frontend.parameters import (
    ArgType,
    ArrayArg,
    ConstantArg,
    NoneArg,
    Parameter,
    Parameters,
    ScalarArg,
    StructureArg,
)
from stagekit.frontend.state import freeze
from stagekit.frontend.structures import (
    Example,
    Form,
    PartsMarker,
    count_slots,
    form_of,
    held_by,
    is_named_tuple,
    place_in,
    said_of_parts,
)
from stagekit.limits import MAX_PARAMETER_BYTES
from stagekit.runtime.args import OF_AN_OBJECT, Binder, Unreadable, describe, read_array
from stagekit.runtime.errors import ArgumentError, UnreadableArray
from stagekit.runtime.native_process import LaunchParameter
from stagekit.runtime.views import CPU, ArrayView, Device, DeviceKind
from stagekit.signature import ParamSlot, Signature

Typed = tuple[ArgType, Device | None]
Reader = Callable[[Any], Typed]

_NONE: Typed = (NoneArg(), None)
_PYTHON_NUMBERS = {bool: ScalarArg(dtypes.bool_), int: ScalarArg(dtypes.int32), float: ScalarArg(dtypes.float32)}


class ArgumentTypes:
    """Reads the types of the run-time arguments of one specialisation.

    meanings: what annotates each, or None. absent: those that are fixed to None, whatever a call gives.
    """

    def __init__(
        self, kernel: str, parameters: Parameters, meanings: Mapping[str, Any], absent: Collection[str]
    ) -> None:
        rows = parameters.run_time
        self.bind = binder_of(kernel, rows, parameters)
        self._readers = tuple(_absent if p.name in absent else _reader(p.name, meanings[p.name]) for p in rows)

    def of(self, values: Sequence[Any]) -> tuple[tuple[ArgType, ...], Device]:
        """Return the types, and the device that decides where the kernel runs (the CPU without arrays)."""
        rows = [read(value) for read, value in zip(self._readers, values)]
        return tuple([kind for kind, _ in rows]), _first_in_rank(place for _, place in rows) or CPU


# Whose memory decides: a GPU's own before memory that both sides can reach, since only the GPU reaches all of them.
_RANKS: tuple[DeviceKind, ...] = ("cuda", "other", "cpu", "pinned", "managed")


def _first_in_rank(places: Iterable[Device | None]) -> Device | None:
    """Return the device that decides of those that there are."""
    found = [place for place in places if place is not None]
    return min(found, key=lambda device: _RANKS.index(device.kind)) if found else None


def device_of(arrays: Sequence[Any]) -> Device | None:
    """Return the device that decides where a launch with these arrays runs; None where none can be seen."""
    views = map(view_of, arrays)
    return _first_in_rank(None if view is None else view.device for view in views)


def target_of(device: Device) -> Literal["cpu", "cuda"]:
    """Return where a kernel runs whose arrays live there. Memory of an unknown kind is refused by the launch, with its name."""
    return "cuda" if device.kind in ("cuda", "managed") else "cpu"


def binder_of(kernel: str, rows: Sequence[Parameter], parameters: Parameters, left_out: Any = ...) -> Binder:
    """Return the binder of calls with these parameters. left_out: what stands for a constexpr that a call does not give."""
    kinds = [parameters.signature.parameters[p.name].kind for p in rows]
    defaults = [left_out if p.is_constexpr and p.default is ... else p.default for p in rows]
    keyword_only = kinds.count(inspect.Parameter.KEYWORD_ONLY)
    return Binder(kernel, [p.name for p in rows], defaults, keyword_only, list(map(_parameter_text, rows)))


def _parameter_text(parameter: Parameter) -> str:
    text = f"{parameter.name}: constexpr" if parameter.is_constexpr else parameter.name
    if parameter.default is ...:
        return text
    default = shown(parameter.default)
    return f"{text} = {default}" if parameter.is_constexpr else f"{text}={default}"


def _absent(value: Any) -> Typed:
    return _NONE


def _reader(name: str, meaning: Any, outer: Sequence[Any] = ()) -> Reader:
    """Return what tells the type of an argument for a parameter whose annotation means this.

    outer: what it is a part of, as one that holds itself has no end.
    """
    if isinstance(meaning, Optional):
        inner = _reader(name, meaning.inner, outer)
        return lambda value: _NONE if value is None else inner(value)
    if isinstance(meaning, _Constexpr):
        return lambda value: _constant(name, value, meaning)
    if isinstance(meaning, PartsMarker):
        return lambda value: _of_parts(name, value, meaning, outer) or _NONE  # of another form it is refused
    if isinstance(meaning, DType):
        fixed = (ScalarArg(meaning), None)
        return lambda value: fixed
    packed = declared_array(meaning)
    if packed is None:
        return lambda value: _without_annotation(name, value, outer)
    strided = packed if isinstance(meaning, Pointer) else ArrayArg(packed.dtype, packed.rank, False)

    def read(value: Any) -> Typed:
        if type(value) is np.ndarray:
            return (packed if value.flags.c_contiguous else strided), CPU
        view = view_of(value)
        if view is None:
            return packed, None
        return (packed if view.is_contiguous else strided), view.device

    return read


def declared_array(meaning: Any) -> ArrayArg | None:
    """Return the type of an array without gaps where an annotation says what array it is."""
    if isinstance(meaning, Pointer):
        return ArrayArg(meaning.dtype, 1, True)
    # declared strides say the layout themselves
    return ArrayArg(meaning.dtype, len(meaning.shape), meaning.strides is None) if isinstance(meaning, Tensor) else None


def view_of(value: Any) -> ArrayView | None:
    """Return a view of an array; None too where its owner does not let it be seen, which the launch reports."""
    try:
        return read_array(value)
    except Unreadable:
        return None


def slot_values(signature: Signature, values: Sequence[Any]) -> list[Any] | None:
    """Return the native parameters that these arguments give; None where the launch will refuse one of them."""
    try:
        return [_slot_value(slot, values[slot.argument]) for slot in signature.slots]
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError):
        return None


def _slot_value(slot: ParamSlot, value: Any) -> Any:
    if slot.kind == "value":
        return value if slot.dtype.is_float else int(value)
    view: Any = view_of(value)
    return view.address if slot.kind == "address" else (view.shape if slot.kind == "size" else view.strides)[slot.axis]


def _without_annotation(name: str, value: Any, outer: Sequence[Any]) -> Typed:
    """Return the type of an argument. Where it cannot be told, the error says what its own methods raised."""
    try:
        found = _own_type(value) or _of_parts(name, value, None, outer)
    except StagekitError:
        raise
    except Exception as error:
        raise ArgumentError(UnreadableArray(name, describe(value), str(error) or type(error).__name__)) from error
    if found is not None:
        return found
    if outer and not issubclass(type(value), _NEVER_CONSTANT):
        return _constant(name, value, constexpr)
    raise ArgumentError(UnsupportedArgument(name, describe(value), _way_out(name, value)))


def _own_type(value: Any) -> Typed | None:
    """Return the value's own type, which never depends on how large it is; None for what kernels do not take."""
    plain = _PYTHON_NUMBERS.get(type(value))
    if plain is not None:
        return plain, None
    if value is None:
        return _NONE
    if isinstance(value, np.generic):
        dtype = dtype_from_numpy(value.dtype)
        if dtype is not None:
            return ScalarArg(dtype), None
    elif type(value) in (tuple, list) or (type(value) is np.ndarray and value.dtype.names):  # read by their parts
        return None
    elif type(value) is np.ndarray and (dtype := element_dtype(value.dtype)) is not None:
        return ArrayArg(dtype, value.ndim, value.flags.c_contiguous), CPU
    elif (view := read_array(value)) is not None and isinstance(view.dtype, DType):
        return ArrayArg(view.dtype, len(view.shape), view.is_contiguous), view.device
    else:  # an IntEnum counts as the number that it is
        derived = next((_PYTHON_NUMBERS[base] for base in (int, float) if isinstance(value, base)), None)
        return None if derived is None else (derived, None)
    return None


# Arguments that hold others -------------------------------------------------------------------------------------------

_NEVER_CONSTANT = (
    np.ndarray,
    np.generic,
    array,
    memoryview,
    bytearray,
)  # what looks like a value that kernels compute with
_ANNOTATIONS = (types.GenericAlias, types.UnionType, type)
_MOST_PARTS = MAX_PARAMETER_BYTES // 8  # of one argument; each leaf is a parameter of the machine code
_DEEPEST = 50  # in each other


def _of_parts(name: str, value: Any, said: PartsMarker | None, outer: Sequence[Any]) -> Typed | None:
    """Return the type of an argument that holds others; None for a leaf of which nothing is said."""
    form = form_of(value, as_complex=said is not None and said.kind is complex)
    if said is not None and (form is None or not said.fits(form)):
        raise ArgumentError(WrongStructure(name, str(said), describe(value) if form is None else str(form)))
    if form is None:
        return None
    _check_form(name, value, form, outer)
    parts = zip(held_by(value, form), said_of_parts(form, said, marked_parts(form.kind)))
    inside = (*outer, value)
    rows = [_reader(place_in(name, form, k), meaning, inside)(part) for k, (part, meaning) in enumerate(parts)]
    return StructureArg(form, tuple([kind for kind, _ in rows])), _first_in_rank(place for _, place in rows)


def _check_form(name: str, value: Any, form: Form, outer: Sequence[Any]) -> None:
    """Refuse what holds itself, directly or not, or too much."""
    if any(value is each for each in outer):
        raise ArgumentError(UnsupportedArgument(name, f"{form}, which holds itself", "pass what ends"))
    if form.count > _MOST_PARTS or len(outer) > _DEEPEST:
        raise ArgumentError(UnsupportedArgument(name, str(form), _way_out(name, value)))


def _constant(name: str, value: Any, meaning: _Constexpr) -> Typed:
    """Return the type of a part that is known at compile time."""
    allowed = classes_of(meaning.type) if meaning.type is not ... else (object,)
    if allowed is None or not is_instance(value, allowed):
        raise ArgumentError(WrongStructure(name, f"a {meaning}", describe(value)))
    try:
        hash(value)
        return ConstantArg(freeze(value), value), None
    except Exception:  # of the user's `__hash__`, or there is none
        hint = "hold arrays, numbers, None, tuples, lists, NamedTuples, dataclasses, and values with a hash"
        raise ArgumentError(UnsupportedArgument(name, describe(value), hint)) from None


def type_of_example(name: str, value: Any, outer: Sequence[Any] = ()) -> Any:
    """Return what an example given to `.specialize` says of a parameter, or of a part; None for a leaf that is no argument."""
    kind = type(value)  # `isinstance` would ask the object
    said = strip(value) if kind.__module__ == "typing" or issubclass(kind, _ANNOTATIONS) else value
    if issubclass(type(said), Tensor | Pointer | DType | Optional | PartsMarker):
        return said
    form = form_of(value)
    if form is None:
        return None
    _check_form(name, value, form, outer)
    if form.listed is not None:
        return PartsMarker(form.kind, tuple(zip(form.names or (), said_of_parts(form, None, {}))), listed=form.listed)
    keys: Sequence[Any] = form.names or range(form.count)
    places = [place_in(name, form, place) for place in range(form.count)]
    parts = [_part_of_example(*row, (*outer, value)) for row in zip(places, held_by(value, form))]
    return PartsMarker(form.kind, tuple(zip(keys, parts)), axes=form.axes, packed=form.packed)


def _part_of_example(name: str, value: Any, outer: Sequence[Any]) -> Any:
    said = None if issubclass(type(value), type) else type_of_example(name, value, outer)
    return said if said is not None else Example(_without_annotation(name, value, outer)[0])


def leaves_of(values: Mapping[str, Any], types: Mapping[str, ArgType]) -> list[Any]:
    """Return the leaves of arguments of these types, by name, in order. Raises ArgumentError where one has changed since."""
    found: list[Any] = []
    for name, kind in types.items():
        value = values[name]
        if isinstance(kind, StructureArg):
            form = kind.form
            if form_of(value, as_complex=form.is_complex) != form:
                raise ArgumentError(WrongStructure(name, str(form), describe(value)))
            places = [place_in(name, form, place) for place in range(form.count)]
            found += leaves_of(dict(zip(places, held_by(value, form))), dict(zip(places, kind.parts)))
        elif not isinstance(kind, ConstantArg):
            found.append(value)
    return found


def default_type(meaning: Any) -> ArgType | None:
    """Return the type that an annotation alone gives an argument: arrays are taken to have no gaps. None: it says none."""
    if isinstance(meaning, Optional):
        meaning = meaning.inner
    if isinstance(meaning, DType):
        return ScalarArg(meaning)
    if isinstance(meaning, Example):
        return meaning.type  # type: ignore[no-any-return]
    if not isinstance(meaning, PartsMarker):
        return declared_array(meaning)
    parts = [default_type(part) for _, part in meaning.parts]
    if meaning.is_repeated or None in parts:
        return None
    is_by_place = issubclass(meaning.kind, tuple | list) and not is_named_tuple(meaning.kind)
    names = None if is_by_place else tuple([str(key) for key, _ in meaning.parts])
    form = Form(meaning.kind, names, len(parts), meaning.axes, meaning.packed, meaning.listed)
    return StructureArg(form, tuple(parts))  # type: ignore[arg-type]


def launch_parameter(name: str, kind: ArgType, meaning: Any, leaf: Iterator[int]) -> LaunchParameter:
    """Return what native launchers read an argument of this type by. leaf: gives each leaf its number."""
    meaning = meaning.inner if isinstance(meaning, Optional) else meaning
    if isinstance(kind, ConstantArg):
        return LaunchParameter(name, ..., None, expected=kind.value)
    if not isinstance(kind, StructureArg):
        return LaunchParameter(name, ..., next(leaf), isinstance(meaning, DType))
    form = kind.form
    structure = meaning if isinstance(meaning, PartsMarker) else None
    said = said_of_parts(form, structure, marked_parts(form.kind))
    names = form.names or ("",) * form.count
    parts = [launch_parameter(*row, leaf) for row in zip(names, kind.parts, said)]
    expected, slots = form.kind, count_slots(form)
    return LaunchParameter(name, ..., None, expected=expected, parts=tuple(parts), slots=slots, axes=form.axes)


def _way_out(name: str, value: Any) -> str:
    """Say what to do about an argument that kernels do not take."""
    if name == "self":
        return OF_AN_OBJECT
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return f"its bytes are in the order of other machines: pass {name}.astype({name}.dtype.newbyteorder('='))"
    if isinstance(value, list | tuple | array | memoryview | bytearray):
        return f"pass np.asarray({name}), or make it a constexpr parameter"
    return "pass arrays and numbers of supported dtypes, or make it a constexpr parameter"
