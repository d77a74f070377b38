"""A native launcher and the general way do the same with every argument list: the same result, or the same error text."""

from __future__ import annotations

import random
import re

import pytest

from tests.launch.calls import CASES, Case, outcome, random_call, scale

LISTS = 400  # per kernel
_ADDRESS = re.compile(r"0x[0-9a-f]+|address \d+|\d+ bytes (?:past|beyond)[^\n]*")


def warm(case: Case) -> None:
    """Launch rightly until there is a native launcher."""
    for _ in range(3):
        case.native()(*(make() for name, make in case.likely.items() if name != "offset"))


@pytest.mark.parametrize("name", CASES)
def test_a_native_launcher_agrees_with_the_general_way(name: str) -> None:
    case, rng = CASES[name], random.Random(name)
    warm(case)
    assert case.has_native()

    for _ in range(LISTS):
        make = random_call(case, rng)
        expected, found = outcome(case.general(), make()), outcome(case.native(), make())
        assert _ADDRESS.sub("", repr(expected)) == _ADDRESS.sub("", repr(found)), make()


@pytest.mark.parametrize("name", CASES)
def test_right_arguments_never_go_the_general_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    warm(case)
    monkeypatch.setattr(type(case.kernel), "_launch", lambda *_: pytest.fail("the general way"))
    names = list(case.likely)

    for positional in range(len(names) + (case.kernel is not scale)):
        made = {name: make() for name, make in case.likely.items()}
        args, kwargs = list(made.values())[:positional], {k: made[k] for k in names[positional:]}
        case.native()(*args, **dict(reversed(kwargs.items())))
