"""Programs that work on several tiles, one after the other: a grid as large as a GPU runs at once, whatever there is to do.

    for tile in sk.persistent(tiles):              tiles program_id(0), program_id(0) + num_programs(0), ..
        ...

    for tile in sk.persistent(tiles, counter):     whichever tile is next: for tiles that take unlike times
        ...

So what a program prepares once serves all of its tiles, and no program waits for a place. The counter gives each tile to one
program. Each program ends with a number that is none: who gets the last of these numbers sets the counter to 0 again.

Source: Gupta, Stuart and Owens, "A study of persistent threads style GPU programming for GPGPU workloads", 2012.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk


@sk._kernel_only
@sk._of_program
def persistent(tiles: Any, counter: Any = None) -> Any:
    """Return what a `for` goes through to get the numbers of this program's tiles, below `tiles`, an integer.

    counter: an array argument with one integer, which is 0 before the first launch and after each, and belongs to one launch at
    a time: each program takes the next number from it. A loop that such numbers come from is not left early. Left out, tiles are
    shared out evenly, in the order of programs along axis 0 of the grid.
    """
    if counter is None:
        return range(sk.program_id(0), tiles, sk.num_programs(0))
    is_array = hasattr(counter, "ptr_to")
    if not is_array or counter.dtype not in (sk.int32, sk.uint32, sk.int64, sk.uint64):
        got = f"one of {counter.dtype.name}" if is_array else repr(counter)
        wanted = "an array of int32, uint32, int64 or uint64, whose first element is 0"
        sk.static_assert(False, f"persistent: the counter is {wanted}, got {got}")
    return TakenTiles(tiles, counter.ptr_to(0))


class TakenTiles:
    """Tiles whose numbers a counter gives."""

    def __init__(self, tiles: Any, place: Any) -> None:
        self.tiles = sk.int64(tiles)
        self.place = place
        self.taken = sk.int64(0)

    @sk._of_program
    def __stagekit_take__(self) -> Any:
        """Take the next number; return whether there is a tile of it."""
        self.taken = sk.int64(sk.atomic_add(self.place, 1))
        is_any = self.taken < self.tiles
        if not is_any:
            programs = sk.num_programs(0) * sk.num_programs(1) * sk.num_programs(2)
            if self.taken == sk.maximum(self.tiles, 0) + programs - 1:
                sk.store(self.place, 0)
        return is_any
