"""`stagekit.cuda`: thread and block indices, launches, and GPU memory for those without torch or CuPy."""

from types import ModuleType as _ModuleType

from stagekit.intrinsics import public_in as _public_in
from stagekit.runtime.cuda import capability, max_shared_bytes, synchronize
from stagekit.runtime.device_array import DeviceArray, empty, to_device
from stagekit.runtime.driver import device_count, is_available
from stagekit.runtime.launch_config import LaunchConfig

globals().update(_public_in(__name__))


def __dir__() -> list[str]:
    """Return the public names."""
    return [name for name in globals() if name.startswith("__") or name in __all__]


__all__ = sorted(
    name for name, value in globals().items() if not (name.startswith("_") or isinstance(value, _ModuleType))
)
