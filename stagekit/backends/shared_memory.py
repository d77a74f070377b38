"""The limit on the shared memory of a kernel: the same rule for every target."""

from __future__ import annotations

from stagekit.diagnostics import StagekitError
from stagekit.frontend.errors import NO_GPU, SharedMemoryExceeded
from stagekit.ir import Function, Space, ops, walk


def refuse_for_every_gpu(fn: Function) -> None:
    """Refuse a kernel that no GPU could launch. The CPU could, but a kernel means the same everywhere."""
    refuse_shared(fn, sum(map(_bytes, _arrays(fn))), *NO_GPU)


def refuse_shared(fn: Function, total_bytes: int, whose: str, limit: int) -> None:
    """Refuse `fn` if it takes more than `limit`. The error shows the largest array."""
    if total_bytes > limit:
        largest = max(_arrays(fn), key=_bytes)
        raise StagekitError(SharedMemoryExceeded(total_bytes, whose, limit), largest.loc)


def _arrays(fn: Function) -> list[ops.Alloc]:
    """Return the arrays in shared memory whose size the kernel knows."""
    found = (op for op in walk(fn.body) if isinstance(op, ops.Alloc))
    return [op for op in found if op.space is Space.SHARED and op.count is not None]


def _bytes(array: ops.Alloc) -> int:
    return (array.count or 0) * array.dtype.itemsize
