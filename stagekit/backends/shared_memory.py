"""The shared memory of a kernel: where its arrays lie, and the limit on them, which is the same rule for every target."""

from __future__ import annotations

from stagekit.diagnostics import StagekitError
from stagekit.frontend.errors import NO_GPU, SharedMemoryExceeded
from stagekit.ir import Function, Space, ops, walk


class BumpAllocator:
    """Hands out memory from its beginning. size_bytes: what is in use."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes

    def take(self, size_bytes: int, align: int) -> int:
        """Return the offset of a new area."""
        start = -(-self.size_bytes // align) * align
        self.size_bytes = start + size_bytes
        return start


def place_shared(fn: Function, memory: BumpAllocator) -> dict[ops.Alloc, int | None]:
    """Return the offset of each shared array; None for the dynamic ones, which follow everything else."""
    arrays = _arrays(fn)
    return {op: None if op.count is None else memory.take(_bytes(op), alignment(op)) for op in arrays}


def alignment(array: ops.Alloc) -> int:
    return max(array.align, array.dtype.itemsize)


def refuse_for_every_gpu(fn: Function) -> None:
    """Refuse a kernel that no GPU could launch. The CPU could, but a kernel means the same everywhere."""
    refuse_shared(fn, sum(map(_bytes, _arrays(fn))), *NO_GPU)


def refuse_shared(fn: Function, total_bytes: int, whose: str, limit: int) -> None:
    """Refuse `fn` if it takes more than `limit`. The error shows the largest array."""
    if total_bytes > limit:
        largest = max(_arrays(fn), key=_bytes)
        raise StagekitError(SharedMemoryExceeded(total_bytes, whose, limit), largest.loc)


def _arrays(fn: Function) -> list[ops.Alloc]:
    return [op for op in walk(fn.body) if isinstance(op, ops.Alloc) and op.space is Space.SHARED]


def _bytes(array: ops.Alloc) -> int:
    """Return the size that the kernel knows: 0 for a dynamic array."""
    return (array.count or 0) * array.dtype.itemsize
