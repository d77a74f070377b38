"""The state of writing one kernel, which every emission rule takes as its first argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from stagekit.backends.llvm.types import Spaces
from stagekit.backends.llvm.writer import Writer
from stagekit.backends.nvptx.lineinfo import LineInfo
from stagekit.backends.nvptx.shared import SharedPlan
from stagekit.backends.nvptx.target import GpuTarget
from stagekit.backends.shared_memory import alignment
from stagekit.frozen import record
from stagekit.ir import Block, Fastmath, Function, Op, Space, Type, Value, ops, walk
from stagekit.ir.intervals import Intervals

_GLOBAL, _CONSTANT = 1, 4
_SPACES: Mapping[Space, int] = {
    Space.GLOBAL: _GLOBAL,
    Space.SHARED: 3,
    Space.LOCAL: 5,
    Space.CONSTANT: _CONSTANT,
    Space.CLUSTER: 7,
}
CONSTANT_BYTES = 64 * 1024  # Source: PTX ISA, constant state space


def spaces_of(fn: Function) -> Spaces:
    """Return LLVM's numbers of the address spaces. Source: LLVM, User Guide for NVPTX Back-end.

    Tables lie in constant memory, or in global memory where they are together larger than that is.
    """
    tables = {op.data: op.size_bytes for op in walk(fn.body) if isinstance(op, ops.Table)}
    placed = sum(-(-size // ops.TABLE_ALIGN) * ops.TABLE_ALIGN for size in tables.values())
    return tuple({**_SPACES, Space.CONSTANT: _CONSTANT if placed <= CONSTANT_BYTES else _GLOBAL}.items())


Rules = Mapping[type[Op], Callable[["Emitter", Any], str | None]]
"""A rule writes an op, and returns the operand of its result; None where it has none or several, which the rule binds itself."""


@record()
class Emitter:
    """operands: the LLVM operand of every value defined so far. block_threads: threads per axis, where they are fixed.
    lines: records source lines, if asked for. intervals: what is known of integers at compile time. has_few_divisions: so few
    that each is written out (`division.py`). alignments: of addresses, in bytes. last_tested: a number and a constant, as
    of `emit._if`.
    """

    w: Writer
    rules: Rules
    target: GpuTarget
    shared: SharedPlan
    block_threads: tuple[int, int, int] | None
    fastmath: Fastmath
    lines: LineInfo | None
    intervals: Intervals
    has_few_divisions: bool
    operands: dict[Value, str] = field(default_factory=dict)
    alignments: dict[Value, int] = field(default_factory=dict)
    last_tested: tuple[Value | None, int] = (None, 0)

    def alignment(self, pointer: Value) -> int:
        """Return a power of two that the address is known to be a multiple of, in bytes."""
        if pointer not in self.alignments:
            found = pointer.type.dtype.itemsize
            match self.intervals.maker_of(pointer):
                case ops.Offset(pointer=base, index=index):
                    found = math.gcd(self.alignment(base), found * self.intervals[index].multiple)
                case ops.Alloc() as op:
                    found = alignment(op)
            self.alignments[pointer] = found
        return self.alignments[pointer]

    def type(self, value: Value | Type) -> str:
        return self.w.type(value.type if isinstance(value, Value) else value, None)

    def pair(self, value: Value) -> tuple[str, str]:
        """Return the LLVM type and the operand of `value`."""
        return self.w.type(value.type, None), self.operands[value]

    def typed(self, value: Value) -> str:
        """Return the operand with its type: `i32 %t3`."""
        return " ".join(self.pair(value))

    def bind(self, values: Sequence[Value], operands: Sequence[str]) -> None:
        self.operands.update(zip(values, operands, strict=True))

    def run(self, block: Block) -> Op:
        """Write the ops of `block` but its terminator, and return that."""
        rules = self.rules
        for op in block.ops[:-1]:
            if self.lines:
                self.w.suffix = self.lines.suffix(op.loc)
            operand = rules[type(op)](self, op)
            if operand is not None:
                self.operands[op.result] = operand
        return block.ops[-1]

    def run_body(self, block: Block) -> tuple[str, ...]:
        """Write `block` and return the operands that it yields."""
        return tuple(self.operands[v] for v in self.run(block).operands())
