"""Block-level values and reductions, written in stagekit itself: nothing here is known to the compiler.

The modules import only `stagekit`'s public names, and their functions are staged like a user's own. CPython runs those marked
`@sk._direct`, which would otherwise be interpreted for every element of a tile: see `frontend/direct.py`.
"""

from stagekit.lib.reductions import block_reduce, reduce_max, reduce_min, reduce_sum, warp_reduce
from stagekit.lib.tile import Tile, arange, full, zeros

__all__ = ["Tile", "arange", "block_reduce", "full", "reduce_max", "reduce_min", "reduce_sum", "warp_reduce", "zeros"]
