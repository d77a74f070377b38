"""Basic blocks by shape: code under a condition, the two arms of a branch, counted loops, and the phis where paths meet.

    with when(w, "%c"): ...                                  br i1 %c, label %when1, label %end2 ...
    ends, results = branch(w, "%c", names, (write, other))   two arms, which end in the same block
    x = open_phi(w, "i32", "0", w.block)                     the head of a loop; `x.close` says what comes back

An arm ends before it is known in which form the other one holds its values, so it leaves a hole for code that converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from stagekit.backends.llvm.writer import Writer
from stagekit.frozen import frozen

T = TypeVar("T")

KEEP_ROLLED = 1  # for `unroll_hint`


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
    w.jump(end)


class Predecessor(NamedTuple):
    """A block that leads to a join. hole: a place at its end, for code that converts a value."""

    label: str
    hole: int


def end_arm(w: Writer, end: str) -> Predecessor:
    """End the block being written with a jump to `end`."""
    arm = Predecessor(w.block, w.hole())
    w.line(f"br label %{end}")
    return arm


def branch(
    w: Writer, condition: str, hints: tuple[str, str, str], arms: Sequence[Callable[[], T]]
) -> tuple[list[Predecessor], list[T]]:
    """Write the first arm for where `condition` holds and the second for where it does not; return how each ends and what
    it gives. The block where they meet is open then. hints: for the labels of the arms and of that block.
    """
    then, other, end = map(w.new_label, hints)
    w.line(f"br i1 {condition}, label %{then}, label %{other}")
    ends, results = [], []
    for label, write in zip((then, other), arms, strict=True):
        w.label(label)
        results.append(write())
        ends.append(end_arm(w, end))
    w.label(end)
    return ends, results


def phi(w: Writer, type_: str, incoming: Sequence[tuple[str, str]]) -> str:
    """Write a phi of (value, label) pairs."""
    return w.emit(f"phi {_phi_text(type_, incoming)}")


def _phi_text(type_: str, incoming: Sequence[tuple[str, str]]) -> str:
    return f"{type_} {', '.join(f'[ {value}, %{label} ]' for value, label in incoming)}"


@frozen()
class OpenPhi:
    """A phi at the head of a loop. init: its operand from the block `entry`; what comes back is told to `close`."""

    name: str
    hole: int
    type: str
    init: str
    entry: str

    def close(self, w: Writer, latest: str, back: str) -> None:
        """Complete the phi: `latest` comes from the block `back`, the end of the loop's body."""
        w.fill(self.hole, f"{self.name} = phi {_phi_text(self.type, self._incoming(latest, back))}")

    def after(self, w: Writer, latest: str, back: str) -> str:
        """Write the value behind a loop that is left from `entry`, without a first iteration, or from `back`."""
        return phi(w, self.type, self._incoming(latest, back))

    def _incoming(self, latest: str, back: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.init, self.entry), (latest, back)


def open_phi(w: Writer, type_: str, init: str, entry: str) -> OpenPhi:
    """Begin a phi. Must come before any other instruction of its block."""
    return OpenPhi(w.fresh(), w.hole(), type_, init, entry)


def count_up(
    w: Writer, type_: str, start: str, stop: str, hint: str, body: Callable[[str], str], copies: int = KEEP_ROLLED
) -> None:
    """Run `body` for the indices from `start`, at least that one, up to `stop`; it gives the distance to the next one."""
    entry, head, end = w.block, w.new_label(hint), w.new_label(f"end{hint}")
    w.jump(head)
    index = open_phi(w, type_, start, entry)
    following = w.emit(f"add nsw {type_} {index.name}, {body(index.name)}")
    index.close(w, following, w.block)
    goes_on = w.emit(f"icmp slt {type_} {following}, {stop}")
    w.line(f"br i1 {goes_on}, label %{head}, label %{end}{unroll_hint(w, copies)}")
    w.label(end)


def unroll_hint(w: Writer, copies: int) -> str:
    """Return what a loop's last branch tells LLVM: how many copies of the body to make, `KEEP_ROLLED` for none but the one."""
    return loop_metadata(w, f'!"llvm.loop.unroll.count", i32 {copies}' if copies > 1 else '!"llvm.loop.unroll.disable"')


def loop_metadata(w: Writer, wish: str) -> str:
    """Return what attaches `wish`, the inside of a metadata node, to a loop's last branch."""
    return f", !llvm.loop {w.module.metadata('{self}, ' + w.module.metadata(wish), is_distinct=True)}"
