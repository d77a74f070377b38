"""Block-level values and reductions, written in stagekit itself: nothing here is known to the compiler.

The modules import only `stagekit`'s public names, and their functions are staged like a user's own. CPython runs those marked
`@sk._direct`, which would otherwise be interpreted for every element of a tile: see `frontend/direct.py`. Modules that are not
imported here are loaded when somebody asks `stagekit` for one of their names.
"""

from stagekit.lib import access as access  # what `load` and the like do with tiles
from stagekit.lib import array_lists as array_lists  # what kernels see of lists of arrays
from stagekit.lib import parts as parts  # makes `A.tile` known
from stagekit.lib import records as records  # what kernels see of structured arrays
from stagekit.lib.collectives import block_reduce, block_scan, warp_reduce
from stagekit.lib.complex_functions import angle, polar
from stagekit.lib.complexes import ComplexNumber, complex
from stagekit.lib.creation import arange, full, zeros
from stagekit.lib.exchange import gather, histogram
from stagekit.lib.grids import grid_sync
from stagekit.lib.groups import Group, TiledGroup, coalesced_threads, labeled_partition, tiled_partition
from stagekit.lib.joining import flip, join, split
from stagekit.lib.reductions import argmax, argmin, reduce, reduce_max, reduce_min, reduce_sum
from stagekit.lib.tile import Tile
from stagekit.lib.vectors import NumberVector, vector
from stagekit.lib.votes import all, any, count_nonzero

__all__ = [
    "ComplexNumber", "Group", "NumberVector", "Tile", "TiledGroup", "all", "angle", "any", "arange", "argmax",
    "argmin", "block_reduce", "block_scan", "coalesced_threads", "complex", "count_nonzero", "flip", "full", "gather",
    "grid_sync", "histogram", "join", "labeled_partition", "polar", "reduce", "reduce_max", "reduce_min",
    "reduce_sum", "split", "tiled_partition", "vector", "warp_reduce", "zeros",
]  # fmt: skip
