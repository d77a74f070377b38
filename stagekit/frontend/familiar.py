"""Familiar names: `math.exp` and `np.exp` of a run-time value mean `sk.exp`."""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from stagekit.intrinsics import registry
from stagekit.ir import Intrinsic

_OTHER_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "absolute": "abs", "power": "pow", "rad2deg": "degrees", "deg2rad": "radians", "float_power": "pow",
}  # fmt: skip


def _familiar_table() -> dict[int, Intrinsic]:
    known = {spec.name: spec for spec in registry.all_intrinsics()}
    table: dict[int, Intrinsic] = {}
    for module in (math, np):
        for name in dir(module):
            spec = known.get(_OTHER_NAMES.get(name, name))
            if spec is not None and callable(getattr(module, name)):
                table[id(getattr(module, name))] = spec
    return table


_FAMILIAR = _familiar_table()


def familiar(fn: Any) -> Intrinsic | None:
    """The intrinsic that `math.exp` or `np.exp` means on run-time values."""
    return _FAMILIAR.get(id(fn))


def nearest_intrinsic(name: str) -> str:
    """A hint for a function without counterpart: '; the nearest is `sk.exp`'."""
    names = [spec.name for spec in registry.all_intrinsics()]
    close = difflib.get_close_matches(name, names, n=1)
    return f"; the nearest is `sk.{close[0]}`" if close else ""
