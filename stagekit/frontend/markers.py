"""What a user writes in annotations and at module level: constexpr, Tensor, Pointer, dynamic sizes.

def k(A: Tensor((n, 4), float32), p: Pointer(int32), scale: float32, bias: Tensor((n,), float32) | None, *, N: constexpr[int])
"""

from __future__ import annotations

import inspect
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.diagnostics import hide_frames, ordinary, public_class, shown, under_name, wrong_arguments
from stagekit.dtypes import ELEMENT_DTYPES, DType, element_dtype
from stagekit.frontend.errors import BadOperands, SpecializeError
from stagekit.frozen import frozen
from stagekit.limits import MAX_AXES


class _Constexpr:
    """Marks a parameter as fixed at specialise time: `BLOCK: constexpr`, or with its type checked, `constexpr[int]`.

    `constexpr(x)` returns x; in a kernel it refuses a run-time value.
    """

    __iter__ = None  # or Python would iterate for ever by `__getitem__`

    def __init__(self, type_: Any = ...) -> None:
        self.type = type_  # what stands in the brackets; `...` where there are none
        self.__doc__ = f"constexpr(value)\n\n{inspect.cleandoc(str(_Constexpr.__doc__))}"
        self.__name__ = self.__qualname__ = "constexpr"

    def __getitem__(self, type_: Any) -> _Constexpr:
        return _Constexpr(type_)

    @hide_frames
    def __call__(self, value: Any) -> Any:
        return value

    def __repr__(self) -> str:
        return "constexpr" if self.type is ... else f"constexpr[{inspect.formatannotation(self.type)}]"


constexpr = _Constexpr()


def _operator(kind: str, sign: str, *, is_swapped: bool = False) -> Any:
    """Return an operator of sizes."""

    @hide_frames
    def operator(self: SizeExpr, other: SizeLike) -> SizeExpr:
        if not issubclass(type(other), int | np.integer | SizeExpr) or isinstance(other, bool):
            raise _no_size(sign, self, other)
        size = int(other) if isinstance(other, np.integer) else other
        return SizeOp(kind, (size, self) if is_swapped else (self, size))

    return operator


def _refused(sign: str) -> Any:
    """Return an operator that sizes do not have."""

    @hide_frames
    def operator(self: SizeExpr, other: Any) -> Any:
        raise _no_size(sign, self, other)

    return operator


def _no_size(sign: str, left: Any, right: Any) -> SpecializeError:
    hint = "a dynamic size is known at each launch only: `+ - * // %` with ints make sizes of it, kernels do the rest"
    return SpecializeError(BadOperands(sign, f"the dynamic size `{shown(left)}` and {shown(right)}", hint))


class SizeExpr:
    """Integer arithmetic over dynamic sizes: `n + 1`, `2 * n`, `n // 4`. Built by operators, never evaluated by itself."""

    __add__ = _operator("add", "+")
    __radd__ = _operator("add", "+", is_swapped=True)
    __sub__ = _operator("sub", "-")
    __rsub__ = _operator("sub", "-", is_swapped=True)
    __mul__ = _operator("mul", "*")
    __rmul__ = _operator("mul", "*", is_swapped=True)
    __floordiv__ = _operator("floordiv", "//")
    __rfloordiv__ = _operator("floordiv", "//", is_swapped=True)
    __mod__ = _operator("mod", "%")
    __rmod__ = _operator("mod", "%", is_swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_refused, ("<", "<=", ">", ">="))
    __truediv__ = __rtruediv__ = _refused("/")
    __pow__ = __rpow__ = _refused("**")
    __and__ = __rand__ = _refused("&")
    __or__ = __ror__ = _refused("|")
    __xor__ = __rxor__ = _refused("^")
    __lshift__ = __rlshift__ = _refused("<<")
    __rshift__ = __rrshift__ = _refused(">>")

    def __neg__(self) -> SizeExpr:
        return SizeOp("neg", (self,))

    def symbols(self) -> set[Dynamic]:
        raise TypeError("use dynamic() or arithmetic on it")


SizeLike = int | SizeExpr

_serial = itertools.count()


@frozen(eq=False, held=True)
class Dynamic(SizeExpr):
    """A size known only at run time. Using one object in several shapes says that those sizes are equal."""

    name: str
    serial: int = field(default_factory=lambda: next(_serial))

    def __repr__(self) -> str:
        return self.name

    def symbols(self) -> set[Dynamic]:
        return {self}


@frozen(eq=False, held=True)
class SizeOp(SizeExpr):
    """Arithmetic on sizes. kind: a key of `hostexpr.KINDS`."""

    kind: str
    args: tuple[SizeLike, ...]

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.args))})"

    def symbols(self) -> set[Dynamic]:
        return set().union(*(a.symbols() for a in self.args if isinstance(a, SizeExpr)))


@hide_frames
def dynamic(name: str) -> Dynamic:
    """A new run-time size (int64), to be used in `Tensor` shapes and in the kernel's body."""
    if type(name) is not str:
        raise wrong_arguments(dynamic, f"takes a name, got {shown(name)}")
    return Dynamic(name)


class _Annotation:
    """Base of parameter annotations: `X | None` makes one optional."""

    def __or__(self, other: object) -> Optional:
        if other is not None:
            return NotImplemented
        return Optional(self)

    __ror__ = __or__


@public_class
class Array:
    """An array argument, to type checkers: `A: Annotated[sk.Array, sk.Tensor((n,), sk.float32)]`. Alone it promises nothing."""

    def __init__(self) -> None:
        pass


@public_class
@dataclass(frozen=True)
class Tensor(_Annotation):
    """An array parameter. shape: sizes per axis, each an int, a `dynamic` size, arithmetic on those, the name of a constexpr, or
    None (any size). A name may be quoted, since a parameter is not defined yet where annotations are evaluated.

    strides: element strides per axis, likewise; left out, any layout is accepted and specialised on contiguity.
    align: bytes that the address must be a multiple of; left out, the element size.
    """

    shape: tuple[SizeLike | str | None, ...]
    dtype: DType
    strides: tuple[Any, ...] | None = None
    align: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype(self.dtype))
        object.__setattr__(self, "shape", _axes("shape", self.shape))
        if self.strides is not None:
            object.__setattr__(self, "strides", _axes("strides", self.strides))


def _dtype(given: Any) -> Any:
    """Return the dtype that a name or NumPy's own dtype means. Anything else is refused where the parameter is known."""
    kind = type(given)
    if kind is str:
        return next((dtype for dtype in ELEMENT_DTYPES if dtype.name == given), given)
    if issubclass(kind, np.dtype) or (kind is type and issubclass(given, np.generic)):
        return element_dtype(np.dtype(given)) or given
    return given


MAX_ALIGN = 1024  # bytes; the coarsest that a GPU asks of shared memory


def is_alignment(align: Any) -> bool:
    """Return whether a parameter or an allocation may ask for this alignment in bytes; None asks for none."""
    return align is None or (type(align) is int and 1 <= align <= MAX_ALIGN and align & (align - 1) == 0)


def _axes(what: str, given: Any) -> tuple[Any, ...]:
    """Return one entry per axis. The entries are checked where the parameter is known."""
    try:
        if isinstance(given, int | str | SizeExpr) or given is None:
            return (given,)
        axes = tuple(itertools.islice(given, MAX_AXES + 1))
    except Exception:  # the methods of a user's object may raise anything
        axes = (None,) * (MAX_AXES + 1)
    if len(axes) > MAX_AXES:
        raise wrong_arguments(Tensor, f"{what} is {shown(given)}, not a tuple of sizes")
    return axes


@public_class
@dataclass(frozen=True)
class Pointer(_Annotation):
    """A parameter that takes any array of `dtype` by its address alone, whatever its shape and strides."""

    dtype: DType
    align: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype(self.dtype))


@frozen(held=True)
class Optional(_Annotation):
    """The annotation `inner | None`. Whether the argument is None is fixed at specialise time."""

    inner: Any


@ordinary
def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up: how many blocks of `b` cover `a` elements. Integers of any sign; compile-time, run-time or sizes."""
    if isinstance(a, SizeExpr) or isinstance(b, SizeExpr):
        return -(-a // b)  # sizes are signed
    return a // b + (a % b != 0)  # without a negation, which unsigned numbers and the least signed one do not have


cdiv = under_name("cdiv", ceildiv)
