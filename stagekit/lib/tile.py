"""Tiles: block-level values, written in the language itself.

A tile is a compile-time object around run-time scalars: the elements that *this* thread holds. `arange(0, n)` spreads n
elements over the T threads of the block, and elementwise code is a Python loop over a thread's elements that is gone when the
kernel is specialised:

    tid = sk.arange(0, 2000)               # T = 1024: each thread holds elements t and t + 1024
    x = sk.load(src + tid, mask=tid < n)   # two loads, the second also masked by t + 1024 < 2000
    sk.store(dst + tid, x * 2, mask=tid < n)

Element e of thread t has index t + e * T. Where that is not below the tile's extent there is no such element: loads,
stores and atomics do not touch memory there, and reductions leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk

Traced = Any  # a run-time scalar or pointer, while a kernel is specialised

MAX_EXTENT = 1 << 20  # 1024 elements per thread; far above it the unrolled code would not be worth having


class Tile:
    """`extent` elements spread over `threads` threads; `elements` are this thread's, each a run-time scalar or pointer.

    Immutable: every operation makes a new tile. All operands of one operation have the same extent, or are scalars.
    """

    def __init__(self, elements: tuple[Traced, ...], extent: int, threads: int) -> None:
        self.elements = elements
        self.extent = extent
        self.threads = threads

    @property
    def dtype(self) -> sk.DType:
        dtype: sk.DType = self.elements[0].dtype
        return dtype

    @property
    def shape(self) -> tuple[int]:
        return (self.extent,)

    def is_valid(self, e: int) -> Traced:
        """Is there an element `e` in this thread? True itself (not a run-time value) where it is so in every thread."""
        if (e + 1) * self.threads <= self.extent:
            return True
        return sk.cuda.thread_idx("x") + e * self.threads < self.extent

    def to(self, dtype: sk.DType) -> Tile:
        return elementwise(lambda x: x.to(dtype), self)

    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tile | None:
        """What a language function does when one of its arguments is a tile."""
        if function is sk.load:
            return _load(*args, **kwargs)
        if function is sk.store:
            _store(*args, **kwargs)
            return None
        if function in _atomics():
            return _atomic(function, *args, **kwargs)
        return elementwise(function, *args, **kwargs)

    def __bool__(self) -> bool:
        sk.static_assert(False, "a tile has no single truth value: combine masks with & | ~, choose with sk.where")
        return False

    def __add__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a + b, self, other)

    def __radd__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a + b, other, self)

    def __sub__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a - b, self, other)

    def __rsub__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a - b, other, self)

    def __mul__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a * b, self, other)

    def __rmul__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a * b, other, self)

    def __truediv__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a / b, self, other)

    def __rtruediv__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a / b, other, self)

    def __floordiv__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a // b, self, other)

    def __rfloordiv__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a // b, other, self)

    def __mod__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a % b, self, other)

    def __rmod__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a % b, other, self)

    def __pow__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a**b, self, other)

    def __rpow__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a**b, other, self)

    def __and__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a & b, self, other)

    def __rand__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a & b, other, self)

    def __or__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a | b, self, other)

    def __ror__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a | b, other, self)

    def __xor__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a ^ b, self, other)

    def __rxor__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a ^ b, other, self)

    def __lshift__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a << b, self, other)

    def __rlshift__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a << b, other, self)

    def __rshift__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a >> b, self, other)

    def __rrshift__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a >> b, other, self)

    def __lt__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a < b, self, other)

    def __le__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a <= b, self, other)

    def __gt__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a > b, self, other)

    def __ge__(self, other: Any) -> Tile:
        return elementwise(lambda a, b: a >= b, self, other)

    def __eq__(self, other: object) -> Tile:  # type: ignore[override]
        return elementwise(lambda a, b: a == b, self, other)

    def __ne__(self, other: object) -> Tile:  # type: ignore[override]
        return elementwise(lambda a, b: a != b, self, other)

    __hash__ = None  # type: ignore[assignment]  # `==` gives a tile, so tiles cannot be keys

    def __neg__(self) -> Tile:
        return elementwise(lambda a: -a, self)

    def __pos__(self) -> Tile:
        return self

    def __invert__(self) -> Tile:
        return elementwise(lambda a: ~a, self)

    def __abs__(self) -> Tile:
        return elementwise(lambda a: abs(a), self)


def arange(start: int, stop: int) -> Tile:
    """The tile of int64 `start, start + 1, ..., stop - 1`; both are compile-time ints.

    Up to 1024 elements the block gets a thread for each; above that, each thread holds several. Of tiles with different
    extents the longest decides.
    """
    _require_int("start", start)
    _require_int("stop", stop)
    extent = stop - start
    threads = sk._block_threads(extent, f"the extent of arange({start!r}, {stop!r})")
    sk.static_assert(extent <= MAX_EXTENT, f"arange({start!r}, {stop!r}): a tile has at most {MAX_EXTENT} elements")
    first = sk.cuda.thread_idx("x") + start
    elements = tuple(first + e * threads for e in range(sk.ceildiv(extent, threads)))
    return Tile(elements, extent, threads)


def _require_int(name: str, value: Any) -> None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    sk.static_assert(is_int, f"arange: {name} must be a compile-time int, got {value!r}")


def elementwise(function: Callable[..., Traced], *args: Any, **kwargs: Any) -> Tile:
    """`function` of each element; scalars among the arguments go with every element."""
    layout = _layout(args + tuple(kwargs.values()))
    elements = tuple(
        function(*[_element(a, e) for a in args], **{k: _element(v, e) for k, v in kwargs.items()})
        for e in range(len(layout.elements))
    )
    return Tile(elements, layout.extent, layout.threads)


def _layout(args: tuple[Any, ...]) -> Tile:
    """The tile that says how the result lies: any tile among `args`, all of which must agree."""
    tiles = [a for a in args if isinstance(a, Tile)]
    for each in tiles:
        sk.static_assert(
            each.extent == tiles[0].extent,
            f"tiles of {tiles[0].extent} and {each.extent} elements in one operation",
        )
    return tiles[0]


def _element(arg: Any, e: int) -> Any:
    return arg.elements[e] if isinstance(arg, Tile) else arg


def _both(valid: Traced, mask: Traced | None) -> Traced | None:
    """`valid & mask`, where no mask means true, and compile-time true costs nothing. None: no mask needed."""
    if valid is True:
        return mask
    return valid if mask is None else valid & mask


def _load(pointer: Any, mask: Any = None, other: Any = None) -> Tile:
    layout = _layout((pointer, mask, other))
    elements = tuple(
        sk.load(
            _element(pointer, e),
            mask=_both(layout.is_valid(e), _element(mask, e)),
            other=0 if other is None else _element(other, e),
        )
        for e in range(len(layout.elements))
    )
    return Tile(elements, layout.extent, layout.threads)


def _store(pointer: Any, value: Any, mask: Any = None) -> None:
    sk.static_assert(
        isinstance(pointer, Tile),
        "store of a tile to one address: all elements would land on each other; add an arange to the pointer",
    )
    layout = _layout((pointer, value, mask))
    for e in sk.static_range(len(layout.elements)):
        allowed = _both(layout.is_valid(e), _element(mask, e))
        sk.store(_element(pointer, e), _element(value, e), mask=allowed)


def _atomics() -> tuple[Any, ...]:
    return (
        *(sk.atomic_add, sk.atomic_sub, sk.atomic_min, sk.atomic_max, sk.atomic_and, sk.atomic_or, sk.atomic_xor),
        *(sk.atomic_exchange, sk.atomic_cas),
    )


def _atomic(function: Any, *args: Any, mask: Any = None) -> Tile:
    """The old values; 0 where there is no element or `mask` is false."""
    layout = _layout((*args, mask))
    elements = tuple(
        _atomic_where(_both(layout.is_valid(e), _element(mask, e)), function, [_element(a, e) for a in args])
        for e in range(len(layout.elements))
    )
    return Tile(elements, layout.extent, layout.threads)


def _atomic_where(allowed: Traced | None, function: Any, args: list[Traced]) -> Traced:
    if allowed is None:
        return function(*args)
    old = args[0].dtype(0)
    if allowed:
        old = function(*args)
    return old
