"""`if` on one warp: a branch where all lanes agree, else both arms under masks and a selection per lane.

    condition            code
    uniform              branch
    small and pure       both arms, select
    a guard (no else)    all lanes on: the body unmasked; some: the body masked; none: nothing
    per lane             each arm under its mask, skipped when no lane takes it; select

What an arm yields holds in the lanes that took it; the forms of both arms meet in `joins.py` or in a selection.
"""

from __future__ import annotations

from stagekit.backends.host.branches import phi
from stagekit.backends.host.forms import LANES, Address, Form, Linear, Mask, Uniform, Vector, number
from stagekit.backends.host.joins import Arm, end_arm, join
from stagekit.backends.host.pointers import full_vector, scalar_pointer
from stagekit.backends.host.selection import select
from stagekit.backends.host.spread import all_lanes, any_lane, as_vector, held_dtype, mask_and, mask_not
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type
from stagekit.ir import BinaryKind, Block, Op, Pointer, Type, ops, walk

MAX_COPIED_OPS = 60  # a guarded body larger than this is written once, masked
MAX_SPECULATED_OPS = 16

_FREE_OF_EFFECT = (
    *(ops.Constant, ops.Unary, ops.Compare, ops.Select, ops.Cast, ops.Bitcast, ops.Offset, ops.If, ops.Yield),
)
_SLOW = (BinaryKind.DIV, *ops.DIVISIONS)


def emit_if(warp: Warp, op: ops.If) -> None:
    condition = warp[op.condition]
    if isinstance(condition, Uniform):
        forms = _uniform_if(warp, op, condition)
    else:
        assert isinstance(condition, Mask)
        forms = _varying_if(warp, op, condition)
    for result, form in zip(op.results, forms, strict=True):
        warp[result] = form


def _types(op: ops.If) -> tuple[Type, ...]:
    return tuple(result.type for result in op.results)


def _uniform_if(warp: Warp, op: ops.If, condition: Uniform) -> tuple[Form, ...]:
    if condition.text in ("true", "false"):
        return warp.run(op.then_body if condition.text == "true" else op.else_body)
    w = warp.w
    then, other, end = w.new_label("then"), w.new_label("else"), w.new_label("endif")
    w.line(f"br i1 {condition.text}, label %{then}, label %{other}")
    w.label(then)
    then_forms = warp.run(op.then_body)
    then_arm = end_arm(warp, end)
    w.label(other)
    else_forms = warp.run(op.else_body)
    else_arm = end_arm(warp, end)
    w.label(end)
    pairs = zip(_types(op), then_forms, else_forms, strict=True)
    return tuple([join(warp, t, (then_arm, else_arm), (a, b)) for t, a, b in pairs])


def _varying_if(warp: Warp, op: ops.If, condition: Mask) -> tuple[Form, ...]:
    if is_cheap(op.then_body) and is_cheap(op.else_body):
        return _chosen(warp, op, condition, warp.run(op.then_body), warp.run(op.else_body))
    if warp.mask is None and does_nothing(op.else_body) and size_of(op.then_body) <= MAX_COPIED_OPS:
        return _coherent_if(warp, op, condition)
    then_forms = run_masked(warp, op.then_body, mask_and(warp.w, warp.mask, condition))
    else_forms = run_masked(warp, op.else_body, _others(warp, op, condition))
    return _chosen(warp, op, condition, then_forms, else_forms)


def _others(warp: Warp, op: ops.If, condition: Mask) -> Mask | None:
    if does_nothing(op.else_body):
        return warp.mask
    return mask_and(warp.w, warp.mask, mask_not(warp.w, condition))


def size_of(block: Block) -> int:
    return sum(1 for _ in walk(block))


def is_cheap(block: Block) -> bool:
    """Is it faster to compute the block for nothing than to branch around it? So with `a and b and c`, which is nested."""
    return size_of(block) <= MAX_SPECULATED_OPS and all(_is_free(op) for op in walk(block))


def _is_free(op: Op) -> bool:
    if isinstance(op, ops.Binary):
        return op.kind not in _SLOW
    return isinstance(op, _FREE_OF_EFFECT)


def does_nothing(block: Block) -> bool:
    return all(isinstance(op, ops.Constant) for op in block.ops[:-1])


def _chosen(
    warp: Warp, op: ops.If, condition: Mask, then_forms: tuple[Form, ...], else_forms: tuple[Form, ...]
) -> tuple[Form, ...]:
    pairs = zip(_types(op), then_forms, else_forms, strict=True)
    return tuple([select(warp, t, condition, a, b) for t, a, b in pairs])


def _coherent_if(warp: Warp, op: ops.If, condition: Mask) -> tuple[Form, ...]:
    """A guard: `warp.mask` is None and the else arm does nothing."""
    w, else_forms = warp.w, warp.run(op.else_body)
    whole, partial, some, end = (w.new_label(hint) for hint in ("whole", "partial", "some", "endif"))
    w.line(f"br i1 {all_lanes(w, condition)}, label %{whole}, label %{partial}")
    w.label(whole)
    whole_forms = warp.run(op.then_body)
    whole_arm = end_arm(warp, end)
    w.label(partial)
    is_any = any_lane(w, condition)
    skip_arm = Arm(w.block, w.hole())
    w.line(f"br i1 {is_any}, label %{some}, label %{end}")
    w.label(some)
    with warp.under(condition):
        some_forms = _chosen(warp, op, condition, warp.run(op.then_body), else_forms)
    some_arm = end_arm(warp, end)
    w.label(end)
    arms = (whole_arm, skip_arm, some_arm)
    forms = zip(_types(op), whole_forms, else_forms, some_forms, strict=True)
    return tuple([join(warp, t, arms, (a, b, c)) for t, a, b, c in forms])


def run_masked(warp: Warp, block: Block, on: Mask | None) -> tuple[Form, ...]:
    """Write `block` for the lanes in `on`, skipped when there are none. The forms hold in those lanes only."""
    if does_nothing(block) or on is None:
        return warp.run(block)
    w = warp.w
    body, end = w.new_label("masked"), w.new_label("unmasked")
    is_any, skip = any_lane(w, on), w.block
    w.line(f"br i1 {is_any}, label %{body}, label %{end}")
    w.label(body)
    with warp.under(on):
        forms = warp.run(block)
    values = block.ops[-1].operands()
    outgoing = [movable(warp, v.type, form) for v, form in zip(values, forms, strict=True)]
    back = w.block
    w.line(f"br label %{end}")
    w.label(end)
    return tuple([_or_zero(warp, v.type, form, back, skip) for v, form in zip(values, outgoing, strict=True)])


def movable(warp: Warp, type_: Type, form: Form) -> Form:
    """A form of the same value that is one LLVM value, so that one phi carries it out of a block."""
    if isinstance(type_, Pointer):
        assert isinstance(form, Address)
        pointer = scalar_pointer(warp, type_, form)
        if pointer is not None:
            return Address(Uniform(pointer), number(0))
        return Address(Vector(full_vector(warp, type_, form)), number(0))
    return as_vector(warp, type_.dtype, form) if isinstance(form, Linear) else form


def _or_zero(warp: Warp, type_: Type, form: Form, back: str, skip: str) -> Form:
    """`form` behind a skipped block. Zeros and not poison: a poisoned lane of a mask would poison all its 32 bits."""
    if isinstance(form, Address):
        base = _or_zero(warp, type_, form.base, back, skip)
        assert isinstance(base, Uniform | Vector)
        return Address(base, form.index)
    assert not isinstance(form, Linear)
    if form.text[0] != "%":
        return form
    text = phi(warp.w, _held(type_, form), [(form.text, back), ("zeroinitializer", skip)])
    if isinstance(form, Mask):
        return Mask(text)
    return Uniform(text, form.interval) if isinstance(form, Uniform) else Vector(text, form.interval, form.is_narrow)


def _held(type_: Type, form: Uniform | Vector | Mask) -> str:
    if isinstance(form, Uniform):
        return llvm_type(type_, None)
    if isinstance(form, Vector) and not isinstance(type_, Pointer):
        return llvm_type(held_dtype(type_.dtype, form), LANES)
    return llvm_type(type_, LANES)
