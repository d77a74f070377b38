"""The dataclasses that describe a kernel, as JSON and back.

    to_plain(Slot(3))                          {"Slot": [3]}
    to_plain((1, HostOp("add", (Slot(0), 2))))     [1, {"HostOp": ["add", [{"Slot": [0]}, 2]]}]
    from_plain(to_plain(value)) == value

A list stands for a tuple. Only the classes named here are ever made when reading, each by its fields: text from a file cannot
name anything else. `NotPlain` says that a value has no such form, `ValueError` that a text is not one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stagekit.artifact import RecordSite
from stagekit.diagnostics import Loc, is_huge
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.hostexpr import Const, HostOp, Slot
from stagekit.signature import ArraySpec, LaunchSpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, Signature

_CLASSES: tuple[type, ...] = (
    Const, Slot, HostOp,
    ArraySpec, PointerSpec, ScalarSpec, NoneSpec, ParamSlot, Signature, LaunchSpec,
    RecordSite, Loc,
)  # fmt: skip
_BY_NAME: dict[str, type] = {cls.__name__: cls for cls in _CLASSES}
_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls)) for cls in _CLASSES}
_ATOMS = (bool, int, float, str, type(None))


class NotPlain(Exception):
    """A value that cannot be written, such as a default of a class of the user's own."""


def to_plain(value: Any) -> Any:
    """What `json.dumps` takes."""
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
    fields = _FIELDS.get(kind)
    if fields is None:
        raise NotPlain(f"a {kind.__name__} has no form in a file")
    return {kind.__name__: [to_plain(getattr(value, name)) for name in fields]}


def from_plain(plain: Any) -> Any:
    """The value that `to_plain` was given. Raises ValueError for anything else."""
    if type(plain) is list:
        return tuple(from_plain(v) for v in plain)
    if type(plain) is not dict:
        return plain
    if len(plain) != 1:
        raise ValueError("an object with one member stands for a value")
    ((name, content),) = plain.items()
    make = _MAKERS.get(name)
    if make is None:
        raise ValueError(f"{name!r} stands for nothing")
    return make(name, content)


def _dtype(name: str, content: Any) -> DType:
    found = _DTYPES.get(content)
    if found is None:
        raise ValueError(f"no dtype {content!r}")
    return found


def _instance(name: str, content: Any) -> Any:
    cls = _BY_NAME[name]
    if type(content) is not list or len(content) != len(_FIELDS[cls]):
        raise ValueError(f"{name} has {len(_FIELDS[cls])} fields")
    return cls(*map(from_plain, content))


_DTYPES = {dtype.name: dtype for dtype in ALL_DTYPES}
_MAKERS: dict[str, Callable[[str, Any], Any]] = {
    "DType": _dtype,
    "...": lambda name, content: ...,
    **dict.fromkeys(_BY_NAME, _instance),
}
