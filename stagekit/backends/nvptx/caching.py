"""Accesses of global memory with a hint for caches, as instructions: LLVM has no way to say it. They stay in their order."""

from __future__ import annotations

from typing import NamedTuple

from stagekit.backends.nvptx.state import Emitter
from stagekit.ir import Space, Vector, ops

_MOST_BYTES = 16  # of one access
_LETTERS = {1: "h", 2: "h", 4: "r", 8: "l"}  # of registers that hold so many bytes


class _Words(NamedTuple):
    """An access taken apart: `pieces` instructions, each of `wide` words of `size` bytes."""

    pieces: int
    wide: int
    size: int

    @property
    def held(self) -> str:
        """The type of a register: the smallest has 2 bytes."""
        return f"i{max(self.size, 2) * 8}"

    @property
    def suffix(self) -> str:
        return (f".v{self.wide}" if self.wide > 1 else "") + f".b{self.size * 8}"

    def registers(self, first: int) -> str:
        names = ", ".join(f"${first + number}" for number in range(self.wide))
        return f"{{{names}}}" if self.wide > 1 else names

    def constraints(self, prefix: str) -> str:
        return ",".join([prefix + _LETTERS[self.size]] * self.wide)


def applies(op: ops.Load | ops.Store) -> bool:
    """Return whether an access has a hint, of which only global memory knows."""
    return op.cache is not None and op.pointer.type.space is Space.GLOBAL  # type: ignore[union-attr]


def load(e: Emitter, op: ops.Load, held: str) -> str:
    """Emit a load; gives the operand of type `held`."""
    words, found = _words(op), list[str]()
    for at in _offsets(words):
        text = f"ld.global.{op.cache}{words.suffix} {words.registers(0)}, [${words.wide}+{at}];"
        result = words.held if words.wide == 1 else f"{{ {', '.join([words.held] * words.wide)} }}"
        constraints = f"{words.constraints('=')},l,~{{memory}}"
        both = e.w.emit(f'call {result} asm sideeffect "{text}", "{constraints}"({e.typed(op.pointer)})')
        parts = (
            [both] if words.wide == 1 else [e.w.emit(f"extractvalue {result} {both}, {n}") for n in range(words.wide)]
        )
        found += [e.w.emit(f"trunc i16 {part} to i8") if words.size == 1 else part for part in parts]
    word, whole = f"i{words.size * 8}", "poison"
    if len(found) == 1:
        return e.w.emit(f"bitcast {word} {found[0]} to {held}")
    for number, part in enumerate(found):
        whole = e.w.emit(f"insertelement <{len(found)} x {word}> {whole}, {word} {part}, i32 {number}")
    return e.w.emit(f"bitcast <{len(found)} x {word}> {whole} to {held}")


def store(e: Emitter, op: ops.Store, value: str) -> None:
    """Emit a store. value: an operand with its type."""
    words = _words(op)
    word, total = f"i{words.size * 8}", words.pieces * words.wide
    whole = e.w.emit(f"bitcast {value} to {word if total == 1 else f'<{total} x {word}>'}")
    parts = [whole]
    if total > 1:
        parts = [e.w.emit(f"extractelement <{total} x {word}> {whole}, i32 {number}") for number in range(total)]
    if words.size == 1:
        parts = [e.w.emit(f"zext i8 {part} to i16") for part in parts]
    for number, at in enumerate(_offsets(words)):
        text = f"st.global.{op.cache}{words.suffix} [$0+{at}], {words.registers(1)};"
        own = parts[number * words.wide : (number + 1) * words.wide]
        given = ", ".join([e.typed(op.pointer), *[f"{words.held} {part}" for part in own]])
        e.w.line(f'call void asm sideeffect "{text}", "l,{words.constraints("")},~{{memory}}"({given})')


def _words(op: ops.Load | ops.Store) -> _Words:
    type_ = op.result.type if isinstance(op, ops.Load) else op.value.type
    itemsize = op.pointer.type.dtype.itemsize
    total = itemsize * (type_.count if isinstance(type_, Vector) else 1)
    piece = min(op.align or itemsize, total, _MOST_BYTES)
    size = min(max(itemsize, 4), piece)
    return _Words(total // piece, piece // size, size)


def _offsets(words: _Words) -> range:
    step = words.wide * words.size
    return range(0, words.pieces * step, step)
