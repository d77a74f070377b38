"""One thread after another, one number at a time: the plainest reading of IR, to hold the vectorised one against.

Straight arithmetic, control flow and global memory only; no thread may look at what another writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit.ir import Block, Function, Native, Pointer, Value, ops, semantics

Array = np.ndarray[Any, np.dtype[Any]]
Env = dict[Value, Any]


def run_threads(fn: Function, slots: Sequence[Any], threads: int, blocks: int = 1) -> None:
    """Run `threads` threads of each block. A pointer slot is an array, written in place; a pointer is (array, index)."""
    for block, thread in itertools.product(range(blocks), range(threads)):
        env: Env = {}
        for param, slot in zip(fn.params, slots, strict=True):
            is_pointer = isinstance(param.type, Pointer)
            env[param] = (slot, 0) if is_pointer else semantics.typed(slot, param.type.dtype)
        with np.errstate(all="ignore"):
            _Thread({Native.THREAD_IDX: thread, Native.BLOCK_IDX: block, Native.BLOCK_DIM: threads}, env).block(fn.body)


class _Thread:
    def __init__(self, indices: dict[Native, int], env: Env) -> None:
        self.indices, self.env = indices, env

    def block(self, block: Block, *args: Any) -> list[Any]:
        self.env.update(zip(block.params, args, strict=bool(args)))
        for op in block.ops[:-1]:
            results = getattr(self, f"op_{op.mnemonic.replace('const', 'constant')}")(op)
            self.env.update(zip(op.results, results, strict=True))
        return [self.env[v] for v in block.ops[-1].operands()]

    def op_constant(self, op: ops.Constant) -> list[Any]:
        return [semantics.typed(op.value, op.result.type.dtype)]

    def op_binary(self, op: ops.Binary) -> list[Any]:
        return [semantics.binary(op.kind, op.lhs.type.dtype, self.env[op.lhs], self.env[op.rhs])]

    def op_unary(self, op: ops.Unary) -> list[Any]:
        return [semantics.unary(op.kind, op.operand.type.dtype, self.env[op.operand])]

    def op_compare(self, op: ops.Compare) -> list[Any]:
        return [semantics.compare(op.kind, op.lhs.type.dtype, self.env[op.lhs], self.env[op.rhs])]

    def op_select(self, op: ops.Select) -> list[Any]:
        return [self.env[op.if_true if self.env[op.condition] else op.if_false]]

    def op_cast(self, op: ops.Cast) -> list[Any]:
        return [semantics.cast(self.env[op.operand], op.operand.type.dtype, op.result.type.dtype)]

    def op_bitcast(self, op: ops.Bitcast) -> list[Any]:
        return [self.env[op.operand].view(op.result.type.dtype.numpy)]

    def op_offset(self, op: ops.Offset) -> list[Any]:
        array, index = self.env[op.pointer]
        return [(array, index + int(self.env[op.index]))]

    def op_load(self, op: ops.Load) -> list[Any]:
        if op.mask is not None and not self.env[op.mask]:
            return [self.env[op.other]]
        array, index = self.env[op.pointer]
        return [array[index]]

    def op_store(self, op: ops.Store) -> list[Any]:
        if op.mask is None or self.env[op.mask]:
            array, index = self.env[op.pointer]
            array[index] = self.env[op.value]
        return []

    def op_if(self, op: ops.If) -> list[Any]:
        return self.block(op.then_body if self.env[op.condition] else op.else_body)

    def op_for(self, op: ops.For) -> list[Any]:
        start, stop, step = (int(self.env[v]) for v in (op.start, op.stop, op.step))
        carried = [self.env[v] for v in op.inits]
        make = op.start.type.dtype.numpy.type
        for i in range(start, stop, step) if step else ():
            carried = self.block(op.loop_body, make(i), *carried)
        return carried

    def op_while(self, op: ops.While) -> list[Any]:
        carried = [self.env[v] for v in op.inits]
        while True:
            flag, *values = self.block(op.before, *carried)
            if not flag:
                return values
            carried = self.block(op.after, *values)

    def op_intrinsic(self, op: ops.IntrinsicOp) -> list[Any]:
        native = op.spec.lower.get("interp")
        if isinstance(native, Native):
            return [np.int64(self.indices[native])]
        assert op.spec.evaluate is not None
        return [np.asarray(op.spec.evaluate(*(self.env[a] for a in op.args)))[()]]
