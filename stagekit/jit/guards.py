"""What a native launcher checks before each launch: that all its kernel read outside is as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagekit.frontend.captures import Captures
from stagekit.frontend.state import Row, holds


@dataclass(frozen=True, slots=True)
class Guards:
    """rows: all must hold. ask: must be true as well, where there is one: for what pointers cannot say."""

    rows: tuple[Row, ...] = ()
    ask: Callable[[], bool] | None = None

    @staticmethod
    def of(captures: Captures) -> Guards:
        rows = captures.rows()
        asked = [row for row in rows if row[0] == "ask"]
        return Guards(
            tuple(row for row in rows if row[0] != "ask"), (lambda: all(map(holds, asked))) if asked else None
        )
