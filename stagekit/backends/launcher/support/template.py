"""What the texts of this folder abbreviate, written out: words of tables, and numbers by name.

%none = field ptr PROCESS.none of %process      a load of the word `none` of that table
getelementptr i8, ptr %out, i64 READING.flags   the word's offset in bytes
icmp eq i64 %i, DTYPES                          a number
; at the start of a line                        a comment: dropped, since the text is hashed and parsed in each process
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stagekit import native_tables as tables
from stagekit.dtypes import ALL_DTYPES

_TABLES: Mapping[str, Mapping[str, int]] = {
    "PROCESS": tables.PROCESS,
    "STATE": tables.STATE,
    "EXCHANGE": tables.EXCHANGE,
    "DEVICE": tables.DEVICE,
    "READING": tables.READING,
    "GUARD": tables.GUARD,
    "OBJECT": tables.OBJECT,
    "NDARRAY": tables.NDARRAY,
    "WANTED_ARRAY": tables.WANTED_ARRAY,
    "WANTED_NUMBER": tables.WANTED_NUMBER,
}

_NUMBERS: Mapping[str, str] = {
    "DLTENSOR_BYTES": str(tables.DLTENSOR_BYTES),
    "NEVER_READ_ONLY": str(tables.NEVER_READ_ONLY),
    "MAY_BE_NEGATED": str(tables.MAY_BE_NEGATED),
    "EXCHANGE_BYTES": str(tables.size(tables.EXCHANGE)),
    "GUARD_BYTES": str(tables.size(tables.GUARD)),
    "DEVICE_BYTES": str(tables.size(tables.DEVICE)),
    "DEVICES": str(tables.DEVICES),
    "DTYPES": str(len(ALL_DTYPES)),
    "READING_BYTES": str(tables.READING_BYTES),
    "WANTED_ARRAY_BYTES": str(tables.size(tables.WANTED_ARRAY)),
    "SCALAR_VALUE": str(tables.SCALAR_VALUE),
}

_COMMENT = re.compile(r"^;.*\n", re.MULTILINE)
_FIELD = re.compile(r"^  (%\w+) = field (\w+) (\w+)\.(\w+) of (%\w+)$", re.MULTILINE)
_OFFSET = re.compile(r"\b([A-Z_]+)\.(\w+)")
_NUMBER = re.compile(r"\b[A-Z][A-Z_]+[A-Z0-9]+\b")


def fill_in(text: str, numbers: Mapping[str, str]) -> str:
    """The text as LLVM takes it. numbers: those that belong to the text itself."""
    known = {**_NUMBERS, **numbers}
    written = _OFFSET.sub(lambda m: str(_TABLES[m[1]][m[2]]), _FIELD.sub(_load, _COMMENT.sub("", text)))
    return _NUMBER.sub(lambda m: known[m[0]], written)


def _load(match: re.Match[str]) -> str:
    name, type_, table, word, base = match.groups()
    address = f"{name}.address"
    return f"  {address} = getelementptr i8, ptr {base}, i64 {_TABLES[table][word]}\n  {name} = load {type_}, ptr {address}"
