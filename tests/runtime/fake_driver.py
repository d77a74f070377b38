"""A CUDA driver of two devices without a GPU: it notes every call, and its "device memory" is host memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stagekit.runtime import cuda, driver, native_process, tensor_maps

NAMES = {
    0: "CUDA_SUCCESS",
    1: "CUDA_ERROR_INVALID_PTX",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    600: "CUDA_ERROR_NOT_READY",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
}
ATTRIBUTES = {
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0,
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": 1024,
}


class Status(int):
    """A `CUresult`."""

    @property
    def name(self) -> str:
        return NAMES[self]


SUCCESS, FAILURE, NOT_READY = Status(0), Status(1), Status(600)


CAPTURING = 77  # a stream
HARMLESS = ("cuInit", "cuGet", "cuDevice", "cuCtxGet", "cuCtxSet")
"""What works without a context, or whatever its state."""


class FakeDriver:
    """Stands for `cuda.bindings.driver`. calls: names and arguments in order. failing: functions that report a failure.

    broken: by context, what all of its calls report after a fault. is_busy: launches have not ended yet.
    pinned: memory of the host's, by its address there, and its address for GPUs.
    """

    CUdevice_attribute = SimpleNamespace(**{name: name for name in ATTRIBUTES})
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="max dynamic shared")
    CUjit_option = SimpleNamespace(
        CU_JIT_ERROR_LOG_BUFFER="log", CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES="log bytes", CU_JIT_GENERATE_LINE_INFO="lines"
    )
    CUpointer_attribute = SimpleNamespace(
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal", CU_POINTER_ATTRIBUTE_DEVICE_POINTER="device pointer"
    )
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()
        self.broken: dict[int, int] = {}
        self.is_busy = False
        self.pinned: dict[int, int] = {}
        self.current = 0
        self.memory: dict[int, Any] = {}
        self.freed: set[int] = set()
        self.launched: list[tuple[int, ...]] = []  # the native parameters of each launch
        self.attributes: list[list[str]] = []  # the names of those of each launch

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            status = self._status(name)
            if status not in (SUCCESS, FAILURE):
                return status, None
            result = getattr(self, f"do_{name}", lambda *_: None)(*args)
            return (status,) if result is None else (status, result)

        return call

    def _status(self, name: str) -> Status:
        if name in self.failing:
            return FAILURE
        if name.startswith(HARMLESS):
            return SUCCESS
        if self.current in self.broken:
            return Status(self.broken[self.current])
        return NOT_READY if self.is_busy and name == "cuEventQuery" else SUCCESS

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of one function."""
        return [args for called, *args in self.calls if called == name]

    def do_cuGetErrorString(self, status: Any) -> bytes:
        return b"it did not work"

    def do_cuDeviceGetCount(self) -> int:
        return 2

    def do_cuDeviceGet(self, device: int) -> int:
        return device

    def do_cuDeviceGetName(self, size: int, device: int) -> bytes:
        return b"Fake GPU\0\0\0"

    def do_cuDeviceGetAttribute(self, name: str, device: int) -> int:
        return ATTRIBUTES[name]

    def do_cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return 100 + device

    def do_cuCtxGetCurrent(self) -> int:
        return self.current

    def do_cuCtxSetCurrent(self, context: int) -> None:
        self.current = context

    def do_cuCtxGetDevice(self) -> int:
        return self.current - 100

    def do_cuModuleLoadDataEx(self, image: bytes, count: int, options: list[str], values: list[Any]) -> str:
        if "cuModuleLoadDataEx" in self.failing:
            values[0][:20] = b"ptxas: line 3: oops\0"
        return f"module on {self.current}"

    def do_cuModuleGetFunction(self, module: str, name: bytes) -> str:
        return f"{name.decode()} of {module}"

    def cuPointerGetAttribute(self, attribute: str, address: int) -> tuple[Status, int | None]:
        if attribute == "ordinal":
            return SUCCESS, 1
        return (SUCCESS, self.pinned[address]) if address in self.pinned else (FAILURE, None)

    def do_cuStreamIsCapturing(self, stream: int) -> int:
        return int(stream == CAPTURING)

    def do_cuEventCreate(self, flags: int) -> str:
        return "event"

    def do_cuMemAlloc(self, size: int) -> int:
        block = (ctypes.c_char * size)()
        self.memory[ctypes.addressof(block)] = block
        self.freed.discard(ctypes.addressof(block))
        return ctypes.addressof(block)

    def do_cuMemHostAlloc(self, size: int, flags: int) -> int:
        return self.do_cuMemAlloc(size)

    def do_cuMemFree(self, address: int) -> None:
        """What the real driver gave is its own: an array of an earlier test may go while this one runs."""
        if address in self.freed or address in self.memory:
            self.freed.add(address)
            del self.memory[address]

    do_cuMemFreeHost = do_cuMemFree

    def do_cuMemcpyHtoD(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    do_cuMemcpyDtoH = do_cuMemcpyHtoD

    def do_cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(
        **{f"CU_LAUNCH_ATTRIBUTE_{name}": name for name in ("CLUSTER_DIMENSION", "PROGRAMMATIC_STREAM_SERIALIZATION")}
    )

    @staticmethod
    def CUlaunchAttribute() -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuLaunchKernelEx(self, launch: Any, function: str, pointers: int, extra: int) -> tuple[Any, ...]:
        """It is noted under the name and with the arguments of the older function."""
        grid, block = (
            (launch.gridDimX, launch.gridDimY, launch.gridDimZ),
            (launch.blockDimX, launch.blockDimY, launch.blockDimZ),
        )
        self.attributes.append([each.id for each in getattr(launch, "attrs", ())])
        result: tuple[Any, ...] = self.cuLaunchKernel(
            function, *grid, *block, launch.sharedMemBytes, launch.hStream, pointers, extra
        )
        return result

    def do_cuLaunchKernel(self, function: str, *sizes: int) -> None:
        *_, pointers, _ = sizes
        slots = (ctypes.POINTER(ctypes.c_uint64) * 8).from_address(pointers)
        self.launched.append(tuple(slot[0] for slot in slots[: self.parameter_count]))

    parameter_count = 0


CACHED = (
    driver._handle,
    driver._event,
    driver.capability,
    driver.device_name,
    cuda._complete_process,
    tensor_maps._encoder,
)
"""What remembers answers of the driver."""


@contextmanager
def installed(fake: FakeDriver) -> Iterator[None]:
    """Put a fake driver in the driver's place. Where there is a GPU, tests before and after it use the real one."""
    gc.collect()  # what earlier tests left is freed with the driver that it came from
    with pytest.MonkeyPatch.context() as patch, _native_table_kept():
        patch.setattr(driver, "api", lambda: fake)
        patch.delitem(sys.modules, "torch", raising=False)  # it knows how many GPUs there really are
        for name, value in {"_contexts": {}, "_lost": {}, "_retired": deque()}.items():
            patch.setattr(driver, name, value)
        ctypes.memset(driver.last_launches, 0, ctypes.sizeof(driver.last_launches))
        for cached in CACHED:
            cached.cache_clear()
        yield
        fake.is_busy = False
        gc.collect()  # what is freed, is freed with the driver that it came from
        for cached in CACHED:
            cached.cache_clear()


@contextmanager
def _native_table_kept() -> Iterator[None]:
    """Native launchers find the driver's functions in a table of the process."""
    if not native_process.is_available():
        yield
        return
    process = native_process.process()
    before = {name: process.get(name) for name in cuda._FUNCTIONS}
    yield
    for name, address in before.items():
        process.set(name, address)
