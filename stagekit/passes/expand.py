"""Replace every intrinsic that the target does by an expansion, and refuse what it cannot do.

    %1 = intrinsic.program_id() {params=(0)} : i64    ->    %1 = intrinsic.block_idx() {params=("x")} : i64
    %2 = asm(%x) {...} : u32 host(%0: u32) {                 the ops of `host`      (not on cuda)

What an expansion builds is expanded in turn; all of it has the place of the op that it replaces. Every intrinsic that is
left, the target emits by itself.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from stagekit.diagnostics import UNKNOWN, Diagnostic, StagekitError
from stagekit.ir import Builder, Expand, Function, Lowering, Op, Scalar, Type, Unsupported, Value, Vector
from stagekit.ir.ops import Constant, InlineAsm, IntrinsicOp
from stagekit.ir.rewriter import Rewriter
from stagekit.ir.stamps import BlockCopy, copy_of
from stagekit.ir.typing import is_elementwise, types_of
from stagekit.passes import PassContext


class UnsupportedOnTarget(Diagnostic):
    title = "Not available on this target"
    label = "`{name}` on {target}: {reason}"
    help = "choose by target while the kernel is specialised, or launch it where this exists"


def expand(fn: Function, context: PassContext) -> Function:
    """Replace intrinsics and inline assembly by what they are made of. Raises StagekitError for what the target cannot do."""
    return _Expander(context).run(fn)


def lowering(op: IntrinsicOp, context: PassContext) -> Lowering | None:
    """Return how the target does `op`; None where the interpreter evaluates the record's own meaning."""
    if context.target not in op.spec.lower:
        return None
    if op.spec.older and _is_older(op, context):
        return op.spec.older
    return op.spec.lowering(context.target, types_of(op.args), fastmath=context.fastmath)


def _is_older(op: IntrinsicOp, context: PassContext) -> bool:
    return context.target == "cuda" and context.capability < op.spec.min_capability


def _is_newer(op: IntrinsicOp, context: PassContext) -> bool:
    """Return whether the GPU comes after the last one that has `op`."""
    return context.target == "cuda" and 0 < op.spec.max_capability < context.capability


def illegal(op: Op, context: PassContext) -> str | None:
    """Return why `expand` would not leave `op` as it is, or None."""
    if isinstance(op, IntrinsicOp) and isinstance(lowering(op, context), Expand | Unsupported):
        return f"{op.spec.name} is not expanded for {context.target}"
    return "asm is not lowered" if isinstance(op, InlineAsm) and context.target != "cuda" else None


class _Expander(Rewriter):
    def __init__(self, context: PassContext) -> None:
        super().__init__({IntrinsicOp: self.intrinsic, InlineAsm: self.asm})
        self.context = context
        self.is_cuda = context.target == "cuda"

    def op(self, op: Op) -> None:
        # On cuda the `host` of asm is not expanded: it may contain what cuda refuses.
        is_meant_elsewhere = self.is_cuda and isinstance(op, InlineAsm) and op.host is not None
        super().op(op.replace(host=None) if is_meant_elsewhere else op)

    def intrinsic(self, op: IntrinsicOp, builder: Builder) -> tuple[Value, ...] | None:
        found = lowering(op, self.context)
        if isinstance(found, Unsupported):
            self.refuse(op, op.spec.name, found.reason)
        if (_is_older(op, self.context) and not op.spec.older) or _is_newer(op, self.context):
            needed, here = op.spec.min_capability / 10, self.context.capability / 10
            last = op.spec.max_capability / 10
            upto = "" if not last else " and no other" if last == needed else f" to {last}"
            self.refuse(op, op.spec.name, f"needs compute capability {needed}{upto}, this kernel is for {here}")
        if not isinstance(found, Expand):
            return None
        is_whole = not any(isinstance(v.type, Vector) for v in op.args) or _takes_vectors(found, op)
        with builder.block() as built:
            if not is_whole:
                results = _lane_by_lane(op, builder)
            elif found.is_formula:
                results = _formula(found, types_of(op.args), op.params).copy(builder, op.args, op.loc)
            else:
                results = found.build(builder, op.args, op.params)
        self.ops(built.ops)
        return self.values(results)

    def asm(self, op: InlineAsm, builder: Builder) -> tuple[Value, ...] | None:
        if self.is_cuda:
            return None
        if op.host is None:
            self.refuse(op, "asm", "it is PTX, and no `host=` function says what it computes")
        self.mapping.update(zip(op.host.params, op.args, strict=True))
        self.ops(op.host.ops[:-1])
        return self.values(op.host.ops[-1].operands())

    def refuse(self, op: Op, name: str, reason: str) -> NoReturn:
        raise StagekitError(UnsupportedOnTarget(name, self.context.target, reason), op.loc)


def _takes_vectors(expansion: Expand, op: IntrinsicOp) -> bool:
    """Return whether `expansion` builds only elementwise ops for the lanes of `op`."""
    types = tuple([Scalar(v.type.dtype) for v in op.args])
    return expansion.is_formula and _is_straight(expansion, types, op.params)


@functools.cache
def _formula(expansion: Expand, types: tuple[Type, ...], params: tuple[Any, ...]) -> BlockCopy:
    """Return what a formula builds of values of these types: ops of a kernel are alike, and a copy takes a third of the time."""
    builder, args = Builder(UNKNOWN), tuple(map(Value, types))
    with builder.block(args) as built:
        builder.yield_(*expansion.build(builder, args, params))
    return copy_of(built.done())


@functools.cache
def _is_straight(expansion: Expand, types: tuple[Type, ...], params: tuple[Any, ...]) -> bool:
    *built, _ = _formula(expansion, types, params).block.ops
    return all(is_elementwise(op) or isinstance(op, Constant) or _is_of_one_lane(op) for op in built)


def _is_of_one_lane(op: Op) -> bool:
    """Return whether `op` is an instruction that computes one number, of which `scalarize` makes one for each lane."""
    return isinstance(op, InlineAsm) and not op.has_side_effects and len(op.results) == 1


def _lane_by_lane(op: IntrinsicOp, builder: Builder) -> tuple[Value, ...]:
    """Return the results of `op`, packed from those of one call per lane."""
    given = [tuple([builder.extract(v, lane) for v in op.args]) for lane in range(op.args[0].type.count)]  # type: ignore[union-attr]
    rows = [builder.call(op.spec, lanes, op.params) for lanes in given]
    return tuple([builder.pack(column) for column in zip(*rows)])
