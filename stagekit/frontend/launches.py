"""The launch that a kernel computes for itself, and the block whose threads share its tiles: how many they are, and who says so.

Those that only the library calls have names with an underscore in `stagekit/__init__.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc, StagekitError, shown
from stagekit.frontend.errors import BadBlockSize, BadCall, EntryMisplaced, StagingError
from stagekit.frontend.evaluation import Site
from stagekit.frontend.language import axes_of, bind, staged
from stagekit.frontend.numbers import describe_type, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import Extents, Tracer, WholeBlock
from stagekit.frontend.values import Array, Number
from stagekit.frozen import frozen
from stagekit.ir import Effect, has_effect
from stagekit.limits import MAX_THREADS
from stagekit.signature import PLAIN_LAUNCH, LaunchAttributes

# -- what the kernel computes -----------------------------------------------------------------------------------------


@frozen(slots=False)
class StagedLaunch:
    """`LaunchConfig(...)` inside a kernel: sizes may be run-time values. attributes: `cluster` and what follows it."""

    grid: tuple[Any, ...]
    block: tuple[Any, ...]
    shared_bytes: Any
    attributes: LaunchAttributes


_signature = functools.cache(inspect.signature)
_ATTRIBUTES = ("cluster", "cooperative", "programmatic")


def staged_launch(site: Site, cls: type, args: list[Any], kwargs: dict[str, Any]) -> StagedLaunch:
    signature = _signature(cls)
    bound = bind(site, cls.__name__, signature, args, kwargs, f"{cls.__name__}({', '.join(signature.parameters)})")
    values = bound.arguments
    grid, block = [(*axes, 1, 1)[: max(3, len(axes))] for axes in map(axes_of, (values["grid"], values["block"]))]
    shared_bytes = values.get("shared_bytes", signature.parameters["shared_bytes"].default)
    return StagedLaunch(grid, block, shared_bytes, _attributes(site, cls, values))


def _attributes(site: Site, cls: type, values: Mapping[str, Any]) -> LaunchAttributes:
    """Return what a launch asks beside its size, which is known at compile time; `cls` checks it."""
    given = {name: values[name] for name in _ATTRIBUTES if name in values}
    if not given:
        return PLAIN_LAUNCH
    for name, value in given.items():
        for each in axes_of(value):
            if isinstance(each, Number):
                raise site.needs_static(f"`{name}` of a launch", each, "use a constexpr")
    try:
        asked: Any = cls(1, 1, **given)
    except StagekitError as error:
        error.loc = site.loc
        raise
    return LaunchAttributes(*(getattr(asked, name) for name in _ATTRIBUTES))


_SEEN_FROM_OUTSIDE = (Effect.WRITE, Effect.SYNC, Effect.COLLECTIVE, Effect.HOST)


@staged
def device_entry(site: Site, *, launch: Any) -> None:
    """Let the kernel compute its own launch from sizes, constexprs and scalar arguments: `launch=LaunchConfig(grid=, block=)`.

    It stands once, at the top of the kernel, outside run-time control flow; else it is refused as ENTRY_MISPLACED.
    """
    tracer = site.tracer
    problem = None
    before = next((each for each in tracer.builder.current.ops if has_effect(each, *_SEEN_FROM_OUTSIDE)), None)
    if tracer.control_depth or site.frame.depth:
        problem = "it is called under run-time control flow" if tracer.control_depth else "it is called from a helper"
    elif tracer.launch is not None:
        problem = "it is called a second time"
    elif not isinstance(launch, StagedLaunch):
        problem = f"launch is {describe(launch)}, not a LaunchConfig"
    elif len(launch.grid) > 3 or len(launch.block) > 3:
        problem = "grid and block have at most three axes"
    elif tracer.options.threads is not None:
        problem = "the option `threads` says already how many threads the block has"
    elif "tile" in tracer.uses:
        problem = "it comes after the first tile, which has to know the block"
    elif before is not None:
        problem = f"line {before.loc.line} before it does something already"
    if problem:
        raise site.error(EntryMisplaced(problem))
    tracer.launch = (launch, site.loc)


# -- the block that tiles need -------------------------------------------------------------------------------------------


@staged
def block_threads(site: Site, length: Any, what: str, threads_for: Callable[[int], int]) -> int:
    """Declare that the kernel works on `length` elements at once; return the number of threads of its block (1 to 1024).

    The longest length decides; `threads_for` gives the number of threads that the caller wants for it. Where the option `threads`
    or `device_entry` fixed the block, its number of threads is returned, whatever the length.
    """
    if isinstance(length, Number):
        raise site.needs_static(what, length, "use a constexpr")
    if isinstance(length, np.integer) and is_numeric(length):
        length = int(length)
    if not isinstance(length, int) or isinstance(length, bool):
        why = f"it is a {type(length).__name__}, not an int"
        raise site.error(BadBlockSize(what, shown(length), why, _TILE_LENGTH))
    length = int.__index__(length)  # an object of a user's class counts by its value alone
    if length < 1:
        raise site.error(BadBlockSize(what, shown(length), "it is less than 1", _TILE_LENGTH))
    tracer = site.tracer
    tracer.uses["tile"] = "block"
    tracer.become_block_level()
    known = tracer.assumed.block_threads
    if tracer.launch is not None:
        needed = launched_threads(tracer.launch[0], site.loc)
    elif tracer.options.threads is not None and known is not None:  # both are what the option says
        needed = known
    else:
        needed = max(threads_for(length), known or 0)
    if needed != known:
        tracer.assume(dataclasses.replace(tracer.assumed, block_threads=needed), is_too_late=known is not None)
    return needed


_TILE_LENGTH = "a tile has a length of at least 1, a Python int known at compile time"


def launched_threads(launch: StagedLaunch, loc: Loc) -> int:
    """Return how many threads the block has that `device_entry` gave to a block-level kernel."""
    threads, *others = launch.block
    is_usable = isinstance(threads, int | np.integer) and 1 <= threads <= MAX_THREADS
    if not is_usable or others != [1, 1]:
        shown = ", ".join(describe_type(b) if isinstance(b, Number) else str(b) for b in launch.block)
        why = f"a block-level kernel needs a block along x alone, of 1 to {MAX_THREADS} threads known at compile time"
        hint = "give the launch such a block, as in `block=128`; a tile may be longer than its block"
        raise StagingError(BadBlockSize("block", f"({shown})", why, hint), loc)
    return int(threads)


@staged
def whole_block(site: Site, block: Any, user: str) -> int:
    """Declare the block that a launch must give, since `user` has a part for each of its threads; return how many they are.

    block: their number, or the extent along each axis; None for the block that `device_entry` gives.
    """
    tracer = site.tracer
    entry = _block_of_entry(tracer)
    if block is None and entry is None:
        hint = "give `block_threads`, the block of the launch: no `device_entry` says what it is at compile time"
        raise site.error(BadCall(f"`{user}` of a block that is not known", hint))
    shape = entry if block is None else _block_shape(site, block, user)
    if entry is not None and type(block) is int and math.prod(entry) == block:
        shape = entry
    assert shape is not None
    known = tracer.whole_block
    if known is not None and known.shape != shape:
        raise site.error(wrong_block(WholeBlock(shape, user, site.loc), known.shape))
    tracer.whole_block = WholeBlock(shape, user, site.loc)
    return math.prod(shape)


def _block_of_entry(tracer: Tracer) -> Extents | None:
    sizes = [size for size in (tracer.launch[0].block if tracer.launch else ()) if isinstance(size, int | np.integer)]
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if len(sizes) == 3 else None


def _block_shape(site: Site, block: Any, user: str) -> Extents:
    sizes = block if isinstance(block, tuple | list) else (block,)
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int and size > 0 for size in sizes):
        why = "it is no int above 0, nor up to three of them"
    elif math.prod(sizes) > MAX_THREADS:
        why = f"a block has 1 to {MAX_THREADS} threads"
    else:
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z
    hint = "give the block of the launch, known at compile time: 256, or (16, 16)"
    raise site.error(BadCall(f"{user}: block_threads is {shown(block)}: {why}", hint))


def wrong_block(wanted: WholeBlock, block: Extents) -> BadCall:
    is_of_count = math.prod(block) != math.prod(wanted.shape)
    given, found = (
        str(math.prod(each) if is_of_count or each[1:] == (1, 1) else each) for each in (wanted.shape, block)
    )
    return BadCall(
        f"`{wanted.user}` over {given} threads, in a block of {found}",
        f"every thread of the block takes part: call it with {found}",
    )


@staged
def is_along_x(site: Site) -> bool:
    """Return whether all threads of the block lie along x, so that `thread_idx("x")` is the number of a thread."""
    tracer = site.tracer
    wanted, launch = tracer.whole_block, tracer.launch
    extents = wanted.shape[1:] if wanted else launch[0].block[1:] if launch else ()
    return all(isinstance(each, int | np.integer) and each == 1 for each in extents)


@staged
def all_blocks_at_once(site: Site, user: str, at_end: Any, array: Any) -> None:
    """Declare that the blocks of the grid wait for each other, so that a launch must run all of them at once.

    at_end: a fragment of the library that runs where the kernel ends, on `array`, an argument of the kernel.
    """
    tracer = site.tracer
    is_argument = isinstance(array, Array) and not array.is_part and array.base.value is array.base.start
    if not is_argument or array.dtype is not dtypes.uint32 or array.ndim != 1:
        hint = "declare a parameter for it: an array of two uint32, which are 0 before the first launch"
        raise site.error(BadCall(f"`{user}` takes an argument of the kernel, got {describe(array)}", hint))
    tracer.at_end[at_end] = array
