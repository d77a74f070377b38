"""`if`: a branch where the condition is one scalar, else masked code; and what a masked region leaves behind.

    condition   both arms are cheap                     otherwise
    scalar      a branch                                a branch
    per lane    both computed, one chosen per lane      masked code, skipped where no lane is on

On a processor without AVX-512, whose masked stores are slow, a small masked region is written twice: "all lanes on" runs it
without a mask. So is the rest of a body after a division whose quotient may be the same in all lanes of a warp (`fork`):

    row, column = i // width, i % width         i = base + (0..31), width known only at run time

    base % width + 31 < width      row is one number, columns are neighbours
    else                           a row per lane

What follows addresses memory by them: in the first version by one vector access, in the second by a gather.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from stagekit.backends.host.forms import ZERO, Form, Gep, Linear, Mask, Uniform, known_truth
from stagekit.backends.host.integers import divides_by_neighbours, shared_quotient
from stagekit.backends.host.joins import join_all, select
from stagekit.backends.host.pointers import at
from stagekit.backends.host.vectors import mask_and
from stagekit.backends.host.warp import SharedQuotient, Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import Predecessor, branch, end_arm
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Block, Op, Type, ops, walk

MAX_COPIED_OPS = 60  # a guarded body larger than this is written once, masked
MAX_SPECULATED_OPS = 16

_FREE_OF_EFFECT = ops.Constant, ops.Unary, ops.Compare, ops.Select, ops.Cast, ops.Bitcast, ops.Offset, ops.If, ops.Yield
_SLOW = (BinaryKind.DIV, *ops.DIVISIONS)


def emit_if(warp: Warp, op: ops.If) -> None:
    condition = warp.decider(op, op.condition)
    if isinstance(condition, Uniform):
        forms = _uniform_if(warp, op, condition)
    else:
        forms = choose(warp, op, condition, *_arms(warp, op, condition))
    for result, form in zip(warp.kept(op.results), forms, strict=True):
        warp[result] = form


def choose(
    warp: Warp, op: Op, condition: Form, if_true: tuple[Form, ...], if_false: tuple[Form, ...]
) -> tuple[Form, ...]:
    """Return the results of `op`: those of `if_true` in the lanes where `condition` holds, else those of `if_false`."""
    types = (result.type for result in op.results)
    return tuple([select(warp, t, condition, a, b) for t, a, b in zip(types, if_true, if_false, strict=True)])


def _uniform_if(warp: Warp, op: ops.If, condition: Uniform) -> tuple[Form, ...]:
    holds = known_truth(condition)
    if holds is not None:
        return warp.run(op.then_body if holds else op.else_body)
    arms = [functools.partial(warp.run, body) for body in op.bodies()]
    return join_all(warp, warp.kept(op.results), *branch(warp.w, condition.text, ("then", "else", "endif"), arms))


def _arms(warp: Warp, op: ops.If, condition: Form) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """Write both bodies; return the values that each yields, valid in the lanes that take it."""
    assert isinstance(condition, Mask)
    if is_cheap(op.then_body) and is_cheap(op.else_body):
        return warp.run(op.then_body), warp.run(op.else_body)
    then_forms = run_masked(warp, op.then_body, condition)
    if does_nothing(op.else_body):
        return then_forms, warp.run(op.else_body)
    return then_forms, run_masked(warp, op.else_body, condition.inverted(warp.w))


def size_of(block: Block) -> int:
    return sum(1 for _ in walk(block))


def is_cheap(block: Block) -> bool:
    """Return whether computing the block for nothing costs less than a branch around it: `a and b and c` nests such blocks."""
    return size_of(block) <= MAX_SPECULATED_OPS and all(_is_free(op) for op in walk(block))


def _is_free(op: Op) -> bool:
    if isinstance(op, ops.Binary):
        return op.kind not in _SLOW
    return isinstance(op, _FREE_OF_EFFECT)


def does_nothing(block: Block) -> bool:
    return all(isinstance(op, ops.Constant) for op in block.ops[:-1])


def run_masked(warp: Warp, block: Block, among: Mask) -> tuple[Form, ...]:
    """Write `block` for the lanes of `among`, skipped where none of them is on. The forms hold in those lanes only."""
    on = mask_and(warp.w, warp.mask, among)
    if on is None or does_nothing(block):
        return warp.run(block)
    w, values = warp.w, block.ops[-1].operands()
    end, ends, forms = w.new_label("unmasked"), [], []
    has_slow_masks = not warp.kernel.features.has_avx512
    if has_slow_masks and warp.mask is None and on.all != "false" and size_of(block) <= MAX_COPIED_OPS:
        whole, partial = w.new_label("whole"), w.new_label("partial")
        w.line(f"br i1 {on.all_lanes(w)}, label %{whole}, label %{partial}")
        w.label(whole)
        forms.append(warp.run(block))
        ends.append(end_arm(w, end))
        w.label(partial)
    elif on.any == "true":
        with warp.under(on):
            return warp.run(block)
    body, is_any = w.new_label("masked"), on.any_lane(w)
    skip_arm = Predecessor(w.block, w.hole())
    w.line(f"br i1 {is_any}, label %{body}, label %{end}")
    w.label(body)
    with warp.under(on):
        latest = warp.run(block)
    skipped = tuple([_where_skipped(v.type, form) for v, form in zip(values, latest, strict=True)])
    ends += [end_arm(w, end), skip_arm]
    w.label(end)
    return join_all(warp, values, ends, [*forms, latest, skipped])


def _where_skipped(type_: Type, form: Form) -> Form:
    """Return the form of a value after its block was skipped: a number, since one lane of poison would spoil a whole mask."""
    if isinstance(form, Gep):
        return at("null")
    if isinstance(form, Linear) and not form.scaled:
        return replace(form, base=ZERO)
    if not isinstance(form, Linear) and form.text[0] != "%":
        return form
    dtype = type_.dtype
    return ZERO if dtype.is_integer else Uniform(arith.constant(dtype, None, 0))


# -- two versions of the rest of a body -------------------------------------------------------------------------------

MAX_FORKED_OPS = 32  # in all copies of the rest of a body that there are already; beyond, it is not copied again


def fork(warp: Warp, block: Block, place: int) -> tuple[Form, ...] | None:
    """Write the ops of `block` from `place` on in two versions and give what they hand on; None if they are no case for it."""
    op = block.ops[place]
    if not isinstance(op, ops.Binary) or op.kind not in ops.DIVISIONS or warp.mask is not None:
        return None
    a, b, dtype = warp[op.lhs], warp[op.rhs], op.lhs.type.dtype
    if not isinstance(a, Linear) or not isinstance(b, Uniform) or not divides_by_neighbours(op.kind, dtype, a, b):
        return None
    rest = Block((), block.ops[place:])
    if (a, b.text) in warp.quotients or warp.copies * size_of(rest) > MAX_FORKED_OPS:
        return None
    return _versions(warp, rest, dtype, a, b)


def _versions(warp: Warp, rest: Block, dtype: DType, a: Linear, b: Uniform) -> tuple[Form, ...]:
    row = shared_quotient(warp, dtype, a, b)

    def version(known: SharedQuotient | None) -> tuple[Form, ...]:
        with warp.with_quotient((a, b.text), known):
            return warp.run(rest)

    arms = [functools.partial(version, known) for known in (row, None)]
    return join_all(warp, rest.ops[-1].operands(), *branch(warp.w, row.condition, ("row", "rows", "forked"), arms))
