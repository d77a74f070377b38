"""The size of a launch: the grid, the block, and what the brackets mean.

    LaunchConfig(grid=(4, 5), block=128)      ->  grid (4, 5, 1), block (128, 1, 1), no dynamic shared memory
    k[4, 128] of a thread-level kernel        ->  grid 4, block 128
    k[4, 128] of a block-level kernel         ->  a grid of two axes

A block-level kernel takes a grid of one to three axes, a thread-level kernel takes `grid, block` and optionally dynamic
shared bytes and a stream, a kernel with its own `device_entry` takes no brackets. With a zero in any axis nothing runs. Limits
are those of CUDA (compute capability 7.5 to 12), on every target, so that a GPU accepts each launch that the CPU accepts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stagekit.artifact import Style
from stagekit.diagnostics import DIVISION, Loc, StagekitError, hide_frames, public_class, shown
from stagekit.frozen import frozen
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_CLUSTER_BLOCKS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.runtime import errors
from stagekit.runtime.errors import LaunchError
from stagekit.signature import PLAIN_LAUNCH, LaunchAttributes

Axes = tuple[int, int, int]
GridFunction = Callable[[Mapping[str, Any]], Any]
"""A grid computed at each launch from the constexprs and arguments by name: `lambda a: sk.ceildiv(a["n"], a["BLOCK"])`."""


@public_class
@dataclass(frozen=True)
class LaunchConfig:
    """Blocks and threads per axis x, y, z, dynamic shared bytes per block, and what a launch asks of a GPU beside its size.

    grid, block: an int or one to three of them, stored as three. Inside a kernel they may be run-time values; what is a number
    already is checked here.

    cluster: blocks that run together on neighbouring multiprocessors, per axis as the grid, which it divides; at most 8 in all
    (compute capability 9.0 or above). cooperative: all blocks run at the same time, or the launch is refused as GRID_TOO_LARGE;
    `grid_sync` asks for it by itself. programmatic: the launch may begin before the one in front of it in its stream has ended,
    for which the kernel waits by `cuda.griddepcontrol_wait()`; nothing finds out that it does not. Targets other than cuda run
    launches one after the other, and clusters only in the interpreter.
    """

    __stagekit_launch__ = True  # in a kernel the front end reads the fields itself: they may be run-time values

    grid: Any
    block: Any
    shared_bytes: Any = 0
    cluster: Any = 1
    cooperative: bool = False
    programmatic: bool = False

    def __post_init__(self) -> None:
        sizes = _sizes(self.grid, self.block, self.shared_bytes, _integer_or_run_time)
        for name, value in zip(("grid", "block", "shared_bytes"), sizes):
            object.__setattr__(self, name, value)
        object.__setattr__(
            self, "cluster", launch_attributes(self.cluster, self.cooperative, self.programmatic).cluster
        )

    @hide_frames
    def replace(self, **changes: Any) -> LaunchConfig:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


class LaunchSize(NamedTuple):
    """The size of a launch in numbers. blocks: how many are to be run; none if an axis of the grid or of the block is zero."""

    grid: Axes
    block: Axes
    shared_bytes: int
    blocks: int


@frozen()
class LaunchRequest:
    """What the brackets ask for. size: a size, or a function that computes it from the arguments by name; None without brackets.

    stream: None for the current one. block: that of a computed size. attributes: those of the brackets.
    """

    size: LaunchSize | Callable[[Mapping[str, Any]], LaunchSize] | None = None
    stream: Any = None
    block: Axes | None = None
    attributes: LaunchAttributes = PLAIN_LAUNCH


NO_BRACKETS = LaunchRequest()


def read_brackets(
    key: Any, style: Style, kernel: str, fixed_block: Axes | None, grid_axes: tuple[int, ...] = (0, 1, 2)
) -> LaunchRequest:
    """Return the meaning of `kernel[key]` for a kernel of this style. fixed_block: the one it was compiled for, if any.

    grid_axes: along which programs differ; any other axis of the grid must be 1.
    """
    attributes = PLAIN_LAUNCH
    if issubclass(type(key), LaunchConfig) and style != "entry":  # `isinstance` would ask the object for its class
        parts: tuple[Any, ...] = (key.grid, key.block, key.shared_bytes)
        attributes = launch_attributes(key.cluster, key.cooperative, key.programmatic)
    elif style == "block" and _is_grid(key):
        parts = (key, fixed_block)
    elif style == "thread" and issubclass(type(key), tuple) and 2 <= len(key) <= 4:
        parts = key
    else:
        raise _misfit(key, style, kernel)
    return _request(kernel, fixed_block, grid_axes, attributes, *parts)


def launch_attributes(cluster: Any, cooperative: Any, programmatic: Any) -> LaunchAttributes:
    """Return the checked attributes of a launch."""
    axes = _three_axes("cluster", cluster, _integer)
    blocks = math.prod(axes)
    if not 1 <= blocks <= MAX_CLUSTER_BLOCKS:
        raise LaunchError(errors.BadCluster(shown(cluster), blocks, MAX_CLUSTER_BLOCKS))
    for name, value in (("cooperative", cooperative), ("programmatic", programmatic)):
        if not isinstance(value, bool):
            raise _wrong_type(name, "True or False", shown(value))
    asked = LaunchAttributes(axes, cooperative, programmatic)
    return PLAIN_LAUNCH if asked == PLAIN_LAUNCH else asked


def check_cluster(kernel: str, grid: Axes, attributes: LaunchAttributes) -> None:
    """Refuse a grid that its clusters do not divide. One without blocks passes: it runs nothing."""
    for axis, blocks, together in zip("xyz", grid, attributes.cluster):
        if blocks % together and 0 not in grid:
            raise LaunchError(errors.ClusterMisfit(kernel, attributes.cluster, grid, together, blocks, axis))


def is_exact(key: Any) -> bool:
    """Return whether brackets equal to these always mean the same. Others do not: 1.0 and True equal 1, and a list may change."""
    kind = type(key)
    if kind is tuple:
        return all(each is None or is_exact(each) for each in key)
    return kind is int or kind is LaunchConfig


def exact_key(key: Any) -> Any:
    """Return brackets with Python's integers for NumPy's, and a handle, which does not keep its stream alive, for a stream.

    What other objects in them mean is seen at each launch. Raises LaunchError for what is no stream.
    """
    if type(key) is not tuple:
        return int(key) if isinstance(key, np.integer) else key
    parts = tuple(map(exact_key, key[:3]))
    return (*parts, *(each if each is None else stream_handle(each) for each in key[3:])) if len(key) <= 4 else key


def is_constant(key: Any) -> bool:
    """Return whether this very object, which may hold grid functions, always means the same."""
    return all(map(is_constant, key)) if type(key) is tuple else is_exact(key) or callable(key)


def launch_size(grid: Any, block: Any, shared_bytes: Any = 0) -> LaunchSize:
    """Return the checked size of a launch from ints or tuples of them."""
    grid, block, shared_bytes = _sizes(grid, block, shared_bytes, _integer)
    return LaunchSize(grid, block, shared_bytes, 0 if 0 in block else math.prod(grid))


_LAST_ADDRESS = (1 << 64) - 1  # a handle is one
_STREAM_PROTOCOL = 0  # the version of `__cuda_stream__`. Source: cuda.core, "Interoperability", CUDA stream protocol


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a user's stream: an int, or an object of cuda.core, torch, CuPy or Numba."""
    version, handle = _STREAM_PROTOCOL, None
    with contextlib.suppress(Exception):  # an object of the user's may raise anything
        version, handle = _protocol_of(stream)
    if version != _STREAM_PROTOCOL:
        expected = f"version {_STREAM_PROTOCOL} of the protocol `__cuda_stream__`"
        raise LaunchError(errors.NotAStream(expected, f"version {shown(version)} from {shown(stream)}"))
    if handle is None or not 0 <= handle <= _LAST_ADDRESS:
        raise LaunchError(errors.NotAStream("a CUDA stream or its handle", shown(stream)))
    return handle


def _protocol_of(stream: Any) -> tuple[Any, int | None]:
    """Return the version that a stream's protocol is of, and its handle; None if it is no stream."""
    if isinstance(stream, int):
        return _STREAM_PROTOCOL, None if isinstance(stream, bool) else int(stream)
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        version, handle, *_ = protocol() if callable(protocol) else protocol  # before cuda.core 1.0 it was an attribute
        return version, int(handle) if version == _STREAM_PROTOCOL else None
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        handle = getattr(stream, name, None)
        if handle is not None:
            return _STREAM_PROTOCOL, int(getattr(handle, "value", handle) or 0)
    return _STREAM_PROTOCOL, None


def check_block(kernel: str, fixed_block: Axes | None, block: Axes) -> None:
    """Refuse a block other than the one that the kernel was compiled for. A block without threads passes: it runs nothing."""
    if fixed_block is not None and block != fixed_block and 0 not in block:
        raise LaunchError(errors.BlockMismatch(kernel, fixed_block, block))


def _check_grid(kernel: str, size: LaunchSize, axes: tuple[int, ...]) -> None:
    """Refuse programs that would all do the same: more than one along an axis that the kernel does not look at."""
    for axis, count in enumerate(size.grid):
        if count > 1 and axis not in axes and size.blocks:
            raise LaunchError(errors.SameProgram(kernel, size.grid, count, axis))


def missing_brackets(style: Style, kernel: str) -> LaunchError:
    """Return the error for a launch without brackets of a kernel that needs them."""
    return LaunchError(
        errors.BracketsMisfit(f"{kernel}(...)", kernel, _TAKES[style], _HOW_TO_WRITE[style].format(kernel))
    )


def _request(
    kernel: str,
    fixed_block: Axes | None,
    grid_axes: tuple[int, ...],
    attributes: LaunchAttributes,
    grid: Any,
    block: Any,
    shared_bytes: Any = 0,
    stream: Any = None,
) -> LaunchRequest:
    if stream is not None:
        stream_handle(stream)  # refuses a wrong one here, on every target
    size = launch_size(0 if callable(grid) else grid, block, shared_bytes)
    check_block(kernel, fixed_block, size.block)
    if not callable(grid):
        _check_grid(kernel, size, grid_axes)
        check_cluster(kernel, size.grid, attributes)
        return LaunchRequest(size, stream, attributes=attributes)

    def computed_size(by_name: Mapping[str, Any]) -> LaunchSize:
        computed = launch_size(_computed_grid(grid, by_name), size.block, size.shared_bytes)
        _check_grid(kernel, computed, grid_axes)
        check_cluster(kernel, computed.grid, attributes)
        return computed

    return LaunchRequest(computed_size, stream, size.block, attributes)


def _computed_grid(grid: GridFunction, by_name: Mapping[str, Any]) -> Any:
    """Call a grid function. It is the user's code: an error points to the line that raised."""
    try:
        return grid(by_name)
    except StagekitError as error:
        error.loc = error.loc or _place_of(error)
        raise
    except Exception as error:
        names = ", ".join(by_name)
        reason = f"{type(error).__name__}: {error}"
        raise LaunchError(errors.GridFunctionFailed(reason, names), _place_of(error)) from None


def _place_of(error: Exception) -> Loc | None:
    """Return the innermost line in the grid function's file that an exception came through; None if the call itself failed."""
    from traceback import extract_tb  # here, since few grid functions fail

    frames = extract_tb(error.__traceback__)[1:]
    if not frames:
        return None
    here = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    line, col = here.lineno or 0, here.colno or 0
    return Loc(here.filename, line, col, here.end_lineno or line, here.end_colno or col, here.name)


def _is_grid(key: Any) -> bool:
    if issubclass(type(key), tuple):
        return 1 <= len(key) <= 3 and not any(issubclass(type(k), tuple) or callable(k) for k in key)
    return True


# Axes ---------------------------------------------------------------------------------------------------------------

_LIMITS = {"grid": GRID_LIMITS, "block": BLOCK_LIMITS, "cluster": (MAX_CLUSTER_BLOCKS,) * 3}

ReadNumber = Callable[[str, Any, int], Any]
"""From the name of a size, what was given, and its limit to the number."""


def _sizes(grid: Any, block: Any, shared_bytes: Any, read: ReadNumber) -> tuple[Axes, Axes, int]:
    """Return three axes of each and the bytes, checked against the limits of a launch."""
    grid, block = _three_axes("grid", grid, read), _three_axes("block", block, read)
    x, y, z = block
    if isinstance(x, int) and isinstance(y, int) and isinstance(z, int):
        _integer(f"the number of threads in a block ({x} × {y} × {z})", x * y * z, MAX_THREADS)
    return grid, block, read("shared_bytes", shared_bytes, MAX_SHARED_BYTES)


def _three_axes(what: str, value: Any, read: ReadNumber) -> Axes:
    try:
        axes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    except Exception:  # an object of the user's may raise anything
        raise _wrong_type(what, "one to three axes", shown(value)) from None
    if not 1 <= len(axes) <= 3:
        raise _wrong_type(what, "one to three axes", f"{len(axes)}: {shown(value)}")
    x, y, z = (read(f"{what} {name}", size, high) for name, size, high in zip("xyz", (*axes, 1, 1), _LIMITS[what]))
    return x, y, z


def _integer(what: str, value: Any, high: int) -> int:
    """Return an integer from 0 to `high`. A bool is no size."""
    number = None
    if not isinstance(value, bool):
        with contextlib.suppress(Exception):  # an `__index__` of the user's may raise anything
            number = int(operator.index(value))
    if number is None:
        raise _wrong_type(what, "an integer", shown(value), DIVISION if isinstance(value, float) else "")
    if not 0 <= number <= high:
        raise LaunchError(errors.LaunchLimit(what, number, high))
    return number


def _integer_or_run_time(what: str, value: Any, high: int) -> Any:
    """Return `_integer`, or the value as it is if it is a run-time value of a kernel and no number."""
    is_number = value is None or isinstance(value, (float, complex, str, numbers.Integral))
    return _integer(what, value, high) if is_number else value


# Errors -------------------------------------------------------------------------------------------------------------


def _wrong_type(what: str, expected: str, received: str, hint: str = "") -> LaunchError:
    return LaunchError(errors.LaunchSizeType(what, expected, received, hint))


_TAKES: dict[Style, str] = {
    "block": "is a block-level kernel, whose brackets hold a grid of one to three axes",
    "thread": "is a thread-level kernel, whose brackets hold grid, block[, shared_bytes[, stream]]",
    "entry": "computes its own launch (device_entry) and takes no brackets",
}
_HOW_TO_WRITE: dict[Style, str] = {
    "block": "{0}[grid](...), or {0}[LaunchConfig(grid=..., block=...)](...)",
    "thread": "{0}[grid, block](...), or {0}[LaunchConfig(grid=..., block=...)](...)",
    "entry": "{0}(...)",
}


def _misfit(key: Any, style: Style, kernel: str) -> LaunchError:
    written = f"{kernel}[{_key_text(key)}]"
    readings = f"{_readings(key)}; write {_HOW_TO_WRITE[style].format(kernel)}"
    return LaunchError(errors.BracketsMisfit(written, kernel, _TAKES[style], readings))


def _key_text(key: Any) -> str:
    return ", ".join(map(shown, key)) if type(key) is tuple and len(key) > 1 else shown(key)


def _readings(key: Any) -> str:
    """Spell out both meanings that the brackets could have had."""
    if issubclass(type(key), LaunchConfig):
        return f"read as a launch: grid {key.grid}, block {key.block}"
    block_level = f"grid {_key_text(key)}" if _is_grid(key) else "nothing"
    parts = key if issubclass(type(key), tuple) else (key,)
    named = [f"{name} {shown(value)}" for name, value in zip(_THREAD_LEVEL, parts)]
    odd = [f"no {name}" for name in _THREAD_LEVEL[len(parts) : 2]] + [f"{shown(value)} too many" for value in parts[4:]]
    return f"read as block-level: {block_level}; read as thread-level: {', '.join(named + odd)}"


_THREAD_LEVEL = ("grid", "block", "shared_bytes", "stream")
