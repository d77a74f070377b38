"""Words that go with a number."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """`1 axis`, `2 axes`. many: the plural, `one` with an s where it is left out."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
