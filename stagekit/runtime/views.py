"""What the launcher sees of an array, whoever made it: an address, a shape, strides, a dtype, and where it lives."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stagekit.dtypes import DType

DeviceKind = Literal["cpu", "cuda", "pinned", "managed", "other"]
"""pinned: host memory that a GPU can read; managed: memory that moves by itself. Both work on either target."""

REACHABLE: dict[str, frozenset[DeviceKind]] = {
    "cpu": frozenset({"cpu", "pinned", "managed"}),
    "cuda": frozenset({"cuda", "pinned", "managed"}),
}
"""Per target, the kinds of memory that its kernels can use."""


class Device(NamedTuple):
    kind: DeviceKind
    ordinal: int = 0

    def __str__(self) -> str:
        return "the CPU" if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


CPU = Device("cpu")


class ArrayView(NamedTuple):
    """A borrowed look at an array. It keeps no array alive; `owner` is whatever the look itself needs.

    strides: elements per step of each axis, or None where a step is not a whole number of elements. dtype: a name where it is
    none of ours. stream: the CUDA stream on which the owner is still writing, if it says so.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | str
    device: Device
    is_writable: bool
    owner: object = None
    stream: int | None = None

    @property
    def is_contiguous(self) -> bool:
        """Is this C order without gaps? Axes of one element may have any stride; an empty array always is."""
        if 0 in self.shape:
            return True
        if self.strides is None:
            return False
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def __str__(self) -> str:
        name = self.dtype.name if isinstance(self.dtype, DType) else self.dtype
        return f"an array of {name} (shape {self.shape})"
