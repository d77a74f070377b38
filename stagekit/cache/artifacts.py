"""An `Artifact` as bytes: a line of JSON, then its code and its texts as they are.

    {"fields": {...}, "notes": {...}, "sizes": [["code", 4512], ["ir", 310], ["llvm", 9121]]}\n<code><ir><llvm>
    to_plain((1, HostOp("add", (Slot(0), 2))))         [1, {"HostOp": ["add", [{"Slot": [0]}, 2]]}]

notes: what a reader should check besides, such as the state of a library's file; plain strings and numbers.

In JSON a list stands for a tuple. Only the classes named here are ever made when reading, each by its fields: text from a file
cannot name anything else. `NotPlain` says that a value has no such form, `ValueError` that a text is not one.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

from stagekit.artifact import Artifact, RecordSite
from stagekit.diagnostics import Loc, is_huge
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.hostexpr import HostOp, Slot
from stagekit.signature import ArraySpec, LaunchSpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, Signature

_CLASSES: tuple[type, ...] = (
    Slot, HostOp,
    ArraySpec, PointerSpec, ScalarSpec, NoneSpec, ParamSlot, Signature, LaunchSpec,
    RecordSite, Loc,
)  # fmt: skip
_BY_NAME = {cls.__name__: (cls, tuple(f.name for f in dataclasses.fields(cls))) for cls in _CLASSES}
_DTYPES = {dtype.name: dtype for dtype in ALL_DTYPES}
_ATOMS = (bool, int, float, str, type(None))
_APART = ("code", "stages")  # written behind the line
_FIELDS = tuple(f.name for f in dataclasses.fields(Artifact) if f.name not in _APART)


class NotPlain(Exception):
    """A value that cannot be written, such as a default of a class of the user's own."""


def to_plain(value: Any) -> Any:
    """Return what `json.dumps` takes."""
    kind = type(value)
    if is_huge(value):
        raise NotPlain("an integer that Python does not write")
    if kind in _ATOMS:
        return value
    if kind is tuple:
        return [to_plain(v) for v in value]
    if kind is DType:
        return {"DType": value.name}
    if value is ...:
        return {"...": []}
    cls, fields = _BY_NAME.get(kind.__name__, (None, ()))
    if cls is not kind:
        raise NotPlain(f"a {kind.__name__} has no form in a file")
    return {kind.__name__: [to_plain(getattr(value, name)) for name in fields]}


def from_plain(plain: Any) -> Any:
    """Return the value that `to_plain` was given. Raises ValueError for anything else."""
    if type(plain) is list:
        return tuple(map(from_plain, plain))
    if type(plain) is not dict:
        return plain
    if len(plain) != 1:
        raise ValueError("an object with one member stands for a value")
    ((name, content),) = plain.items()
    if name == "...":
        return ...
    if name == "DType" and content in _DTYPES:
        return _DTYPES[content]
    cls, fields = _BY_NAME.get(name, (None, ()))
    if cls is None or type(content) is not list or len(content) != len(fields):
        raise ValueError(f"{name!r} of {content!r} stands for nothing")
    return cls(*map(from_plain, content))


def to_bytes(artifact: Artifact, notes: Mapping[str, Any]) -> bytes:
    """Raises NotPlain where a default or a record has no form in a file."""
    fields = {name: to_plain(getattr(artifact, name)) for name in _FIELDS}
    parts = [("code", artifact.code), *((name, text.encode()) for name, text in artifact.stages.items())]
    sizes = [(name, len(content)) for name, content in parts]
    line = json.dumps({"fields": fields, "notes": notes, "sizes": sizes}, separators=(",", ":"))
    return b"".join((line.encode(), b"\n", *(content for _, content in parts)))


def from_bytes(payload: bytes) -> tuple[Artifact, dict[str, Any]]:
    """Return the artifact and its notes. Raises ValueError where the bytes are something else."""
    line, _, rest = payload.partition(b"\n")
    try:
        header = json.loads(line)
        fields = {name: from_plain(header["fields"][name]) for name in _FIELDS}
        sizes = header["sizes"]
        ends = [0, *itertools.accumulate(size for _, size in sizes)]
        parts = {name: rest[start:end] for (name, _), start, end in zip(sizes, ends, ends[1:])}
        code = parts.pop("code")
        stages = {name: content.decode() for name, content in parts.items()}
        return Artifact(code=code, stages=stages, **fields), dict(header["notes"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not an artifact") from error
