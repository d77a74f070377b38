"""`for` and `while`: scalar loops where the lanes stay together, else loops that lanes leave one by one.

    trip count            code
    uniform               a scalar loop; the mask stays what it is
    start per lane,       `for i = tid; i < n; i += BLOCK`: a scalar loop while all lanes are in, then one masked
    the rest uniform      iteration for what is left (`counting.py`)
    per lane              a masked loop: the mask shrinks, and the loop ends when no lane is on

In a masked loop the lanes still on have all done the same number of iterations, so a counter stays a scalar; what it was when a
lane left is kept per lane beside it (`Kept`).

A carried value that does not keep its form makes the loop be written again (`carried.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit.backends.host.carried import close_all, fit, open_all, prepare, until_it_fits
from stagekit.backends.host.conditional import choose, run_masked, size_of
from stagekit.backends.host.counting import ScalarTrips, Stride, Trip, WholeTrips, stride_of, trip_of
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform
from stagekit.backends.host.joins import select
from stagekit.backends.host.pointers import as_full, full_vector
from stagekit.backends.host.vectors import as_mask, mask_and
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.blocks import OpenPhi, loop_metadata, open_phi, unroll_hint
from stagekit.backends.llvm.types import llvm_type
from stagekit.backends.llvm.writer import Writer
from stagekit.frozen import frozen
from stagekit.ir import BOOL, Op, Type, Value, ops

MAX_COPIED_OPS = 240  # in all copies of the body of a strided loop; beyond, it is written once, masked
_LANE_FLAGS = f"<{LANES} x i1>"

Forms = tuple[Form, ...]


def _set_results(warp: Warp, op: Op, forms: Forms) -> None:
    for result, form in zip(warp.kept(op.results), forms, strict=True):
        warp[result] = form


# -- for --------------------------------------------------------------------------------------------------------------


def emit_for(warp: Warp, op: ops.For) -> None:
    trip = trip_of(warp, op.start.type.dtype, [warp.decider(op, v) for v in (op.start, op.stop, op.step)])
    inits = _inits(warp, op.inits, op.loop_body.params[1:])
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
    inits = prepare(warp, params, inits)
    entry = w.block
    w.line(f"br i1 {trips.begins}, label %{body}, label %{end}")
    w.label(body)
    phis = [open_phi(w, type_, start, entry) for type_, start in trips.starts]
    warp[op.loop_body.params[0]] = trips.index(*(phi.name for phi in phis))
    opened = open_all(warp, params, inits, entry)
    texts = fit(warp, opened, warp.run(op.loop_body))
    if texts is None:
        return None
    latest, goes_on = trips.advance(*(phi.name for phi in phis))
    back = w.block
    w.line(f"br i1 {goes_on}, label %{body}, label %{end}{_unrolling(w, op.unroll)}")
    for phi, text in zip(phis, latest, strict=True):
        phi.close(w, text, back)
    close_all(warp, opened, texts, back)
    w.label(end)
    left = [phi.after(w, text, back) for phi, text in zip(phis, latest, strict=True) if trips.is_resumed]
    return tuple([carried.after(warp, text, back) for carried, text in zip(opened, texts, strict=True)]), left


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

    _set_results(warp, op, until_it_fits(warp, attempt))


def _scalar_while(warp: Warp, op: ops.While, inits: Forms, body: Callable[[Forms], Forms]) -> Forms | None:
    """Try a loop that all lanes leave together. None if a carried value did not keep its form, or lanes leave apart."""
    w, params = warp.w, warp.kept(op.before.params)
    head, do, end = w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    inits = prepare(warp, params, inits)
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
    back = w.block
    w.line(f"br label %{head}")
    close_all(warp, opened, texts, back)
    w.label(end)
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
    starts = prepare(warp, params, inits)
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
    back = w.block
    w.line(f"br label %{head}")
    slot.close(w, live.text, back)
    close_all(warp, opened, texts, back)
    for each, value in zip(kept, values, strict=True):
        each.phi.close(w, value, back)
    w.label(end)
    return tuple([as_full(k.type, value) for k, value in zip(kept, values, strict=True)])
