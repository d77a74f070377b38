"""Smaller Python programs: statements and branches left out, expressions replaced by one of their parts or by a small number."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import Any

_NUMBERS = (0, 1)


def smaller_programs(text: str) -> Iterator[str]:
    """Programs with something left out, those with most left out first. Not all of them mean anything."""
    yield from _each(text, _smaller_blocks)
    yield from _each(text, _unwrapped)
    yield from _each(text, _smaller_expressions)


def _each(text: str, edits: Any) -> Iterator[str]:
    """The text after each edit. An edit is found again by its place among the nodes of the tree, parsed anew."""
    for position, node in enumerate(ast.walk(ast.parse(text))):
        for number in range(sum(1 for _ in edits(node))):
            changed = ast.parse(text)
            target = next(itertools.islice(ast.walk(changed), position, None))
            for index, edit in enumerate(edits(target)):
                if index == number:
                    edit()
                    break
            yield ast.unparse(ast.fix_missing_locations(changed))


def _smaller_blocks(node: ast.AST) -> Iterator[Any]:
    """Leave out halves, quarters, ... of a list of statements, of `match` cases or of decorators."""
    for name in ("body", "orelse", "cases", "decorator_list"):
        items = getattr(node, name, None)
        if not isinstance(items, list):
            continue
        size = len(items)
        while size:
            for start in range(0, len(items), size):
                yield lambda n=name, i=items, s=start, z=size: _cut(node, n, i, s, z)
            size //= 2


def _cut(node: ast.AST, name: str, items: list[Any], start: int, size: int) -> None:
    left = [*items[:start], *items[start + size :]]
    if name == "body" and not left and not isinstance(node, ast.Module):
        left = [ast.Pass()]
    if name == "cases" and not left:
        left = items[:1]
    setattr(node, name, left)


def _unwrapped(node: ast.AST) -> Iterator[Any]:
    """Put the statements of a compound statement in its place."""
    for name in ("body", "orelse"):
        items = getattr(node, name, None)
        if not isinstance(items, list):
            continue
        for index, inner in enumerate(items):
            for part in ("body", "orelse"):
                block = getattr(inner, part, None)
                if isinstance(block, list) and block and not isinstance(inner, ast.FunctionDef):
                    yield lambda i=items, x=index, b=block: i.__setitem__(slice(x, x + 1), b)


def _smaller_expressions(node: ast.AST) -> Iterator[Any]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr) and _may_be_replaced(value):
            yield from _replacements(value, lambda new, n=name: setattr(node, n, new))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.expr) and _may_be_replaced(item):
                    yield from _replacements(item, lambda new, v=value, i=index: v.__setitem__(i, new))


def _may_be_replaced(value: ast.expr) -> bool:
    return isinstance(getattr(value, "ctx", ast.Load()), ast.Load)


def _replacements(value: ast.expr, put: Any) -> Iterator[Any]:
    for part in ast.iter_child_nodes(value):
        if isinstance(part, ast.expr) and _may_be_replaced(part):
            yield lambda p=part: put(p)
    if not (isinstance(value, ast.Constant) and value.value in _NUMBERS):
        for number in _NUMBERS:
            yield lambda n=number: put(ast.Constant(n))
