"""Compute what is known, and drop what changes nothing: constants, integer and bool identities, decided branches.

    %2 = binary.add %c2, %c3        ->    %2 = const 5
    %3 = binary.mul %x, %c1         ->    %x
    %4 = if %true then A else B     ->    the ops of A

Constants are computed by `semantics`, so they are what the target would compute. A float identity is used only where
every bit is the same: `x + 0.0` is not `x` for -0.0. An intrinsic is computed only if its target is exact.
Relies on: valid IR, before or after legalisation (it adds no op that an emitter could refuse). Linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit.ir import PURE, Builder, Function, Native, Op, Pointer, Type, UnaryKind, Value, allows, ops, semantics
from stagekit.ir.rewriter import Rewriter, Rule
from stagekit.passes import PassContext, identities
from stagekit.passes.expand import lowering
from stagekit.passes.identities import Identity, Same

Replacement = Sequence[Value] | None


def fold(fn: Function, context: PassContext) -> Function:
    """Replace ops whose result is known, or is a value that there is already."""
    return _Folder(fn, context).run(fn)


class _Folder(Rewriter):
    def __init__(self, fn: Function, context: PassContext) -> None:
        rules: dict[type[Op], Rule] = {
            ops.Constant: self.constant,
            ops.Binary: self.binary,
            ops.Unary: self.unary,
            ops.Compare: self.compare,
            ops.Select: self.select,
            ops.Cast: self.cast,
            ops.Bitcast: self.bitcast,
            ops.Splat: self.splat,
            ops.Pack: self.pack,
            ops.Extract: self.extract,
            ops.Offset: self.offset,
            ops.Load: self.load,
            ops.Store: self.store,
            ops.If: self.if_,
            ops.For: self.for_,
            ops.Assert: self.assert_,
            ops.IntrinsicOp: self.intrinsic,
        }
        super().__init__(rules)
        self.context = context
        self.block_threads: tuple[int, int, int] | None = fn.attribute("block")
        self.known: dict[Value, Any] = {}  # payloads of constants
        self.definitions: dict[Value, Op] = {}  # the ops that rules look back at, by result

    def give(self, value: Any, type_: Type) -> tuple[Value]:
        """Put a constant in place of an op."""
        assert not isinstance(type_, Pointer)
        constant = self.builder.constant(value, type_)
        self.known[constant] = value
        return (constant,)

    def computed(self, value: Any, type_: Type) -> tuple[Value]:
        """Put a NumPy scalar in place of an op."""
        return self.give(semantics.to_python(value, type_.dtype), type_)

    def typed(self, *operands: Value) -> tuple[Any, ...] | None:
        """Return the operands as NumPy scalars if all are constants."""
        known = self.known
        for each in operands:
            if each not in known:
                return None
        return tuple(semantics.typed(known[v], v.type.dtype) for v in operands)

    def identity(self, rule: Identity, operand: Value) -> Replacement:
        """Put in place of an op what a rule of `identities` gives; `operand` is the one that the rule may leave."""
        if rule is None:
            return None
        return (operand,) if isinstance(rule, Same) else self.give(rule, operand.type)

    # -- numbers ------------------------------------------------------------------------------------------------

    def constant(self, op: ops.Constant, builder: Builder) -> Replacement:
        self.known[op.result] = op.value
        return None

    def binary(self, op: ops.Binary, builder: Builder) -> Replacement:
        dtype = op.lhs.type.dtype
        if given := self.typed(op.lhs, op.rhs):
            return self.computed(semantics.binary(op.kind, dtype, *given), op.result.type)
        if dtype.is_float:
            return None
        if op.lhs is op.rhs:
            return self.identity(identities.of_equals(op.kind, dtype), op.lhs)
        if op.rhs in self.known:
            return self.identity(identities.with_constant(op.kind, dtype, self.known[op.rhs]), op.lhs)
        if op.lhs not in self.known:
            return None
        if op.kind in identities.COMMUTATIVE:
            return self.identity(identities.with_constant(op.kind, dtype, self.known[op.lhs]), op.rhs)
        return self.identity(identities.of_zero(op.kind), op.lhs) if self.known[op.lhs] == 0 else None

    def unary(self, op: ops.Unary, builder: Builder) -> Replacement:
        dtype = op.operand.type.dtype
        if given := self.typed(op.operand):
            return self.computed(semantics.unary(op.kind, dtype, *given), op.result.type)
        inner = self.definitions.get(op.operand)
        if isinstance(inner, ops.Unary) and inner.kind is op.kind:
            return (inner.operand,)
        if isinstance(inner, ops.Compare) and op.kind is UnaryKind.NOT and identities.has_opposite(inner):
            return (builder.compare(inner.kind.opposite, inner.lhs, inner.rhs),)
        self.definitions[op.result] = op
        return None

    def compare(self, op: ops.Compare, builder: Builder) -> Replacement:
        if given := self.typed(op.lhs, op.rhs):
            return self.computed(semantics.compare(op.kind, op.lhs.type.dtype, *given), op.result.type)
        if op.lhs is op.rhs and not op.lhs.type.dtype.is_float:
            return self.give(op.kind in identities.TRUE_OF_EQUALS, op.result.type)
        if op.rhs in self.known:
            answer = identities.of_bound(op.kind, op.lhs.type.dtype, self.known[op.rhs])
            if answer is not None:
                return self.give(answer, op.result.type)
        self.definitions[op.result] = op
        return None

    def select(self, op: ops.Select, builder: Builder) -> Replacement:
        condition = self.known.get(op.condition)
        if condition is not None:
            return (op.if_true if condition else op.if_false,)
        return self.choice(op.condition, op.if_true, op.if_false)

    def choice(self, condition: Value, if_true: Value, if_false: Value) -> Replacement:
        """Return the value that a choice always gives, when there is one."""
        if if_true is if_false:
            return (if_true,)
        if if_true.type == condition.type and self.known.get(if_true) is True and self.known.get(if_false) is False:
            return (condition,)
        return None

    def cast(self, op: ops.Cast, builder: Builder) -> Replacement:
        target = op.result.type.dtype
        if given := self.typed(op.operand):
            return self.computed(semantics.cast(given[0], op.operand.type.dtype, target), op.result.type)
        inner = self.definitions.get(op.operand)
        if isinstance(inner, ops.Cast) and identities.needs_no_step(inner, target):
            return (builder.cast(inner.operand, target),)
        self.definitions[op.result] = op
        return None

    def bitcast(self, op: ops.Bitcast, builder: Builder) -> Replacement:
        inner = self.definitions.get(op.operand)
        if isinstance(inner, ops.Bitcast):
            return (builder.bitcast(inner.operand, op.result.type),)
        self.definitions[op.result] = op
        given = self.typed(op.operand)
        if not given or op.result.type == op.operand.type:
            return None
        result = given[0].view(op.result.type.dtype.numpy)
        is_nan = given[0] != given[0] or result != result  # whose payload a constant cannot carry
        return None if is_nan else self.computed(result, op.result.type)

    def splat(self, op: ops.Splat, builder: Builder) -> Replacement:
        self.definitions[op.result] = op
        return self.give(self.known[op.operand], op.result.type) if op.operand in self.known else None

    def pack(self, op: ops.Pack, builder: Builder) -> Replacement:
        """Replace all lanes of one vector, in order, by that vector."""
        self.definitions[op.result] = op
        sources = [self.definitions.get(lane) for lane in op.args]
        first = sources[0]
        if not isinstance(first, ops.Extract) or first.operand.type is not op.result.type:
            return None
        lanes = [(s.operand, s.index) for s in sources if isinstance(s, ops.Extract)]
        return (first.operand,) if lanes == [(first.operand, i) for i in range(len(sources))] else None

    def extract(self, op: ops.Extract, builder: Builder) -> Replacement:
        if op.operand in self.known:
            return self.give(self.known[op.operand], op.result.type)
        self.definitions[op.result] = op
        match self.definitions.get(op.operand):
            case ops.Pack(args=lanes):
                return (lanes[op.index],)
            case ops.Splat(operand=lane):
                return (lane,)
        return None

    def intrinsic(self, op: ops.IntrinsicOp, builder: Builder) -> Replacement:
        found = lowering(op, self.context)
        if found is Native.BLOCK_DIM and self.block_threads:
            return self.give(self.block_threads["xyz".index(op.params[0])], op.result.type)
        if not self.is_computable(op):
            return None
        given = self.typed(*op.args)
        if given and op.spec.evaluate:
            return self.computed(op.spec.evaluate(*given), op.result.type)
        for operand, constant in (op.args, op.args[::-1]) if op.spec.extreme else ():
            if constant in self.known:
                rule = identities.of_extremum(op.spec.extreme, op.result.type.dtype, self.known[constant])
                return self.identity(rule, operand)
        return None

    def is_computable(self, op: ops.IntrinsicOp) -> bool:
        """Return whether the target computes what the record says, bit by bit."""
        spec, target = op.spec, self.context.target
        is_exact = spec.tolerance.get(target, 0.0) == 0.0
        is_approximate = allows(self.context.fastmath, spec.relaxed_by) and target in spec.lower_fast
        return spec.effects == PURE and len(op.results) == 1 and not op.params and is_exact and not is_approximate

    # -- memory and control -------------------------------------------------------------------------------------

    def offset(self, op: ops.Offset, builder: Builder) -> Replacement:
        return (op.pointer,) if self.known.get(op.index) == 0 else None

    def load(self, op: ops.Load, builder: Builder) -> Replacement:
        mask = self.known.get(op.mask) if op.mask else None
        if mask is None or op.other is None:
            return None
        return (builder.load(op.pointer, count=op.count, align=op.align, cache=op.cache) if mask else op.other,)

    def store(self, op: ops.Store, builder: Builder) -> Replacement:
        mask = self.known.get(op.mask) if op.mask else None
        if mask is None:
            return None
        if mask:
            builder.store(op.pointer, op.value, align=op.align, cache=op.cache)
        return ()

    def if_(self, op: ops.If, builder: Builder) -> Replacement:
        """Replace a decided branch by its arm; of an undecided one, take away results that are the same in both arms."""
        condition = self.known.get(op.condition)
        if condition is not None:
            arm = op.then_body if condition else op.else_body
            for each in arm.ops[:-1]:
                builder.append(each)
            return arm.ops[-1].operands()
        for result, *arms in zip(op.results, op.then_body.ops[-1].operands(), op.else_body.ops[-1].operands()):
            if same := self.choice(op.condition, *arms):
                self.mapping[result] = same[0]
        return None

    def for_(self, op: ops.For, builder: Builder) -> Replacement:
        """Replace a loop that never runs by its initial values."""
        if not all(v in self.known for v in (op.start, op.stop, op.step)):
            return None
        start, stop, step = (self.known[v] for v in (op.start, op.stop, op.step))
        return None if step and range(start, stop, step) else op.inits

    def assert_(self, op: ops.Assert, builder: Builder) -> Replacement:
        return () if self.known.get(op.condition) is True else None
