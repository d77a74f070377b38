"""`stagekit.cuda`: thread and block indices, launches, and GPU memory for those without torch or CuPy."""

from stagekit.intrinsics.index import block_dim, block_idx, grid_dim, lane_id, thread_idx, warp_id
from stagekit.intrinsics.sync import (
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
    threadfence,
    threadfence_block,
    threadfence_system,
)
from stagekit.runtime.cuda import capability, synchronize
from stagekit.runtime.device_array import DeviceArray, empty, to_device
from stagekit.runtime.driver import device_count, is_available
from stagekit.runtime.launch_config import LaunchConfig

__all__ = [
    "DeviceArray", "LaunchConfig", "block_dim", "block_idx", "capability", "device_count", "empty", "grid_dim", "is_available",
    "lane_id", "synchronize", "syncthreads", "syncthreads_and", "syncthreads_count", "syncthreads_or", "syncwarp", "thread_idx",
    "threadfence", "threadfence_block", "threadfence_system", "to_device", "warp_id",
]  # fmt: skip
