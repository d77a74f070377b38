"""The records of everything that is not a core op, one file per family; importing this package registers them all."""

from stagekit.intrinsics import atomics, bits, index, math, sync, warp
from stagekit.intrinsics.registry import all_intrinsics, by_name, define

__all__ = ["all_intrinsics", "atomics", "bits", "by_name", "define", "index", "math", "sync", "warp"]
