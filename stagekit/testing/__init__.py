"""Tests of kernels, for users' own too: `check` against NumPy over block sizes, lengths and targets; strategies.

    from stagekit import testing

    testing.check(scale, reference, testing.launches(
        lambda n, BLOCK: sk.ceildiv(n, BLOCK),
        BLOCK=testing.block_sizes(),
        n=lambda BLOCK: testing.lengths(BLOCK),
        src=lambda n: testing.arrays(sk.float32, n),
        dst=lambda n: testing.outputs(sk.float32, n),
    ))

checking     `check`: a kernel against a reference, with the smallest failing call
strategies   what Hypothesis draws: sizes, dtypes, arrays, launches
tolerances   when two arrays are equal enough, by dtype
entries      `force_entry`: one of the bodies that a kernel may have
launching    one launch as a value, and as text to paste
oracle       `run_in_python`: a block-level kernel run by CPython

The pytest plugin, with options and markers, is `pytest_stagekit.py` beside the package; `plugin` names it where stagekit is not
installed. Names are imported when first used: Hypothesis only where there is a check.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagekit.testing.checking import CheckFailed, check
    from stagekit.testing.entries import force_entry
    from stagekit.testing.launching import Launch, strided
    from stagekit.testing.oracle import NoMeaning, run_in_python
    from stagekit.testing.strategies import arrays, block_sizes, dtypes, launches, lengths, outputs
    from stagekit.testing.tolerances import Tolerance, tolerance_of

_HOMES = {
    "checking": ("CheckFailed", "check"),
    "entries": ("force_entry",),
    "launching": ("Launch", "strided"),
    "oracle": ("NoMeaning", "run_in_python"),
    "strategies": ("arrays", "block_sizes", "dtypes", "launches", "lengths", "outputs"),
    "tolerances": ("Tolerance", "tolerance_of"),
}
chosen_targets: tuple[str, ...] = ()  # what `check` runs on where it is given no targets; empty for all that there are
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CheckFailed", "Launch", "NoMeaning", "Tolerance",
    "arrays", "block_sizes", "check", "dtypes", "force_entry", "launches", "lengths", "outputs", "run_in_python", "strided",
    "tolerance_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value
