"""The loop over the blocks that a call of the entry runs: row by row along x, up to 512 blocks at once.

    for each row:       y, z fixed, x from `begin` to `end`
        whatever is asked once per row
        for x in row:   the block

The first and the last block along x are rows of their own: where a guard or a clamp matters, it mostly matters there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagekit.backends.host.branches import KEEP_ROLLED, OpenPhi, loop_hint, open_phi
from stagekit.backends.llvm.writer import Writer

LONGEST_ROW = 512

RunBlock = Callable[[str, str, str], None]
"""Writes one block, from its indices."""


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks `begin` to `last` along x, at least one."""

    begin: str
    last: str
    y: str
    z: str


def write_rows(w: Writer, extents: tuple[str, str, str], write_row: Callable[[Row], None]) -> None:
    """Run `write_row`'s code for the rows that hold the blocks `%first` to `%last - 1`, and end the function."""
    begin, head, done = w.new_label("begin"), w.new_label("row"), w.new_label("done")
    w.line(f"br i1 {w.emit('icmp slt i64 %first, %last')}, label %{begin}, label %{done}")
    w.label(begin)
    start = _coordinates(w, extents)
    w.line(f"br label %{head}")
    w.label(head)
    number = open_phi(w, "i64", "%first", begin)
    slots = [open_phi(w, "i64", text, begin) for text in start]
    x, y, z = (slot.name for slot in slots)
    count = _row_length(w, number.name, x, extents[0])
    past = w.emit(f"add nsw i64 {x}, {count}")
    write_row(Row(x, w.emit(f"sub nsw i64 {past}, 1"), y, z))
    following = w.emit(f"add nsw i64 {number.name}, {count}")
    _close_coordinates(w, extents, slots, past)
    number.close(w, following, w.block)
    w.line(
        f"br i1 {w.emit(f'icmp slt i64 {following}, %last')}, label %{head}, label %{done}{loop_hint(w, KEEP_ROLLED)}"
    )
    w.label(done)
    w.line("ret i32 0")


def write_blocks(w: Writer, row: Row, run: RunBlock) -> None:
    """Run each block of a row."""
    head, end, entry = w.new_label("block"), w.new_label("endrow"), w.block
    w.line(f"br label %{head}")
    w.label(head)
    x = open_phi(w, "i64", row.begin, entry)
    run(x.name, row.y, row.z)
    following = w.emit(f"add nsw i64 {x.name}, 1")
    x.close(w, following, w.block)
    w.line(
        f"br i1 {w.emit(f'icmp slt i64 {x.name}, {row.last}')}, label %{head}, label %{end}{loop_hint(w, KEEP_ROLLED)}"
    )
    w.label(end)


def _coordinates(w: Writer, extents: tuple[str, str, str]) -> tuple[str, str, str]:
    """The indices of block number `%first`."""
    rows = w.emit(f"udiv i64 %first, {extents[0]}")
    x = w.emit(f"urem i64 %first, {extents[0]}")
    return x, w.emit(f"urem i64 {rows}, {extents[1]}"), w.emit(f"udiv i64 {rows}, {extents[1]}")


def _row_length(w: Writer, number: str, x: str, extent: str) -> str:
    """How many blocks from block `number` on are one row."""
    to_last = w.emit(f"sub nsw i64 {w.emit(f'sub nsw i64 {extent}, {x}')}, 1")
    is_first = w.emit(f"icmp eq i64 {x}, 0")
    longest = w.emit(f"select i1 {is_first}, i64 1, i64 {LONGEST_ROW}")
    left = w.emit(f"sub nsw i64 %last, {number}")
    count = w.call("i64", "llvm.smin.i64", [("i64", longest), ("i64", left)])
    count = w.call("i64", "llvm.smin.i64", [("i64", count), ("i64", to_last)])
    return w.call("i64", "llvm.smax.i64", [("i64", count), ("i64", "1")])


def _close_coordinates(w: Writer, extents: tuple[str, str, str], slots: list[OpenPhi], past: str) -> None:
    """The indices behind a row: x is `past`; where it wraps y counts up, and so on."""
    x, y, z = slots
    next_x, ends_row = _wrapped(w, past, extents[0])
    next_y, ends_plane = _wrapped(w, w.emit(f"add nsw i64 {y.name}, {_as_number(w, ends_row)}"), extents[1])
    next_z = w.emit(f"add nsw i64 {z.name}, {_as_number(w, ends_plane)}")
    for slot, text in zip((x, y, z), (next_x, next_y, next_z), strict=True):
        slot.close(w, text, w.block)


def _wrapped(w: Writer, index: str, extent: str) -> tuple[str, str]:
    """`index`, back to 0 at `extent`; and whether it wrapped."""
    wraps = w.emit(f"icmp eq i64 {index}, {extent}")
    return w.emit(f"select i1 {wraps}, i64 0, i64 {index}"), wraps


def _as_number(w: Writer, flag: str) -> str:
    return w.emit(f"zext i1 {flag} to i64")
