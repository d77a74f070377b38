"""Take vectors apart where the target does them lane by lane.

    %v = pack(%a, %b) : vector<2 x i64>
    %w = binary.add %v, %v : vector<2 x i64>      ->     %2 = binary.add %a, %a     %3 = binary.add %b, %b
    %x = extract %w {index=1} : i64                      (%x is %3)

The cpu and the interpreter have no vectors: none is left. On cuda those stay that LLVM packs, or splits into what it would make
of the scalars: arithmetic of floats, and of 32-bit words as far as elementary functions are made of it (`_KEPT`). Taken apart
are indices, whose constant parts then become offsets in addresses; calls; and all that is written in a special way because of a
fault of LLVM or of ptxas: `//` and `%`, shifts by a run-time amount, minima of integers, float to integer, 8 and 16 bits.

Relies on: intrinsics already expanded. Keeps: meaning, bit for bit. Linear in the number of lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stagekit.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, uint16, uint32
from stagekit.ir import BinaryKind, Block, Function, Llvm, Op, Scalar, UnaryKind, Value, Vector, ops, walk
from stagekit.ir.rewriter import Rewriter
from stagekit.passes import PassContext
from stagekit.passes.expand import lowering
from stagekit.passes.legalize import unpacks_float8

Lanes = tuple[Value, ...]

_K = BinaryKind
_FLOATS = (float16, bfloat16, float32, float64)
_WORDS = (int32, uint32)
_HELD = (*_FLOATS, *_WORDS, uint16)
"""Dtypes of vectors that stay vectors on cuda where they are carried or put together."""

_BINARY: dict[DType, tuple[BinaryKind, ...]] = {
    **dict.fromkeys(_FLOATS, (_K.ADD, _K.SUB, _K.MUL, _K.DIV)),
    **dict.fromkeys(_WORDS, (_K.ADD, _K.SUB, _K.MUL, *ops.BITWISE, *ops.SHIFTS)),
    **dict.fromkeys((bool_, uint16), ops.BITWISE),
}
_CASTS = {
    *((source, target) for source in _FLOATS for target in _FLOATS if float32 in (source, target)),
    *((source, target) for source in (bool_, *_WORDS) for target in (float32, float64, *_WORDS)),
    (float16, float64),
}
_KEPT: dict[type[Op], Callable[[Any, PassContext], bool]] = {
    ops.Binary: lambda op, _: op.kind in _BINARY.get(op.lhs.type.dtype, ()),
    ops.Unary: lambda op, _: op.operand.type.dtype in (_FLOATS if op.kind is UnaryKind.NEG else (bool_, *_WORDS)),
    ops.Compare: lambda op, _: op.lhs.type.dtype in (*_FLOATS, *_WORDS),
    ops.Select: lambda op, _: op.result.type.dtype in _HELD,
    ops.Cast: lambda op, context: (
        (op.operand.type.dtype, op.result.type.dtype) in _CASTS
        or (unpacks_float8(op.operand.type, context.capability) and op.result.type.dtype in _FLOATS)
    ),
    ops.Bitcast: lambda op, _: op.operand.type.dtype in _HELD and op.result.type.dtype in _HELD,
    ops.InlineAsm: lambda op, _: False,
    ops.IntrinsicOp: lambda op, context: (
        op.args[0].type.dtype in (float32, float64) and isinstance(lowering(op, context), Llvm)
    ),
}
"""Which elementwise ops on vectors the emitter of cuda writes as one."""


def scalarize(fn: Function, context: PassContext) -> Function:
    """Replace ops on vectors by ops on their lanes, as far as the target needs that."""
    vectors = {v for op in walk(fn.body) for v in op.results if type(v.type) is Vector}
    return _Scalarizer(context, vectors).run(fn) if vectors else fn


def illegal(op: Op, context: PassContext) -> str | None:
    """Return why `scalarize` would not leave `op`, which makes vectors, as it is; or None."""
    is_kept = _KEPT.get(type(op))
    is_legal = context.target == "cuda" and (is_kept is None or is_kept(op, context))
    return None if is_legal else f"{op.mnemonic} of vectors is not done by {context.target}"


class _Scalarizer(Rewriter):
    """vectors: the results of ops that are vectors. lanes: the scalars of those whose lanes are values of their own. split: those
    that are nothing else any more. constants: those that are known.
    """

    def __init__(self, context: PassContext, vectors: set[Value]) -> None:
        super().__init__({})
        self.context = context
        self.vectors = vectors
        self.lanes: dict[Value, Lanes] = {}
        self.split: set[Value] = set()
        self.constants: set[Value] = set()

    def is_held(self, value: Value) -> bool:
        """Return whether `value` stays as it is where it is carried: a scalar, or a vector that cuda holds."""
        return type(value.type) is not Vector or (self.context.target == "cuda" and value.type.dtype in _HELD)

    def whole(self, value: Value) -> Value:
        """Return what stands for `value` now; a vector that is split is packed again."""
        return self.builder.pack(self.lanes[value]) if value in self.split else self.mapping.get(value, value)

    def keep(self, op: Op) -> None:
        """Append an op whose vectors stay vectors."""
        operands = op.operands()
        if not self.split.isdisjoint(operands):
            op = op.with_operands({v: self.whole(v) for v in operands})
        self.simple(op)

    def lanes_of(self, vector: Value) -> Lanes:
        count = vector.type.count  # type: ignore[union-attr]
        return self.lanes.get(vector) or tuple([self.builder.extract(vector, lane) for lane in range(count)])

    def replace(self, vector: Value, lanes: Lanes) -> None:
        """Let `lanes` stand for `vector`."""
        self.lanes[vector] = lanes
        self.split.add(vector)

    # -- control flow -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> Block:
        params = self.defined(block.params)
        return super().block(block if params == block.params else Block(params, block.ops))

    def defined(self, values: Lanes) -> Lanes:
        """Return the values that control flow defines in place of `values`, with a scalar for each lane that is not held."""
        for value in values:
            if type(value.type) is Vector:
                self.vectors.add(value)
            if not self.is_held(value):
                lane = Scalar(value.type.dtype)
                self.replace(value, tuple([Value(lane, value.name) for _ in range(value.type.count)]))  # type: ignore[union-attr]
        return tuple([each for value in values for each in self.lanes.get(value, (value,))])

    def passed(self, values: Lanes) -> Lanes:
        """Return the values that control flow passes on in place of `values`."""
        return tuple(
            [v for value in values for v in ((self.whole(value),) if self.is_held(value) else self.lanes_of(value))]
        )

    def ops(self, ops: Iterable[Op]) -> None:
        for each in ops:
            self.op(each)

    def op(self, op: Op) -> None:
        self.builder.loc = op.loc
        if op.is_terminator or (op.BODY_FIELDS and op.bodies()):
            lists = {name: self.passed(getattr(op, name)) for name, kind in op.OPERAND_FIELDS if kind == "operand_list"}
            super().op(op.replace(**lists, results=self.defined(op.results)))
        elif not self.vectors.isdisjoint((*op.operands(), *op.results)):
            _RULES.get(type(op), _elementwise)(self, op)
        else:
            self.simple(op)


def _constant(s: _Scalarizer, op: ops.Constant) -> None:
    s.constants.add(op.result)
    if s.is_held(op.result):
        s.builder.append(op)
    else:
        lane = s.builder.constant(op.value, op.result.type.dtype)
        s.replace(op.result, (lane,) * op.result.type.count)  # type: ignore[union-attr]


def _pack(s: _Scalarizer, op: ops.Splat | ops.Pack) -> None:
    s.lanes[op.result] = s.values(op.args if isinstance(op, ops.Pack) else (op.operand,) * op.count)
    if s.is_held(op.result):
        s.builder.append(op.with_operands(s.mapping))
    else:
        s.split.add(op.result)


def _extract(s: _Scalarizer, op: ops.Extract) -> None:
    if op.operand in s.lanes:
        s.mapping[op.result] = s.lanes[op.operand][op.index]
    else:
        s.builder.append(op)


def _elementwise(s: _Scalarizer, op: Op) -> None:
    is_run_time_shift = isinstance(op, ops.Binary) and op.kind in ops.SHIFTS and op.rhs not in s.constants
    if s.context.target == "cuda" and _KEPT[type(op)](op, s.context) and not is_run_time_shift:
        s.keep(op)
        return
    given = {v: s.lanes_of(v) for v in op.operands()}
    types = [Scalar(v.type.dtype) for v in op.results]
    rows = [
        s.builder.append(op.with_values(dict(zip(given, lanes)), tuple(map(Value, types))))
        for lanes in zip(*given.values(), strict=True)
    ]
    for vector, lanes in zip(op.results, zip(*rows), strict=True):
        s.replace(vector, lanes)


def _load(s: _Scalarizer, op: ops.Load) -> None:
    if s.context.target == "cuda":
        s.keep(op)
        return
    lane, others = Scalar(op.result.type.dtype), s.lanes_of(op.other) if op.other else itertools.repeat(None)
    apart = [
        each.replace(other=other, count=None, results=(Value(lane),)) for each, other in zip(_elements(s, op), others)
    ]
    s.replace(op.result, tuple([v for each in apart for v in s.builder.append(each)]))


def _store(s: _Scalarizer, op: ops.Store) -> None:
    if s.context.target == "cuda":
        s.keep(op)
        return
    for each, value in zip(_elements(s, op), s.lanes_of(op.value)):
        s.builder.append(each.replace(value=value))


def _elements(s: _Scalarizer, op: ops.Load | ops.Store) -> Iterator[Op]:
    """Yield `op` at the address of each element. The first has the alignment that is claimed, of which the others follow."""
    count = (op.result if isinstance(op, ops.Load) else op.value).type.count  # type: ignore[union-attr]
    op = op.with_operands(s.mapping)  # type: ignore[assignment]
    yield op.replace(covers=count)
    for lane in range(1, count):
        yield op.replace(pointer=s.builder.offset(op.pointer, s.builder.index(lane)), align=None, covers=0)


_RULES: dict[type[Op], Callable[[_Scalarizer, Any], None]] = {
    ops.Load: _load,
    ops.Store: _store,
    ops.Constant: _constant,
    ops.Splat: _pack,
    ops.Pack: _pack,
    ops.Extract: _extract,
}
