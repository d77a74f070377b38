"""A captured iterator would be used up by the first trace: taking its items is refused, however it is done."""

from __future__ import annotations

import io
import itertools
import linecache
from typing import Any

import numpy as np
import pytest

import stagekit as sk

ITERATORS = {
    "iter of a range": lambda: iter(range(3)),
    "iter of a list": lambda: iter([1, 2]),
    "iter of a dict": lambda: iter({1: 2}),
    "a generator": lambda: (i for i in range(3)),
    "zip": lambda: zip([1, 2], [3, 4]),
    "enumerate": lambda: enumerate([5, 6]),
    "map": lambda: map(abs, [1, 2]),
    "filter": lambda: filter(None, [1, 2]),
    "reversed": lambda: reversed([1, 2]),
    "count": lambda: itertools.count(),
    "chain": lambda: itertools.chain([1], [2]),
    "a file": lambda: io.StringIO("one\ntwo\n"),
}
TAKING = [
    "for v in it: x[0] = 1",
    "x[0] = next(it)",
    "x[0] = len(list(it))",
    "x[0] = len([v for v in it])",
    "x[0] = len(tuple(it))",
    "x[0] = len((*it,))",
    "x[0] = len(frozenset(it))",
    "x[0] = len(dict(zip(it, (1, 2))))",
    "x[0] = max(it)",
    "x[0] = sum(it)",
    "a, *b = it",
    "x[0] = 3 in it",
    "x[0] = len(list(itertools.chain(it, (1,))))",
    "x[0] = it.__next__()",
]


def kernel_of(statement: str, it: Any) -> Any:
    name, text = f"<{statement}>", f"def kernel(x):\n    {statement}\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"it": it, "itertools": itertools}
    exec(compile(text, name, "exec"), scope)
    return sk.jit(scope["kernel"])


def refused(kernel: Any) -> None:
    for use in (
        lambda: kernel.specialize(x=sk.Tensor((None,), sk.float32)).ir,
        lambda: kernel[1, 1](np.zeros(1, "f4")),
    ):
        with pytest.raises(sk.StagekitError, match=r"CAPTURED_MUTATION(.|\n)*capture a tuple of its items"):
            use()


@pytest.mark.parametrize("kind", ITERATORS)
def test_no_captured_iterator_is_looped_over(kind: str) -> None:
    it: Any = ITERATORS[kind]()
    refused(kernel_of("for v in it: x[0] = 1", it))
    next(it)  # nothing was taken


@pytest.mark.parametrize("statement", TAKING)
def test_there_is_no_other_way_to_take_its_items(statement: str) -> None:
    it = iter([(1, 2), (3, 4)])
    refused(kernel_of(statement, it))
    assert next(it) == (1, 2)


def test_an_iterator_that_the_kernel_makes_is_its_own() -> None:
    numbers = (1, 2, 3)

    @sk.jit
    def kernel(x):
        it = iter(numbers)
        x[0] = next(it)
        x[1] = sum(it)

    kernel.specialize(x=sk.Tensor((None,), sk.float32)).ir
    for _ in range(3):
        out = np.zeros(2, np.float32)
        kernel[1, 1](out)
        assert out.tolist() == [1, 5]
