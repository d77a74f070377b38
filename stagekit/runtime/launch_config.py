"""How much is launched: the grid, the block, and what the brackets of a launch mean.

    LaunchConfig(grid=(4, 5), block=128)      ->  grid (4, 5, 1), block (128, 1, 1), no dynamic shared memory
    k[4, 128] of a thread-level kernel        ->  grid 4, block 128
    k[4, 128] of a block-level kernel         ->  a grid of two axes

A block-level kernel takes a grid of one to three axes, a thread-level kernel takes `grid, block` and optionally dynamic
shared bytes and a stream, a kernel with its own `device_entry` takes no brackets. A zero in any axis is a launch
of nothing. Limits are those of CUDA (compute capability 7.5 to 12), on every target: a launch that the CPU accepts is one
that a GPU accepts.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stagekit.artifact import Style
from stagekit.diagnostics import Loc, StagekitError, hide_frames, public_class, shown
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.runtime.errors import (
    BlockMismatch,
    BracketsMisfit,
    GridFunctionFailed,
    LaunchError,
    LaunchLimit,
    LaunchSizeType,
)

Axes = tuple[int, int, int]
GridFunction = Callable[[Mapping[str, Any]], Any]
"""A grid computed at each launch from the constexprs and arguments by name: `lambda a: sk.ceildiv(a["n"], a["BLOCK"])`."""

_AXIS_NAMES = "xyz"
_LIMITS: dict[str, Axes] = {"grid": GRID_LIMITS, "block": BLOCK_LIMITS}


@public_class
@dataclass(frozen=True)
class LaunchConfig:
    """Blocks and threads per axis x, y, z, and dynamic shared bytes per block.

    grid, block: an int or one to three of them, kept as three. Inside a kernel they may be run-time values; whatever is
    a number already is checked here.
    """

    __stagekit_launch__ = True  # in a kernel the front end reads the fields itself: they may be run-time values

    grid: Any
    block: Any
    shared_bytes: Any = 0

    def __post_init__(self) -> None:
        for what in ("grid", "block"):
            axes = _three_axes(what, getattr(self, what))
            _check_axes(what, axes)
            object.__setattr__(self, what, axes)
        object.__setattr__(self, "shared_bytes", _plain(self.shared_bytes))
        _check_threads(self.block)
        _check_size("shared_bytes", self.shared_bytes, MAX_SHARED_BYTES)

    @hide_frames
    def replace(self, **changes: Any) -> LaunchConfig:
        """The same with some fields changed."""
        return dataclasses.replace(self, **changes)


class LaunchSize(NamedTuple):
    """A launch in numbers. blocks: to be run, none where an axis of the grid or of the block is zero."""

    grid: Axes
    block: Axes
    shared_bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the brackets ask for: a size, or one computed from the arguments by name; None without brackets.

    stream: None for the current one. block: of a size that is computed.
    """

    size: LaunchSize | Callable[[Mapping[str, Any]], LaunchSize] | None = None
    stream: Any = None
    block: Axes | None = None


NO_BRACKETS = LaunchRequest()


def read_brackets(key: Any, style: Style, kernel: str, fixed_block: Axes | None) -> LaunchRequest:
    """The meaning of `kernel[key]` for a kernel of this style. fixed_block: the one it was compiled for, if any."""
    if issubclass(type(key), LaunchConfig) and style != "entry":  # `isinstance` would ask the object for its class
        parts: tuple[Any, ...] = (key.grid, key.block, key.shared_bytes)
    elif style == "block" and _is_grid(key):
        parts = (key, fixed_block)
    elif style == "thread" and issubclass(type(key), tuple) and 2 <= len(key) <= 4:
        parts = key
    else:
        raise _misfit(key, style, kernel)
    return _request(kernel, fixed_block, *parts)


def is_exact(key: Any) -> bool:
    """Are these brackets that only equal what means the same, for good? 1.0 and True are equal to 1, and a list may change."""
    kind = type(key)
    if kind is tuple:
        return all(map(is_exact, key))
    return kind is int or kind is LaunchConfig


def launch_size(grid: Any, block: Any, shared_bytes: Any = 0) -> LaunchSize:
    """The checked size of a launch from ints or tuples of them."""
    grid, block = _checked_axes("grid", grid), _checked_axes("block", block)
    _check_threads(block)
    if type(shared_bytes) is not int or shared_bytes:
        shared_bytes = _integer("shared_bytes", shared_bytes)
        _check_size("shared_bytes", shared_bytes, MAX_SHARED_BYTES)
    return LaunchSize(grid, block, shared_bytes, 0 if 0 in block else math.prod(grid))


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream of stagekit's users: an int, or an object of cuda.core, torch, CuPy or Numba."""
    try:
        found = _handle_of(stream)
    except Exception:  # an object of the user's may raise anything
        found = None
    if found is None:
        raise LaunchError(LaunchSizeType("stream", "a CUDA stream or its handle", shown(stream)))
    return found


def _handle_of(stream: Any) -> int | None:
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    return None


def check_block(kernel: str, fixed_block: Axes | None, block: Axes) -> None:
    """Refuse a block other than the one that the kernel was compiled for; one without threads runs nothing."""
    if fixed_block is not None and block != fixed_block and 0 not in block:
        raise LaunchError(BlockMismatch(kernel, fixed_block, block))


def missing_brackets(style: Style, kernel: str) -> LaunchError:
    """The error for a launch without brackets of a kernel that needs them."""
    return LaunchError(BracketsMisfit(kernel, f"{kernel}(...)", _TAKES[style], _HOW_TO_WRITE[style].format(kernel)))


def _request(
    kernel: str, fixed_block: Axes | None, grid: Any, block: Any, shared_bytes: Any = 0, stream: Any = None
) -> LaunchRequest:
    if stream is not None:
        stream_handle(stream)  # refused here, where the target is not known yet
    is_computed = callable(grid)
    size = launch_size(0 if is_computed else grid, block, shared_bytes)
    check_block(kernel, fixed_block, size.block)
    if is_computed:
        return LaunchRequest(
            lambda by_name: launch_size(_computed(grid, by_name), block, shared_bytes), stream, size.block
        )
    return LaunchRequest(size, stream)


def _computed(grid: GridFunction, by_name: Mapping[str, Any]) -> Any:
    """What a grid function gives. It is the user's code: where it raises is what its user looks for."""
    try:
        return grid(by_name)
    except StagekitError:
        raise
    except Exception as error:
        names = ", ".join(by_name)
        reason = f"{type(error).__name__}: {error}"
        raise LaunchError(GridFunctionFailed(reason, names), _place_of(error)) from None


def _place_of(error: Exception) -> Loc | None:
    """The innermost line in the grid function's file that an exception came through; none where the call itself failed."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
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


def _three_axes(what: str, value: Any) -> tuple[Any, Any, Any]:
    if type(value) is int:
        return value, 1, 1
    try:
        axes = tuple(map(_plain, value)) if isinstance(value, (tuple, list)) else (_plain(value),)
    except Exception:  # an object of the user's may raise anything
        raise LaunchError(LaunchSizeType(what, "one to three axes", shown(value))) from None
    if not 1 <= len(axes) <= 3:
        raise LaunchError(LaunchSizeType(what, "one to three axes", f"{len(axes)}: {shown(value)}"))
    return (*axes, 1, 1)[:3]


def _plain(value: Any) -> Any:
    """A NumPy integer as an int; anything else as it is."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, numbers.Integral) else value


def _checked_axes(what: str, value: Any) -> Axes:
    x, y, z = axes = _three_axes(what, value)
    high_x, high_y, high_z = _LIMITS[what]
    if type(x) is type(y) is type(z) is int and 0 <= x <= high_x and 0 <= y <= high_y and 0 <= z <= high_z:
        return axes
    axes = _integer(f"{what} x", x), _integer(f"{what} y", y), _integer(f"{what} z", z)
    _check_axes(what, axes)
    return axes


def _integer(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except Exception:  # an `__index__` of the user's may raise anything
        raise LaunchError(LaunchSizeType(what, "an integer", shown(value))) from None


def _check_axes(what: str, axes: tuple[Any, Any, Any]) -> None:
    for name, value, high in zip(_AXIS_NAMES, axes, _LIMITS[what]):
        _check_size(f"{what} {name}", value, high)


def _check_size(what: str, value: Any, high: int) -> None:
    """Refuse a number that is no integer or out of range; a run-time value of a kernel is none and passes."""
    if isinstance(value, (float, complex, str)) or value is None:
        raise LaunchError(LaunchSizeType(what, "an integer", shown(value)))
    if isinstance(value, int) and not 0 <= value <= high:
        raise LaunchError(LaunchLimit(what, value, high))


def _check_threads(block: tuple[Any, Any, Any]) -> None:
    x, y, z = block
    if isinstance(x, int) and isinstance(y, int) and isinstance(z, int) and x * y * z > MAX_THREADS:
        _check_size(f"the number of threads in a block ({x} × {y} × {z})", x * y * z, MAX_THREADS)


# Errors -------------------------------------------------------------------------------------------------------------

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
    return LaunchError(BracketsMisfit(kernel, written, _TAKES[style], readings))


def _key_text(key: Any) -> str:
    return ", ".join(map(shown, key)) if type(key) is tuple and len(key) > 1 else shown(key)


def _readings(key: Any) -> str:
    """Both meanings that the brackets could have had."""
    if issubclass(type(key), LaunchConfig):
        return f"read as a launch: grid {key.grid}, block {key.block}"
    block_level = f"grid {_key_text(key)}" if _is_grid(key) else "nothing"
    parts = key if issubclass(type(key), tuple) else (key,)
    named = [f"{name} {shown(value)}" for name, value in zip(_THREAD_LEVEL, parts)]
    odd = [f"no {name}" for name in _THREAD_LEVEL[len(parts) : 2]] + [f"{shown(value)} too many" for value in parts[4:]]
    return f"read as block-level: {block_level}; read as thread-level: {', '.join(named + odd)}"


_THREAD_LEVEL = ("grid", "block", "shared_bytes", "stream")
