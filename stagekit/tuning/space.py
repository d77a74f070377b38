"""What is searched: configurations, from a mapping or a list, and how each is written down.

configs_of("k", {"BLOCK": (64, 128), "WIDE": (False, True)})       4 mappings, the last name changes first
configs_of("k", [{"BLOCK": 64}, {"BLOCK": 128}])                   these
written({"BLOCK": 64, "op": sk.maximum})                           {"BLOCK": 64, "op": "maximum"}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.tuning.errors import BadSpace, TuningError

Config = Mapping[str, Any]
"""Values by name: constexprs of a kernel, or arguments of a factory."""

MOST_CANDIDATES = 100_000


def refuse(name: str, why: str, hint: str) -> TuningError:
    """Return the error for a space. name: of the kernel or factory."""
    return TuningError(BadSpace(name, why, hint))


def configs_of(name: str, space: Any) -> list[Config]:
    """Return the configurations of a space, or raise TuningError. name: whose space it is."""
    hint = "give a mapping from names to lists of values, or a list of mappings with equal names"
    if isinstance(space, Mapping):
        found = _product(name, space, hint)
    elif isinstance(space, Iterable) and not isinstance(space, str):
        found = [*space]
        if not all(isinstance(each, Mapping) for each in found):
            raise refuse(name, f"`space` holds {shown(next(e for e in found if not isinstance(e, Mapping)))}", hint)
        if any(each.keys() != found[0].keys() for each in found):
            raise refuse(name, "the mappings in `space` have different names", hint)
    else:
        raise refuse(name, f"`space` is {shown(space)}", hint)
    if not found or not found[0]:
        raise refuse(name, "`space` has no candidate", hint)
    if not all(isinstance(each, str) for each in found[0]):
        raise refuse(name, f"`space` has the names {shown([*found[0]])}, not texts", hint)
    _require_distinct(name, found)
    return found


def _product(name: str, space: Mapping[str, Any], hint: str) -> list[Config]:
    for key, values in space.items():
        if isinstance(values, str) or not isinstance(values, Sequence | range) or not len(values):
            raise refuse(name, f"`space[{key!r}]` is {shown(values)}, not a list of values", hint)
    count = 1
    for values in space.values():
        count *= len(values)
    if count > MOST_CANDIDATES:
        raise refuse(name, f"`space` has {count} candidates, more than {MOST_CANDIDATES}", "give fewer values")
    return [dict(zip(space, values)) for values in itertools.product(*space.values())]


def _require_distinct(name: str, configs: Sequence[Config]) -> None:
    """Refuse two candidates that a record could not tell apart."""
    seen = set[str]()
    for config in configs:
        text = json.dumps(written(config))
        if text in seen:
            hint = "leave one out, or give the values names: `__name__` of functions, `__repr__` of objects"
            raise refuse(name, f"two candidates are written alike: {config_text(config)}", hint)
        seen.add(text)


def written(config: Config) -> dict[str, Any]:
    """Return a configuration as JSON has it: numbers, texts and None as they are, everything else by its name or its repr."""
    return {name: plain(value) for name, value in config.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):  # whose order is another in each process
        return sorted(map(plain, value), key=str)
    if isinstance(value, DType):
        return value.name
    return getattr(value, "__qualname__", None) or shown(value)


def config_text(config: Config) -> str:
    """Return a configuration as a person reads it: `BLOCK=64, WIDE=True`."""
    return ", ".join(
        f"{name}={shown(plain(value)) if not isinstance(value, str) else value}" for name, value in config.items()
    )
