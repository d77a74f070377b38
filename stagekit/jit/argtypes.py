"""The types of a call's arguments: what a specialisation is compiled for, and where it runs.

One reader per parameter is made once, from the annotation; a call goes through them in order. What does not fit is left to the
launch to report: it has the whole signature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.dtypes import DType, dtype_from_numpy
from stagekit.frontend.errors import UnsupportedArgument
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.parameters import ArgType, ArrayArg, NoneArg, Parameter, ScalarArg
from stagekit.runtime.args import describe, read_array
from stagekit.runtime.errors import ArgumentError
from stagekit.runtime.views import CPU, Device

Typed = tuple[ArgType, Device | None]
Reader = Callable[[Any], Typed]

_NONE: Typed = (NoneArg(), None)
_PLAIN = {bool: ScalarArg(dtypes.bool_), int: ScalarArg(dtypes.int32), float: ScalarArg(dtypes.float32)}


class ArgumentTypes:
    """Reads the types of the run-time arguments of one specialisation. meanings: what annotates each, or None."""

    def __init__(self, parameters: Sequence[Parameter], meanings: Mapping[str, Any]) -> None:
        self.names = tuple(p.name for p in parameters)
        self._defaults = tuple(None if p.default is ... else p.default for p in parameters)
        self._readers = tuple(_reader(name, meanings[name]) for name in self.names)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Arguments in parameter order, defaults filled in; a missing one is None."""
        if not kwargs and len(args) == len(self.names):
            return args
        given = {**dict(zip(self.names, args)), **kwargs}
        return [given.get(name, default) for name, default in zip(self.names, self._defaults)]

    def of(self, values: Sequence[Any]) -> tuple[tuple[ArgType, ...], Device]:
        """The types, and the device of the first array (the CPU without arrays)."""
        device: Device | None = None
        found: list[ArgType] = []
        for read, value in zip(self._readers, values):
            kind, place = read(value)
            found.append(kind)
            if device is None:
                device = place
        return tuple(found), device or CPU


def _reader(name: str, meaning: Any) -> Reader:
    if isinstance(meaning, Optional):
        inner = _reader(name, meaning.inner)
        return lambda value: _NONE if value is None else inner(value)
    if isinstance(meaning, DType):
        fixed = (ScalarArg(meaning), None)
        return lambda value: fixed
    if isinstance(meaning, Pointer):
        pointer = ArrayArg(meaning.dtype, 1, True)
        return lambda value: (pointer, _place(value))
    if isinstance(meaning, Tensor):
        return _tensor_reader(meaning)
    return lambda value: _any(name, value)


def _place(value: Any) -> Device | None:
    if type(value) is np.ndarray:
        return CPU
    view = read_array(value)
    return view.device if view is not None else None


def _tensor_reader(meaning: Tensor) -> Reader:
    rank = len(meaning.shape)
    packed, strided = (ArrayArg(meaning.dtype, rank, is_contiguous) for is_contiguous in (True, False))

    def read(value: Any) -> Typed:
        if type(value) is np.ndarray:
            return (packed if value.flags.c_contiguous else strided), CPU
        view = read_array(value)
        if view is None:
            return packed, None
        return (packed if view.is_contiguous else strided), view.device

    return read


def _any(name: str, value: Any) -> Typed:
    """Without annotation: the value's own type, which never depends on how large it is."""
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain, None
    if value is None:
        return _NONE
    if isinstance(value, np.generic):
        dtype = dtype_from_numpy(value.dtype)
        if dtype is not None:
            return ScalarArg(dtype), None
    elif (view := read_array(value)) is not None and isinstance(view.dtype, DType):
        return ArrayArg(view.dtype, len(view.shape), view.is_contiguous), view.device
    hint = "pass arrays and numbers of supported dtypes, or make it a constexpr parameter"
    raise ArgumentError(UnsupportedArgument(name, describe(value), hint))
