"""Run pure IR on NumPy arrays, every lane at once: the smallest reading of the ops, over `semantics`.

    evaluate_function(fn, (x, y))                ->  what the body yields, lane by lane
    expand_and_evaluate(record, "cpu", (x,))     ->  the record's lowering for a target, run instead of its `evaluate`

Both arms of an `if` run, and masks choose: nothing here has effects or can trap. A lowering that is not an expansion is taken
to mean what `evaluate` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit.diagnostics import UNKNOWN
from stagekit.ir import Block, Builder, Expand, Function, Intrinsic, Op, Value, ops, semantics

Lanes = np.ndarray[Any, np.dtype[Any]]
Env = dict[Value, Lanes]


class NoSuchInstruction(Exception):
    """An expansion has an instruction of a GPU that only a GPU can run: the tests of conformance there compare it."""


def evaluate_function(fn: Function, args: Sequence[Lanes], target: str | None = None) -> tuple[Lanes, ...]:
    """The values that the body's last op yields. target: expand intrinsics as that target would, None: use `evaluate`."""
    run = _Run(target)
    return run.block(fn.body, args, {})


def expand_and_evaluate(record: Intrinsic, target: str, args: Sequence[Lanes]) -> Lanes:
    """The result of a record through its lowering for `target`."""
    (result,) = evaluate_function(function_calling(record, args), args, target)
    return result


def function_calling(record: Intrinsic, args: Sequence[Lanes]) -> Function:
    """A function that yields one call of `record`, its overload chosen by the arrays."""
    sig = next(s for s in record.sigs if [t.dtype.numpy for t in s.args] == [a.dtype for a in args])
    params = tuple(Value(t) for t in sig.args)
    b = Builder(UNKNOWN, params)
    b.yield_(*b.call(record, params))
    return Function("f", b.current.done())


class _Run:
    """One evaluation. Values of an outer block stay in `env`; lanes are never dropped, only masked."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.expanded: dict[Any, Function] = {}

    def block(self, block: Block, args: Sequence[Lanes], env: Env) -> tuple[Lanes, ...]:
        env.update(zip(block.params, args, strict=True))
        for op in block.ops[:-1]:
            results = _RULES[type(op)](self, op, env)
            env.update(zip(op.results, results, strict=True))
        return tuple(env[v] for v in block.ops[-1].operands())

    def constant(self, op: ops.Constant, env: Env) -> tuple[Lanes, ...]:
        return (np.asarray(semantics.typed(op.value, op.result.type.dtype)),)

    def binary(self, op: ops.Binary, env: Env) -> tuple[Lanes, ...]:
        return (semantics.binary(op.kind, op.lhs.type.dtype, env[op.lhs], env[op.rhs]),)

    def unary(self, op: ops.Unary, env: Env) -> tuple[Lanes, ...]:
        return (semantics.unary(op.kind, op.operand.type.dtype, env[op.operand]),)

    def compare(self, op: ops.Compare, env: Env) -> tuple[Lanes, ...]:
        return (semantics.compare(op.kind, op.lhs.type.dtype, env[op.lhs], env[op.rhs]),)

    def select(self, op: ops.Select, env: Env) -> tuple[Lanes, ...]:
        return (np.where(env[op.condition], env[op.if_true], env[op.if_false]),)

    def cast(self, op: ops.Cast, env: Env) -> tuple[Lanes, ...]:
        return (semantics.cast(env[op.operand], op.operand.type.dtype, op.result.type.dtype),)

    def bitcast(self, op: ops.Bitcast, env: Env) -> tuple[Lanes, ...]:
        return (np.asarray(env[op.operand]).view(op.result.type.dtype.numpy),)

    def if_(self, op: ops.If, env: Env) -> tuple[Lanes, ...]:
        condition = env[op.condition]
        arms = [self.block(b, (), env) for b in op.bodies()]
        return tuple(np.where(condition, t, e) for t, e in zip(*arms, strict=True))

    def while_(self, op: ops.While, env: Env) -> tuple[Lanes, ...]:
        carried, final = [env[v] for v in op.inits], None
        active: Lanes = np.bool_(True)  # type: ignore[assignment]
        while True:
            flag, *forwarded = self.block(op.before, carried, env)
            final = forwarded if final is None else _masked(active, forwarded, final)
            active = active & flag
            if not np.any(active):
                return tuple(final)
            carried = _masked(active, self.block(op.after, forwarded, env), carried)

    def for_(self, op: ops.For, env: Env) -> tuple[Lanes, ...]:
        dtype = op.start.type.dtype
        start, stop, step = (np.asarray(env[v]).astype(object) for v in (op.start, op.stop, op.step))
        count = np.where(step == 0, 0, np.maximum(-((start - stop) // np.where(step == 0, 1, step)), 0))
        carried = [env[v] for v in op.inits]
        for turn in range(int(np.max(count))):
            index = np.asarray(start + turn * step).astype(dtype.numpy)
            carried = _masked(
                np.asarray(turn < count, dtype=bool), self.block(op.loop_body, [index, *carried], env), carried
            )
        return tuple(carried)

    def intrinsic(self, op: ops.IntrinsicOp, env: Env) -> tuple[Lanes, ...]:
        args = [env[v] for v in op.args]
        types = tuple(v.type for v in op.args)
        lowering = op.spec.lowering(self.target, types, fastmath=False) if self.target else None
        if isinstance(lowering, Expand):
            return self.block(self._expansion(op, lowering, types), args, {})
        assert op.spec.evaluate is not None, op.spec
        arrays = np.broadcast_arrays(*args) if args else ()
        result = op.spec.evaluate(*arrays)
        return result if isinstance(result, tuple) else (result,)

    def asm(self, op: ops.InlineAsm, env: Env) -> tuple[Lanes, ...]:
        if op.text in _INSTRUCTIONS:
            return (_INSTRUCTIONS[op.text](*(env[a] for a in op.args)),)
        if op.host is None:
            raise NoSuchInstruction(op.text)
        return self.block(op.host, [env[v] for v in op.args], env)

    def _expansion(self, op: ops.IntrinsicOp, lowering: Expand, types: tuple[Any, ...]) -> Block:
        key = (op.spec, types, op.params)
        if key not in self.expanded:
            params = tuple(Value(t) for t in types)
            b = Builder(UNKNOWN, params)
            b.yield_(*lowering.build(b, params, op.params))
            self.expanded[key] = Function("expansion", b.current.done())
        return self.expanded[key].body


def _masked(mask: Lanes, new: Sequence[Lanes], old: Sequence[Lanes]) -> list[Lanes]:
    return [np.where(mask, n, o) for n, o in zip(new, old, strict=True)]


@np.errstate(over="ignore", under="ignore")
def _exp2(x: Lanes) -> Lanes:
    return np.exp2(x)


def _flushed(x: Lanes) -> Lanes:
    """0 with the sign of x for every x below the normal numbers."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


_INSTRUCTIONS = {  # of a GPU, rounded correctly
    "ex2.approx.f32 $0, $1;": _exp2,
    "ex2.approx.ftz.f32 $0, $1;": lambda x: _flushed(_exp2(_flushed(x))),
}

_RULES: dict[type[Op], Callable[[_Run, Any, Env], tuple[Lanes, ...]]] = {
    ops.Constant: _Run.constant,
    ops.Binary: _Run.binary,
    ops.Unary: _Run.unary,
    ops.Compare: _Run.compare,
    ops.Select: _Run.select,
    ops.Cast: _Run.cast,
    ops.Bitcast: _Run.bitcast,
    ops.If: _Run.if_,
    ops.While: _Run.while_,
    ops.For: _Run.for_,
    ops.IntrinsicOp: _Run.intrinsic,
    ops.InlineAsm: _Run.asm,
}
