"""Write LLVM IR as text: a `Module` collects globals, declarations and functions, a `Writer` the lines of one function.

    w = Writer(module)
    total = w.emit("add i32 %a, 1")                                # "%t0", and the line `%t0 = add i32 %a, 1`
    root = w.call("float", "llvm.sqrt.f32", [("float", "%x")])     # declares what it calls

Text, because it is several times faster to make than an object tree that LLVM would print and parse anyway. Operands too:

    constant(float32, None, 0.5)   ->  0x3FE0000000000000
    constant(int32, 32, 7)         ->  splat (i32 7)
    literal("splat (i32 7)")       ->  7
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stagekit import dtypes
from stagekit.backends.llvm.types import FLAT, Lanes, Spaces, llvm_type, pointer_type, scalar_type
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import Fastmath, Type, allows, ops

_FLAGS = {"contract": "contract ", "reassociate": "reassoc nsz "}
APPROXIMATE = "arcp afn "
"""Flags by what `fastmath` allows; those of an approximate division or root. Not `nnan` and `ninf`: a kernel that masks with -inf
or tests for NaN stays meaningful."""


@frozen()
class Abilities:
    """What the writers of a module may rely on.

    spaces: LLVM's number of each address space. has_bfloat_rounding: the target rounds float to bfloat by one
    instruction. fastmath: what floats may give up. finds_again: what a basic block has
    computed already is not written again, for the sake of the time that LLVM takes for it.
    """

    spaces: Spaces = FLAT
    has_bfloat_rounding: bool = False
    fastmath: Fastmath = False
    finds_again: bool = False


_IMPURE = ("load", "call", "alloca", "phi", "freeze", "atomicrmw", "cmpxchg")


class Module:
    """Everything of one LLVM module; each name is added once."""

    def __init__(self, abilities: Abilities) -> None:
        self.abilities = abilities
        self._globals: dict[str, str] = {}
        self._declarations: dict[str, None] = {}
        self._functions: dict[str, str] = {}
        self._tail: list[str] = []
        self._metadata = 0
        self._unique: dict[tuple[str, str], str] = {}

    def declare(self, signature: str) -> None:
        """Declare an external function: `"float @llvm.sqrt.f32(float)"`."""
        self._declarations[signature] = None

    def add_global(self, name: str, definition: str) -> str:
        """Define `@name = definition`; gives `@name`."""
        self._globals[name] = definition
        return f"@{name}"

    def unique_name(self, prefix: str, key: str) -> str:
        """A name for a global, the same for the same `key`."""
        return self._unique.setdefault((prefix, key), f"{prefix}{len(self._unique)}")

    def has_function(self, name: str) -> bool:
        return name in self._functions

    def add_function(self, name: str, text: str) -> None:
        """Add a whole `define ... { ... }` (or several that belong together) under `name`."""
        self._functions[name] = text

    def add_tail(self, text: str) -> None:
        """Add lines after the functions: attribute groups, named metadata."""
        self._tail.append(text)

    def node(self, text: str) -> str:
        """Add a metadata node; `{self}` in its text is its own name. Gives `!N`."""
        name = f"!{self._metadata}"
        self._metadata += 1
        self._tail.append(f"{name} = {text.replace('{self}', name)}")
        return name

    def metadata(self, body: str, *, is_distinct: bool = False) -> str:
        """Add the metadata node `!{body}`."""
        return self.node(f"{'distinct ' if is_distinct else ''}!{{{body}}}")

    def text(self) -> str:
        return "\n".join(
            (
                *(f"@{name} = {definition}" for name, definition in self._globals.items()),
                *(f"declare {signature}" for signature in self._declarations),
                *self._functions.values(),
                *self._tail,
                "",
            )
        )


class Writer:
    """The body of one function, from its entry block on. Temporaries are `%tN`; labels never collide with them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.abilities = module.abilities
        # Of operations on floats, and of their division; they end in a space where not empty.
        self.flags = "".join([flags for what, flags in _FLAGS.items() if allows(module.abilities.fastmath, what)])
        self.division_flags = self.flags + APPROXIMATE * allows(module.abilities.fastmath, "division")
        self.suffix = ""  # put behind every instruction: where it comes from
        self.block = "entry"  # label of the block being written, as phis need it
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._temporaries = 0
        self._labels = 0
        self._found: dict[str, str] = {}  # what this basic block computes: the result by the text
        self._distances: dict[str, tuple[str, int]] = {}  # of sums with a constant

    def beside(self) -> Writer:
        """A writer of another function, whose parameters may have the names of temporaries here."""
        other = Writer(self.module)
        other._temporaries = self._temporaries
        return other

    def fresh(self) -> str:
        """A temporary not used yet, for text that names its own result."""
        name = f"%t{self._temporaries}"
        self._temporaries += 1
        return name

    def emit(self, text: str) -> str:
        """Write `%tN = text`; gives `%tN`."""
        if self.abilities.finds_again and not text.startswith(_IMPURE):
            if text not in self._found:
                self._found[text] = self._write(text)
            return self._found[text]
        return self._write(text)

    def _write(self, text: str) -> str:
        name = f"%t{self._temporaries}"
        self._temporaries += 1
        self._lines.append(f"  {name} = {text}{self.suffix}")
        return name

    def found(self) -> dict[str, str]:
        """What this basic block computes: the text by the result."""
        return {name: text for text, name in self._found.items()}

    def note_distance(self, name: str, other: str, constant: int) -> None:
        """Note that `name` is `other` plus a constant, but for what wraps."""
        origin, distance = self.distance(other)
        self._distances[name] = origin, distance + constant

    def distance(self, name: str) -> tuple[str, int]:
        """Return the value from which `name` is known to be a constant apart, itself if there is none, and that constant."""
        return self._distances.get(name, (name, 0))

    def emit_entry(self, text: str) -> str:
        """`emit` at the top of the entry block: where an alloca must be to become a register or a fixed slot."""
        name = self.fresh()
        self._entry.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}{self.suffix}")

    def new_label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}{self._labels}"

    def label(self, name: str) -> None:
        """Start the block `name`; the one before must have ended."""
        self._lines.append(f"{name}:")
        self.block = name
        self._found.clear()

    def jump(self, name: str) -> None:
        """End the block being written with a jump to the block `name`, and start that."""
        self.line(f"br label %{name}")
        self.label(name)

    def hole(self) -> int:
        """Keep a place in the text for what is known only later: the operands of a phi, the conversion of an arm's value."""
        self._lines.append("")
        return len(self._lines) - 1

    def fill(self, hole: int, text: str) -> None:
        self._lines[hole] = f"  {text}"

    @contextmanager
    def into(self, hole: int) -> Iterator[None]:
        """Write what the `with` writes, without labels, into `hole`."""
        outer_lines, outer_found = self._lines, self._found
        self._lines, self._found = [], {}
        try:
            yield
        finally:
            inner, self._lines, self._found = self._lines, outer_lines, outer_found
            self._lines[hole] = "\n".join(filter(None, (self._lines[hole], *inner)))

    def mark(self) -> tuple[int, str]:
        """Where the text ends now, for `rewind`."""
        return len(self._lines), self.block

    def rewind(self, mark: tuple[int, str]) -> None:
        """Forget what was written since `mark`; what the entry block and the module were given stays."""
        length, self.block = mark
        self._found.clear()
        del self._lines[length:]

    def type(self, type_: DType | Type, lanes: Lanes) -> str:
        """`llvm_type` with this target's address spaces."""
        return llvm_type(type_, lanes, self.abilities.spaces)

    def declare(self, signature: str) -> None:
        self.module.declare(signature)

    def call(
        self, result: str, name: str, args: Sequence[tuple[str, str]], attributes: str = "", flags: str = ""
    ) -> str:
        """Declare `name` and call it with (type, operand) pairs; gives the result, or "" for a `void` function.

        The type of a pointer may end in ` align N`, which the call then says of it.
        """
        self.declare(f"{result} @{name}({', '.join([t.partition(' align ')[0] for t, _ in args])})")
        text = f"call {flags}{result} @{name}({', '.join([f'{t} {a}' for t, a in args])}){attributes}"
        if result != "void":
            return self.emit(text)
        self.line(text)
        return ""

    def body(self) -> str:
        """The lines so far, with `entry:` first."""
        return "\n".join(("entry:", *self._entry, *self._lines))


def escape(text: str) -> str:
    """`text` as the inside of an LLVM string."""
    return text.encode().decode("latin-1").translate(_ESCAPES)


_ESCAPES = {byte: f"\\{byte:02X}" for byte in (*range(32), *range(127, 256), *b'"\\')}


def constant(dtype: DType, lanes: Lanes, value: bool | float) -> str:
    """The operand text of a number, in every lane."""
    text = _CONSTANTS.get(dtype, _bits_constant)(dtype, value)
    return text if lanes is None else f"splat ({scalar_type(dtype)} {text})"


def _packed(prefix: str, code: str) -> Callable[[DType, float], str]:
    """LLVM spells a float by the bits of the double of the same value, a half by its own."""
    return lambda dtype, value: f"{prefix}{struct.pack(code, value).hex().upper()}"


def _bits_constant(dtype: DType, value: float) -> str:
    """Integers as they are; floats that are held as bits by their bits."""
    return str(dtype.layout.bits(dtype.layout.nearest(value)) if dtype.is_float else int(value))


_CONSTANTS: dict[DType, Callable[[DType, float], str]] = {
    dtypes.bool_: lambda dtype, value: "true" if value else "false",
    dtypes.float16: _packed("0xH", ">e"),
    dtypes.float32: _packed("0x", ">d"),
    dtypes.float64: _packed("0x", ">d"),
}


def literal(operand: str) -> int | None:
    """The integer that a constant operand spells in every lane, or None."""
    if operand[0] == "%":
        return None
    try:
        return int(operand.removesuffix(")").rpartition(" ")[2])
    except ValueError:
        return None


def select(w: Writer, type_: DType | Type, lanes: Lanes, condition: str, if_true: str, if_false: str) -> str:
    """`if_true` where `condition` holds; every operand has `lanes` lanes."""
    held = w.type(type_, lanes)
    return w.emit(f"select {llvm_type(dtypes.bool_, lanes)} {condition}, {held} {if_true}, {held} {if_false}")


def define_table(module: Module, op: ops.Table, space: int) -> str:
    """Add a table to a module, in an address space of LLVM's, once for all of the same bytes; return its address."""
    name = module.unique_name("stagekit_table", op.data)
    text = "\\" + (bytes.fromhex(op.data) or b"\0").hex("\\")
    where = pointer_type(space).removeprefix("ptr").strip()
    held = f'[{max(op.size_bytes, 1)} x i8] c"{text}"'
    return module.add_global(name, f"internal {where} constant {held}, align {ops.TABLE_ALIGN}".replace("  ", " "))
