"""Compute each thing once; see `ir/repeats.py`, which recordings of the front end use too."""

from stagekit.ir import Function
from stagekit.ir.repeats import Reuser
from stagekit.passes import PassContext


def cse(fn: Function, context: PassContext) -> Function:
    """Replace ops that repeat another by its results."""
    return Reuser().run(fn)
