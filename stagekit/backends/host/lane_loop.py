"""Scalar code for one lane after another: for what has no vector form, such as atomics and calls into libm.

    vectors -> stack;  for each lane that is on: scalars -> body -> stack;  stack -> vector

A loop and not 32 copies: the code stays small, and the processor predicts it well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stagekit.backends.host.branches import KEEP_ROLLED, loop_hint, open_phi
from stagekit.backends.host.forms import LANES, Mask
from stagekit.backends.host.spread import any_lane, lane_word
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.writer import Writer

UNROLLED_LANES = 4  # of what gives no result: atomic updates, two instructions each


@dataclass(frozen=True, slots=True)
class PerLane:
    """An input. element: its LLVM type; text: the vector, or one scalar for all lanes."""

    element: str
    text: str
    is_scalar: bool


def for_each_lane(
    warp: Warp, on: Mask | None, inputs: Sequence[PerLane], result: str, body: Callable[[list[str]], str]
) -> str:
    """Write `body(scalars of one lane) -> scalar of type result` for every lane of `on`; gives the vector of results.

    result: an LLVM type, or "" for none. Lanes that are off keep zero.
    """
    w = warp.w
    stored = [_stored(warp, each, role) for role, each in enumerate(inputs)]
    out = warp.kernel.buffer(result, LANES, "out") if result else ""
    if result and on is not None:
        w.line(f"store <{LANES} x {result}> zeroinitializer, ptr {out}, align 64")

    def run(lane: str) -> None:
        scalars = [_loaded(warp, each, buffer, lane) for each, buffer in zip(inputs, stored, strict=True)]
        value = body(scalars)
        if result:
            w.line(f"store {result} {value}, ptr {_element(warp, result, out, lane)}")

    if on is None:
        _over_all(w, run, KEEP_ROLLED if result else UNROLLED_LANES)
    else:
        _over_some(w, on, run)
    return w.emit(f"load <{LANES} x {result}>, ptr {out}, align 64") if result else ""


def _over_all(w: Writer, run: Callable[[str], None], unroll: int) -> None:
    entry, head, end = w.block, w.new_label("lane"), w.new_label("endlanes")
    w.line(f"br label %{head}")
    w.label(head)
    lane = open_phi(w, "i32", "0", entry)
    run(lane.name)
    following = w.emit(f"add nuw nsw i32 {lane.name}, 1")
    lane.close(w, following, w.block)
    is_done = w.emit(f"icmp eq i32 {following}, {LANES}")
    w.line(f"br i1 {is_done}, label %{end}, label %{head}{loop_hint(w, unroll)}")
    w.label(end)


def _over_some(w: Writer, on: Mask, run: Callable[[str], None]) -> None:
    """From the lowest bit of the mask to the highest; perhaps none."""
    word, is_any = lane_word(w, on), any_lane(w, on)
    entry, head, end = w.block, w.new_label("lane"), w.new_label("endlanes")
    w.line(f"br i1 {is_any}, label %{head}, label %{end}")
    w.label(head)
    rest = open_phi(w, "i32", word, entry)
    run(w.call("i32", "llvm.cttz.i32", [("i32", rest.name), ("i1", "true")]))
    left = w.emit(f"and i32 {rest.name}, {w.emit(f'sub i32 {rest.name}, 1')}")
    is_done = w.emit(f"icmp eq i32 {left}, 0")
    rest.close(w, left, w.block)
    w.line(f"br i1 {is_done}, label %{end}, label %{head}{loop_hint(w, KEEP_ROLLED)}")
    w.label(end)


def _stored(warp: Warp, each: PerLane, role: int) -> str:
    if each.is_scalar:
        return ""
    buffer = warp.kernel.buffer(each.element, LANES, f"in{role}")
    warp.w.line(f"store <{LANES} x {each.element}> {each.text}, ptr {buffer}, align 64")
    return buffer


def _loaded(warp: Warp, each: PerLane, buffer: str, lane: str) -> str:
    if each.is_scalar:
        return each.text
    return warp.w.emit(f"load {each.element}, ptr {_element(warp, each.element, buffer, lane)}")


def _element(warp: Warp, element: str, buffer: str, lane: str) -> str:
    return warp.w.emit(f"getelementptr {element}, ptr {buffer}, i32 {lane}")
