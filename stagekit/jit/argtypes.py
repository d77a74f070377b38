"""The types of a call's arguments: what a specialisation is compiled for, and where it runs.

One reader per parameter is made once, from the annotation; a call goes through them in order. A call that does not bind to the
parameters is refused here, before anything is traced; a value that does not fit is left to the launch to report.
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import StagekitError, shown
from stagekit.dtypes import DType, dtype_from_numpy
from stagekit.frontend.errors import UnsupportedArgument
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.parameters import ArgType, ArrayArg, NoneArg, Parameter, Parameters, ScalarArg
from stagekit.runtime.args import OF_AN_OBJECT, Binder, Unreadable, describe, read_array
from stagekit.runtime.errors import ArgumentError, UnreadableArray
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
        places = [place for _, place in rows if place is not None]
        return tuple(kind for kind, _ in rows), min(places, key=lambda device: _RANKS.index(device.kind), default=CPU)


# Whose memory decides: a GPU's own before memory that both sides can reach, since only the GPU reaches all of them.
_RANKS: tuple[DeviceKind, ...] = ("cuda", "other", "cpu", "pinned", "managed")


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


def _reader(name: str, meaning: Any) -> Reader:
    """Return what tells the type of an argument for a parameter whose annotation means this."""
    if isinstance(meaning, Optional):
        inner = _reader(name, meaning.inner)
        return lambda value: _NONE if value is None else inner(value)
    if isinstance(meaning, DType):
        fixed = (ScalarArg(meaning), None)
        return lambda value: fixed
    packed = declared_array(meaning)
    if packed is None:
        return lambda value: _without_annotation(name, value)
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
    except (AttributeError, IndexError, TypeError):
        return None


def _slot_value(slot: ParamSlot, value: Any) -> Any:
    if slot.kind == "value":
        return value if slot.dtype.is_float else int(value)
    view: Any = view_of(value)
    return view.address if slot.kind == "address" else (view.shape if slot.kind == "size" else view.strides)[slot.axis]


def _without_annotation(name: str, value: Any) -> Typed:
    """Return the type of an argument. Where it cannot be told, the error says what its own methods raised."""
    try:
        found = _own_type(value)
    except StagekitError:
        raise
    except Exception as error:
        raise ArgumentError(UnreadableArray(name, describe(value), str(error) or type(error).__name__)) from error
    if found is None:
        raise ArgumentError(UnsupportedArgument(name, describe(value), _way_out(name, value)))
    return found


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
    elif type(value) is np.ndarray and (dtype := dtype_from_numpy(value.dtype)) is not None:
        return ArrayArg(dtype, value.ndim, value.flags.c_contiguous), CPU
    elif (view := read_array(value)) is not None and isinstance(view.dtype, DType):
        return ArrayArg(view.dtype, len(view.shape), view.is_contiguous), view.device
    else:  # an IntEnum counts as the number that it is
        derived = next((_PYTHON_NUMBERS[base] for base in (int, float) if isinstance(value, base)), None)
        return None if derived is None else (derived, None)
    return None


def _way_out(name: str, value: Any) -> str:
    """Say what to do about an argument that kernels do not take."""
    if name == "self":
        return OF_AN_OBJECT
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return f"its bytes are in the order of other machines: pass {name}.astype({name}.dtype.newbyteorder('='))"
    if isinstance(value, list | tuple | array | memoryview | bytearray):
        return f"pass np.asarray({name}), or make it a constexpr parameter"
    return "pass arrays and numbers of supported dtypes, or make it a constexpr parameter"
