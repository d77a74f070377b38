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


def smaller_bodies(body: list[Tree]) -> Iterator[list[Tree]]:
    """The statements with some left out, and with the blocks inside one in its place. A block is a list of lists."""
    yield from without(body)
    for index, statement in enumerate(body):
        for position, part in enumerate(statement):
            if isinstance(part, list) and all(isinstance(each, list) for each in part):
                yield [*body[:index], *part, *body[index + 1 :]]
                for inner in smaller_bodies(part):
                    changed = [*statement[:position], inner, *statement[position + 1 :]]
                    yield [*body[:index], changed, *body[index + 1 :]]
