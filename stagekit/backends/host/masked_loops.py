"""Loops that lanes leave one by one: the mask shrinks, and the loop ends when no lane is on.

Lanes run in lockstep: those still on have all done the same number of iterations, so a counter stays a scalar; what it
was when a lane left is kept per lane beside it (`Kept`). A value held as a vector keeps itself: it is not updated in
lanes that are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.backends.host.branches import OpenPhi, open_phi
from stagekit.backends.host.carried import Carried, as_full, close_all, fit, frozen, open_all, prepare
from stagekit.backends.host.counting import Trip
from stagekit.backends.host.forms import LANES, Form, Mask
from stagekit.backends.host.pointers import full_vector
from stagekit.backends.host.selection import select
from stagekit.backends.host.spread import any_lane, as_mask, mask_and
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type
from stagekit.ir import Type, Value, ops

_LANE_FLAGS = f"<{LANES} x i1>"
_ALL_ON = "splat (i1 true)"


@dataclass(frozen=True, slots=True)
class Kept:
    """What each lane had when it left the loop."""

    type: Type
    phi: OpenPhi

    def update(self, warp: Warp, on: Mask, latest: Form) -> str:
        """Take `latest` in the lanes of `on`."""
        old = as_full(self.type, self.phi.name)
        return full_vector(warp, self.type, select(warp, self.type, on, latest, old))


def _keep(warp: Warp, results: Sequence[Value], inits: Sequence[str], entry: str) -> list[Kept]:
    pairs = zip(results, inits, strict=True)
    return [Kept(v.type, open_phi(warp.w, llvm_type(v.type, LANES), init, entry)) for v, init in pairs]


def _open_live(warp: Warp, live: Mask | None, entry: str) -> tuple[OpenPhi, Mask]:
    """The mask of a loop that is entered with the lanes of `live`. Its body runs only with a lane on."""
    slot = open_phi(warp.w, _LANE_FLAGS, live.text if live else _ALL_ON, entry)
    return slot, Mask(slot.name, any="true")


def _narrowed(warp: Warp, on: Mask, flag: Form) -> Mask:
    """The lanes of `on` in which `flag` holds."""
    return mask_and(warp.w, on, as_mask(warp, flag)) or on


def masked_for(warp: Warp, op: ops.For, trip: Trip, inits: tuple[Form, ...]) -> tuple[Form, ...] | None:
    """None if a carried value did not keep its form."""
    w, params = warp.w, op.loop_body.params
    begins = as_mask(warp, trip.enter().begins())
    live = mask_and(w, warp.mask, begins) or begins
    starts = prepare(warp, params, (trip.start, *inits))
    before = [full_vector(warp, v.type, form) for v, form in zip(op.results, inits, strict=True)]
    is_any = any_lane(w, live)
    body, end, entry = w.new_label("for"), w.new_label("endfor"), w.block
    w.line(f"br i1 {is_any}, label %{body}, label %{end}")
    w.label(body)
    slot, on = _open_live(warp, live, entry)
    opened = open_all(warp, params, starts, entry)
    kept = _keep(warp, op.results, before, entry)
    with warp.under(on):
        latest = warp.run(op.loop_body)
    texts, still = _end_of_iteration(warp, trip, opened, on, latest)
    if texts is None:
        return None
    values = [_final(warp, *each, on) for each in zip(opened[1:], kept, latest, texts[1:], strict=True)]
    is_any = any_lane(w, still)
    back = w.block
    w.line(f"br i1 {is_any}, label %{body}, label %{end}")
    slot.close(w, still.text, back)
    close_all(warp, opened, texts, back)
    _close_kept(warp, kept, values, back)
    w.label(end)
    return tuple([as_full(k.type, k.phi.after(w, value, back)) for k, value in zip(kept, values, strict=True)])


def _end_of_iteration(
    warp: Warp, trip: Trip, opened: list[Carried], on: Mask, latest: tuple[Form, ...]
) -> tuple[list[str] | None, Mask]:
    """What the phis take from this iteration, and the lanes that begin another."""
    index = opened[0].form
    following = trip.following(index)
    still = _narrowed(warp, on, trip.goes_on(index, following))
    return fit(warp, opened, (following, *frozen(warp, opened[1:], on, latest))), still


def _final(warp: Warp, carried: Carried, kept: Kept, latest: Form, text: str, on: Mask) -> str:
    """What a result would be if this iteration were the last. A value held as a full vector is its own record."""
    if carried.phi.type == kept.phi.type:
        return text
    return kept.update(warp, on, latest)


def _close_kept(warp: Warp, kept: Sequence[Kept], values: Sequence[str], back: str) -> None:
    for each, value in zip(kept, values, strict=True):
        each.phi.close(warp.w, value, back)


def masked_while(warp: Warp, op: ops.While, inits: tuple[Form, ...]) -> tuple[Form, ...] | None:
    """None if a carried value did not keep its form."""
    w = warp.w
    head, body, end = w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    starts = prepare(warp, op.before.params, inits)
    entry = w.block
    w.line(f"br label %{head}")
    w.label(head)
    slot, on = _open_live(warp, warp.mask, entry)
    opened = open_all(warp, op.before.params, starts, entry)
    kept = _keep(warp, op.results, ["zeroinitializer"] * len(op.results), entry)
    with warp.under(on):
        flag, *forwarded = warp.run(op.before)
    values = [k.update(warp, on, form) for k, form in zip(kept, forwarded, strict=True)]
    live = _narrowed(warp, on, flag)
    w.line(f"br i1 {any_lane(w, live)}, label %{body}, label %{end}")
    w.label(body)
    for param, form in zip(op.after.params, forwarded, strict=True):
        warp[param] = form
    with warp.under(Mask(live.text, any="true")):
        texts = fit(warp, opened, warp.run(op.after))
    if texts is None:
        return None
    back = w.block
    w.line(f"br label %{head}")
    slot.close(w, live.text, back)
    close_all(warp, opened, texts, back)
    _close_kept(warp, kept, values, back)
    w.label(end)
    return tuple([as_full(k.type, value) for k, value in zip(kept, values, strict=True)])
