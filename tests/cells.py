"""Tables that one test goes through: the failure names the cell that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cell(*names: object) -> Iterator[None]:
    """Name the cell of a table in whatever its check raises.

    A cell costs what its check costs; a parametrised test costs some milliseconds of pytest beside it, and memory until the
    run ends. So what a failure must name is a cell, and what may be run or marked alone is a test.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the cell {', '.join(map(str, names))}")
        raise
