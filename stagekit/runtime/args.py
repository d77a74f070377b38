"""The arguments of a launch: which is whose, by Python's own rules, and what an array is, whoever made it: NumPy, stagekit,
torch, and whatever speaks DLPack or `__cuda_array_interface__` (CuPy, JAX, Numba, Warp).

    bind = Binder("scale", ("x", "factor"), (..., ...), 0, ("x", "factor: float32"))
    bind((x,), {"factor": 2.0})         [x, 2.0]
    bind((x,), {"facter": 2.0})         error: no parameter `facter`; did you mean `factor`?
    read_array(np.ones((2, 3), "f4"))   ArrayView(address, (2, 3), (3, 1), float32, CPU, is_writable=True)
    read_array([1, 2])                  None

How an object is read is decided once per type. torch has a short cut through its own methods: at 1 µs per tensor it costs a third
of a DLPack capsule.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from stagekit import native_tables
from stagekit.diagnostics import Diagnostic, Note, StagekitError, closest, shown
from stagekit.dtypes import ELEMENT_DTYPES, DType, element_dtype
from stagekit.runtime import driver, native_process, views
from stagekit.runtime.errors import ArgumentError, DuplicateArgument, MissingArgument, TooManyArguments, UnknownArgument
from stagekit.runtime.views import CPU, ArrayView, Device


class Binder:
    """Puts the arguments of a call in the order of the parameters. Built once per kernel.

    defaults: `...` where a parameter has none. keyword_only: how many of the last parameters cannot be given by position. texts:
    each parameter as the errors show it.
    """

    def __init__(
        self, kernel: str, names: Sequence[str], defaults: Sequence[Any], keyword_only: int, texts: Sequence[str]
    ) -> None:
        self._kernel = kernel
        self._names = tuple(names)
        self._defaults = defaults
        self.keyword_only = keyword_only
        self._positional = len(names) - keyword_only
        self._texts = texts

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return one value per parameter, or raise an `ArgumentError` that shows the signature."""
        if not kwargs and len(args) == len(self._names) == self._positional:
            return args
        if len(args) > self._positional:
            raise self._error(TooManyArguments(self._kernel, self._positional, len(args)))
        for name in kwargs:
            if name in self._names[: len(args)]:
                raise self._error(DuplicateArgument(name, self._kernel))
            if name not in self._names:
                raise self._error(UnknownArgument(self._kernel, name, self._advice(name)))
        values = [*args, *(kwargs.get(n, d) for n, d in list(zip(self._names, self._defaults))[len(args) :])]
        missing = [f"`{name}`" for name, value in zip(self._names, values) if value is ...]
        if missing:
            raise self._error(MissingArgument(self._kernel, ", ".join(missing)))
        return values

    def _advice(self, name: str) -> str:
        if close := closest(name, self._names):
            return f"did you mean `{close}`?"
        names = ", ".join(f"`{name}`" for name in self._names)
        return f"the parameters are {names}" if names else "it has no parameters"

    def _error(self, diagnostic: Diagnostic) -> ArgumentError:
        texts = list(self._texts)
        if self.keyword_only:
            texts.insert(self._positional, "*")
        notes = [Note(f"the signature is {self._kernel}({', '.join(texts)})")]
        if self._names[:1] == ("self",):
            notes.append(Note(f"a kernel is not bound to an object: {OF_AN_OBJECT}"))
        return ArgumentError(diagnostic, notes=tuple(notes))


class Leaves(tuple[Any, ...]):
    """The arguments of a launch where some hold others: the leaves, one for each row of the signature.

    whole: the arguments that hold others, by name, as grid functions see them.
    """

    whole: Mapping[str, Any]

    def __new__(cls, leaves: Sequence[Any], whole: Mapping[str, Any]) -> Self:
        made = super().__new__(cls, leaves)
        made.whole = whole
        return made


OF_AN_OBJECT = "annotate `self: sk.constexpr` and pass the object first, or let a closure capture what is needed of it"

# Arrays -------------------------------------------------------------------------------------------------------------

StreamOf = Callable[[int], int]
"""From a device number to the CUDA stream on which the launch will run."""

Reader = Callable[[Any, StreamOf | None], ArrayView]


class Unreadable(BufferError):
    """An array that its owner does not let us see, in the owner's words."""


def read_array(value: Any, stream_of: StreamOf | None = None) -> ArrayView | None:
    """Return a view of `value`, or None if it is no array. stream_of: for GPU launches, which the owner's own work must precede.

    Raises Unreadable whatever the owner's methods raise.
    """
    reader = _reader_of(value)
    if reader is None:
        return None
    try:
        return reader(value, stream_of)
    except StagekitError:
        raise
    except Exception as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def _reader_of(value: Any) -> Reader | None:
    """Return how this object is read. One that raises when it is asked is no array."""
    try:
        reader = _reader_for(type(value))  # type: ignore[arg-type]  # mypy takes types for unhashable
        if reader is None and isinstance(value.__cuda_array_interface__, dict):  # of this object, not of its type
            return _read_cuda_interface
    except Exception:
        return None
    return reader


@functools.lru_cache(maxsize=256)
def _reader_for(kind: type) -> Reader | None:
    """Return how objects of this type are read: the first way that fits."""
    if issubclass(kind, np.ndarray):
        return _read_numpy
    if issubclass(kind, np.generic):
        return None
    torch = sys.modules.get("torch")
    # Subclasses may hold something else than their memory shows, and go through DLPack.
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        native_process.offer_exchange(kind, is_torch=True)
        return _read_torch
    if hasattr(kind, "__stagekit_view__"):
        return lambda array, _: array.__stagekit_view__()
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        if "__dlpack_c_exchange_api__" in vars(kind):  # an inherited one may not fit
            native_process.offer_exchange(kind, is_torch=False)
        return _read_dlpack
    return _read_cuda_interface if hasattr(kind, "__cuda_array_interface__") else None


_DATA = native_tables.NDARRAY["data"]

address_of: Callable[[Any], int] = (
    (lambda array: ctypes.c_size_t.from_address(id(array) + _DATA).value)
    if native_process.has_array_layout()
    else (lambda array: array.ctypes.data)
)
"""Return the address of an array's first element. NumPy's own attribute costs ten times as much, and leaves garbage."""


def _read_numpy(array: np.ndarray[Any, Any], _: StreamOf | None) -> ArrayView:
    dtype = element_dtype(array.dtype) or str(array.dtype)
    strides = views.element_strides(array.shape, array.strides, array.itemsize)
    return ArrayView(address_of(array), array.shape, strides, dtype, CPU, array.flags.writeable)


def _read_torch(tensor: Any, stream_of: StreamOf | None) -> ArrayView:
    device = tensor.device
    if tensor.is_neg():  # torch would hand it out as it lies in memory
        raise BufferError("it stands for the negative of what is in its memory: pass tensor.resolve_neg()")
    if device.type not in ("cpu", "cuda") or tensor.is_conj():
        return views.peek(tensor, stream_of)[0]
    where = CPU if device.type == "cpu" else Device("cuda", device.index)
    dtype = _torch_dtypes().get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")
    return ArrayView(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), dtype, where, is_writable=True)


@functools.cache
def _torch_dtypes() -> dict[Any, DType]:
    torch = sys.modules["torch"]
    return {getattr(torch, d.name): d for d in ELEMENT_DTYPES if hasattr(torch, d.name)}


def _read_dlpack(array: Any, stream_of: StreamOf | None) -> ArrayView:
    view, is_versioned = views.peek(array, stream_of)
    native_process.offer_capsules(type(array), id(cupy_stream) if _is_cupy(array) else 0, is_versioned=is_versioned)
    return view


def _read_cuda_interface(array: Any, _: StreamOf | None) -> ArrayView:
    """Read by the CUDA Array Interface, version 3. It does not say which device: the driver knows by the address."""
    interface = array.__cuda_array_interface__
    address, is_read_only = interface["data"]
    numpy_dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    steps = views.c_strides(shape) if strides is None else views.element_strides(shape, strides, numpy_dtype.itemsize)
    dtype = element_dtype(numpy_dtype) or str(numpy_dtype)
    device = Device("cuda", driver.device_of_address(address) if address else 0)
    return ArrayView(address, shape, steps, dtype, device, not is_read_only, stream=interface.get("stream"))


# Streams ------------------------------------------------------------------------------------------------------------


def owners_stream(arguments: Sequence[Any]) -> StreamOf | None:
    """Return what gives the current stream of the library of the first array that has such a thing, or None.

    Native launchers go by the same rule.
    """
    for argument in arguments:
        if _is_cupy(argument):
            return cupy_stream
        address = native_process.stream_of((argument,)) if native_process.is_available() else 0
        if address:
            return functools.partial(_ask_stream, address)
    return None


_ASK_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t))


def _ask_stream(function: int, device: int) -> int:
    """Return the stream that an exchange API's `current_work_stream` names on a GPU."""
    found = ctypes.c_size_t()
    if _ASK_STREAM(function)(2, device, found):
        raise BufferError("the owner of an array cannot tell its current stream")
    return found.value


def _is_cupy(value: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def cupy_stream(device: int) -> int:
    """Return CuPy's current stream on a device. Machine code calls this too, as CuPy has no exchange API."""
    return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)


# Words --------------------------------------------------------------------------------------------------------------


def describe(value: Any) -> str:
    """Return what a user passed, for an error text: "an array of float64 (shape (10,))", "3.5 (float)". Never raises."""
    kind = type(value)  # not `isinstance`, which asks the object for its class
    if value is None:
        return "None"
    if issubclass(kind, (bool, int, float, complex, str, np.generic)):
        text = str(value) if kind.__module__ == "numpy" else shown(value)
        return f"{text if len(text) <= 40 else f'{text[:37]}...'} ({kind.__name__})"
    if issubclass(kind, np.ndarray):
        with contextlib.suppress(Unreadable):
            return str(read_array(value))
    what = "an object" if _reader_of(value) is None else "an array"
    return f"{what} of type {kind.__name__}"
