"""A native launcher and the general way do the same with every argument list: the same result, or the same error text."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.launch.calls import CASES, scale
from tests.launch.random_lists import blocks_kept, compare, warm

pytestmark = pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are")

LISTS = 400  # per kernel; `random_lists.py` takes more, under valgrind too
FEW_BLOCKS = LISTS // 4  # what caches come to keep, less each time; a launch that keeps something does so each time


@pytest.mark.parametrize("name", CASES)
def test_a_native_launcher_agrees_with_the_general_way(name: str) -> None:
    case = CASES[name]
    warm(case)
    assert case.has_native()

    found = Counter(compare(case, random.Random(name), LISTS))

    assert 0 == found["DIFFERENT"]
    assert min(found["launched alike"], found["refused alike"]) > LISTS // 20


@pytest.mark.parametrize("name", CASES)
def test_launches_of_any_kind_keep_nothing(name: str) -> None:
    case = CASES[name]
    warm(case)

    assert any(blocks_kept(case, 0, LISTS) < FEW_BLOCKS for _ in range(3))


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
