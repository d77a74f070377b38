"""`for` and `while` whose lanes stay together: scalar loops. The others go to `masked_loops`.

    trip count            code
    uniform               a scalar loop; the mask stays what it is
    start per lane,       `for i = tid; i < n; i += BLOCK`: a scalar loop while all lanes are in, then one masked
    the rest uniform      iteration for what is left
    per lane              `masked_loops`

A carried value that does not keep its form makes the loop be written again (`carried.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from stagekit.backends.host.branches import OpenPhi, loop_hint, open_phi
from stagekit.backends.host.carried import close_all, fit, open_all, prepare, until_it_fits
from stagekit.backends.host.compute import compare
from stagekit.backends.host.conditional import run_masked, size_of
from stagekit.backends.host.counting import Trip, trip_of
from stagekit.backends.host.forms import Form, Uniform
from stagekit.backends.host.masked_loops import masked_for, masked_while
from stagekit.backends.host.selection import select
from stagekit.backends.host.spread import as_mask, mask_and
from stagekit.backends.host.strided import Stride, WholeTrips, stride_of
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import scalar_type
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.ir import CompareKind, Value, ops

MAX_COPIED_OPS = 240  # in all copies of the body of a strided loop; beyond, it is written once, masked
MAX_UNROLLED_TRIPS = 4


def emit_for(warp: Warp, op: ops.For) -> None:
    inits = tuple(warp[v] for v in op.inits)
    for result, form in zip(op.results, _for(warp, op, inits), strict=True):
        warp[result] = form


def _for(warp: Warp, op: ops.For, inits: tuple[Form, ...]) -> tuple[Form, ...]:
    trip = trip_of(warp, op.start.type.dtype, [warp[bound] for bound in (op.start, op.stop, op.step)])
    if all(isinstance(bound, Uniform) for bound in (trip.start, trip.stop, trip.step)):
        return until_it_fits(warp, lambda: _scalar_loop(warp, op, Range(trip), inits))
    stride, size = stride_of(warp, trip), size_of(op.loop_body)
    if stride is not None and warp.copies * size * min(stride.most_trips, 2) <= MAX_COPIED_OPS:
        if (
            stride.most_trips <= MAX_UNROLLED_TRIPS
            and stride.most_trips * size <= MAX_COPIED_OPS
            and stride.never_wraps
        ):
            return _unrolled_for(warp, op, trip, stride, inits)
        return _strided_for(warp, op, stride, inits)
    return until_it_fits(warp, lambda: masked_for(warp, op, trip, inits))


class ScalarTrips(Protocol):
    """What counts a scalar loop."""

    begins: str

    def open(self, w: Writer, entry: str) -> Form: ...
    def advance(self, w: Writer) -> str: ...
    def close(self, w: Writer, back: str) -> None: ...
    def leave(self, w: Writer, back: str) -> None: ...


class Range:
    """`range` over scalars."""

    def __init__(self, trip: Trip) -> None:
        self._trip = trip.enter()
        self.begins = _text(trip.begins())

    def open(self, w: Writer, entry: str) -> Form:
        self._slot: OpenPhi = open_phi(w, scalar_type(self._trip.dtype), _text(self._trip.start), entry)
        self._index = Uniform(self._slot.name, self._trip.index_interval)
        return self._index

    def advance(self, w: Writer) -> str:
        following = self._trip.following(self._index)
        self._next = _text(following)
        return _text(self._trip.goes_on(self._index, following))

    def close(self, w: Writer, back: str) -> None:
        self._slot.close(w, self._next, back)

    def leave(self, w: Writer, back: str) -> None:
        """The index is not seen behind the loop."""


def _text(form: Form) -> str:
    if not isinstance(form, Uniform):
        raise InternalError(f"{form} in a loop whose bounds are uniform")
    return form.text


Run = Callable[[], tuple[Form, ...]]


def _scalar_loop(warp: Warp, op: ops.For, trips: ScalarTrips, inits: tuple[Form, ...]) -> tuple[Form, ...] | None:
    params = op.loop_body.params[1:]
    return scalar_loop(warp, op, trips, params, inits, lambda: warp.run(op.loop_body))


def scalar_loop(
    warp: Warp, op: ops.For, trips: ScalarTrips, params: Sequence[Value], inits: tuple[Form, ...], run: Run
) -> tuple[Form, ...] | None:
    """A loop that `trips` counts, carrying `params`; `run` writes the body. None if one did not keep its form."""
    w = warp.w
    if trips.begins == "false":
        return inits
    body, end = w.new_label("for"), w.new_label("endfor")
    inits = prepare(warp, params, inits)
    entry = w.block
    w.line(f"br i1 {trips.begins}, label %{body}, label %{end}")
    w.label(body)
    warp[op.loop_body.params[0]] = trips.open(w, entry)
    opened = open_all(warp, params, inits, entry)
    texts = fit(warp, opened, run())
    if texts is None:
        return None
    goes_on = trips.advance(w)
    back = w.block
    w.line(f"br i1 {goes_on}, label %{body}, label %{end}{loop_hint(w, op.unroll)}")
    trips.close(w, back)
    close_all(warp, opened, texts, back)
    w.label(end)
    trips.leave(w, back)
    return tuple([carried.after(warp, text, back) for carried, text in zip(opened, texts, strict=True)])


def _unrolled_for(warp: Warp, op: ops.For, trip: Trip, stride: Stride, inits: tuple[Form, ...]) -> tuple[Form, ...]:
    """A copy of the body per iteration: the index keeps its pattern, and what is known of it."""
    index, forms = trip.start, inits
    warp.copies *= stride.most_trips
    for _ in range(stride.most_trips):
        forms = _one_iteration(warp, op, index, compare(warp, CompareKind.LT, trip.dtype, index, trip.stop), forms)
        index = trip.following(index)
    warp.copies //= stride.most_trips or 1
    return forms


def _one_iteration(warp: Warp, op: ops.For, index: Form, begins: Form, forms: tuple[Form, ...]) -> tuple[Form, ...]:
    if isinstance(begins, Uniform) and begins.text == "false":
        return forms
    for param, form in zip(op.loop_body.params, (index, *forms), strict=True):
        warp[param] = form
    if isinstance(begins, Uniform) and begins.text == "true":
        return warp.run(op.loop_body)
    on = as_mask(warp, begins)
    latest = run_masked(warp, op.loop_body, mask_and(warp.w, warp.mask, on))
    types = (v.type for v in op.results)
    return tuple([select(warp, t, on, a, b) for t, a, b in zip(types, latest, forms, strict=True)])


def _strided_for(warp: Warp, op: ops.For, stride: Stride, inits: tuple[Form, ...]) -> tuple[Form, ...]:
    """Whole iterations first; the rest is one iteration under a mask."""
    warp.copies *= 2
    trips = WholeTrips(warp, stride)
    forms = until_it_fits(warp, lambda: _scalar_loop(warp, op, trips, inits))
    forms = _one_iteration(warp, op, *trips.rest(warp), forms)
    warp.copies //= 2
    return forms


# -- while ------------------------------------------------------------------------------------------------------------


def emit_while(warp: Warp, op: ops.While) -> None:
    inits = tuple(warp[v] for v in op.inits)
    for result, form in zip(op.results, until_it_fits(warp, lambda: _while(warp, op, inits)), strict=True):
        warp[result] = form


def _while(warp: Warp, op: ops.While, inits: tuple[Form, ...]) -> tuple[Form, ...] | None:
    if op in warp.kernel.masked_loops:
        return masked_while(warp, op, inits)
    return _scalar_while(warp, op, inits)


def _scalar_while(warp: Warp, op: ops.While, inits: tuple[Form, ...]) -> tuple[Form, ...] | None:
    def test() -> tuple[Form, ...]:
        return warp.run(op.before)

    def body(forwarded: tuple[Form, ...]) -> tuple[Form, ...]:
        for param, form in zip(op.after.params, forwarded, strict=True):
            warp[param] = form
        return warp.run(op.after)

    return scalar_while(warp, op, op.before.params, inits, test, body)


def scalar_while(
    warp: Warp,
    op: ops.While,
    params: Sequence[Value],
    inits: tuple[Form, ...],
    test: Run,
    body: Callable[[tuple[Form, ...]], tuple[Form, ...]],
) -> tuple[Form, ...] | None:
    """`test` writes the condition and gives it, then what it forwards. None if a carried value did not keep its form,
    or the condition turns out to differ between lanes.
    """
    w = warp.w
    head, do, end = w.new_label("while"), w.new_label("do"), w.new_label("endwhile")
    inits = prepare(warp, params, inits)
    entry = w.block
    w.line(f"br label %{head}")
    w.label(head)
    opened = open_all(warp, params, inits, entry)
    flag, *forwarded = test()
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
