"""Smaller trees: a case that is JSON shrinks by leaving out items of lists and putting a subtree in place of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Tree = list[Any]


def without(items: Sequence[Any]) -> Iterator[list[Any]]:
    """The list with a part left out: halves first, then quarters, down to single items."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2


def replaced(tree: Tree, candidates: Callable[[Tree], Iterator[Tree]]) -> Iterator[Tree]:
    """The tree with one subtree (the whole one first) replaced by a candidate for it."""
    yield from candidates(tree)
    for index, child in enumerate(tree):
        if isinstance(child, list):
            for smaller in replaced(child, candidates):
                yield [*tree[:index], smaller, *tree[index + 1 :]]
