"""What only the library calls: vectors of a thread, questions about arguments, and functions that users give it.

`stagekit/__init__.py` gives these functions names that begin with an underscore.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.frontend import complexes, conditions, direct, effects, forms, ordered
from stagekit.frontend.calls import snapshot_of
from stagekit.frontend.errors import BadCall, BadIndex, BadShape, StagingError
from stagekit.frontend.evaluation import Site, in_users_words
from stagekit.frontend.extents import row_major
from stagekit.frontend.facts import Unanswerable
from stagekit.frontend.language import ELEMENTWISE, Staged, load_each, staged, store_as
from stagekit.frontend.numbers import default_dtype, is_literal, is_numeric, meet, own_type
from stagekit.frontend.parts import describe, note_parts, parts_of, same_shape, with_parts
from stagekit.frontend.traced import OTHER_GPU
from stagekit.frontend.values import Address, Array, Number, StagedRange
from stagekit.ir import Block, Effect, Intrinsic, Scalar, Value, Vector, walk
from stagekit.ir.intervals import Interval
from stagekit.limits import MOST_ELEMENTS


@staged
def in_vectors(site: Site, values: Any, widths: Any) -> list[Any]:
    """Return vectors of these widths. values: one for each vector (a number is put in all lanes), or one for each lane.

    Where they are not numbers, or for each lane not numbers of one dtype, return one for each lane instead.
    """
    if len(values) == len(widths):
        if not all(type(value) is Number or is_numeric(value) for value in values):
            return [value for value, width in zip(values, widths) for _ in range(width)]
        return [_splat(site, value, width) for value, width in zip(values, widths)]
    are_typed = all(isinstance(value, Number | np.generic) and is_numeric(value) for value in values)
    if not are_typed or any(default_dtype(value) is not default_dtype(values[0]) for value in values):
        return list(values)
    rest = iter(values)
    return [_pack(site, list(itertools.islice(rest, width))) for width in widths]


def _splat(site: Site, number: Any, width: int) -> Any:
    """Return a vector with `number` in each of `width` lanes; a vector stays as it is."""
    if width == 1 or (type(number) is Number and type(number.value.type) is Vector):
        return number
    scalar = site.tracer.arithmetic.number(number)
    return Number(site.tracer.builder.splat(scalar.value, width), scalar.is_weak, (scalar,) * width)


def _pack(site: Site, numbers: list[Any]) -> Any:
    if len(numbers) == 1:
        return numbers[0]
    scalars = tuple([site.tracer.arithmetic.number(each) for each in numbers])
    return Number(site.tracer.builder.pack([each.value for each in scalars]), lanes=scalars)


@staged
def vector_of(site: Site, *numbers: Any) -> Number:
    """Return the vector of two, four or eight numbers, in the dtype in which they meet. Of literals alone it is one, too."""
    arithmetic, met = site.tracer.arithmetic, numbers[0]
    for each in numbers:
        if not is_numeric(each):
            raise site.error(BadCall(f"a vector of {describe(each)}", "give numbers"))
        dtype, is_weak = meet(met, each, site.loc)
        met = Number(arithmetic.to_value(met, dtype), is_weak)
    scalars = tuple([Number(arithmetic.to_value(each, met.dtype), met.is_weak) for each in numbers])
    return Number(site.tracer.builder.pack([each.value for each in scalars]), met.is_weak, scalars)


@staged
def complex_parts(site: Site, real: Any, imag: Any) -> tuple[Any, Any]:
    """Return two real numbers as the parts of a complex one: both float32 or float64, in which they meet; of literals, floats."""
    for each in (real, imag):
        if not is_numeric(each):
            raise site.error(BadCall(f"a complex number of {describe(each)}", "its parts are real numbers"))
    if is_literal(real) and is_literal(imag):
        return float(real), float(imag)
    arithmetic = site.tracer.arithmetic
    dtype, is_weak = meet(real, imag, site.loc)
    dtype = dtypes.promote(dtypes.true_divide_dtype(dtype), dtypes.float32) or dtype
    if not any(isinstance(each, Number) for each in (real, imag)):
        return arithmetic.convert(real, dtype), arithmetic.convert(imag, dtype)
    real, imag = (Number(arithmetic.to_value(each, dtype), is_weak) for each in (real, imag))
    return real, imag


@staged
def array_at(site: Site, rows: Array, base: Address, shape: tuple[Number, ...], strides: Any) -> Array:
    """Return an array of a list of arrays, which begins at an address. rows: the list's own array, by which it is named.

    strides: None for C order without gaps.
    """
    site.tracer.builder.spoil_log()
    for size in shape:
        site.tracer.intervals.known[size.value] = Interval(0, MOST_ELEMENTS)
    steps = row_major(site.tracer, shape)[0] if strides is None else strides
    return Array(f"{rows.name.removesuffix('.rows')}[...]", base, shape, steps, strides is None)


@staged
def in_parts(site: Site, value: Any) -> Any:
    """Return a complex number of Python's or NumPy's as one of the library; any other value unchanged."""
    return complexes.in_parts(value)


@staged
def lanes(site: Site, number: Any) -> list[Any]:
    """Return the lanes of a vector; for any other value, the value itself."""
    if not isinstance(number, Number) or not isinstance(number.value.type, Vector):
        return [number]
    extract, count = site.tracer.builder.extract, number.value.type.count
    return list(number.lanes or [Number(extract(number.value, lane), number.is_weak) for lane in range(count)])


@staged
def load_vector(
    site: Site, pointer: Any, count: int, align: int, mask: Any = None, other: Any = None, **hints: str
) -> Any:
    """The vector of `count` elements (2, 4 or 8) from `pointer` on, as `load` reads one: one access, under one mask.

    align: bytes of which the address is a multiple, as the caller knows. other: a number or a vector. hints: as those of `load`.
    """
    return _load_vectors(site, [(pointer, mask, other)], count, align, hints)[0]


@staged
def load_vectors(
    site: Site, rows: Sequence[tuple[Any, Any, Any]], count: int, align: int, **hints: str
) -> list[Number]:
    """The vectors at pointers to one dtype, each given with its mask and its `other`, as `load_vector` has one."""
    return _load_vectors(site, rows, count, align, hints)


def _load_vectors(site: Site, rows: Sequence[Any], count: int, align: int, hints: dict[str, str]) -> list[Number]:
    cache = ordered.cache_hint(site, "load", **hints)
    return load_each(site, rows, functools.partial(effects.load, site, count=count, align=align, cache=cache), count)


@staged
def store_vector(site: Site, pointer: Any, value: Any, align: int, mask: Any = None, **hints: str) -> None:
    """Write the lanes of a vector from `pointer` on, as `store` writes one; the rest is as in `load_vector`."""
    _store_vectors(site, [(pointer, value, mask)], align, hints)


@staged
def store_vectors(site: Site, rows: Sequence[tuple[Any, Any, Any]], align: int, **hints: str) -> None:
    """Write vectors, each given as a pointer, its value and its mask, as `store_vector` writes one."""
    _store_vectors(site, rows, align, hints)


def _store_vectors(site: Site, rows: Sequence[Any], align: int, hints: dict[str, str]) -> None:
    cache = ordered.cache_hint(site, "store", **hints)
    emit = functools.partial(effects.store, site, align=align, cache=cache)
    for pointer, value, mask in rows:
        store_as(site, pointer, value, mask, emit)


@staged
def is_multiple(site: Site, value: Any, divisor: int) -> bool:
    """Return whether an integer, or a pointer in bytes, is known to be a multiple of `divisor` in every thread and iteration.

    True where that is certain, or where it is a function of the arguments that the trace takes for granted from now on: other
    code runs the launches for which it does not hold. False means that it is not known, or of `src + 1` that `src` would
    have to be one less than a multiple, which is rare.
    """
    value = value.base if isinstance(value, Array) else value
    if isinstance(value, Address) or (isinstance(value, Number) and value.dtype.is_integer):
        return site.tracer.facts.ask(value.value, divisor)
    return int(value) % divisor == 0


@staged
def opaque(site: Site, number: Number) -> Number:
    """Return an integer of which no compiler is to see how it goes on from round to round of a loop.

    Else LLVM carries all that is computed from it: an address for each access of a round, in two registers each.
    """
    builder, type_ = site.tracer.builder, number.value.type
    with builder.block((same := Value(type_),)) as as_it_is:
        builder.yield_(same)
    bits, letter = (64, "l") if number.dtype.bits == 64 else (32, "r")
    (value,) = builder.asm(
        f"mov.b{bits} $0, $1;",
        f"={letter},{letter}",
        (number.value,),
        (type_,),
        has_side_effects=False,
        host=as_it_is.done(),
    )
    return Number(value, number.is_weak)


@staged
def once(site: Site, function: Any, *args: Any) -> Any:
    """Return `function(*args)`, which must only compute, or what it returned for the same arguments in this block of code."""
    return forms.once(site.tracer, function, args)


@staged
def recorded(site: Site, function: Any, *args: Any) -> Any:
    """Return `function(*args)`, of the library, which emits what its arguments are like, whatever their run-time numbers.

    It is carried out for the first of such arguments in a process; for the next ones the ops are copied.
    """
    return direct.copied(site, function, args)


def takes_vectors(function: Any, args: Sequence[Any]) -> bool:
    """Return whether `function`, an argument of a `direct` one, does to each lane of a vector what it does to a number.

    No function does so beside a pointer, and none that is a user's: it may branch.
    """
    if any(isinstance(each, Address | Array) for each in args):
        return False
    function = getattr(function, "__wrapped__", function)
    if isinstance(function, Intrinsic | Staged):
        return function.is_elementwise
    return isinstance(function, DType) or any(function is each for each in ELEMENTWISE)


@staged
def dtype_of(site: Site, value: Any) -> Any:
    """Return the dtype of a number, a vector or a pointer, also where CPython runs: there NumPy's numbers have one of NumPy's."""
    return default_dtype(value) if is_numeric(value) else value.dtype


@staged
def start_of(site: Site, pointers: Sequence[Any]) -> Address | None:
    """Return the argument that pointers were all computed from, an address that all threads have; None where there is none."""
    first = pointers[0].start
    return Address(first, first) if first is not None and all(each.start is first for each in pointers) else None


@staged
def choose(site: Site, condition: Any, then: Any, otherwise: Any) -> Any:
    """Return `then()` where a condition holds and `otherwise()` where it does not: the `if` of functions that CPython runs."""
    return conditions.choose(site.tracer, conditions.truth(site, condition), then, otherwise, site.loc)


@staged
def combined(site: Site, user: str, combine: Any, *values: Any) -> Any:
    """Return what the combiner of the function `user` makes of values, each thread by itself."""
    return _by_itself(site, f"the combiner of `{user}`", _COMBINER_HINT, combine, values)


@staged
def template(site: Site, user: str, combine: Any, dtypes: Sequence[DType], is_single: bool) -> direct.Template | None:
    """Return a combiner that only computes, of numbers of these dtypes, as ops that are copied; None for another one.

    is_single: it takes two numbers; else two tuples of them.
    """
    numbers = tuple([Number(Value(Scalar(dtype))) for dtype in dtypes])
    given = inspect.unwrap(combine, stop=lambda each: hasattr(each, "__stagekit_fragment__"))
    made = direct.template(site, given, (numbers[0] if is_single else numbers,) * 2)
    if made is not None:
        _refuse_among_threads(made.recording.copy.block, f"the combiner of `{user}`", _COMBINER_HINT)
    return made


@staged
def of_each(site: Site, function: Any, objection: Callable[[Any], str], *values: Any) -> Any:
    """Return what a user's function, which a kernel was given, makes of tiles: each element from those beside it.

    objection: returns what is wrong with a result that is no number, or nothing. It is reported where the function is defined.
    """
    found = _by_itself(site, "a function of each element", _ELEMENT_HINT, function, values)
    if wrong := "" if is_numeric(found) else objection(found):
        given = inspect.unwrap(function)
        name = getattr(given, "__name__", "the function")
        loc = snapshot_of(given).loc if isinstance(given, types.FunctionType) else site.loc
        raise StagingError(BadCall(f"`{name}` gives {describe(found)}", wrong), loc)
    return found


def _by_itself(site: Site, what: str, hint: str, function: Any, values: tuple[Any, ...]) -> Any:
    """Return `function(*values)`. Refused: an operation among threads in it. what: what the function is."""
    ops = site.tracer.builder.current.ops
    count = len(ops)
    found = function(*values)
    _refuse_among_threads(Block((), tuple(ops[count:])), what, hint)
    return found


def _refuse_among_threads(block: Block, what: str, hint: str) -> None:
    for op in walk(block):
        if not op.effects.isdisjoint((Effect.COLLECTIVE, Effect.SYNC)):
            raise StagingError(BadCall(f"{what} needs other threads", hint), op.loc)


_COMBINER_HINT = (
    "threads call a combiner as often as the tile's placement asks, some not at all: reduce or wait before, and use the "
    "result in it"
)


_ELEMENT_HINT = "it makes each element from the elements beside it; write a kernel that reduces or moves them"


@staged
def refuse_shape(site: Site, message: str, hint: str) -> None:
    """Refuse, as BAD_SHAPE, shapes that an operation does not take."""
    raise site.error(BadShape(in_users_words(message), hint))


@staged
def refuse_index(site: Site, message: str, hint: str) -> None:
    """Refuse, as BAD_INDEX, what is no index of a tile."""
    raise site.error(BadIndex(in_users_words(message), hint))


@staged
def is_for_cpu(site: Site) -> bool:
    """Return whether the trace is for the CPU. A kernel that asks is traced for it apart from the other targets."""
    site.tracer.is_placed = True
    return site.tracer.target == "cpu"


@staged
def has_warpgroups(site: Site) -> bool:
    """Return whether the trace is for a GPU on which warpgroups multiply. A kernel that asks is traced apart for other GPUs.

    The interpreter runs what that GPU would run.
    """
    site.tracer.is_placed = site.tracer.is_of_hopper = True
    return site.tracer.target not in ("cpu", OTHER_GPU)


@staged
def is_argument(site: Site, array: Any) -> bool:
    """Return whether an array is an argument as it came, or transposed: address, sizes and strides are known before a launch."""
    site.tracer.builder.spoil_log()
    known, extents = site.tracer.facts.arguments, [*array.shape, *array.strides]
    return array.base.value in known and all(isinstance(each, int) or each.value in known for each in extents)


@staged
def holds(site: Site, condition: Any, text: str) -> bool:
    """Return whether a condition is known to hold, or is one of the arguments that the trace takes for granted from now on.

    text: what it says, for reports.
    """
    if not isinstance(condition, Number):
        return bool(condition)
    try:
        return site.tracer.facts.holds(condition.value, text)
    except Unanswerable:
        return False


@staged
def in_order(site: Site) -> bool:
    """Return whether the kernel is block-level; then what follows waits, where its accesses may meet earlier ones of others."""
    if site.tracer.is_block_level:
        site.tracer.builder.statement()
    return site.tracer.is_block_level


@staged
def vector_width(site: Site) -> int:
    """Return how many elements of the kernel's arrays 16 bytes hold, 8 at most: by the smallest of 2 bytes or more.

    1 on the CPU, and in code that takes nothing for granted of its arguments: there a thread has no use for neighbours.
    """
    tracer = site.tracer
    tracer.is_placed = True
    if tracer.target == "cpu" or not tracer.is_quick:
        return 1
    return min(16 // min((size for size in tracer.item_sizes if size > 1), default=1), 8)


@staged
def linear(site: Site, value: Any) -> tuple[Any, bool] | None:
    """Return an integer as an int64, or a pointer, and whether it is one; None for what is neither, and no int64 for certain."""
    if isinstance(value, Address | Array):
        return value, True
    if not is_numeric(value) or isinstance(own_type(value), Vector):
        return None
    dtype = default_dtype(value)
    if not dtype.is_integer or dtype is dtypes.uint64 or not (isinstance(value, Number) or dtypes.int64.holds(value)):
        return None
    tracer = site.tracer
    return (
        Number(tracer.arithmetic.to_value(value, dtypes.int64)) if isinstance(value, Number) else np.int64(value)
    ), False


@staged
def bounds(site: Site, numbers: Any) -> tuple[Any, Any, Any]:
    """Return start, stop and step of a range, known or not."""
    if not isinstance(numbers, range | StagedRange) or getattr(numbers, "forward", None) is not None:
        raise site.error(BadCall(f"a range is needed, got {describe(numbers)}", "give `range(start, stop, step)`"))
    return numbers.start, numbers.stop, numbers.step


@staged
def numbers_of(site: Site, value: Any) -> list[Any]:
    """Return the numbers in a value, in order: itself, or those in a tuple, list, dict or object of a user's class, nested."""
    note_parts(site.tracer, value)
    parts = None if isinstance(value, Address | Array) else parts_of(value)
    if parts is not None:
        return [number for part in parts for number in numbers_of.run(site, part)]
    return [value] if is_numeric(value) else []


@staged
def with_numbers(site: Site, like: Any, numbers: Sequence[Any]) -> Any:
    """Return a value like `like` that has these numbers instead."""
    rest = iter(numbers)

    def made(value: Any) -> Any:
        parts = None if isinstance(value, Address | Array) else parts_of(value)
        if parts is None:
            return next(rest) if is_numeric(value) else value
        return site.tracer.journal.born(with_parts(value, [made(part) for part in parts]))

    return made(like)


@staged
def is_like(site: Site, value: Any, other: Any) -> bool:
    """Return whether two values have their numbers at the same places."""
    parts, others = (None if isinstance(v, Address | Array) else parts_of(v) for v in (value, other))
    if parts is None or others is None:
        return parts is others and is_numeric(value) == is_numeric(other)
    return same_shape(value, other) and all(is_like.run(site, a, b) for a, b in zip(parts, others))
