"""Layouts by those who write their own: maps of mixed radix, the placement of tiles, and pictures of both.

    from stagekit.layouts import IndexMap

    rows = IndexMap((8, 32), (32, 1))            # number i of 256 is at i % 8 * 32 + i // 8
    words = rows.after(IndexMap(64, 4))          # every fourth of them

An `IndexMap` is a function from numbers to numbers, given by shape and strides, as CuTe's layouts are. `TileLayout` says which
thread of a block holds which element of a tile, and in which register: `x.layout` is one, and `x.convert_layout(layout)` places x
so. What a map or a layout is, its `table` says, which lists all numbers; what is computed from maps is tested against tables.
"""

from stagekit.layouts.index_map import IndexMap, Swizzle
from stagekit.layouts.pictures import banks_svg, layout_svg, layout_text
from stagekit.layouts.placement import bank_conflicts, index_map_of, table_of, tile_layout
from stagekit.lib.layout import Layout as TileLayout

__all__ = [
    "IndexMap",
    "Swizzle",
    "TileLayout",
    "bank_conflicts",
    "banks_svg",
    "index_map_of",
    "layout_svg",
    "layout_text",
    "table_of",
    "tile_layout",
]
