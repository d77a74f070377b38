"""Take vectors apart where the target does them lane by lane.

    %v = pack(%a, %b) : vector<2 x i64>
    %w = binary.add %v, %v : vector<2 x i64>      ->     %2 = binary.add %a, %a     %3 = binary.add %b, %b
    %x = extract %w {index=1} : i64                      (%x is %3)

The cpu and the interpreter have no vectors: none is left. On cuda those stay that LLVM splits into what it would make of the
scalars, or packs: arithmetic of floats, and of 32-bit words as far as elementary functions are made of it (`_KEPT`). Taken apart
are indices, whose constant parts then become offsets in addresses, and whatever is written in a special way against a fault of
LLVM or of ptxas: `//` and `%`, shifts by a run-time amount, minima of integers, float to integer, 8 and 16 bits. So are calls.

Relies on: intrinsics already expanded. Keeps: meaning, bit for bit. Linear in the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stagekit.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, uint16, uint32
from stagekit.ir import BinaryKind, Block, Function, Llvm, Op, Scalar, UnaryKind, Value, Vector, ops, walk
from stagekit.ir.typing import types_of
from stagekit.passes.expand import lowering
from stagekit.passes.manager import PassContext
from stagekit.passes.rewriter import Rewriter

Lanes = tuple[Value, ...]

_K = BinaryKind
_FLOATS = (float16, bfloat16, float32, float64)
_WORDS = (int32, uint32)
_BITWISE = (_K.AND, _K.OR, _K.XOR)
_SHIFTS = (_K.SHL, _K.SHR)
_ARITHMETIC = (_K.ADD, _K.SUB, _K.MUL)
_BINARY: dict[DType, tuple[BinaryKind, ...]] = {
    **dict.fromkeys(_FLOATS, (*_ARITHMETIC, _K.DIV)),
    **dict.fromkeys(_WORDS, (*_ARITHMETIC, *_BITWISE, *_SHIFTS)),
    **dict.fromkeys((bool_, uint16), _BITWISE),
}
_CASTS = {
    *((narrow, float32) for narrow in _FLOATS),
    *((float32, narrow) for narrow in _FLOATS),
    *((source, target) for source in (bool_, *_WORDS) for target in (float32, float64, *_WORDS)),
    (float16, float64),
}
_BITS = {float16: 16, bfloat16: 16, uint16: 16, float32: 32, int32: 32, uint32: 32}
_HELD = (*_FLOATS, *_WORDS, uint16)
"""Dtypes of vectors that stay vectors where they are carried or put together."""

_KEPT: dict[type[Op], Callable[[Any, PassContext], bool]] = {
    ops.Binary: lambda op, _: op.kind in _BINARY.get(op.lhs.type.dtype, ()),
    ops.Unary: lambda op, _: op.operand.type.dtype in (_FLOATS if op.kind is UnaryKind.NEG else (bool_, *_WORDS)),
    ops.Compare: lambda op, _: op.lhs.type.dtype in (*_FLOATS, *_WORDS),
    ops.Select: lambda op, _: op.result.type.dtype in _HELD,
    ops.Cast: lambda op, _: (op.operand.type.dtype, op.result.type.dtype) in _CASTS,
    ops.Bitcast: lambda op, _: op.operand.type.dtype in _BITS and op.result.type.dtype in _BITS,
    ops.IntrinsicOp: lambda op, context: (
        op.args[0].type.dtype in (float32, float64) and isinstance(lowering(op, context), Llvm)
    ),
}
"""Which elementwise ops on vectors the emitter of cuda writes as one."""


def scalarize(fn: Function, context: PassContext) -> Function:
    has_vectors = any(type(v.type) is Vector for op in walk(fn.body) for v in op.results)
    return _Scalarizer(context).run(fn) if has_vectors else fn


def illegal(op: Op, context: PassContext) -> str | None:
    """What `scalarize` leaves no trace of."""
    if not _is_of_vectors(op):
        return None
    kept = _KEPT.get(type(op))
    is_legal = context.target == "cuda" and (kept is None or kept(op, context))
    return None if is_legal else f"{op.mnemonic} of vectors is not done by {context.target}"


def _is_of_vectors(op: Op) -> bool:
    return Vector in map(type, types_of((*op.operands(), *op.results)))


class _Scalarizer(Rewriter):
    """lanes: of vectors, as far as they are values of their own. gone: the vectors that are nothing but their lanes now."""

    def __init__(self, context: PassContext) -> None:
        super().__init__({})
        self.context = context
        self.lanes: dict[Value, Lanes] = {}
        self.gone: set[Value] = set()
        self.constants: set[Value] = set()

    def holds(self, vector: Value) -> bool:
        return self.context.target == "cuda" and vector.type.dtype in _HELD

    def whole(self, value: Value) -> Value:
        """`value` as it is now, put together again if it is gone."""
        return self.builder.pack(self.lanes[value]) if value in self.gone else self.mapping.get(value, value)

    def lanes_of(self, vector: Value) -> Lanes:
        found = self.lanes.get(vector)
        count = len(found) if found else vector.type.count  # type: ignore[union-attr]
        return found or tuple([self.builder.extract(vector, lane) for lane in range(count)])

    def take_apart(self, vector: Value, lanes: Lanes) -> None:
        self.lanes[vector] = lanes
        self.gone.add(vector)

    # -- control flow -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> Block:
        params = self.defined(block.params)
        return super().block(block if params == block.params else Block(params, block.ops))

    def defined(self, values: Lanes) -> Lanes:
        """What control flow defines in place of `values`."""
        found: list[Value] = []
        for value in values:
            if isinstance(value.type, Vector) and not self.holds(value):
                lane = Scalar(value.type.dtype)
                self.take_apart(value, tuple([Value(lane, value.name) for _ in range(value.type.count)]))
            found.extend(self.lanes.get(value, (value,)))
        return tuple(found)

    def handed(self, values: Lanes) -> Lanes:
        """What control flow hands on in place of `values`."""
        found: list[Value] = []
        for value in values:
            is_apart = isinstance(value.type, Vector) and not self.holds(value)
            found.extend(self.lanes_of(value) if is_apart else (self.whole(value),))
        return tuple(found)

    def ops(self, ops: Iterable[Op]) -> None:
        for each in ops:
            self.op(each)

    def op(self, op: Op) -> None:
        self.builder.loc = op.loc
        if op.BODY_FIELDS or op.is_terminator:
            lists = {name: self.handed(getattr(op, name)) for name, kind in op.OPERAND_FIELDS if kind == "operand_list"}
            super().op(op.replace(**lists, results=self.defined(op.results)))
        elif _is_of_vectors(op):
            _RULES.get(type(op), _elementwise)(self, op)
        else:
            super().op(op)


def _constant(s: _Scalarizer, op: ops.Constant) -> None:
    s.constants.add(op.result)
    if s.holds(op.result):
        s.builder.append(op)
    else:
        lane = s.builder.constant(op.value, op.result.type.dtype)
        s.take_apart(op.result, (lane,) * op.result.type.count)  # type: ignore[union-attr]


def _splat(s: _Scalarizer, op: ops.Splat) -> None:
    _put_together(s, op, (s.mapping.get(op.operand, op.operand),) * op.count)


def _pack(s: _Scalarizer, op: ops.Pack) -> None:
    _put_together(s, op, s.values(op.args))


def _put_together(s: _Scalarizer, op: Op, lanes: Lanes) -> None:
    s.lanes[op.result] = lanes
    if s.holds(op.result):
        s.builder.append(op.with_operands(s.mapping))
    else:
        s.gone.add(op.result)


def _extract(s: _Scalarizer, op: ops.Extract) -> None:
    if op.operand in s.lanes:
        s.mapping[op.result] = s.lanes[op.operand][op.index]
    else:
        s.builder.append(op)


def _elementwise(s: _Scalarizer, op: Op) -> None:
    if s.context.target == "cuda" and _KEPT[type(op)](op, s.context) and not _shifts_at_run_time(s, op):
        s.builder.append(op.with_operands({v: s.whole(v) for v in op.operands()}))
        return
    given = {v: s.lanes_of(v) for v in op.operands()}
    types = [Scalar(v.type.dtype) for v in op.results]
    rows = []
    for lanes in zip(*given.values(), strict=True):
        of_lane = op.with_operands(dict(zip(given, lanes))).replace(results=tuple(map(Value, types)))
        rows.append(s.builder.append(of_lane))
    for vector, lanes in zip(op.results, zip(*rows), strict=True):
        s.take_apart(vector, lanes)


def _shifts_at_run_time(s: _Scalarizer, op: Op) -> bool:
    return isinstance(op, ops.Binary) and op.kind in _SHIFTS and op.rhs not in s.constants


_RULES: dict[type[Op], Callable[[_Scalarizer, Any], None]] = {
    ops.Constant: _constant,
    ops.Splat: _splat,
    ops.Pack: _pack,
    ops.Extract: _extract,
}
