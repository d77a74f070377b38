"""A Python module that calls an exported library by ctypes, with NumPy arrays for the CPU, without stagekit.

It is a template: a wheel ships it beside the shared library (`docs/export.md`).
"""

from __future__ import annotations

from collections.abc import Sequence

from stagekit.exporting.c_source import ABI_VERSION
from stagekit.exporting.entries import ExportedKernel
from stagekit.exporting.runtime_source import filled
from stagekit.signature import ArraySpec, ScalarSpec

_HEAD = '''"""Kernels of the library `@name@`, compiled by stagekit @VERSION@. Generated: exporting again
writes it anew.

Functions take NumPy arrays and numbers as the kernels do, and raise `KernelError`.
"""

import ctypes
import pathlib

import numpy as np

_library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("lib@name@.so")))
_library.@name@_message.restype = ctypes.c_char_p
if _library.@name@_abi_version() != @ABI@:
    raise ImportError("lib@name@.so is of another version of this interface")


class KernelError(RuntimeError):
    """A launch that was refused. status: what the C function returned."""

    def __init__(self, status, names):
        self.status, place = status, status >> 8
        at_fault = f"`{names[place - 1]}`: " if 0 < place <= len(names) else ""
        super().__init__(at_fault + _library.@name@_message(status).decode())


class _Size(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


class _Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p))


def _array(value, name, dtype, rank, is_written):
    if not isinstance(value, np.ndarray) or value.dtype.name != dtype or (rank is not None and value.ndim != rank):
        wanted = "" if rank is None else f" of rank {rank}"
        raise TypeError(f"`{name}` is an array{wanted} of {dtype}, got {getattr(value, 'dtype', type(value).__name__)}")
    if is_written and not value.flags.writeable:
        raise ValueError(f"`{name}` is written, and the array is read-only")
    if any(step % value.itemsize for step in value.strides):
        raise ValueError(f"`{name}` has strides that are no whole numbers of elements")
    shape = (ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
    strides = (ctypes.c_int64 * max(value.ndim, 1))(*[step // value.itemsize for step in value.strides])
    found = _Array(value.ctypes.data, ctypes.addressof(shape), ctypes.addressof(strides))
    found.keep = value, shape, strides
    return found


def _size(value):
    return _Size(*(*(value if isinstance(value, tuple) else (value,)), 1, 1)[:3])


def _call(function, names, *arguments):
    given = [ctypes.byref(each) if isinstance(each, _Array) else each for each in arguments]
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
            passed.append(f"ctypes.c_{parameter.type.removesuffix('_t')}({parameter.name})")
            continue
        rank = spec.rank if isinstance(spec, ArraySpec) else None
        passed.append(f"_array({parameter.name}, {parameter.name!r}, {spec.dtype.name!r}, {rank}, {spec.is_written})")
    taken += kernel.sizes
    passed += [f"_size({each})" for each in kernel.sizes]
    if kernel.takes_shared_bytes:
        taken.append("shared_bytes")
        passed.append("ctypes.c_uint32(shared_bytes)")
    names = tuple(parameter.name for parameter in kernel.parameters)
    call = ", ".join([f"_library.{name}_{kernel.name}_cpu", repr(names), *passed, "None"])
    text = f"{kernel.name}{kernel.signature}".replace("\\", "\\\\").replace('"', "'")
    return f'def {kernel.name}({", ".join(taken)}):\n    """{text}."""\n    _call({call})\n'
