"""Two versions of the rest of a body, where that is worth a branch: all lanes of a warp in one row, or not.

    row, column = i // width, i % width         i = base + (0..31), width known only at run time

    base % width + 31 < width      row is one number, columns are neighbours
    else                           a row per lane

What follows addresses memory by them: in the first version by one vector access, in the second by a gather.
"""

from __future__ import annotations

from stagekit.backends.host.conditional import size_of
from stagekit.backends.host.forms import Form, Linear, Uniform
from stagekit.backends.host.joins import end_arm, join
from stagekit.backends.host.quotients import divides_by_neighbours, same_row
from stagekit.backends.host.spread import dtype_of
from stagekit.backends.host.warp import Warp
from stagekit.dtypes import DType
from stagekit.ir import Block, ops

MAX_FORKED_OPS = 32  # in all copies of the rest of a body that there are already; beyond, it is not copied again


def fork(warp: Warp, block: Block, place: int) -> tuple[Form, ...] | None:
    """Write the ops of `block` from `place` on in two versions and give what they hand on; None if they are no case for it."""
    op = block.ops[place]
    if not isinstance(op, ops.Binary) or op.kind not in ops.DIVISIONS or warp.mask is not None:
        return None
    a, b, dtype = warp[op.lhs], warp[op.rhs], dtype_of(op.lhs.type)
    if not isinstance(a, Linear) or not isinstance(b, Uniform) or not divides_by_neighbours(op.kind, dtype, a, b):
        return None
    rest = Block((), block.ops[place:])
    if (a, b.text) in warp.rows or warp.copies * size_of(rest) > MAX_FORKED_OPS:
        return None
    return _versions(warp, rest, dtype, a, b)


def _versions(warp: Warp, rest: Block, dtype: DType, a: Linear, b: Uniform) -> tuple[Form, ...]:
    w, row = warp.w, same_row(warp, dtype, a, b)
    together, apart, end = w.new_label("row"), w.new_label("rows"), w.new_label("forked")
    w.line(f"br i1 {row.condition}, label %{together}, label %{apart}")
    arms, forms = [], []
    for label, known in ((together, row), (apart, None)):
        w.label(label)
        with warp.in_row((a, b.text), known):
            forms.append(warp.run(rest))
        arms.append(end_arm(warp, end))
    w.label(end)
    results = zip(rest.ops[-1].operands(), *forms, strict=True)
    return tuple([join(warp, value.type, tuple(arms), (one, other)) for value, one, other in results])
