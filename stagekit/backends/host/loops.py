"""`for` and `while`: scalar loops where the lanes stay together, else loops that lanes leave one by one.

    trip count            code
    uniform               a scalar loop; the mask stays what it is
    start per lane,       `for i = tid; i < n; i += BLOCK`: a scalar loop while all lanes are in, then one masked
    the rest uniform      iteration for what is left (`counting.py`)
    per lane              a masked loop: the mask shrinks, and the loop ends when no lane is on

In a masked loop the lanes still on have all done the same number of iterations, so a counter stays a scalar; what it was when a
lane left is kept per lane beside it (`Kept`).

Each carried value keeps the form of its initial value, as long as the body hands it on in that form:

    i = tid; loop: i = i + 32            Linear(phi, (0, 1, ..)): one scalar phi carries it
    acc = 0.0; loop: acc = acc + x[i]    begins as one scalar, comes back as a vector: a vector phi carries it

The code of the body depends on the forms of what it reads, and their last forms are known only when the body is written. So the
loop is written on the assumption that every form is kept. `fit` compares, at the end of the body. Where a value came back in a
less regular form, `until_it_fits` deletes the loop and writes it again with that value as a vector (`forced_vectors`): at most
once for each carried value, twice for a pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from stagekit import dtypes
from stagekit.backends.host import safepoints
from stagekit.backends.host.conditional import choose, run_masked, size_of
from stagekit.backends.host.counting import ScalarTrips, Stride, Trip, WholeTrips, stride_of, trip_of
from stagekit.backends.host.forms import LANES, Form, Gep, Linear, Mask, Uniform, Varying, known, unknown
from stagekit.backends.host.joins import has_pattern_of, select
from stagekit.backends.host.pointers import address_of, as_full, as_index, at, full_vector, scalar_pointer
from stagekit.backends.host.vectors import as_mask, mask_and
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.blocks import OpenPhi, loop_metadata, open_phi, unroll_hint
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen
from stagekit.ir import BOOL, INDEX, Op, Pointer, Type, Value, ops
from stagekit.ir.intervals import Interval

T = TypeVar("T")


@frozen()
class Carried:
    """A value that an open loop carries: `form` is how the body sees it, `phi` the part of the form that changes."""

    param: Value
    form: Form
    phi: OpenPhi
    moves_base: bool  # of an address: the pointer changes, not the index

    def after(self, warp: Warp, latest: str, back: str) -> Form:
        """Return the form after a loop that is left from its entry or from the block `back`."""
        return _with_part(self.param.type, self.form, self.phi.after(warp.w, latest, back), self.moves_base)


def until_it_fits(warp: Warp, attempt: Callable[[], T | None]) -> T:
    """Write a loop again until every carried value has a form that it keeps."""
    mark = warp.w.mark()
    while (found := attempt()) is None:
        warp.w.rewind(mark)
    return found


def prepare(warp: Warp, params: Sequence[Value], inits: Sequence[Form]) -> tuple[Form, ...]:
    """Return the initial values in the forms in which the loop will carry them. Call it before the loop's first block."""
    return tuple([_prepared(warp, p, init) for p, init in zip(params, inits, strict=True)])


def _prepared(warp: Warp, param: Value, init: Form) -> Form:
    if param in warp.kernel.forced_vectors:
        return as_full(param.type, full_vector(warp, param.type, init))
    if isinstance(init, Gep):
        return _prepared_address(warp, param, init)
    if isinstance(init, Uniform | Linear):
        return init
    return as_full(param.type, full_vector(warp, param.type, init))


def _prepared_address(warp: Warp, param: Value, init: Gep) -> Form:
    """Return an address as a fixed base with a changing index; once forced, as a changing pointer or a pointer per lane."""
    assert isinstance(param.type, Pointer)
    if param in warp.kernel.forced_pointers or isinstance(init.base, Varying):
        pointer = scalar_pointer(warp, param.type, init)
        return at(pointer) if pointer else as_full(param.type, full_vector(warp, param.type, init))
    if isinstance(init.index, Varying):
        return Gep(init.base, Varying(full_vector(warp, INDEX, init.index), Interval.of(dtypes.INDEX)))
    return init


def open_all(warp: Warp, params: Sequence[Value], inits: Sequence[Form], entry: str) -> list[Carried]:
    """Begin the loop's first block: write a phi per prepared value, and give `params` their forms."""
    opened = [_open(warp, param, init, entry) for param, init in zip(params, inits, strict=True)]
    for carried in opened:
        warp[carried.param] = carried.form
    return opened


def _open(warp: Warp, param: Value, init: Form, entry: str) -> Carried:
    moves_base = isinstance(init, Gep) and (isinstance(init.base, Varying) or param in warp.kernel.forced_pointers)
    part = _changing_part(init, moves_base)
    lanes = None if isinstance(part, Uniform | Linear) else LANES
    held = llvm_type(INDEX if isinstance(init, Gep) and not moves_base else param.type, lanes)
    slot = open_phi(warp.w, held, part.base.text if isinstance(part, Linear) else part.text, entry)
    return Carried(param, _with_part(param.type, init, slot.name, moves_base), slot, moves_base)


def _changing_part(form: Form, moves_base: bool) -> Uniform | Linear | Varying | Mask:
    """Return the part of a prepared form that a phi carries."""
    if isinstance(form, Gep):
        return form.base if moves_base else form.index
    return form


def _with_part(type_: Type, form: Form, name: str, moves_base: bool) -> Form:
    """Return `form`, a value of `type_`, with `name` as the part that changes, of whose value nothing is known."""
    match form:
        case Gep() if moves_base:
            return replace(form, base=replace(form.base, text=name))
        case Gep():
            return replace(form, index=as_index(_with_part(INDEX, form.index, name, moves_base)))
        case Linear():
            return replace(form, base=Uniform(name, unknown(type_.dtype)))
        case Mask():
            return Mask(name)
    return replace(form, text=name, interval=unknown(type_.dtype))


def fit(warp: Warp, opened: Sequence[Carried], latest: Sequence[Form]) -> list[str] | None:
    """Return the phis' operands, written at the end of the body. Where a form was not kept, note that and return None."""
    texts = [_fitting(warp, c, form) for c, form in zip(opened, latest, strict=True)]
    misfits = [carried.param for carried, text in zip(opened, texts, strict=True) if text is None]
    for param in misfits:
        _force(warp, param)
    return None if misfits else [text for text in texts if text is not None]


def _force(warp: Warp, param: Value) -> None:
    """Carry `param` in a less regular form from now on."""
    kernel = warp.kernel
    if param in kernel.forced_vectors:
        raise InternalError("a loop's carried value does not fit a vector")
    if isinstance(param.type, Pointer) and param not in kernel.forced_pointers:
        kernel.forced_pointers.add(param)
    else:
        kernel.forced_vectors.add(param)


def _fitting(warp: Warp, carried: Carried, latest: Form) -> str | None:
    form, type_ = carried.form, carried.param.type
    if not isinstance(form, Gep):
        return _fitting_number(warp, type_, form, latest)
    moved = address_of(latest)
    if not carried.moves_base:
        return _fitting_number(warp, INDEX, form.index, moved.index) if moved.base == form.base else None
    assert isinstance(type_, Pointer)
    return scalar_pointer(warp, type_, moved) if isinstance(form.base, Uniform) else full_vector(warp, type_, moved)


def _fitting_number(warp: Warp, type_: Type, form: Form, latest: Form) -> str | None:
    if isinstance(form, Uniform):
        return latest.text if isinstance(latest, Uniform) else None
    if isinstance(form, Linear):
        return latest.base.text if isinstance(latest, Linear) and has_pattern_of(form, latest) else None
    return full_vector(warp, type_, latest)


def close_all(warp: Warp, opened: Sequence[Carried], texts: Sequence[str], back: str) -> None:
    """Complete the phis: the operands `texts` come from the block `back`."""
    for carried, text in zip(opened, texts, strict=True):
        carried.phi.close(warp.w, text, back)


MAX_COPIED_OPS = 240  # in all copies of the body of a strided loop; beyond, it is written once, masked
_FAR = 1024  # from one iteration to the next: more than the threads of a block
_LANE_FLAGS = f"<{LANES} x i1>"

Forms = tuple[Form, ...]


def _set_results(warp: Warp, op: Op, forms: Forms) -> None:
    for result, form in zip(warp.kept(op.results), forms, strict=True):
        warp[result] = form


# -- for --------------------------------------------------------------------------------------------------------------


def emit_for(warp: Warp, op: ops.For) -> None:
    trip = trip_of(warp, op.start.type.dtype, [warp.decider(op, v) for v in (op.start, op.stop, op.step)])
    inits = _inits(warp, op.inits, op.loop_body.params[1:])
    step = known(trip.step)
    with warp.in_loop(leaps=max(-step.lo, step.hi) > _FAR):
        if all(isinstance(bound, Uniform) for bound in (trip.start, trip.stop, trip.step)):
            forms, _ = _scalar_for(warp, op, ScalarTrips(trip), inits)
        elif (stride := stride_of(warp, trip)) and 2 * warp.copies * size_of(op.loop_body) <= MAX_COPIED_OPS:
            forms = _strided_for(warp, op, stride, inits)
        else:
            forms = until_it_fits(warp, lambda: _masked_for(warp, op, trip, inits))
    _set_results(warp, op, forms)


def _inits(warp: Warp, inits: Sequence[Value], params: Sequence[Value]) -> Forms:
    """Return the initial forms of those `params` that are held here."""
    held = frozenset(warp.kept(params))
    return tuple([warp[init] for init, param in zip(inits, params, strict=True) if param in held])


def _scalar_for(warp: Warp, op: ops.For, trips: ScalarTrips | WholeTrips, inits: Forms) -> tuple[Forms, list[str]]:
    """Write a loop that `trips` counts; return what it carried and, of trips that are resumed, their phis after the loop."""
    if trips.begins == "false":
        return inits, [start for _, start in trips.starts]
    return until_it_fits(warp, lambda: _scalar_loop(warp, op, trips, inits))


def _scalar_loop(
    warp: Warp, op: ops.For, trips: ScalarTrips | WholeTrips, inits: Forms
) -> tuple[Forms, list[str]] | None:
    """Try `_scalar_for`. None if a carried value did not keep its form."""
    w, params = warp.w, warp.kept(op.loop_body.params[1:])
    body, end = w.new_label("for"), w.new_label("endfor")
    inits, count = prepare(warp, params, inits), safepoints.enter(warp, op)
    entry = w.block
    w.line(f"br i1 {trips.begins}, label %{body}, label %{end}")
    w.label(body)
    phis = [open_phi(w, type_, start, entry) for type_, start in trips.starts]
    warp[op.loop_body.params[0]] = trips.index(*(phi.name for phi in phis))
    opened = open_all(warp, params, inits, entry)
    texts = fit(warp, opened, warp.run(op.loop_body))
    if texts is None:
        return None
    safepoints.reach(warp, op, count)
    latest, goes_on = trips.advance(*(phi.name for phi in phis))
    back = w.block
    w.line(f"br i1 {goes_on}, label %{body}, label %{end}{_unrolling(w, op.unroll)}")
    for phi, text in zip(phis, latest, strict=True):
        phi.close(w, text, back)
    close_all(warp, opened, texts, back)
    w.label(end)
    left = [phi.after(w, text, back) for phi, text in zip(phis, latest, strict=True) if trips.is_resumed]
    forms = tuple([carried.after(warp, text, back) for carried, text in zip(opened, texts, strict=True)])
    safepoints.leave(warp, op, count)
    return forms, left


def _unrolling(w: Writer, copies: int | None) -> str:
    """Return what the loop's last branch tells LLVM: how many copies of the body to make; None for all where that is worth it.

    Wholly unrolled, a loop over a LOCAL array leaves it in registers, six times faster. In part, where the number of
    iterations is not known, was within 4 % of not at all, since an iteration is 32 lanes, for a third of the compile time.
    """
    return unroll_hint(w, copies) if copies else loop_metadata(w, '!"llvm.loop.unroll.runtime.disable"')


def _strided_for(warp: Warp, op: ops.For, stride: Stride, inits: Forms) -> Forms:
    """Write the whole iterations as a scalar loop, then the rest as one iteration under a mask."""
    warp.copies *= 2
    trips = WholeTrips(warp, stride)
    forms, left = _scalar_for(warp, op, trips, inits)
    index, on = trips.rest(*left)
    if on.any != "false":
        for param, form in zip(op.loop_body.params, (index, *forms), strict=True):
            warp[param] = form
        forms = choose(warp, op, on, run_masked(warp, op.loop_body, on), forms)
    warp.copies //= 2
    return forms


def _masked_for(warp: Warp, op: ops.For, trip: Trip, inits: Forms) -> Forms | None:
    """Write a masked `while` that carries the index, and whether each lane has another iteration."""
    goes_on, index = Value(BOOL), op.loop_body.params[0]

    def test() -> Forms:
        return tuple([warp[param] for param in (goes_on, *op.loop_body.params[1:])])

    def body(_: Forms) -> Forms:
        latest, here = warp.run(op.loop_body), warp[index]
        following = trip.following(here)
        return (trip.goes_on(here, following), following, *latest)

    begins = as_mask(warp.w, trip.enter().begins())
    return _masked_loop(warp, op, (goes_on, *op.loop_body.params), (begins, trip.start, *inits), test, body)


# -- while ------------------------------------------------------------------------------------------------------------


def emit_while(warp: Warp, op: ops.While) -> None:
    inits = _inits(warp, op.inits, op.before.params)

    def body(forwarded: Forms) -> Forms:
        for param, form in zip(warp.kept(op.after.params), forwarded, strict=True):
            warp[param] = form
        return warp.run(op.after)

    def attempt() -> Forms | None:
        if op in warp.kernel.masked_loops:
            return _masked_loop(warp, op, op.before.params, inits, lambda: warp.run(op.before), body)
        return _scalar_while(warp, op, inits, body)

    with warp.in_loop(leaps=True):
        _set_results(warp, op, until_it_fits(warp, attempt))


def _scalar_while(warp: Warp, op: ops.While, inits: Forms, body: Callable[[Forms], Forms]) -> Forms | None:
    """Try a loop that all lanes leave together. None if a carried value did not keep its form, or lanes leave apart."""
    w, params = warp.w, warp.kept(op.before.params)
    head, do, end = w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    inits, count = prepare(warp, params, inits), safepoints.enter(warp, op)
    entry = w.block
    w.jump(head)
    opened = open_all(warp, params, inits, entry)
    flag, *forwarded = warp.run(op.before)
    if not isinstance(flag, Uniform):
        warp.kernel.masked_loops.add(op)
        return None
    w.line(f"br i1 {flag.text}, label %{do}, label %{end}")
    w.label(do)
    texts = fit(warp, opened, body(tuple(forwarded)))
    if texts is None:
        return None
    safepoints.reach(warp, op, count)
    back = w.block
    w.line(f"br label %{head}")
    close_all(warp, opened, texts, back)
    w.label(end)
    safepoints.leave(warp, op, count)
    return tuple(forwarded)


@frozen()
class Kept:
    """What each lane had when it left the loop, as a phi that takes a lane's value until the lane is off."""

    type: Type
    phi: OpenPhi

    def update(self, warp: Warp, on: Mask, latest: Form) -> str:
        """Take `latest` in the lanes of `on`."""
        old = as_full(self.type, self.phi.name)
        return full_vector(warp, self.type, select(warp, self.type, on, latest, old))


def _masked_loop(
    warp: Warp, op: Op, params: Sequence[Value], inits: Forms, test: Callable[[], Forms], body: Callable[[Forms], Forms]
) -> Forms | None:
    """Write a loop that lanes leave one by one. Return None if a carried value did not keep its form."""
    w = warp.w
    head, do, end = w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    starts, count = prepare(warp, params, inits), safepoints.enter(warp, op)
    entry = w.block
    w.jump(head)
    slot = open_phi(w, _LANE_FLAGS, warp.mask.text if warp.mask else "splat (i1 true)", entry)
    on = Mask(slot.name, any="true")
    opened = open_all(warp, params, starts, entry)
    kept = [Kept(v.type, open_phi(w, llvm_type(v.type, LANES), "zeroinitializer", entry)) for v in op.results]
    with warp.under(on):
        flag, *forwarded = test()
    values = [k.update(warp, on, form) for k, form in zip(kept, forwarded, strict=True)]
    live = mask_and(w, on, as_mask(warp.w, flag)) or on
    w.line(f"br i1 {live.any_lane(w)}, label %{do}, label %{end}")
    w.label(do)
    with warp.under(Mask(live.text, any="true")):
        texts = fit(warp, opened, body(tuple(forwarded)))
    if texts is None:
        return None
    safepoints.reach(warp, op, count)
    back = w.block
    w.line(f"br label %{head}")
    slot.close(w, live.text, back)
    close_all(warp, opened, texts, back)
    for each, value in zip(kept, values, strict=True):
        each.phi.close(w, value, back)
    w.label(end)
    safepoints.leave(warp, op, count)
    return tuple([as_full(k.type, value) for k, value in zip(kept, values, strict=True)])
