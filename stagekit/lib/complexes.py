"""Complex numbers: pairs of floats, with Python's operators, and arrays of them. Their functions: `complex_functions`.

    z = A[i]                             # of an array of complex64: both parts by one access of 8 bytes
    B[i] = z * z.conjugate() + 2j        # Python's and NumPy's complex numbers are operands like others
    w = sk.complex(x, y)                 # of two real numbers; `complex(x, y)` is the same
    r, phi = abs(z), sk.angle(z)

Parts are float32 (complex64) or float64 (complex128), in which operands meet by the rules of real numbers. A real operand has no
imaginary part, not one of 0: it scales both parts, so that infinities stay what they are. Sources: C99, annex G, for that and for
special values; R. L. Smith, Algorithm 116: Complex division, CACM 5 (8), 1962, as NumPy has it.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.tile import Traced

_ADD, _SUBTRACT, _MULTIPLY, _NEGATE = map(sk._operation, ("+", "-", "*", "neg"))
_NO_ORDER = "complex numbers have no order: compare `abs(z)`, or `z.real`"
_NO_REST = "complex numbers have no whole quotient and no rest: divide by `/`"
_NOT_REAL = "a complex number is no real one: take `z.real`, `z.imag` or `abs(z)`"

FUNCTIONS: dict[str, Any] = {}
"""By the name of a function of the language, what it does with complex numbers: `complex_functions` fills it."""

_BY_PART = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")


def _refused(problem: str) -> Any:
    """Return a method of an operator that complex numbers do not have."""

    def refuse(self: ComplexNumber, *others: Any) -> None:
        sk.static_assert(False, problem)

    return refuse


class ComplexNumber:
    """A complex number of one thread: two floats of one dtype. Immutable. Operators and functions are as in Python and NumPy."""

    __stagekit_hint__ = "an array of complex numbers holds it; elsewhere take `z.real`, `z.imag` or `abs(z)`"

    def __init__(self, real: Traced, imag: Traced) -> None:
        self.real = real
        self.imag = imag

    @property
    def dtype(self) -> sk.DType:
        """complex64 or complex128, by the dtype of the parts."""
        found: sk.DType = sk.complex64 if sk._dtype_of(self.real) is sk.float32 else sk.complex128
        return found

    def conjugate(self) -> ComplexNumber:
        """Return the number with the opposite imaginary part."""
        return ComplexNumber(self.real, -self.imag)

    def to(self, dtype: sk.DType) -> ComplexNumber:
        """Return the number with its parts converted to those of a complex dtype."""
        return converted(dtype, self)

    def __stagekit_map__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a function of the language to arguments of which one is complex."""
        if isinstance(function, sk.DType):
            return converted(function, *args)
        name = getattr(function, "name", "")
        if name in _BY_PART:
            real = function(*[_part(each, "real") for each in args], **kwargs)
            return ComplexNumber(real, function(*[_part(each, "imag") for each in args], **kwargs))
        if name not in FUNCTIONS:
            name = name or getattr(function, "__name__", "this function")
            sk.static_assert(False, f"`{name}` takes no complex number: take `z.real`, `z.imag` or `abs(z)`")
        return FUNCTIONS[name](*[sk._in_parts(each) for each in args], **kwargs)

    def __stagekit_describe__(self) -> str:
        return "a complex number"

    @sk._direct
    def __add__(self, other: Any) -> ComplexNumber:
        if not isinstance(other, ComplexNumber):
            return of_parts(_ADD(self.real, other), self.imag)
        return of_parts(_ADD(self.real, other.real), _ADD(self.imag, other.imag))

    __radd__ = __add__

    @sk._direct
    def __sub__(self, other: Any) -> ComplexNumber:
        if not isinstance(other, ComplexNumber):
            return of_parts(_SUBTRACT(self.real, other), self.imag)
        return of_parts(_SUBTRACT(self.real, other.real), _SUBTRACT(self.imag, other.imag))

    @sk._direct
    def __rsub__(self, other: Any) -> ComplexNumber:
        return of_parts(_SUBTRACT(other, self.real), _NEGATE(self.imag))

    @sk._direct
    def __mul__(self, other: Any) -> ComplexNumber:
        if not isinstance(other, ComplexNumber):
            return of_parts(_MULTIPLY(self.real, other), _MULTIPLY(self.imag, other))
        a, b, c, d = self.real, self.imag, other.real, other.imag
        real, imag = _SUBTRACT(_MULTIPLY(a, c), _MULTIPLY(b, d)), _ADD(_MULTIPLY(a, d), _MULTIPLY(b, c))
        return of_parts(real, imag)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> ComplexNumber:
        if not isinstance(other, ComplexNumber):
            return of_parts(self.real / other, self.imag / other)
        return quotient(self, other)

    def __rtruediv__(self, other: Any) -> ComplexNumber:
        return quotient(as_complex(other), self)

    def __pow__(self, other: Any) -> Any:
        return sk.pow(self, other)

    def __rpow__(self, other: Any) -> Any:
        return sk.pow(as_complex(other), self)

    def __eq__(self, other: object) -> Any:
        if other is None:
            return False
        other = as_complex(other)
        return (self.real == other.real) & (self.imag == other.imag)

    def __ne__(self, other: object) -> Any:
        if other is None:
            return True
        other = as_complex(other)
        return (self.real != other.real) | (self.imag != other.imag)

    def __bool__(self) -> Any:
        return (self.real != 0) | (self.imag != 0)

    __hash__ = None  # type: ignore[assignment]

    @sk._direct
    def __neg__(self) -> ComplexNumber:
        return ComplexNumber(_NEGATE(self.real), _NEGATE(self.imag))

    def __pos__(self) -> ComplexNumber:
        return self

    __lt__ = __le__ = __gt__ = __ge__ = _refused(_NO_ORDER)
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refused(_NO_REST)
    __float__ = __int__ = _refused(_NOT_REAL)


@sk._direct
def of_parts(real: Any, imag: Any) -> ComplexNumber:
    """Return the number of these parts, which meet in one dtype."""
    return ComplexNumber(*sk._complex_parts(real, imag))


@sk._direct
def as_complex(value: Any) -> ComplexNumber:
    """Return a complex or a real number as a complex one."""
    return value if isinstance(value, ComplexNumber) else of_parts(value, 0)


@sk._direct
def _part(value: Any, name: str) -> Any:
    """Return a part of a complex number, for a function that is applied to each part; any other value as it is."""
    return getattr(value, name) if isinstance(value, ComplexNumber) else value


def quotient(a: ComplexNumber, b: ComplexNumber) -> ComplexNumber:
    """Return `a / b`, by the larger part of b, so that nothing overflows on the way; by 0 it is infinite or NaN."""
    is_wide = abs(b.real) >= abs(b.imag)  # of b: it is not steep
    larger, smaller = sk.where(is_wide, b.real, b.imag), sk.where(is_wide, b.imag, b.real)
    along, across = sk.where(is_wide, a.real, a.imag), sk.where(is_wide, a.imag, a.real)
    ratio = smaller / larger
    scale = 1 / (larger + smaller * ratio)
    turned = along * ratio
    imag = sk.where(is_wide, across, turned) - sk.where(is_wide, turned, across)
    is_zero, far = (larger == 0) & (smaller == 0), 1 / abs(larger)
    real = sk.where(is_zero, a.real * far, (along + across * ratio) * scale)
    return of_parts(real, sk.where(is_zero, a.imag * far, imag * scale))


@sk._kernel_only
def complex(real: Any, imag: Any = None) -> ComplexNumber:
    """The complex number of a real and an imaginary part: complex64, or complex128 where they meet in float64.

    16-bit floats, and integers up to 32 bits, count as float32. Python's `complex` is the same in a kernel, and as there each may
    be complex itself. Refused as BAD_CALL: what is no number.
    """
    return converted(None, real, imag)


def converted(dtype: sk.DType | None, real: Any, imag: Any = None) -> ComplexNumber:
    """Return a number of a complex dtype, None for that in which the parts meet, of what Python's `complex` takes."""
    real, imag = sk._in_parts(real), sk._in_parts(imag)
    if imag is None:
        made = as_complex(real)
    elif isinstance(real, ComplexNumber) or isinstance(imag, ComplexNumber):
        a, b = as_complex(real), as_complex(imag)
        made = of_parts(a.real - b.imag, a.imag + b.real)
    else:
        made = of_parts(real, imag)
    if dtype is None:
        return made
    if dtype.part is None:
        sk.static_assert(False, f"{dtype.name}(z): {_NOT_REAL}")
    return ComplexNumber(dtype.part(made.real), dtype.part(made.imag))


class ComplexArray:
    """An array of complex numbers, of an array of their parts, which are its last axis."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    @property
    def dtype(self) -> sk.DType:
        """complex64 or complex128."""
        found: sk.DType = sk.complex64 if self._parts.dtype is sk.float32 else sk.complex128
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        count: int = self._parts.ndim - 1
        return count

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes, one for each axis."""
        return tuple(self._parts.shape[:-1])

    @property
    def strides(self) -> tuple[Any, ...]:
        """The steps from an index to the next, for each axis, in elements."""
        return tuple([step // 2 for step in self._parts.strides[:-1]])

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self._parts.size // 2

    @property
    def real(self) -> Any:
        """The real parts: an array of floats with steps over the imaginary ones."""
        return self._parts[..., 0]

    @property
    def imag(self) -> Any:
        """The imaginary parts: an array of floats with steps over the real ones."""
        return self._parts[..., 1]

    def __len__(self) -> Any:
        return self.shape[0]

    __iter__ = None

    def __getitem__(self, index: Any) -> Any:
        """Return one element, or a view."""
        found = self._at(index)
        return ComplexArray(found) if found.ndim > 1 else self.load(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.store(index, value)

    def load(self, index: Any, mask: Any = None, other: Any = None) -> ComplexNumber:
        """Return the element at an index; where `mask` is off nothing is read, and it is `other`, else 0."""
        parts = self._element(index)
        held = sk._load_vector(parts.ptr, 2, _align(parts), mask=mask)
        found = ComplexNumber(*sk._lanes(held))
        return found if other is None or mask is None else sk.where(mask, found, self.dtype(other))

    def store(self, index: Any, value: Any, mask: Any = None) -> None:
        """Write a number to the element at an index, where `mask` is on."""
        number, parts = self.dtype(value), self._element(index)
        (held,) = sk._in_vectors([number.real, number.imag], (2,))
        sk._store_vector(parts.ptr, held, _align(parts), mask=mask)

    def _at(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        has_rest = ... in places
        if len(places) > self.ndim + has_rest:
            axes = "1 axis" if self.ndim == 1 else f"{self.ndim} axes"
            sk._refuse_index(f"{len(places)} indices of an array with {axes}", "give an index for each axis")
        return self._parts[(*places, slice(None))] if has_rest else self._parts[(*places, ..., slice(None))]

    def _element(self, index: Any) -> Any:
        found = self._at(index)
        if found.ndim > 1:
            sk._refuse_index("a slice of an array of complex numbers", "name one element by an integer for each axis")
        return found

    def __stagekit_describe__(self) -> str:
        return f"an array of {self.dtype.name}"

    __stagekit_hint__ = "index it: `A[i]`; its parts are the arrays `A.real` and `A.imag`, of which there are pointers"


def _align(parts: Any) -> int:
    """Return of how many bytes the address of an element is known to be a multiple: of both parts, or of one."""
    size: int = parts.dtype.itemsize
    return 2 * size if sk._is_multiple(parts.ptr, 2 * size) else size


sk._complex_values(ComplexNumber, ComplexArray, converted)
