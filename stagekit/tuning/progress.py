"""How far a search has come: a bar with the time left, by tqdm, where somebody sits before a terminal; nothing in a pipe.

with stages.stage("compile", 24) as tell:
    tell()                      one of them is done
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from stagekit.diagnostics import calls_user, check_argument
from stagekit.extras import ExtraError, require_extra

Tell = Callable[[], None]
Progress = Callable[[str, int, int], Any]
"""Called with the name of a stage, how many of its steps are done, and of how many."""


class Stages:
    """Tells of the stages of a search. progress: a `Progress`; True for a bar, False for none, None for one in a terminal."""

    def __init__(self, progress: Any, asked_by: Callable[..., Any]) -> None:
        is_taken = progress is None or isinstance(progress, bool) or callable(progress)
        check_argument(asked_by, "progress", progress, is_taken, "True, False or a function")
        self._tell: Progress | None = progress if callable(progress) else None
        self._tqdm = None if self._tell or progress is False else _tqdm(is_asked_for=progress is True)

    @contextlib.contextmanager
    def stage(self, name: str, total: int) -> Iterator[Tell]:
        """Give what is called after each of `total` steps."""
        if self._tqdm is not None:
            with self._tqdm(total=total, desc=name, leave=False, dynamic_ncols=True) as bar:
                yield lambda: bar.update()
            return
        done = 0

        @calls_user
        def tell() -> None:
            nonlocal done
            done += 1
            if self._tell is not None:
                self._tell(name, done, total)

        yield tell


def _tqdm(*, is_asked_for: bool) -> Any:
    """Return tqdm's bar; None where nobody sees it, or it is neither there nor asked for."""
    if not is_asked_for and not sys.stderr.isatty():
        return None
    try:
        return require_extra("a progress bar", "tqdm", "tune").tqdm
    except ExtraError:
        if is_asked_for:
            raise
        return None
