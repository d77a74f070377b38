"""Scalar code for one lane after another, for what has no vector form, such as atomics and calls into libm:

    vectors -> stack;  for each lane that is on: scalars -> body -> stack;  stack -> vector

A loop and not 32 copies: the code stays small, and the processor predicts it well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit.backends.host.forms import LANES, Mask
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.blocks import KEEP_ROLLED, count_up, open_phi, unroll_hint
from stagekit.backends.llvm.writer import Writer
from stagekit.frozen import frozen

UNROLLED_LANES = 4  # of what gives no result: atomic updates, two instructions each


@frozen()
class PerLane:
    """An input of scalar code. element: its LLVM type. text: a vector, or one scalar for all lanes."""

    element: str
    text: str
    is_scalar: bool


def for_each_lane(
    warp: Warp, on: Mask | None, inputs: Sequence[PerLane], result: str, body: Callable[[list[str]], str]
) -> str:
    """Write `body(scalars of one lane) -> scalar of type result` for every lane of `on`; gives the vector of results.

    result: an LLVM type, or "" for none. Lanes that are off keep zero.
    """
    w, kernel = warp.w, warp.kernel
    buffers = ["" if x.is_scalar else kernel.buffer(x.element, LANES, f"in{role}") for role, x in enumerate(inputs)]
    for each, buffer in zip(inputs, buffers, strict=True):
        if buffer:
            w.line(f"store <{LANES} x {each.element}> {each.text}, ptr {buffer}, align 64")
    out = kernel.buffer(result, LANES, "out") if result else ""
    if result and on is not None:
        w.line(f"store <{LANES} x {result}> zeroinitializer, ptr {out}, align 64")

    def element(type_: str, buffer: str, lane: str) -> str:
        return w.emit(f"getelementptr {type_}, ptr {buffer}, i32 {lane}")

    def run(lane: str) -> str:
        pairs = zip(inputs, buffers, strict=True)
        value = body(
            [w.emit(f"load {x.element}, ptr {element(x.element, b, lane)}") if b else x.text for x, b in pairs]
        )
        if result:
            w.line(f"store {result} {value}, ptr {element(result, out, lane)}")
        return "1"

    if on is None:
        count_up(w, "i32", "0", str(LANES), "lane", run, KEEP_ROLLED if result else UNROLLED_LANES)
    else:
        _over_some(w, on, run)
    return w.emit(f"load <{LANES} x {result}>, ptr {out}, align 64") if result else ""


def _over_some(w: Writer, on: Mask, run: Callable[[str], str]) -> None:
    """Write a loop over the lanes of a mask, of which there may be none, from the lowest to the highest."""
    word, is_any = on.word(w), on.any_lane(w)
    entry, head, end = w.block, w.new_label("lane"), w.new_label("endlanes")
    w.line(f"br i1 {is_any}, label %{head}, label %{end}")
    w.label(head)
    rest = open_phi(w, "i32", word, entry)
    run(w.call("i32", "llvm.cttz.i32", [("i32", rest.name), ("i1", "true")]))
    left = w.emit(f"and i32 {rest.name}, {w.emit(f'sub i32 {rest.name}, 1')}")
    is_done = w.emit(f"icmp eq i32 {left}, 0")
    rest.close(w, left, w.block)
    w.line(f"br i1 {is_done}, label %{end}, label %{head}{unroll_hint(w, KEEP_ROLLED)}")
    w.label(end)
