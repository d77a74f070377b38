"""What kernels record: their prints are printed, and their first failed assert is raised.

Kernels write records into the memory of a `RecordBuffer` as `stagekit/records.py` lays them out. `report` reads them when the
kernel has ended, in the order of blocks and threads, since which thread wrote first is chance.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stagekit import records as layout
from stagekit.artifact import RecordSite
from stagekit.dtypes import DType, shown
from stagekit.runtime.errors import AssertionFailed, KernelAssertionError

CAPACITY_WORDS = 1 << 16  # 512 KiB: some six thousand records


class Record(NamedTuple):
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    site: RecordSite
    values: tuple[bool | int | float, ...]

    @property
    def text(self) -> str:
        return self.site.format.format(*map(shown, self.values, self.site.dtypes))


class RecordBuffer:
    """Memory for records, at `address` if that is given. capacity: in words of 8 bytes."""

    def __init__(self, capacity: int = CAPACITY_WORDS, address: int | None = None) -> None:
        words = ctypes.c_uint64 * capacity
        self._words = words() if address is None else words.from_address(address)
        self._used = capacity  # unknown memory is cleared whole
        self.address = ctypes.addressof(self._words)
        self.clear()

    @property
    def has_records(self) -> bool:
        return self._words[layout.NEXT] != layout.HEADER_WORDS

    def clear(self) -> None:
        """Make the buffer ready for a launch."""
        ctypes.memset(self.address, 0, self._used * 8)
        self._words[layout.NEXT] = self._used = layout.HEADER_WORDS
        self._words[layout.CAPACITY] = len(self._words)

    def drain(self, sites: Sequence[RecordSite]) -> tuple[list[Record], int]:
        """Return all records by block, then thread, x fastest, and how many more found no room; clear the buffer."""
        self._used = min(self._words[layout.NEXT], len(self._words))
        found = sorted(self._records(sites), key=lambda record: (record.block[::-1], record.thread[::-1]))
        dropped = self._words[layout.DROPPED]
        self.clear()
        return found, dropped

    def _records(self, sites: Sequence[RecordSite]) -> Iterator[Record]:
        words, at = self._words, layout.HEADER_WORDS
        while at < self._used and (number := words[at + layout.SITE]):
            site = sites[number - 1]
            end = at + layout.record_words(len(site.dtypes))
            payload = words[at + layout.PAYLOAD : end]
            block = words[at + layout.BLOCK : at + layout.BLOCK + 3]
            thread = words[at + layout.THREAD : at + layout.THREAD + 3]
            values = tuple(map(_decode, payload, site.dtypes))
            yield Record(tuple(block), tuple(thread), site, values)  # type: ignore[arg-type]
            at = end


def show(text: str) -> None:
    """Write what a kernel printed, with escapes for what standard output cannot encode, such as half of a surrogate pair."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError as error:
        sys.stdout.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))


def report(buffer: RecordBuffer, sites: Sequence[RecordSite]) -> None:
    """Print what was printed, then raise the first failed assert if there is one."""
    if not buffer.has_records:
        return
    found, dropped = buffer.drain(sites)
    lines = [record.text for record in found if record.site.kind == "print"]
    if dropped:
        lines.append(f"stagekit: {dropped} more records of this launch found no room\n")
    show("".join(lines))  # each with the line ending that its `print` asked for
    failed = [record for record in found if record.site.kind == "assert"]
    if failed:
        first, others = failed[0], len(failed) - 1
        suffix = f"; and {others} more" if others else ""
        diagnostic = AssertionFailed(first.text or "it is false", first.block, first.thread, suffix)
        raise KernelAssertionError(diagnostic, first.site.loc)


def _decode(word: int, dtype: DType) -> bool | int | float:
    if dtype.is_float:
        value: float = struct.unpack("<d", struct.pack("<Q", word))[0]
        return value
    if dtype.kind == "bool":
        return bool(word)
    return dtype.wrap(word)
