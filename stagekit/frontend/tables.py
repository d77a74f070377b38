"""Tables: captured NumPy arrays, read at places that are known only at run time, as data that is part of the code.

    WEIGHTS = np.array([1, 4, 6, 4, 1], np.float32)     at module level, or in a factory

    WEIGHTS[k]                     a float32 of the code: constant memory on a GPU, where all tables together fit in it
    sk.load(sk.table(CODES) + t)   for a tile `t`

An array is read as it is at that point of the trace. That its bytes are captured, and so in the key, is what reading its name has
noted. Nothing writes a table: a store is refused by the space of its pointer.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from stagekit.diagnostics import shown
from stagekit.dtypes import element_dtype
from stagekit.frontend.complexes import ComplexLibrary
from stagekit.frontend.errors import BadIndex, CaptureTooLarge
from stagekit.frontend.evaluation import Site
from stagekit.frontend.extents import row_major
from stagekit.frontend.parts import describe
from stagekit.frontend.values import Address, Array

MOST_BYTES = 4 << 20  # ptxas reads it as text, in 1.6 s for each MiB


def table_of(site: Site, values: Any) -> Any:
    """Return a NumPy array as an array in constant memory."""
    dtype = element_dtype(values.dtype) if type(values) is np.ndarray else None
    if dtype is None:
        why = f"{describe(values)} of {values.dtype}" if isinstance(values, np.ndarray) else describe(values)
        hint = "make it a plain array of a dtype that kernels have: `np.asarray(x, np.float32)`"
        raise site.error(BadIndex(f"{why} with an index known at run time", hint))
    if values.nbytes > MOST_BYTES:
        raise site.error(CaptureTooLarge("the array that is indexed at run time", values.nbytes, MOST_BYTES))
    name = _name_of(site.node)
    base = site.tracer.builder.table(dtype.part or dtype, site.tracer.bytes_of(values), name)
    shape = values.shape if dtype.part is None else (*values.shape, 2)
    array = Array(name, Address(base), shape, row_major(site.tracer, shape)[0], True)
    return array if dtype.part is None else ComplexLibrary.array(array)


def _name_of(node: ast.AST) -> str:
    """Return how the array is written that is indexed or handed over there."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    named = node.value if isinstance(node, ast.Subscript) else node
    return shown(ast.unparse(named), most=40).strip("'\"")
