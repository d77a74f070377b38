"""Hints for the caches of a GPU, by the names and values of Triton: what `load` and `store` take beside orders."""

from __future__ import annotations

from typing import Any

from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site
from stagekit.frontend.overloads import checked_param
from stagekit.ir import Param

_MODIFIERS = {"load": ("", ".ca", ".cg", ".cs"), "store": ("", ".wb", ".cg", ".cs", ".wt")}
_USUAL = ("", ".ca", ".wb")  # what an access does anyway
_POLICIES = ("", "evict_first", "evict_last")


def hint(site: Site, name: str, cache_modifier: Any = "", eviction_policy: Any = "", *orders: str | None) -> str | None:
    """Return how PTX writes the hint of an access; None without one. Refused: two at once, and one beside an order."""
    if cache_modifier == "" and eviction_policy == "":  # nearly always
        return None
    call = f"{name}(..., cache_modifier='.cg')"
    modifier = checked_param(site, name, call, Param("cache_modifier", _MODIFIERS[name], ""), cache_modifier)
    policy = checked_param(site, name, call, Param("eviction_policy", _POLICIES, ""), eviction_policy)
    is_ordered = any(each is not None for each in orders)
    if is_ordered or (modifier and policy):
        what = "an order and a hint for caches" if is_ordered else "`cache_modifier` and `eviction_policy`"
        raise site.error(BadCall(f"`{name}` takes one of {what}", "leave one of them out: an instruction has one"))
    if policy:
        return f"L1::{policy}"
    return None if modifier in _USUAL else modifier[1:]
