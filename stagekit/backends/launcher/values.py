"""Numbers and pointers of machine code as Python objects, whose operators write instructions.

    count = table.field("count", int64)      %t0 = load i64, ...
    is_short = (count & 7 == 0) | (count < limit)

Arithmetic is that of the language (`llvm/arith`): nothing traps, and shifts by too much have a defined result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType, bool_
from stagekit.ir import BinaryKind, CompareKind, Pointer, Scalar, Space, UnaryKind

Fields = Mapping[str, int]
Type = DType | Fields
"""The type of a value: a number, or a pointer to memory with fields at these offsets in bytes."""

PTR: Fields = MappingProxyType({})
"""A pointer to memory without named fields."""

_POINTER = Pointer(bool_, Space.GLOBAL)  # all pointers are alike to LLVM


def type_text(type_: Type) -> str:
    """Return LLVM's spelling of a type."""
    return llvm_type(type_, None) if isinstance(type_, DType) else "ptr"


def _binary(kind: BinaryKind) -> Callable[[Value, Operand], Value]:
    """The method that writes an arithmetic instruction."""

    def write(self: Value, other: Operand) -> Value:
        text = arith.binary(self._w, kind, self.dtype, None, self.text, self._operand(other))
        return Value(self._w, self.type, text)

    return write


def _compare(kind: CompareKind) -> Callable[[Value, Operand], Value]:
    """The method that writes a comparison, also of pointers."""

    def write(self: Value, other: Operand) -> Value:
        return Value(self._w, bool_, arith.compare(self._w, kind, self._ir_type, None, self.text, self._operand(other)))

    return write


class Value:
    """A number or a pointer in a function that is being written. An operand that is a Python number takes its type."""

    __slots__ = ("_w", "text", "type")

    def __init__(self, w: Writer, type_: Type, text: str) -> None:
        self._w = w
        self.type = type_
        self.text = text

    # Numbers --------------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        assert isinstance(self.type, DType)
        return self.type

    @property
    def _ir_type(self) -> Scalar | Pointer:
        return Scalar(self.type) if isinstance(self.type, DType) else _POINTER

    def _operand(self, other: Operand) -> str:
        return other.text if isinstance(other, Value) else arith.constant(self.dtype, None, other)

    __add__ = _binary(BinaryKind.ADD)
    __sub__ = _binary(BinaryKind.SUB)
    __mul__ = _binary(BinaryKind.MUL)
    __truediv__ = _binary(BinaryKind.DIV)
    __floordiv__ = _binary(BinaryKind.FLOORDIV)
    __mod__ = _binary(BinaryKind.MOD)
    __and__ = _binary(BinaryKind.AND)
    __or__ = _binary(BinaryKind.OR)
    __xor__ = _binary(BinaryKind.XOR)
    __lshift__ = _binary(BinaryKind.SHL)
    __rshift__ = _binary(BinaryKind.SHR)
    __lt__ = _compare(CompareKind.LT)
    __le__ = _compare(CompareKind.LE)
    __gt__ = _compare(CompareKind.GT)
    __ge__ = _compare(CompareKind.GE)
    __eq__ = _compare(CompareKind.EQ)  # type: ignore[assignment]
    __ne__ = _compare(CompareKind.NE)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Value:
        return Value(self._w, self.type, arith.unary(self._w, UnaryKind.NEG, self.dtype, None, self.text))

    def __invert__(self) -> Value:
        return Value(self._w, self.type, arith.unary(self._w, UnaryKind.NOT, self.dtype, None, self.text))

    def select(self, if_true: Value, if_false: Operand) -> Value:
        """Return `if_true` if this bool is true, else `if_false`; both are computed in any case."""
        type_, other = type_text(if_true.type), if_true._operand(if_false)
        text = self._w.emit(f"select i1 {self.text}, {type_} {if_true.text}, {type_} {other}")
        return Value(self._w, if_true.type, text)

    def to(self, dtype: DType) -> Value:
        """Convert the number, or the address that a pointer holds, to another dtype."""
        if not isinstance(self.type, DType):
            return self.bits(dtype)
        return Value(self._w, dtype, arith.cast(self._w, self.type, dtype, None, self.text))

    def bits(self, dtype: DType) -> Value:
        """Reinterpret the bits as another dtype of the same size."""
        return Value(self._w, dtype, arith.bitcast(self._w, self._ir_type, Scalar(dtype), None, self.text))

    # Pointers -------------------------------------------------------------------------------------------------------

    def is_null(self) -> Value:
        return Value(self._w, bool_, self._w.emit(f"icmp eq ptr {self.text}, null"))

    def is_set(self) -> Value:
        return Value(self._w, bool_, self._w.emit(f"icmp ne ptr {self.text}, null"))

    def at(self, offset: Value | int, fields: Fields = PTR) -> Value:
        """Return the pointer `offset` bytes further on, to memory with these fields."""
        return Value(self._w, fields, self._moved("i8", offset))

    def word(self, index: Value | int) -> Value:
        """Return a pointer to word `index`, in memory that holds words of 8 bytes."""
        return Value(self._w, PTR, self._moved("i64", index))

    def _moved(self, unit: str, count: Value | int) -> str:
        text = count.text if isinstance(count, Value) else str(count)
        return self.text if text == "0" else self._w.emit(f"getelementptr {unit}, ptr {self.text}, i64 {text}")

    def address_of(self, name: str) -> Value:
        """Return a pointer to a field."""
        assert not isinstance(self.type, DType)
        return self.at(self.type[name])

    def load(self, type_: Type = PTR) -> Value:
        return Value(self._w, type_, self._w.emit(f"load {type_text(type_)}, ptr {self.text}"))

    def store(self, value: Value) -> None:
        self._w.line(f"store {type_text(value.type)} {value.text}, ptr {self.text}")

    def field(self, name: str, type_: Type = PTR) -> Value:
        """Load a field."""
        return self.address_of(name).load(type_)

    def item(self, index: Value | int, type_: Type = PTR) -> Value:
        """Load word `index`."""
        return self.word(index).load(type_)


Operand = Value | int | float
