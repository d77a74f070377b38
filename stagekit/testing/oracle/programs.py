"""Programs of a kernel, run by CPython one after the other, and what the functions of the language do in them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import stagekit as sk
from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN, Loc, StagekitError, hide_frames, language_call, wrong_arguments
from stagekit.dtypes import INDEX, DType, dtype_from_numpy
from stagekit.frontend import overloads, structures
from stagekit.frontend.annotations import marked_parts
from stagekit.frontend.errors import BadCall, StagingError, StaticAssertion
from stagekit.frontend.markers import Optional, Pointer, Tensor
from stagekit.frontend.numbers import converted, default_dtype
from stagekit.frontend.outside import place_in
from stagekit.frontend.structures import PartsMarker, form_of, held_by, put_together, said_of_parts
from stagekit.frontend.values import is_fixed
from stagekit.ir import Intrinsic, semantics
from stagekit.jit.launchable import Launchable
from stagekit.runtime.args import describe
from stagekit.runtime.checks import convert
from stagekit.runtime.errors import ArgumentError, AssertionFailed, KernelAssertionError, NotAnArray
from stagekit.runtime.launch_config import LaunchConfig, launch_size, missing_brackets
from stagekit.signature import ScalarSpec
from stagekit.testing.oracle import memory
from stagekit.testing.oracle.memory import Meetings, OracleArray, OracleMemory, OraclePointer
from stagekit.testing.oracle.python import counterpart
from stagekit.testing.oracle.random import RANDOM
from stagekit.testing.oracle.tiles import TILES
from stagekit.testing.oracle.values import (
    PLACE,
    Array,
    NotOfBlocks,
    OracleScalar,
    OracleValue,
    call_intrinsic,
    choose,
    plain,
    value_of,
)  # fmt: skip

Axes = tuple[int, ...]


@hide_frames
def run_in_python(kernel: Any, brackets: Any, /, *args: Any, **kwargs: Any) -> None:
    """Run a block-level kernel in CPython, its programs one after the other: the meaning that it has on every target.

    brackets: the grid, as in a launch; None for a kernel with `device_entry`. The arguments are those of a launch; arrays are
    NumPy's, written in place. Raises `NoMeaning` for a step that has none (an access out of bounds, a store of two values to one
    element, programs that race, ...), and KernelAssertionError for the first assert that fails.
    """
    run_programs(kernel, brackets, args, kwargs)


def run_programs(
    kernel: Any, brackets: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_reversed: bool = False
) -> None:
    """Do what `run_in_python` does. is_reversed: from the last program to the first, which must make no difference."""
    if not isinstance(kernel, Launchable):
        raise wrong_arguments(run_in_python, f"takes a kernel, got {describe(kernel)}")
    resolved: Any = kernel._resolve(args, kwargs)
    specialization, values, _ = resolved
    meanings = specialization.meanings
    given = {name: _argument(name, value, meanings[name]) for name, value in zip(meanings, values)}
    known = {name: counterpart(value) for name, value in specialization.constexprs.items()}
    by_name = {**specialization.constexprs, **dict(zip(meanings, values))}
    function = counterpart(kernel.function)
    programs = _Programs(kernel.name, functools.partial(function, **given, **known))
    grid = programs.entry_grid() if brackets is None else _grid(brackets, by_name)
    arrays = [each.memory for each in _leaves(given.values()) if isinstance(each, OracleArray | OraclePointer)]
    programs.run(grid, arrays, is_reversed=is_reversed)


def _grid(brackets: Any, by_name: Mapping[str, Any]) -> Axes:
    given = brackets.grid if isinstance(brackets, LaunchConfig) else brackets
    return launch_size(given(by_name) if callable(given) else given, 1).grid


# -- programs -----------------------------------------------------------------------------------------------------------


class _EntryFound(BaseException):
    """Ends a program at its `device_entry`. grid: what it says."""

    def __init__(self, grid: Axes) -> None:
        super().__init__(grid)
        self.grid = grid


class _Programs:
    """Runs the programs of a launch. run_one: the user's function with its arguments. index: that of the program that runs."""

    def __init__(self, name: str, run_one: Callable[[], None]) -> None:
        self.name, self.run_one = name, run_one
        self.grid: Axes = (1, 1, 1)
        self.index: Axes = (0, 0, 0)
        self.is_asked = False  # for the grid that it computes itself

    def entry_grid(self) -> Axes:
        """Return the grid that the kernel computes itself."""
        self.is_asked = True
        try:
            self._program()
        except _EntryFound as found:
            return found.grid
        finally:
            self.is_asked = False
        raise missing_brackets("block", self.name)

    def run(self, grid: Axes, memories: Sequence[OracleMemory], *, is_reversed: bool) -> None:
        self.grid = grid
        indices = [xyz[::-1] for xyz in itertools.product(*map(range, grid[::-1]))]
        meetings = Meetings(memories) if len(indices) > 1 else None
        order = list(enumerate(indices))
        for number, self.index in reversed(order) if is_reversed else order:
            if meetings is not None:
                meetings.program = number
            self._program()

    def _program(self) -> None:
        token = language_call.set(self.call)
        try:
            self.run_one()
        except StagekitError as error:
            error.loc = error.loc if error.loc not in (None, UNKNOWN) else _place_in_user_code(error)
            error.context = (f"while running `{self.name}` in Python, program {self.index}",)
            raise
        except AssertionError as error:
            failed = AssertionFailed(str(error), self.index, (0, 0, 0), "")
            raise KernelAssertionError(failed, _place_in_user_code(error)) from None
        finally:
            language_call.reset(token)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call of a function of the language."""
        if isinstance(function, DType):
            (value,) = args
            return (
                value.to(function) if isinstance(value, OracleValue) else value_of(converted(value, function), function)
            )
        if isinstance(function, Intrinsic):
            return self._intrinsic(function, args, kwargs)
        run = LANGUAGE.get(function)
        if run is None:
            raise StagingError(NotOfBlocks(getattr(function, "name", function.__name__)), UNKNOWN)
        return run(self, *args, **kwargs)

    def _intrinsic(self, spec: Intrinsic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = _INDICES.get(spec)
        if place is not None:
            axis = [*args, *kwargs.values(), 0][0]
            return value_of(getattr(self, place)["xyz".index(axis) if isinstance(axis, str) else axis], INDEX)
        if spec in memory.ATOMICS:
            mask = kwargs.pop("mask", None)
            values, _ = overloads.bind(PLACE, spec, list(args), kwargs)
            return memory.atomic(spec, *values, mask=mask)
        if spec.is_elementwise and spec.evaluate is not None:
            return call_intrinsic(spec, *args, **kwargs)
        if spec.args or any(sig.results for sig in spec.sigs):
            raise StagingError(NotOfBlocks(spec.name), UNKNOWN)
        return None  # a barrier or a fence: one program has no threads that wait


def _place_in_user_code(error: BaseException) -> Loc | None:
    """Return the innermost line of the user's functions that an exception came through."""
    found, step = None, error.__traceback__
    while step is not None:
        if not is_fixed(step.tb_frame.f_globals.get("__name__")):
            found = place_in(step.tb_frame.f_code, step.tb_lasti, step.tb_lineno)
        step = step.tb_next
    return found


# -- arguments ----------------------------------------------------------------------------------------------------------


def _argument(name: str, value: Any, meaning: Any) -> Any:
    """Return an argument as the kernel sees it."""
    inner = meaning.inner if isinstance(meaning, Optional) else meaning
    if value is None:
        return None
    form = form_of(value)
    if form is not None:
        said = said_of_parts(form, inner if isinstance(inner, PartsMarker) else None, marked_parts(form.kind))
        rows = enumerate(zip(held_by(value, form), said))
        return put_together(form, [_argument(structures.place_in(name, form, place), *row) for place, row in rows])
    if isinstance(value, np.ndarray):
        return _array(name, value, inner)
    if isinstance(inner, Tensor | Pointer) or not isinstance(value, int | float | np.generic):
        raise ArgumentError(NotAnArray(name, "NumPy's" if inner is None else inner.dtype.name, describe(value)))
    dtype = inner if isinstance(inner, DType) else _own_dtype(value)
    convert(ScalarSpec(name, dtype), value)  # refuses what does not fit
    return value_of(semantics.typed(value, dtype), dtype)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield what these arguments are, and what those hold that hold others."""
    for value in values:
        form = form_of(value)
        if form is None:
            yield value
        else:
            yield from _leaves(held_by(value, form))


def _own_dtype(value: Any) -> DType:
    """Return the dtype of a number without an annotation, which does not depend on how large it is."""
    if isinstance(value, np.generic):
        return default_dtype(value)
    return dtypes.bool_ if isinstance(value, bool) else dtypes.int32 if isinstance(value, int) else dtypes.float32


def _array(name: str, array: Array, meaning: Any) -> OracleArray | OraclePointer:
    dtype = dtype_from_numpy(array.dtype)
    if dtype is None or (meaning is not None and meaning.dtype is not dtype):
        wanted = "a dtype of kernels" if meaning is None else meaning.dtype.name
        raise ArgumentError(NotAnArray(name, wanted, describe(array)))
    places = sum(
        (step // array.itemsize * index for step, index in zip(array.strides, np.indices(array.shape, np.int64))),
        start=np.zeros(array.shape, np.int64),
    )
    places -= places.min(initial=0)
    count = int(places.max(initial=-1)) + 1
    lowest = array[tuple(slice(None, 1) if step >= 0 else slice(-1, None) for step in array.strides)].reshape(-1)
    bits = lowest.view(np.uint8) if array.itemsize == 1 else lowest  # NumPy knows no float of a byte
    elements = np.lib.stride_tricks.as_strided(bits, (count,), (array.itemsize,)).view(array.dtype) if count else lowest
    owned = None
    if count > array.size:
        owned = np.isin(np.arange(count), places)
    found = OracleArray(OracleMemory(name, elements, dtype, owned=owned), places, is_static=_has_known_shape(meaning))
    return found.ptr if isinstance(meaning, Pointer) else found


def _has_known_shape(meaning: Any) -> bool:
    return isinstance(meaning, Tensor) and all(isinstance(size, int) for size in meaning.shape)


# -- the language -------------------------------------------------------------------------------------------------------


def _static_int(what: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise StagingError(BadCall(f"{what} is {describe(value)}", "a Python int is needed"), UNKNOWN)
    return int(value)


def _arange(_: _Programs, start: int, stop: int) -> OracleValue:
    return value_of(np.arange(_static_int("`start`", start), _static_int("`stop`", stop)), INDEX)


def _full(_: _Programs, shape: Any, value: Any, dtype: DType) -> OracleValue:
    sizes = [_static_int("`shape`", size) for size in (shape if isinstance(shape, tuple | list) else (shape,))]
    number = value.to(dtype).elements if isinstance(value, OracleScalar) else semantics.typed(value, dtype)
    return value_of(np.full(sizes, number), dtype)


def _alloc_shared(_: _Programs, shape: Any, dtype: DType, *, align: int | None = None) -> OracleArray:
    sizes = [_static_int("`shape`", size) for size in (shape if isinstance(shape, tuple | list) else (shape,))]
    count = math.prod(sizes)
    shared = OracleMemory("shared", np.zeros(count, dtype.numpy), dtype, "shared")
    return OracleArray(shared, np.arange(count).reshape(sizes), is_static=True)


def _window(_: _Programs, array: OracleArray, start: Any, shape: Any) -> Any:
    starts, sizes = (each if isinstance(each, tuple | list) else (each,) for each in (start, shape))
    return array[tuple(slice(first, first + size) for first, size in zip(starts, sizes))]


def _staged(_: _Programs, numbers: Iterable[Any], loads: Callable[[Any], Any], stages: int = 3) -> Iterator[Any]:
    """Go through the tiles of each number, which are read when their turn comes."""
    for number in numbers:
        parts = loads(number)
        yield tuple(map(memory.load, parts)) if isinstance(parts, tuple | list) else memory.load(parts)


def _persistent(programs: _Programs, tiles: Any) -> Iterable[Any]:
    """Go through what this program gets where tiles are shared out evenly."""
    numbers: Iterable[Any] = counterpart(range)(programs.index[0], tiles, programs.grid[0])
    return numbers


def _static_assert(_: _Programs, condition: Any, message: Any = "") -> None:
    if not condition:
        raise StagingError(StaticAssertion(str(message) or "the condition is false"), UNKNOWN)


def _device_entry(programs: _Programs, *, launch: LaunchConfig) -> None:
    """Take note of the grid, where the kernel is asked for it."""
    if programs.is_asked:
        raise _EntryFound(launch_size(tuple(map(plain, launch.grid)), 1).grid)


def _fragment(function: Any) -> Any:
    """Return what a function of the library calls itself when it comes here."""
    return function.__stagekit_fragment__


LANGUAGE: dict[Any, Callable[..., Any]] = {
    sk.load: lambda _, *args, **kwargs: memory.load(*args, **kwargs),
    sk.store: lambda _, *args, **kwargs: memory.store(*args, **kwargs),
    sk.where: lambda _, condition, if_true, if_false: choose(condition, if_true, if_false),
    sk.static_range: lambda _, *bounds: range(*bounds),
    sk.static_assert: _static_assert,
    sk.speculate: lambda _, condition, *, multiple_of=None, apart_from=None: False,  # nothing is known before a run
    sk.static_print: lambda _, *values: None,  # what a specialisation prints is no part of a run
    sk.alloc_shared: _alloc_shared,
    sk.window: _window,
    sk.device_entry: _device_entry,
    _fragment(sk.arange): _arange,
    _fragment(sk.full): _full,
    _fragment(sk.staged): _staged,
    _fragment(sk.persistent): _persistent,
    _fragment(sk.zeros): lambda _, shape, dtype: _full(_, shape, 0, dtype),
    **{_fragment(function): run for function, run in {**TILES, **RANDOM}.items()},
}
_INDICES = {
    sk.program_id: "index", sk.num_programs: "grid", sk.cuda.block_idx: "index", sk.cuda.grid_dim: "grid",
}  # fmt: skip
