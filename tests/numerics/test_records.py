"""Every record keeps the rules of records; the generated pages are what the records say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stagekit.diagnostics import InternalError
from stagekit.dtypes import float32, int32
from stagekit.intrinsics import FAMILIES, all_intrinsics
from stagekit.intrinsics.registry import define, each_dtype, sig
from stagekit.ir import Effect, Expand, Intrinsic, Native, Unsupported
from stagekit.ir.core import PURE
from stagekit.ir.intrinsic import TARGETS
from tools.pages import pages, records_of

ROOT = Path(__file__).parents[2]
NOTHING = Expand(lambda b, args, params: args)


RULES: list[tuple[Callable[[Intrinsic], bool], str]] = [
    (lambda r: r.name.isidentifier(), "the name is not an identifier"),
    (lambda r: bool(r.doc and r.source), "needs a doc and a source"),
    (lambda r: bool(r.sigs) and all(len(s.args) == len(r.args) for s in r.sigs), "signatures do not match `args`"),
    (lambda r: len({s.args for s in r.sigs}) == len(r.sigs), "two overloads with the same argument types"),
    (lambda r: len(r.defaults) <= len(r.args), "more defaults than arguments"),
    (lambda r: {"cuda", "cpu"} <= r.lower.keys(), "needs a lowering for cuda and cpu (`Unsupported` with a reason)"),
    (lambda r: {*r.lower, *r.lower_fast, *r.tolerance} <= set(TARGETS), "names an unknown target"),
    # What each target knows by itself has nothing to evaluate: `block_idx` is pure, and so is a tensor map.
    (lambda r: r.effects != PURE or r.evaluate is not None or is_native(r), "a pure intrinsic needs `evaluate`"),
    (  # one that has a level is called by the front end
        lambda r: bool(r.public_in or r.level) or all(isinstance(h, Native | Unsupported) for h in r.lower.values()),
        "nobody finds it",
    ),
    (lambda r: r.evaluate is not None or "interp" in r.lower, "needs `evaluate` or a lowering for interp"),
]


def is_native(record: Intrinsic) -> bool:
    return not record.args or isinstance(record.lower.get("interp"), Native)


def broken_rules(record: Intrinsic) -> list[str]:
    return [sentence for holds, sentence in RULES if not holds(record)]


def test_every_record_keeps_the_rules() -> None:
    assert {} == {record.name: broken for record in all_intrinsics() if (broken := broken_rules(record))}


RIGHT: dict[str, Any] = {
    "name": "not_a_record",
    "args": ("x",),
    "sigs": (sig([float32], float32),),
    "lower": {"cuda": NOTHING, "cpu": NOTHING},
    "evaluate": np.abs,
    "doc": "A record.",
    "source": "this test",
}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, ""),
        ({"name": "not a name"}, "not an identifier"),
        ({"doc": ""}, "needs a doc"),
        ({"source": ""}, "and a source"),
        ({"sigs": ()}, "do not match"),
        ({"args": ("x", "y")}, "do not match"),
        ({"sigs": (sig([float32], float32), sig([float32], int32))}, "same argument types"),
        ({"defaults": (1, 2)}, "more defaults"),
        ({"lower": {"cuda": NOTHING}}, "cuda and cpu"),
        ({"tolerance": {"tpu": 1.0}}, "unknown target"),
        ({"evaluate": None}, "needs `evaluate`"),
        ({"evaluate": None, "effects": frozenset({Effect.READ})}, "for interp"),
        ({"public_in": ()}, "nobody finds it"),
    ],
)
def test_a_rule_tells_a_record_that_breaks_it(changed: dict[str, Any], sentence: str) -> None:
    found = broken_rules(Intrinsic(**{**RIGHT, **changed}))

    assert bool(sentence) == bool(found)
    assert sentence in " ".join(found)


def test_a_name_is_defined_once() -> None:
    with pytest.raises(InternalError, match="intrinsic `sqrt`: defined twice"):
        define(**{**RIGHT, "name": "sqrt"})


MODULES = [module for family in FAMILIES.values() for module in family]


@pytest.mark.parametrize("family", MODULES, ids=lambda f: f.__name__)
def test_a_record_is_bound_to_its_own_name(family: ModuleType) -> None:
    bound = {name: value for name, value in vars(family).items() if isinstance(value, Intrinsic)}

    assert {name: value.name for name, value in bound.items()} == {name: name for name in bound}


def test_every_record_belongs_to_a_family() -> None:
    in_families = set(records_of(*MODULES))

    assert [] == [r.name for r in all_intrinsics() if r not in in_families]


def test_each_dtype_makes_one_overload_per_dtype() -> None:
    assert ("(f32, f32) -> f32", "(i32, i32) -> i32") == tuple(map(str, each_dtype((float32, int32), 2)))


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_generated_page_is_fresh(name: str) -> None:
    """`python -m tools.pages docs` writes it."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")

    assert pages()[name] == text, f"run `python -m tools.pages docs`: docs/{name} is old"
