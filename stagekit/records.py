"""The record buffer: how a kernel reports a failed `assert` or a `print`. The one place that says where each word is.

`passes/records.py` makes kernels write it and the runtime reads it after the kernel has ended. It is an array of uint64
words, passed as the kernel's last parameter: a header, then one record after the other.

    header    NEXT      word index at which the next record begins; starts at HEADER_WORDS
              CAPACITY  length of the buffer in words, header included
              DROPPED   number of records that found no room; starts at 0
    record    SITE      1 + index into `Artifact.record_sites`
              BLOCK     three words: block index x, y, z
              THREAD    three words: thread index x, y, z
              PAYLOAD   one word per dtype of the site: integers extended to 64 bits by their sign, bool as 0 or 1,
                        floats as the bits of a float64

A thread reserves its record by an atomic add to NEXT. A record that does not fit is counted in DROPPED and not written,
but NEXT has moved: all later ones are dropped as well. So the host fills the words after the header with 0 before the
launch, and reads records while NEXT and CAPACITY allow and SITE is not 0.
"""

from __future__ import annotations

NEXT = 0
CAPACITY = 1
DROPPED = 2
HEADER_WORDS = 4  # one word is unused: records start on 32 bytes

SITE = 0
BLOCK = 1
THREAD = 4
PAYLOAD = 7
"""Offsets within a record, in words."""


def record_words(operand_count: int) -> int:
    """Return the length in words of a record with this many operands."""
    return PAYLOAD + operand_count
