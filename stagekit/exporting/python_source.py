"""A Python module that calls an exported library by ctypes, with NumPy arrays for the CPU, without stagekit.

It is a template: a wheel ships it beside the shared library (`docs/export.md`).
"""

from __future__ import annotations

from collections.abc import Sequence

from stagekit.exporting.c_source import ABI_VERSION
from stagekit.exporting.entries import CParameter, ExportedKernel, form_of
from stagekit.exporting.runtime_source import filled
from stagekit.signature import ArraySpec, ScalarSpec

_HEAD = '''"""Kernels of the library `@name@`, compiled by stagekit @VERSION@. Generated: exporting again
writes it anew.

Functions take NumPy arrays and numbers as the kernels do, and raise `KernelError`.
"""

import ctypes as _ctypes
import math as _math
import operator as _operator
import pathlib as _pathlib

import numpy as _np

_library = _ctypes.CDLL(str(_pathlib.Path(__file__).with_name("lib@name@.so")))
_library.@name@_message.restype = _ctypes.c_char_p
if _library.@name@_abi_version() != @ABI@:
    raise ImportError("lib@name@.so is of another version of this interface")


class KernelError(RuntimeError):
    """A launch that was refused. status: what the C function returned."""

    def __init__(self, status, names):
        self.status, place = status, status >> 8
        at_fault = f"`{names[place - 1]}`: " if 0 < place <= len(names) else ""
        super().__init__(at_fault + _library.@name@_message(status).decode())


class _Size(_ctypes.Structure):
    _fields_ = (("x", _ctypes.c_uint32), ("y", _ctypes.c_uint32), ("z", _ctypes.c_uint32))


class _Array(_ctypes.Structure):
    _fields_ = (("data", _ctypes.c_void_p), ("shape", _ctypes.c_void_p), ("strides", _ctypes.c_void_p))


def _array(value, name, dtype, rank, is_written):
    is_such = isinstance(value, _np.ndarray) and value.dtype.name == dtype and value.dtype.isnative
    if not is_such or (rank is not None and value.ndim != rank):
        wanted = "" if rank is None else f" of rank {rank}"
        raise TypeError(f"`{name}` is an array{wanted} of {dtype}, got {getattr(value, 'dtype', type(value).__name__)}")
    if isinstance(value, _np.ma.MaskedArray):
        raise TypeError(f"`{name}` is a masked array, of whose mask kernels know nothing: pass its data, or filled")
    if is_written and not value.flags.writeable:
        raise ValueError(f"`{name}` is written, and the array is read-only")
    if any(step % value.itemsize for step in value.strides):
        raise ValueError(f"`{name}` has strides that are no whole numbers of elements")
    shape = (_ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
    strides = (_ctypes.c_int64 * max(value.ndim, 1))(*[step // value.itemsize for step in value.strides])
    found = _Array(value.ctypes.data, _ctypes.addressof(shape), _ctypes.addressof(strides))
    found.keep = value, shape, strides
    return found


def _integer(value, name, low, high):
    try:
        number = int(value) if isinstance(value, _np.bool_) else _operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is an integer from {low} to {high}, got {value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"`{name}` is an integer from {low} to {high}, got {value!r}")
    return number


def _float(value, name):
    try:
        if isinstance(value, (_np.ndarray, _np.complexfloating)):
            raise TypeError
        return value.__float__()
    except (AttributeError, TypeError, OverflowError):
        raise TypeError(f"`{name}` is a float, got {value!r}") from None


def _bits(value, name, width, digits, lowest, beyond):
    """Return the bits of the nearest float of `width` bits. digits: of its fraction; lowest: the exponent
    of its least normal number; beyond: the bits of what is larger than all of its numbers."""
    number = _float(value, name)
    if not _math.isfinite(number):
        found = beyond | (number != number) << digits - 1
    else:
        exponent = max(_math.frexp(number)[1] - 1, lowest) if number else lowest
        steps = round(abs(number) * 2.0 ** (digits - exponent))
        found = min((exponent - lowest << digits) + steps, beyond)
    return found | (_math.copysign(1.0, number) < 0) << width - 1


def _size(value, name):
    axes = value if isinstance(value, (tuple, list)) else (value,)
    if len(axes) > 3:
        raise TypeError(f"`{name}` is an integer, or up to three of them, got {value!r}")
    return _Size(*[_integer(each, name, 0, 2**32 - 1) for each in (*axes, 1, 1, 1)[:3]])


def _call(function, names, *arguments):
    given = [_ctypes.byref(each) if isinstance(each, _Array) else each for each in arguments]
    status = function(*given)
    if status:
        raise KernelError(status, names)
'''


def python_module(name: str, version: str, kernels: Sequence[ExportedKernel]) -> str:
    """Return the text of the module: a function for each kernel on the CPU. version: stagekit's."""
    head = filled(_HEAD, name, VERSION=version, ABI=ABI_VERSION)
    return "\n\n".join([head, *(_function(name, kernel) for kernel in kernels if kernel.target == "cpu")])


def _function(name: str, kernel: ExportedKernel) -> str:
    taken, passed = [], []
    for parameter in kernel.parameters:
        spec = parameter.spec
        taken.append(parameter.name)
        if isinstance(spec, ScalarSpec):
            passed.append(_number(parameter))
            continue
        rank = spec.rank if isinstance(spec, ArraySpec) else None
        passed.append(f"_array({parameter.name}, {parameter.name!r}, {spec.dtype.name!r}, {rank}, {spec.is_written})")
    taken += kernel.sizes
    passed += [f"_size({each}, {each!r})" for each in kernel.sizes]
    if kernel.takes_shared_bytes:
        taken.append("shared_bytes")
        passed.append("_ctypes.c_uint32(_integer(shared_bytes, 'shared_bytes', 0, 2**32 - 1))")
    names = tuple(parameter.name for parameter in kernel.parameters)
    call = ", ".join([f"_library.{name}_{kernel.name}_cpu", repr(names), *passed, "None"])
    text = f"{kernel.name}{kernel.signature}".replace("\\", "\\\\").replace('"', "'")
    return f'def {kernel.name}({", ".join(taken)}):\n    """{text}."""\n    _call({call})\n'


def _number(parameter: CParameter) -> str:
    """Return what makes a number of C of an argument, or refuses it: ctypes itself would cut off what does not fit."""
    kind = parameter.type.removesuffix("_t")
    if kind in ("float", "double"):
        return f"_ctypes.c_{kind}(_float({parameter.name}, {parameter.name!r}))"
    if parameter.spec.dtype.is_float:
        form = ", ".join(map(str, form_of(parameter.spec.dtype)))
        return f"_ctypes.c_{kind}(_bits({parameter.name}, {parameter.name!r}, {form}))"
    bits = int(kind.removeprefix("u").removeprefix("int"))
    low, high = ("0", f"2**{bits} - 1") if kind.startswith("u") else (f"-(2**{bits - 1})", f"2**{bits - 1} - 1")
    if parameter.spec.dtype.kind == "bool":
        high = "1"
    return f"_ctypes.c_{kind}(_integer({parameter.name}, {parameter.name!r}, {low}, {high}))"
