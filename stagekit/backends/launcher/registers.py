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


def _binary(kind: BinaryKind) -> Callable[[Reg, Operand], Reg]:
    """The method that writes an arithmetic instruction."""

    def write(self: Reg, other: Operand) -> Reg:
        text = arith.binary(self._w, kind, self.dtype, None, self.text, self._operand(other))
        return Reg(self._w, self.type, text)

    return write


def _compare(kind: CompareKind) -> Callable[[Reg, Operand], Reg]:
    """The method that writes a comparison, also of pointers."""

    def write(self: Reg, other: Operand) -> Reg:
        return Reg(self._w, bool_, arith.compare(self._w, kind, self._ir_type, None, self.text, self._operand(other)))

    return write


class Reg:
    """A register of a function that is being written: a number or a pointer. A Python number beside it takes its type."""

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
        return other.text if isinstance(other, Reg) else arith.constant(self.dtype, None, other)

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

    def __neg__(self) -> Reg:
        return Reg(self._w, self.type, arith.unary(self._w, UnaryKind.NEG, self.dtype, None, self.text))

    def __invert__(self) -> Reg:
        return Reg(self._w, self.type, arith.unary(self._w, UnaryKind.NOT, self.dtype, None, self.text))

    def select(self, if_true: Reg, if_false: Operand) -> Reg:
        """Return `if_true` if this bool is true, else `if_false`; both are computed in any case."""
        type_, other = type_text(if_true.type), if_true._operand(if_false)
        text = self._w.emit(f"select i1 {self.text}, {type_} {if_true.text}, {type_} {other}")
        return Reg(self._w, if_true.type, text)

    def to(self, dtype: DType) -> Reg:
        """Convert the number, or the address that a pointer holds, to another dtype."""
        if not isinstance(self.type, DType):
            return self.bits(dtype)
        return Reg(self._w, dtype, arith.cast(self._w, self.type, dtype, None, self.text))

    def bits(self, dtype: DType) -> Reg:
        """Reinterpret the bits as another dtype of the same size."""
        return Reg(self._w, dtype, arith.bitcast(self._w, self._ir_type, Scalar(dtype), None, self.text))

    # Pointers -------------------------------------------------------------------------------------------------------

    def is_null(self) -> Reg:
        return Reg(self._w, bool_, self._w.emit(f"icmp eq ptr {self.text}, null"))

    def is_set(self) -> Reg:
        return Reg(self._w, bool_, self._w.emit(f"icmp ne ptr {self.text}, null"))

    def at(self, offset: Reg | int, fields: Fields = PTR) -> Reg:
        """Return the pointer `offset` bytes further on, to memory with these fields."""
        return Reg(self._w, fields, self._moved("i8", offset))

    def word(self, index: Reg | int) -> Reg:
        """Return a pointer to word `index`, in memory that holds words of 8 bytes."""
        return Reg(self._w, PTR, self._moved("i64", index))

    def _moved(self, unit: str, count: Reg | int) -> str:
        text = count.text if isinstance(count, Reg) else str(count)
        return self.text if text == "0" else self._w.emit(f"getelementptr {unit}, ptr {self.text}, i64 {text}")

    def address_of(self, name: str) -> Reg:
        """Return a pointer to a field."""
        assert not isinstance(self.type, DType)
        return self.at(self.type[name])

    def load(self, type_: Type = PTR) -> Reg:
        return Reg(self._w, type_, self._w.emit(f"load {type_text(type_)}, ptr {self.text}"))

    def store(self, value: Reg) -> None:
        self._w.line(f"store {type_text(value.type)} {value.text}, ptr {self.text}")

    # Memory that several threads use; all these accesses are in one order

    def atomic_load(self, type_: DType) -> Reg:
        text = self._w.emit(f"load atomic {type_text(type_)}, ptr {self.text} seq_cst, align {type_.itemsize}")
        return Reg(self._w, type_, text)

    def atomic_store(self, value: Reg) -> None:
        place = f"ptr {self.text} seq_cst, align {value.dtype.itemsize}"
        self._w.line(f"store atomic {type_text(value.type)} {value.text}, {place}")

    def atomic(self, operation: str, value: Reg) -> Reg:
        """Do LLVM's `atomicrmw` of this name; return what was there before."""
        text = self._w.emit(f"atomicrmw {operation} ptr {self.text}, {type_text(value.type)} {value.text} seq_cst")
        return Reg(self._w, value.type, text)

    def field(self, name: str, type_: Type = PTR) -> Reg:
        """Load a field."""
        return self.address_of(name).load(type_)

    def item(self, index: Reg | int, type_: Type = PTR) -> Reg:
        """Load word `index`."""
        return self.word(index).load(type_)


Operand = Reg | int | float
