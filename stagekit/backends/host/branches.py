"""Basic blocks by shape: code under a scalar condition, phis whose operands are known only later, counted loops, and scalar code
for one lane after another, for what has no vector form, such as atomics and calls into libm:

    vectors -> stack;  for each lane that is on: scalars -> body -> stack;  stack -> vector

A loop and not 32 copies: the code stays small, and the processor predicts it well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stagekit.backends.host.forms import LANES, Mask, any_lane, lane_word
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.writer import Writer

KEEP_ROLLED = 1  # for `loop_hint`


@contextmanager
def when(w: Writer, condition: str) -> Iterator[None]:
    """Write the body of the `with` so that it runs if the scalar `condition` holds."""
    if condition == "true":
        yield
        return
    then, end = w.new_label("when"), w.new_label("end")
    w.line(f"br i1 {condition}, label %{then}, label %{end}")
    w.label(then)
    yield
    w.line(f"br label %{end}")
    w.label(end)


def phi(w: Writer, type_: str, arms: Sequence[tuple[str, str]]) -> str:
    """A phi of (value, label) pairs."""
    return w.emit(f"phi {_phi_text(type_, arms)}")


def _phi_text(type_: str, arms: Sequence[tuple[str, str]]) -> str:
    return f"{type_} {', '.join(f'[ {value}, %{label} ]' for value, label in arms)}"


@dataclass(frozen=True, slots=True)
class OpenPhi:
    """A phi at the head of a loop. init: its operand from the block `entry`; what comes back is told to `close`."""

    name: str
    hole: int
    type: str
    init: str
    entry: str

    def close(self, w: Writer, latest: str, back: str) -> None:
        w.fill(self.hole, f"{self.name} = phi {_phi_text(self.type, self._arms(latest, back))}")

    def after(self, w: Writer, latest: str, back: str) -> str:
        """The value behind a loop that is left from `entry`, without a first iteration, or from `back`."""
        return phi(w, self.type, self._arms(latest, back))

    def _arms(self, latest: str, back: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.init, self.entry), (latest, back)


def open_phi(w: Writer, type_: str, init: str, entry: str) -> OpenPhi:
    """Must come before any other instruction of its block."""
    return OpenPhi(w.fresh(), w.hole(), type_, init, entry)


def count_up(
    w: Writer, type_: str, start: str, stop: str, hint: str, unroll: int | None, body: Callable[[str], str]
) -> None:
    """Run `body` for the indices from `start`, at least that one, up to `stop`; it gives the distance to the next one."""
    entry, head, end = w.block, w.new_label(hint), w.new_label(f"end{hint}")
    w.line(f"br label %{head}")
    w.label(head)
    index = open_phi(w, type_, start, entry)
    following = w.emit(f"add nsw {type_} {index.name}, {body(index.name)}")
    index.close(w, following, w.block)
    goes_on = w.emit(f"icmp slt {type_} {following}, {stop}")
    w.line(f"br i1 {goes_on}, label %{head}, label %{end}{loop_hint(w, unroll)}")
    w.label(end)


def loop_hint(w: Writer, unroll: int | None) -> str:
    """What a loop's last branch tells LLVM: how often to unroll, 1 for not at all, None for wholly where that is worth it.

    Wholly unrolled, a loop over a LOCAL array leaves it in registers, six times faster. In part, where the number of
    iterations is not known, was within 4 % of not at all, since an iteration is 32 lanes, for a third of the compile time.
    """
    hints = {None: '!"llvm.loop.unroll.runtime.disable"', KEEP_ROLLED: '!"llvm.loop.unroll.disable"'}
    hint = hints.get(unroll, f'!"llvm.loop.unroll.count", i32 {unroll}')
    return f", !llvm.loop {w.module.metadata('{self}, ' + w.module.metadata(hint), is_distinct=True)}"


# -- one lane after another -------------------------------------------------------------------------------------------

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
        count_up(w, "i32", "0", str(LANES), "lane", KEEP_ROLLED if result else UNROLLED_LANES, run)
    else:
        _over_some(w, on, run)
    return w.emit(f"load <{LANES} x {result}>, ptr {out}, align 64") if result else ""


def _over_some(w: Writer, on: Mask, run: Callable[[str], str]) -> None:
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
