"""A record that breaks a rule is refused when it is made; the generated pages are what the records say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stagekit.diagnostics import InternalError
from stagekit.dtypes import float32, int32
from stagekit.intrinsics import FAMILIES, all_intrinsics
from stagekit.intrinsics.registry import define, each_dtype, sig
from stagekit.ir import Effect, Expand, Intrinsic
from tools.pages import pages, records_of

ROOT = Path(__file__).parents[2]
NOTHING = Expand(lambda b, args, params: args)


def rule_broken_by(**changed: Any) -> str:
    """What `define` says about a record that is right but for `changed`."""
    right: dict[str, Any] = {
        "name": "not_a_record",
        "args": ("x",),
        "sigs": (sig([float32], float32),),
        "lower": {"cuda": NOTHING, "cpu": NOTHING},
        "evaluate": np.abs,
        "doc": "A record.",
        "source": "this test",
    }
    with pytest.raises(InternalError) as caught:
        define(**{**right, **changed})
    return str(caught.value)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"name": "sqrt"}, "defined twice"),
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
def test_a_record_is_checked_when_defined(changed: dict[str, Any], sentence: str) -> None:
    assert sentence in rule_broken_by(**changed)


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
