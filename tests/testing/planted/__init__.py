"""Planted faults: small kernels, each with one mistake, beside the finding that the sanitizer must give.

They are written as their users would write them, one for each kind of fault and each construct that it hides in. The expected
finding is the id of a diagnostic and a fragment of its text. Look-alikes without the mistake must give none.
"""

from . import (
    barriers,
    bounds,
    crowds,
    global_races,
    guards,
    handovers,
    masks,
    numbers,
    orders,
    overflows,
    peers,
    products,
    programs,
    protocols,
    shared_races,
    subtle,
    unwritten,
    views,
    waiting,
    warps,
)
from .table import CASES, Planted

GROUPS = (
    bounds,
    views,
    shared_races,
    global_races,
    crowds,
    handovers,
    orders,
    barriers,
    warps,
    masks,
    unwritten,
    numbers,
    overflows,
    programs,
    guards,
    waiting,
    subtle,
    protocols,
    products,
    peers,
)

FAULTS = [case for case in CASES if case.id]
LOOK_ALIKES = [case for case in CASES if not case.id]

__all__ = ["CASES", "FAULTS", "GROUPS", "LOOK_ALIKES", "Planted"]
