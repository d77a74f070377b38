"""The language's own functions that are not intrinsics: memory and staging. Each is an object that the tracer runs. Those of
launches are in `launches.py`, those that only the library calls in `library.py`.

Called outside a kernel they raise an error, but for the few that `outside` lists.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import DIVISION, call_in_language, shown
from stagekit.dtypes import DType
from stagekit.frontend import arrays, attributes, conditions, effects, ordered
from stagekit.frontend.complexes import ComplexLibrary
from stagekit.frontend.errors import NO_GPU, BadCall, BadOperands, NotOfArguments, SharedMemoryExceeded, StaticAssertion
from stagekit.frontend.evaluation import Site, in_users_words
from stagekit.frontend.extents import row_major
from stagekit.frontend.facts import Unanswerable
from stagekit.frontend.markers import MAX_ALIGN, is_alignment
from stagekit.frontend.numbers import default_dtype, is_numeric
from stagekit.frontend.overloads import chosen
from stagekit.frontend.parts import describe
from stagekit.frontend.source import name_given_to
from stagekit.frontend.tables import table_of
from stagekit.frontend.values import Address, Array, Number, StaticRange, holds_run_time
from stagekit.intrinsics import registry
from stagekit.ir import BOOL, Space, Value, Vector
from stagekit.limits import MAX_LOCAL_BYTES, MAX_SHARED_BYTES


class Staged:
    """A function of the language. is_elementwise: applied to a tile, it applies to each element."""

    def __init__(self, run: Callable[..., Any], *, is_elementwise: bool) -> None:
        self.run = run
        self.name = run.__name__.rstrip("_")
        self.is_elementwise = is_elementwise
        code, defaults = run.__code__, run.__kwdefaults__ or {}
        plain = code.co_argcount - max(code.co_posonlyargcount, 1)  # without the site
        by_name = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        # from `least` to `most` arguments, given by position, fit without a look at the signature
        self.most = plain if all(name in defaults for name in by_name) else -1
        self.least = plain - len(run.__defaults__ or ())
        self.__doc__ = run.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__, self._place = run.__module__, run.__qualname__

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """What it takes, without annotations; `import stagekit` need not know of any."""
        parameters = list(inspect.signature(self.run).parameters.values())[1:]
        return inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])

    @property
    def __signature__(self) -> inspect.Signature:
        return self.signature

    def __reduce__(self) -> str:
        """Return the name by which it is pickled; a copy is the object itself, as with functions."""
        return self._place

    def __repr__(self) -> str:
        return f"<stagekit function {self.name}{self.signature}>"

    __call__ = call_in_language


def bind(
    site: Site, name: str, signature: inspect.Signature, args: Any, kwargs: Any, hint: str = ""
) -> inspect.BoundArguments:
    """Bind arguments as Python does. Where they do not fit, the error shows the signature, or `hint`."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        if "order" in signature.parameters and "sem" in kwargs:
            hint = f"`sem=` is called `order=` here: {name}{signature}"
        parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        raise site.error(BadCall(f"`{name}`: {error}", hint or f"{name}{inspect.Signature(parameters)}")) from None


staged = functools.partial(Staged, is_elementwise=False)
elementwise = functools.partial(Staged, is_elementwise=True)


def _static_int(site: Site, value: Any, what: str, hint: str = "use a constexpr") -> int:
    if isinstance(value, Number):
        raise site.needs_static(what, value, hint)
    if isinstance(value, np.integer) and is_numeric(value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        is_float = isinstance(value, float | np.floating)
        raise site.error(BadCall(f"{what} is {shown(value)}", DIVISION if is_float else "a Python int is needed"))
    return int(value)


# -- memory ---------------------------------------------------------------------------------------------------------------


def _pointer(site: Site, name: str, pointer: Any) -> Address:
    if type(pointer) is Address:  # nearly always
        return pointer
    if not isinstance(pointer, Address | Array):
        hint = "the first argument is a pointer: `A + i`, not the element `A[i]`"
        raise site.error(BadOperands(name, describe(pointer), hint))
    return arrays.base_of(site, pointer)


def _mask(site: Site, mask: Any) -> Value | None:
    """Return a mask as a bool value; None for one that is always on."""
    if mask is None or mask is True:
        return None
    if type(mask) is Number and mask.value.type is BOOL:  # nearly always
        return mask.value
    if not is_numeric(mask):
        raise site.error(BadOperands("mask=", describe(mask), "a mask is a bool"))
    return site.tracer.arithmetic.to_value(mask, dtypes.bool_)


@elementwise
def load(
    site: Site, pointer: Any, mask: Any = None, other: Any = None, *, order: Any = None, scope: Any = None,
    cache_modifier: str = "", eviction_policy: str = "",
) -> Any:  # fmt: skip
    """The element that `pointer` points to, a number of its dtype; of a tile of pointers, the tile of their elements.

    mask: a bool, or a tile of bools. Where it is false, memory is not touched and the result is `other` (0 if left out), a number
    that the dtype holds. order: for what other threads write meanwhile: "relaxed", "acquire" (what comes later stays behind it)
    or "seq_cst". scope: of the threads that write it, "block", "gpu" (if left out) or "sys". cache_modifier: in which caches of
    the GPU it is kept, ".ca", ".cg" (in the second level alone) or ".cs" (read once). eviction_policy: whether it leaves the
    first level early, "evict_first", or late, "evict_last". One of the two is given, without an order; no value changes by it.
    Refused as BAD_OPERANDS: what is no pointer, and an `other` that would be rounded; as NO_OVERLOAD: an order for bools or
    memory of a thread.
    """
    cache = ordered.cache_hint(site, "load", cache_modifier, eviction_policy, order, scope)
    if order is None and scope is None:
        return load_as(site, pointer, mask, other, functools.partial(effects.load, site, cache=cache))
    return load_as(site, pointer, mask, other, functools.partial(ordered.load, site, order, scope))


def load_as(site: Site, pointer: Any, mask: Any, other: Any, emit: Callable[..., Value]) -> Number:
    """Return what `emit` makes of the pointer, the mask, and the number for where the mask is off."""
    return load_each(site, [(pointer, mask, other)], emit)[0]


def load_each(
    site: Site, rows: Sequence[tuple[Any, Any, Any]], emit: Callable[..., Value], count: int | None = None
) -> list[Number]:
    """Return what `emit` makes of each pointer, mask, and number or vector of `count` for where the mask is off.

    All pointers are to one dtype, so that rows with the same number have one value for it.
    """
    found, others = list[Number](), dict[int, Value]()
    for pointer, mask, other in rows:
        address, on = _pointer(site, "load", pointer), _mask(site, mask)
        if on is None:
            found.append(Number(emit(address.value)))
            continue
        if id(other) not in others:
            others[id(other)] = _otherwise(site, address.dtype, other, count)
        found.append(Number(emit(address.value, on, others[id(other)])))
    return found


def _otherwise(site: Site, dtype: DType, other: Any, count: int | None) -> Value:
    """Return the value that a load gives where its mask is off."""
    fill = 0 if other is None else other
    if not is_numeric(fill):
        raise site.error(BadOperands("other=", describe(fill), "a number is needed"))
    if not _holds_exactly(dtype, fill):
        shown = f"{describe(fill)} and elements of {dtype.name}"
        raise site.error(BadOperands("other=", shown, f"convert it: `sk.{dtype.name}(...)`"))
    otherwise = site.tracer.arithmetic.to_value(fill, dtype)
    return (
        otherwise
        if count is None or isinstance(otherwise.type, Vector)
        else site.tracer.builder.splat(otherwise, count)
    )


def _holds_exactly(dtype: DType, fill: Any) -> bool:
    """Return whether an element of `dtype` can be `fill` itself: integers and bools would lose a fraction."""
    if dtype.is_float or not default_dtype(fill).is_float:
        return True
    if isinstance(fill, Number) or not math.isfinite(fill) or int(fill) != fill:
        return False
    return fill in (0, 1) if dtype is dtypes.bool_ else dtype.holds(int(fill))


@elementwise
def store(
    site: Site, pointer: Any, value: Any, mask: Any = None, *, order: Any = None, scope: Any = None,
    cache_modifier: str = "", eviction_policy: str = "",
) -> None:  # fmt: skip
    """Write `value`, converted to the element's dtype, to where `pointer` points; to a tile of pointers, a tile or one number.

    mask: a bool, or a tile of bools. Where it is false, nothing is written. order: for what other threads read meanwhile:
    "relaxed", "release" (what came earlier stays in front of it) or "seq_cst". scope: of the threads that read it, as in `load`.
    cache_modifier: ".wb", ".cg", ".cs" (not read soon) or ".wt" (through to memory). eviction_policy: as in `load`.
    Refused as BAD_OPERANDS: what is no pointer or no number; as NO_OVERLOAD: an order for bools or memory of a thread.
    """
    cache = ordered.cache_hint(site, "store", cache_modifier, eviction_policy, order, scope)
    if order is None and scope is None:
        store_as(site, pointer, value, mask, functools.partial(effects.store, site, cache=cache))
    else:
        store_as(site, pointer, value, mask, functools.partial(ordered.store, site, order, scope))


def store_as(site: Site, pointer: Any, value: Any, mask: Any, emit: Callable[..., None]) -> None:
    address = _pointer(site, "store", pointer)
    if not is_numeric(value):
        raise site.error(BadOperands("store", describe(value), "a number is needed"))
    on = _mask(site, mask)
    emit(address.value, site.tracer.arithmetic.to_value(value, address.dtype), on)


@elementwise
def where(site: Site, condition: Any, if_true: Any, if_false: Any) -> Any:
    """`if_true` where `condition` holds, else `if_false`, of numbers or tiles; both are evaluated. Dtypes meet as operands do.

    Outside kernels it computes too, of NumPy arrays element by element. Refused as BAD_OPERANDS: what are no numbers.
    """
    are_numbers = is_numeric(if_true) and is_numeric(if_false)
    if not isinstance(condition, Number):
        pair = (if_true, if_false) if site.static(bool, condition) else (if_false, if_true)
        return chosen(site, *pair) if are_numbers else pair[0]
    if not are_numbers:
        shown = f"{describe(if_true)} and {describe(if_false)}"
        raise site.error(BadOperands("where", shown, "use `a if c else b` for other values"))
    on = site.tracer.arithmetic.to_value(condition, dtypes.bool_)
    return site.tracer.arithmetic.select(on, if_true, if_false)


@elementwise
def view(site: Site, number: Any, dtype: Any) -> Any:
    """The number of `dtype` that has the bits of `number`; what `number.view(dtype)` gives."""
    target = getattr(dtype, "__wrapped__", dtype)  # as an argument of a `direct` function
    return attributes.viewed(site, number, target)


def axes_of(given: Any) -> tuple[Any, ...]:
    """Return a value for each axis; one that is given without a tuple is for the only axis."""
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _known_dtype(site: Site, dtype: Any) -> DType:
    if isinstance(dtype, DType):
        return dtype
    raise site.error(BadCall(f"`dtype` is {shown(dtype)}", "give a dtype, such as sk.float32"))


ELEMENTWISE = (round, int, float)
"""Python's functions that, applied to a tile, apply to each element."""


@staged
def speculate(site: Site, condition: Any, *, multiple_of: Any = None, apart_from: Any = None) -> bool:
    """Return, at compile time, True where `condition` holds, whatever the launch, and False where that is not known.

    A condition on arguments is taken for granted, and the code runs the launches for which it holds; others run code in which it
    is not known, made when such a launch comes. multiple_of: an int; asks whether `condition`, an integer, or a pointer or array
    in bytes, is a multiple of it in every thread and iteration. apart_from: an array argument, or a tuple of them; asks whether
    `condition`, another one, overlaps none of them: what is only read is then loaded once, through the read-only cache of a GPU.
    Refused as NOT_OF_ARGUMENTS: what depends on more than arguments, and on floats.
    """

    def refuse(why: str) -> None:
        raise site.error(NotOfArguments(why))

    if multiple_of is not None:
        divisor = _static_int(site, multiple_of, "`multiple_of`")
        is_integer = is_numeric(condition) and default_dtype(condition).is_integer
        if divisor < 1 or not (is_integer or isinstance(condition, Address | Array)):
            hint = "give an integer, a pointer or an array, and a positive int"
            raise site.error(BadCall(f"`speculate` of {describe(condition)}, multiple_of={divisor}", hint))
        return _ask_multiple(site, condition, divisor, refuse)
    if apart_from is not None:
        return _ask_apart(site, condition, apart_from if isinstance(apart_from, tuple | list) else (apart_from,))
    if not is_numeric(condition) or default_dtype(condition) is not dtypes.bool_:
        hint = "give a condition such as `n % 8 == 0`, or `x, multiple_of=16`, or `x, apart_from=out`"
        raise site.error(BadCall(f"`speculate` of {describe(condition)}", hint))
    if not isinstance(condition, Number):
        return bool(condition)
    try:
        text = ast.unparse(site.node.args[0]) if isinstance(site.node, ast.Call) and site.node.args else ""
        return site.tracer.facts.holds(condition.value, f"`{text}`" if text else "a condition")
    except Unanswerable as error:
        refuse(str(error))
        return False


def _ask_apart(site: Site, array: Any, others: Sequence[Any]) -> bool:
    """Return whether an array is known to overlap none of the others, or is taken to from now on."""
    for each in (array, *others):
        if not isinstance(each, Array) or each.base.start not in site.tracer.facts.arguments:
            raise site.error(BadCall(f"`speculate` of {describe(each)} as apart", "give arrays that are arguments"))
    site.tracer.builder.spoil_log()
    answers = [site.tracer.is_apart(array.base.start, each.base.start) for each in others]  # each is asked
    return all(answers)


def _ask_multiple(site: Site, value: Any, divisor: int, refuse: Callable[[str], None]) -> bool:
    """Do that. refuse: called with words that say why, where it would be no function of the arguments."""
    if isinstance(value, Address | Array):
        found = (value.base if isinstance(value, Array) else value).value
    elif isinstance(value, Number) and value.dtype.is_integer:
        found = value.value
    else:
        return int(value) % divisor == 0
    try:
        return site.tracer.facts.is_multiple(found, divisor)
    except Unanswerable as error:
        refuse(str(error))
        return False


def _alloc(site: Site, shape: Any, dtype: Any, space: Space, align: int | None) -> Any:
    dtype = _known_dtype(site, dtype)
    sizes = tuple(_static_int(site, s, "`shape`") for s in axes_of(shape))
    name = name_given_to(site.node) or space.value
    return _allocated(site, name, sizes, dtype, space, align or dtype.itemsize)


def _allocated(
    site: Site, name: str, sizes: tuple[Any, ...], dtype: DType, space: Space, align: int, base: Address | None = None
) -> Any:
    """Return an array of these sizes at `base`, or in memory of its own."""
    if dtype.part is not None:
        return ComplexLibrary.array(_allocated(site, name, (*sizes, 2), dtype.part, space, align, base))
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise site.error(BadCall(f"`shape` is {shown(sizes)}", "sizes are not negative"))
    count: Any
    strides, count = row_major(site.tracer, sizes)
    _refuse_size(site, count, dtype, space)
    if base is None:
        base = Address(site.tracer.builder.alloc(dtype, space, count, align, name))
    else:
        _need_shared(site, count, dtype)
    return Array(name, base, sizes, strides, True)


def _refuse_size(site: Site, count: Any, dtype: DType, space: Space) -> None:
    """Refuse an array that is too large for every GPU. The sum over all arrays is checked when the kernel is lowered."""
    used_bytes = count * dtype.itemsize if isinstance(count, int) else 0
    if space is Space.SHARED and used_bytes > MAX_SHARED_BYTES:
        raise site.error(SharedMemoryExceeded(used_bytes, *NO_GPU))
    if space is Space.LOCAL and used_bytes > MAX_LOCAL_BYTES:
        text = f"{shown(used_bytes)} bytes for each thread"
        raise site.error(BadCall(text, f"a thread has {MAX_LOCAL_BYTES} at most"))


@staged
def alloc_shared(site: Site, shape: Any, dtype: Any, *, align: int | None = None) -> Any:
    """An array in shared memory, one per block, not initialised. shape: an int or a tuple of ints, known at compile time.

    In a loop each call begins a new array, in the same place; nothing is left of the one before. align: bytes that its address is
    a multiple of, a power of two up to 1024; the size of an element if left out. Refused: sizes not known (RUN_TIME_VALUE), and
    more than any GPU has (SHARED_MEMORY_EXCEEDED).
    """
    if not is_alignment(align):
        hint = f"give a power of two, in bytes, from 1 to {MAX_ALIGN}"
        raise site.error(BadCall(f"`align` is {shown(align)}", hint))
    return _alloc(site, shape, dtype, Space.SHARED, align)


@staged
def alloc_local(site: Site, shape: Any, dtype: Any) -> Any:
    """An array private to each thread, not initialised. shape: an int or a tuple of ints, known at compile time.

    Refused: sizes not known (RUN_TIME_VALUE), and more than a thread has (BAD_CALL).
    """
    return _alloc(site, shape, dtype, Space.LOCAL, None)


@staged
def window(site: Site, array: Any, start: Any, shape: Any) -> Array:
    """The view of `shape` elements of an array from `start` on, along its first axes.

    start: one index, or a tuple of them, known at run time or before. shape: ints known at compile time, as many. Unlike a slice
    it is not clamped: the elements must be there. The checking interpreter finds an access where they are not. Refused as
    BAD_CALL: what is no array, and more axes than it has.
    """
    starts, sizes = axes_of(start), axes_of(shape)
    if not isinstance(array, Array):
        raise site.error(BadCall(f"`window` of {describe(array)}", "give an array"))
    if len(starts) != len(sizes) or len(sizes) > array.ndim:
        text = f"{len(starts)} starts and {len(sizes)} sizes of {array.ndim} axes"
        raise site.error(BadCall(text, "give one of each for an axis"))
    known = tuple(_static_int(site, size, "a size of `window`") for size in sizes)
    if any(size < 1 for size in known):
        raise site.error(BadCall(f"a window of {known}", "give sizes of at least 1"))
    return arrays.window(site, array, starts, known)


@staged
def peer(site: Site, array: Any, rank: Any) -> Any:
    """The array in shared memory, or the pointer into it, of the block `rank` of this block's cluster; or of this block.

    array: of this block's own. rank: an integer below `cuda.cluster_blocks()`. What it gives is loaded, stored and updated by
    atomics like any array; `cuda.cluster_sync` orders that among blocks, and keeps each there until all have done. Compute
    capability 9.0 or above. Refused as BAD_CALL: what is no array or pointer, and memory that is not shared.
    """
    base = _pointer(site, "peer", array.base if isinstance(array, Array) else array)
    if base.type.space is not Space.SHARED:
        text = f"`peer` of an array in {base.type.space.value} memory"
        raise site.error(
            BadCall(text, "give one of `alloc_shared` or `dynamic_shared`: other memory is reached as it is")
        )
    number = Number(arrays.index_value(site, rank))
    mapped = site.invoke(registry.by_name("map_shared_rank"), [base, number])
    return dataclasses.replace(array, base=mapped) if isinstance(array, Array) else mapped


@staged
def switch(site: Site, index: Any, functions: Any, *args: Any) -> Any:
    """Call one of several functions, chosen by an integer that is known at run time, with these arguments; return its result.

    functions: a tuple or list, known at compile time; each is expanded once. An index below 0 chooses the first, one beyond the
    end the last. What they return meets as after an `if`. Refused as BAD_CALL: what are no functions, and no integer.
    """
    choices = tuple(functions) if isinstance(functions, tuple | list) else ()
    if not choices or not all(map(callable, choices)):
        hint = "give a tuple of functions: `sk.switch(i, (f, g, h), x)`"
        raise site.error(BadCall(f"`switch` over {describe(functions)}", hint))
    if not is_numeric(index) or not default_dtype(index).is_integer or default_dtype(index) is dtypes.bool_:
        raise site.error(BadCall(f"`switch` by {describe(index)}", "give an integer; for a condition write `if`"))
    if not isinstance(index, Number):
        place = min(max(int(index), 0), len(choices) - 1)
        return site.invoke(choices[place], list(args))

    def among(first: int, end: int) -> Any:
        """Choose by halves: as many comparisons as the number of functions has digits."""
        if end - first == 1:
            return site.invoke(choices[first], list(args))
        middle = (first + end) // 2
        is_below = site.tracer.arithmetic.compare(ast.Lt, index, middle)
        return conditions.choose(
            site.tracer, is_below, lambda: among(first, middle), lambda: among(middle, end), site.loc
        )

    return among(0, len(choices))


@staged
def table(site: Site, values: Any) -> Any:
    """A captured NumPy array as an array of the kernel that is part of its code: `sk.load(sk.table(CODES) + tile)`.

    To index it, `CODES[i]` does; this is for pointers. values: known at compile time, at most 4 MiB. Nothing can be stored to it.
    """
    return table_of(site, values)


@staged
def dynamic_shared(site: Site, dtype: Any, shape: Any = None) -> Any:
    """The shared memory whose size the launch gives (`shared_bytes`), as a pointer, or as an array of `shape`.

    shape: an int or a tuple, of sizes known at run time or before. Every call returns the same memory, not initialised. A launch
    that gives less than an array needs is refused as SHARED_MEMORY_TOO_SMALL.
    """
    dtype = _known_dtype(site, dtype)
    name = name_given_to(site.node) or "dynamic_shared"
    base = Address(site.tracer.builder.alloc(dtype.part or dtype, Space.SHARED, None, 16, name))
    if shape is None:
        attributes.require_dtype(site, "dynamic_shared", dtype)
        _need_shared(site, 1, dtype)
        return base
    sizes = tuple(s if isinstance(s, int) else Number(arrays.index_value(site, s)) for s in axes_of(shape))
    return _allocated(site, "dynamic_shared", sizes, dtype, Space.SHARED, 16, base)


def _need_shared(site: Site, elements: Any, dtype: DType) -> None:
    """Note how much memory a launch must give, unless it is needed under run-time control flow only."""
    if not site.tracer.control_depth:
        site.tracer.shared_needs.append((elements, dtype.itemsize))


# -- staging --------------------------------------------------------------------------------------------------------------


_UNROLLED = "use a constexpr, or `range(...)` for a loop at run time"


@staged
def static_range(site: Site, *bounds: Any) -> StaticRange:
    """`range(...)` of ints known at compile time, whose loop is unrolled; its variable is a Python int. Elsewhere it is `range`.

    Refused: a bound known only at run time (RUN_TIME_VALUE), and more iterations than `unroll_budget=` of the kernel allows.
    """
    known = [_static_int(site, b, "an argument of `static_range`", _UNROLLED) for b in bounds]
    try:
        return StaticRange(range(*known))
    except (TypeError, ValueError) as error:  # none or too many of them, or a step of 0
        raise site.error(BadCall(f"`static_range`: {error}", "static_range(start, stop, step)")) from None


@staged
def static_assert(site: Site, condition: Any, message: Any = "") -> None:
    """Fail the specialisation with `message` unless `condition`, a compile-time value, holds.

    The error is STATIC_ASSERTION, outside kernels too; RUN_TIME_VALUE where the condition is known only at run time.
    """
    if holds_run_time(condition):
        hint = "use `assert` for what is known at run time"
        raise site.needs_static("the condition of `static_assert`", condition, hint)
    if not site.static(bool, condition):
        raise site.error(StaticAssertion(in_users_words(site.static(str, message)) or "the condition is false"))


@staged
def static_print(site: Site, *values: Any) -> None:
    """Print while specialising: compile-time values as they are, run-time values by their type. Elsewhere it is `print`."""
    site.tracer.printed.append(" ".join(describe(v) if holds_run_time(v) else str(v) for v in values))


@staged
def constexpr_value(site: Site, value: Any) -> Any:
    """`constexpr(x)`: x itself; an error when it is known only at run time."""
    if holds_run_time(value):
        raise site.needs_static("the argument of `constexpr`", value, "pass it as a constexpr parameter")
    return value
