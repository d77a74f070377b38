"""What the plain functions of the shelf ask of arrays, whichever library they come from, before they launch a kernel."""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

import stagekit as sk
from stagekit.kernels.options import Dtype as Dtype
from stagekit.kernels.options import checked

MAX_TILE = 32768  # elements of a row that one program holds at once: 32 in each of 1024 threads
STREAMED_TILE = 4096  # elements of a tile of a longer row, which passes through in several
REREAD_TILE = 128  # elements of a tile of a row that is read several times on the CPU
FLOATS = (sk.float32, sk.float16, sk.bfloat16)  # what is computed with in float32


_KEPT = 1024  # kernels of a factory, and functions that are settled
P = ParamSpec("P")
R = TypeVar("R")


def factory(function: Callable[P, R]) -> Callable[P, R]:
    """Make a factory check its options, and give the same kernel for the same ones, of which it keeps the last 1024.

    They are checked when a kernel is made: a tuple that is equal to one of before, as (1.0, 2) is to (1, 2), gives its kernel.
    """
    made: Callable[..., R] = function

    def fresh(*args: Any, **kwargs: Any) -> R:
        taken = checked(function, args, kwargs)
        is_as_given = len(taken) == len(args) and all(map(operator.is_, taken, args))
        return made(*args) if is_as_given else kept(*taken)

    cached = functools.lru_cache(_KEPT, typed=True)(fresh)  # True is equal to 1
    kept: Callable[..., R] = cached

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return kept(*args, **kwargs)
        except TypeError:
            checked(function, args, kwargs)  # it says which option has no hash
            raise

    make.forget = cached.cache_clear  # type: ignore[attr-defined]
    return make


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function keep its last 1024 results: what a call of a plain function works out from sizes, dtypes and strides.

    It is asked anew about what has no hash, which it refuses.
    """
    kept = functools.lru_cache(_KEPT)(function)

    @functools.wraps(function)
    def recall(*args: Any) -> R:
        try:
            return kept(*args)
        except TypeError:
            return cast(Callable[..., R], function)(*args)

    return cast(Callable[P, R], recall)


def settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return one function for all of the same code that hold equal numbers, such as those that a line with a lambda makes.

    It is a copy, whose variables nobody sets any more. `function` itself is returned where what it holds may change.
    """
    if type(function) is not types.FunctionType or vars(function):
        return function
    cells, named = function.__closure__ or (), function.__kwdefaults__ or {}
    try:
        held = tuple(cell.cell_contents for cell in cells)
    except ValueError:  # a variable that is not set yet
        return function
    values = (*held, *(function.__defaults__ or ()), *named.values())
    if not all(type(value) in _UNCHANGING for value in values):
        return function
    state = tuple((type(value), repr(value) if type(value) is float else value) for value in values)
    key = function.__code__, id(function.__globals__), tuple(named), len(function.__defaults__ or ()), state
    if (found := _settled.get(key)) is not None:
        return found
    of_code = function.__code__, function.__globals__, function.__name__, function.__defaults__
    copy = types.FunctionType(*of_code, tuple(map(types.CellType, held)))
    copy.__kwdefaults__ = dict(named) or None
    if len(_settled) >= _KEPT:
        _settled.clear()  # another thread may do so at any time
    return _settled.setdefault(key, copy)


_UNCHANGING = frozenset({bool, int, float, str, bytes, type(None), sk.DType, types.FunctionType, types.ModuleType})
_settled: dict[Any, types.FunctionType] = {}


def dtype_of(array: Any) -> sk.DType:
    """Return the dtype of an array of NumPy, torch, CuPy or stagekit."""
    if not getattr(array, "shape", ()):  # `is_array`, without a call
        require_array(array)
    return _dtype_like(array.dtype)


@functools.cache  # NumPy takes microseconds to name a dtype
def _dtype_like(dtype: Any) -> sk.DType:
    found = getattr(sk, str(dtype).rpartition(".")[2], None)  # "float32" of NumPy, "torch.float32" of torch
    if not isinstance(found, sk.DType):
        raise ValueError(
            f"got an array of {dtype}, of which there are no kernels: convert it to float32, or another dtype"
        )
    require(found.part is None, f"got an array of {found.name}: pass its real or imaginary parts")
    return found


def float_dtype_of(array: Any) -> sk.DType:
    """Return the dtype of an array, which must be one that float32 holds: what is computed from it is float32."""
    dtype = dtype_of(array)
    if dtype not in FLOATS:
        require(False, f"got an array of {dtype.name}: convert it to {', '.join(each.name for each in FLOATS)}")
    return dtype


def is_array(value: Any) -> bool:
    """Return whether this is an array of one axis or more. NumPy's numbers have a shape, too, of no axes."""
    return bool(getattr(value, "shape", ()))


def require_array(*arrays: Any) -> None:
    """Refuse what is no array, and an array without axes."""
    for array in arrays:
        if not getattr(array, "shape", ()):
            require(False, "an array of one axis or more is needed, got {!r}", array)


def numbers_beside(dtypes: Iterable[Dtype], inputs: Iterable[Any]) -> tuple[Any, ...]:
    """Return inputs of which a Python float beside arrays of these dtypes is float64, as one of them is: else it is float32."""
    is_double = sk.float64 in dtypes
    return tuple([np.float64(x) if is_double and type(x) is float else x for x in inputs])


def require_shape(name: str, array: Any, shape: Any) -> None:
    """Refuse an array of another shape, which may have as many rows all the same."""
    if getattr(array, "shape", None) != shape:
        require_array(array)
        require(False, "{} has shape {}: here it is {}", name, tuple(array.shape), tuple(shape))


def require(holds: bool, problem: str, *shown: Any) -> None:
    """Refuse a call for which a condition does not hold. shown: what `problem` has places for, as the text of an array takes
    longer than a launch, and waits for a GPU.
    """
    if not holds:
        raise ValueError(problem.format(*shown) if shown else problem)


def require_choice(name: str, value: Any, kind: Any, choices: Any) -> None:
    """Refuse an option of a factory that is not one of the choices, or only equal to one, such as 64.0."""
    holds = isinstance(value, kind) and value in choices
    told = f"from {choices[0]} to {choices[-1]}" if isinstance(choices, range) else " or ".join(map(str, choices))
    require(holds, "{} is {!r}: it is {}", name, value, told)


def empty_like(array: Any) -> Any:
    """Return a new array of the same library, device, shape and dtype, in C order, with arbitrary contents."""
    return empty(array, dtype=dtype_of(array), shape=tuple(array.shape))  # the dtype first: it refuses what is no array


def empty(like: Any, shape: tuple[int, ...], dtype: Dtype) -> Any:
    """Return a new array of this shape and dtype with arbitrary contents, of the library and on the device of `like`."""
    if isinstance(like, sk.cuda.DeviceArray):
        return sk.cuda.empty(shape, dtype, like.device)
    library = _library_of(type(like))
    if hasattr(like, "new_empty"):  # torch
        return like.new_empty(shape, dtype=getattr(library, dtype.name))
    return library.empty(shape, dtype.numpy)


@remembered
def _library_of(kind: type) -> Any:
    """Return the module of the library of arrays whose class this is, or from whose a user's class derives, among others."""
    modules = [sys.modules.get(each.__module__.partition(".")[0]) for each in kind.__mro__]
    return next((each for each in reversed(modules) if hasattr(each, "empty")), modules[0])


def is_on_cpu(array: Any) -> bool:
    """Return whether a launch with this array runs on the CPU: it is in the host's memory, and no GPU is asked to take a copy."""
    # torch has `is_cpu`, and takes long to say that it has no `__cuda_array_interface__`
    on_host = getattr(array, "is_cpu", None)
    if on_host is None:
        on_host = hasattr(array, "__array__") and not hasattr(array, "__cuda_array_interface__")
    return bool(on_host) and sk.target_for() != "cuda"


def room_of(array: Any) -> int:
    """Return the bytes of shared memory that a block may have on the GPU where a launch with this array runs."""
    room: int = gpu_of(array)["room"]
    return room


def gpu_of(array: Any) -> dict[str, Any]:
    """Return what blocks depend on, of the GPU where a launch with this array runs: its `room`, and if it is `by_warpgroups`."""
    return gpu_numbered(device_of(array))


def device_of(array: Any) -> int:
    """Return the number of the GPU where a launch with this array runs."""
    device = getattr(array, "device", 0)
    for number in (device, getattr(device, "index", None), getattr(device, "id", None)):  # ours, of torch, and of CuPy
        if type(number) is int:
            return number
    return 0


@functools.cache
def gpu_numbered(device: int) -> dict[str, Any]:
    """Return what `gpu_of` says of a GPU."""
    if not sk.cuda.is_available():
        return {"room": sys.maxsize, "by_warpgroups": False}
    return {"room": sk.cuda.max_shared_bytes(device), "by_warpgroups": sk.cuda.capability(device) == 90}


def as_rows(array: Any) -> Any:
    """Return a view of an array with two axes: the last one, and all before it as one."""
    shape = getattr(array, "shape", ())
    if len(shape) == 2:
        return array
    require_array(array)
    require_packed(array)
    return array.reshape((math.prod(array.shape[:-1]), array.shape[-1]))


def require_packed(array: Any) -> None:
    """Refuse an array with gaps between its elements, of which a view with other axes may be a copy."""
    shape = tuple(array.shape)
    require(is_packed(array), f"an array of shape {shape} has gaps: pass one of two axes, or without gaps")


def is_packed(array: Any) -> bool:
    """Return whether an array lies in C order without gaps."""
    if isinstance(array, sk.cuda.DeviceArray):
        return True
    return bool(array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous)


def power_of_two(length: int) -> int:
    """Return the least power of two that is at least `length`, and at least 1."""
    return 1 << max(length - 1, 0).bit_length()


def tile_for(columns: int) -> tuple[int, bool]:
    """Return the tile for rows of this length, and whether a row fits in it."""
    block = power_of_two(columns)
    return (block, True) if block <= MAX_TILE else (STREAMED_TILE, False)


def tile_near(x: Any, wide: int, narrow: int) -> tuple[int, bool]:
    """Return the tile for the rows of x, and whether a row fits in it.

    On the CPU what a tile keeps lies in memory. So a longer row than `wide`, or of 16 bits than `narrow`, which are converted
    each time, is read again from the cache instead, by tiles that stay in registers.
    """
    columns = x.shape[-1]
    if columns > (wide if dtype_of(x).bits == 32 else narrow) and is_on_cpu(x):
        return REREAD_TILE, False
    return tile_for(columns)


def tile_of(columns: int) -> int:
    """Return the tile for rows of this length of which nothing is kept: they pass through in one or more."""
    return min(STREAMED_TILE, power_of_two(columns))


def programs_for(elements: int, tile: int, most: int) -> int:
    """Return how many programs share elements of which each takes a tile at a time: one at least, and `most` at most."""
    return max(1, min(most, -(-elements // tile)))
