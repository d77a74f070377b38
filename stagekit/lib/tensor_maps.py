"""Tiles of arrays that the TMA unit copies: `sk.tensor_map(A, box=(128, 64), swizzle=128)`.

    a = sk.tensor_map(A, box=(64, 32))                    # every thread: the launcher builds the map, from A as it is then
    tile, full = a.alloc(), sk.alloc_shared((1,), sk.uint64)
    ... one thread initialises `full` for one arrival, all wait for it ...
    if is_first:
        sk.cuda.mbarrier_arrive_expect_tx(full, a.nbytes)
        a.load(tile, (row, column), full)                 # zeros where A has no elements
    sk.cuda.mbarrier_wait(full, 0)
    ... tile[a.place(i, j)] ...                           # A[row + i, column + j]

A tile is in the order of the box, the last axis side by side, unless a swizzle permutes it: then the 16-byte chunks of each row
are exchanged, so that threads which read a column of chunks find them in different banks. `place` says where an element is. With
a swizzle of 128 bytes, chunk c of row r is at c ^ (r % 8), which wgmma and ldmatrix want; of 64, at c ^ (r / 2 % 4); of 32,
at c ^ (r / 4 % 2).

Source: PTX ISA, "Tensors", "Swizzling modes"; CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import math
from typing import Any

import stagekit as sk

_CHUNK_BITS = 4  # of a byte's number: which byte of a chunk of 16
_ROW_BIT = 7  # from here on bits of it are exclusive-ored with those that name the chunk
_LEAST_ALIGN = 128  # bytes
_COPIES = 8  # rows of a swizzle's width after which its pattern begins again


class TensorMap:
    """How tiles of an array lie in global and in shared memory. See `tensor_map`.

    array: of which it is. box: elements of a tile per axis. swizzle: in bytes. nbytes: of a tile, which an mbarrier expects.
    align: bytes of which the address of a tile is a multiple.
    """

    def __init__(self, array: Any, handle: Any, box: tuple[int, ...], swizzle: int) -> None:
        self.array = array
        self.handle = handle
        self.box = box
        self.swizzle = swizzle
        self.count = math.prod(box)
        self.nbytes = self.count * array.dtype.itemsize
        self.align = max(_LEAST_ALIGN, swizzle * _COPIES)

    def alloc(self, stages: int | None = None) -> Any:
        """Return shared memory for a tile, shape (count,), or for several, shape (stages, count), each aligned as a tile is.

        A tile has as many bytes as `align` divides, or several are refused.
        """
        if stages is None:
            return sk.alloc_shared((self.count,), self.array.dtype, align=self.align)
        if self.nbytes % self.align != 0:
            sk.static_assert(
                False, f"a tile of {self.nbytes} bytes is not a multiple of {self.align}, as the next must be"
            )
        return sk.alloc_shared((stages, self.count), self.array.dtype, align=self.align)

    def place(self, *index: Any) -> Any:
        """Return where the swizzle puts the element of a tile with this index: its number in the tile."""
        if len(index) != len(self.box):
            sk.static_assert(
                False, f"an element of a tile of {len(self.box)} axes has as many indices, got {len(index)}"
            )
        number = index[0]
        for axis in sk.static_range(1, len(self.box)):
            number = number * self.box[axis] + index[axis]
        if self.swizzle == 0:
            return number
        bits = self.array.dtype.itemsize.bit_length() - 1
        turn = (number >> (_ROW_BIT - bits)) & (self.swizzle // 16 - 1)
        return number ^ (turn << (_CHUNK_BITS - bits))

    def load(self, tile: Any, index: Any, mbarrier: Any, *, ranks: Any = None) -> None:
        """Begin to copy the tile whose first element is A[index] to shared memory; one thread does it.

        index: an int32 per axis, negative or past the end as well, along the last one a multiple of 16 bytes: outside the array
        there are zeros, or NaN. The copy signals `nbytes` to the mbarrier. A tile that begins elsewhere is refused as BAD_CALL if
        that is known while specialising, found by the sanitizer as TILE_MISPLACED, and ends the CUDA context on a GPU.
        ranks: of blocks of the cluster, one bit each, all of which get the tile in the same place of their shared memory, and
        whose mbarrier in the same place is signalled.
        """
        if ranks is None:
            sk._tma("tma_load", self.array, self.handle, index, tile, None, mbarrier)
        else:
            sk._tma("tma_load_multicast", self.array, self.handle, index, tile, None, mbarrier, sk.uint16(ranks))

    def store(self, tile: Any, index: Any) -> None:
        """Begin to copy a tile to the array from A[index] on, but for what lies outside the array; one thread does it.

        index: as for `load`, and not negative. What threads wrote to the tile needs `fence_proxy_async` first. The thread calls
        `cp_async_bulk_commit` behind its stores, and `cp_async_bulk_wait`.
        """
        sk._tma("tma_store", self.array, self.handle, index, None, tile)

    def reduce(self, op: str, tile: Any, index: Any) -> None:
        """As `store`, but combine each element of the array with that of the tile, atomically.

        op: "add", "min" or "max" of 32-bit and 64-bit integers (no "add" of int64), float16 and bfloat16; "add" of float32 and
        float64; "and", "or" or "xor" of int32, uint32 and uint64. Others are refused as BAD_CALL.
        """
        sk._tma("tma_reduce", self.array, self.handle, index, None, tile, op=op)

    def prefetch(self, index: Any = None) -> None:
        """Bring a tile nearer, to the L2 cache; without an index, the map itself. index: as for `load`."""
        if index is None:
            sk._tma("prefetch_tensor_map", self.array, self.handle, None)
        else:
            sk._tma("tma_prefetch", self.array, self.handle, index)


@sk._kernel_only
def tensor_map(array: Any, box: tuple[int, ...], *, swizzle: int = 0, fill: str = "zero") -> TensorMap:
    """Return a tensor map of an array argument of the kernel, or of a view of one: what copies its tiles by the TMA unit.

    box: the shape of a tile, 1 to 256 elements along each of the 1 to 5 axes, compile-time ints; along the last one a multiple of
    16 bytes, and with a swizzle just as many. swizzle: 0, 32, 64 or 128 bytes. fill: what tiles have outside the array, "zero" or
    "nan". Refused as BAD_TENSOR_MAP: what does not fit; a view that a thread's own numbers decide. At the launch, refused as
    TENSOR_MAP_REFUSED: an array without elements, whose elements do not lie side by side along the last axis, whose address or
    other strides are no multiples of 16 bytes, or with a negative stride; where tiles are stored, one whose last axis has no
    multiple of 16 bytes, since the TMA unit would write on to the next one. From compute capability 9.0 on, and in the sanitizer.
    """
    return TensorMap(array, sk._tensor_map(array, box, swizzle, fill), box, swizzle)
