"""An `Artifact` as bytes: a line of JSON, then its code and its texts as they are.

    {"fields": {...}, "notes": {...}, "sizes": [["code", 4512], ["ir", 310], ["llvm", 9121]]}\n<code><ir><llvm>

notes: what a reader should check besides, such as the state of a library's file; plain strings and numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

from stagekit.artifact import Artifact
from stagekit.cache.plain import from_plain, to_plain

_APART = ("code", "stages")  # written behind the line
_FIELDS = tuple(f.name for f in dataclasses.fields(Artifact) if f.name not in _APART)


def to_bytes(artifact: Artifact, notes: Mapping[str, Any]) -> bytes:
    """Raises NotPlain where a default or a record has no form in a file."""
    fields = {name: to_plain(getattr(artifact, name)) for name in _FIELDS}
    parts = [("code", artifact.code), *((name, text.encode()) for name, text in artifact.stages.items())]
    sizes = [(name, len(content)) for name, content in parts]
    line = json.dumps({"fields": fields, "notes": notes, "sizes": sizes}, separators=(",", ":"))
    return b"".join((line.encode(), b"\n", *(content for _, content in parts)))


def from_bytes(payload: bytes) -> tuple[Artifact, dict[str, Any]]:
    """The artifact and its notes. Raises ValueError where the bytes are something else."""
    line, _, rest = payload.partition(b"\n")
    try:
        header = json.loads(line)
        fields = {name: from_plain(header["fields"][name]) for name in _FIELDS}
        parts = _cut(rest, header["sizes"])
        code = parts.pop("code")
        stages = {name: content.decode() for name, content in parts.items()}
        return Artifact(code=code, stages=stages, **fields), dict(header["notes"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not an artifact") from error


def _cut(content: bytes, sizes: list[tuple[str, int]]) -> dict[str, bytes]:
    """The parts that lie one behind the other, by name."""
    ends = [0, *itertools.accumulate(size for _, size in sizes)]
    return {name: content[start:end] for (name, _), start, end in zip(sizes, ends, ends[1:])}
