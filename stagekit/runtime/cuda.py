"""Launch a kernel on a GPU: its PTX is loaded once per device; a launch is one driver call.

    kernel = CudaKernel(artifact)
    kernel.launch((x, y, 3.0), kernel.request((4, 256)))       returns at once; `synchronize()` waits

The device is that of the arguments. The stream is the one in the brackets; else the current stream of the library of the first
array that has such a thing (torch, CuPy); else torch's if torch uses CUDA, else the default stream. The owner of an argument is
asked to have it ready for that stream. Arrays in host memory, where a target is named, are copied: then `launch` waits.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from stagekit import native_tables as tables
from stagekit import ranges
from stagekit.artifact import Artifact
from stagekit.diagnostics import hide_frames
from stagekit.forks import new_lock
from stagekit.runtime import driver, errors, native_process
from stagekit.runtime.args import cupy_stream, owners_stream
from stagekit.runtime.checks import GpuReading, Native
from stagekit.runtime.device_array import DeviceArray, tensor_slot
from stagekit.runtime.device_copies import DeviceCopies
from stagekit.runtime.errors import CudaError, LaunchError
from stagekit.runtime.kernel import Kernel, LaunchOther, Packer, WrittenLaunch, size_words
from stagekit.runtime.launch_config import NO_BRACKETS, Axes, LaunchRequest, LaunchSize, stream_handle
from stagekit.runtime.native_process import PreparedLaunch, State
from stagekit.runtime.records import CAPACITY_WORDS, RecordBuffer, report
from stagekit.signature import PLAIN_LAUNCH, LaunchAttributes

_PORTABLE_AND_MAPPED = 0x1 | 0x2  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
_LOG_BYTES = 16384
_NO_DEVICE = 2**64 - 1  # -1: no argument has said which
_SHARED_WITHOUT_ASKING = 48 * 1024  # per block; more must be opted in
_MOST_SHARED = "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"
_HOPPER = 90  # the compute capability, times ten, from which on there are clusters and programmatic launches


class CudaKernel(Kernel):
    """A kernel for all devices that its PTX fits. Its modules are unloaded when it is dropped."""

    def __init__(self, artifact: Artifact, constexprs: Mapping[str, Any] | None = None) -> None:
        super().__init__(artifact, constexprs)
        self._packer = Packer(artifact.signature.slots, "Q" if artifact.has_records else "", self._maps)
        self._modules: dict[int, _LoadedModule] = {}
        self._rows: Any = None  # for native launchers, once there are any
        self._number = driver.kernel_number(self._name)
        self._load_lock = new_lock()
        weakref.finalize(self, _unload, self._modules).atexit = False
        if artifact.has_records:
            _recording.add(self)

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Enqueue the kernel. Under `debug=True` an assert that failed in an earlier launch is raised first."""
        gpu = self._reading(brackets, arguments)
        values = self._read(arguments, gpu)
        size = self._size(values, arguments, brackets)
        if not size.blocks:
            return
        attributes = self._attributes(brackets)
        with self._ready(gpu, size, attributes) as to:
            # A stream whose launches are captured into a graph must not be waited for.
            is_waited_for = self.artifact.is_debug or gpu.on_host is not None
            is_capturing = is_waited_for and bool(int(driver.call("cuStreamIsCapturing", to.stream)))
            if gpu.on_host is not None and is_capturing:
                raise LaunchError(errors.CopyInCapture(self._name, gpu.on_host[0]))
            if not is_waited_for or is_capturing:
                self._enqueue(values, size, to, attributes)
                return
            driver.wait(to.device)  # so that a fault of an earlier kernel is not taken for this one's
            if gpu.on_host is None:
                self._enqueue(values, size, to, attributes)
                driver.wait(to.device, self._name)
            else:
                self._run_on_copies(values, arguments, gpu, size, to, attributes)

    def _run_on_copies(
        self,
        values: Native,
        arguments: Sequence[Any],
        gpu: GpuReading,
        size: LaunchSize,
        to: _Destination,
        attributes: LaunchAttributes,
    ) -> None:
        """Run the kernel on copies of arrays in host memory, until all is back that it writes, prints and asserts."""
        signature = self.artifact.signature
        copies = DeviceCopies(signature, arguments, gpu.views, to.device, to.stream)
        try:
            self._enqueue(copies.moved(values), size, to, attributes)
            driver.wait(to.device, self._name)
            copies.write_back()
        finally:
            copies.free()
        to.module.report()

    def _enqueue(self, values: Native, size: LaunchSize, to: _Destination, attributes: LaunchAttributes) -> None:
        device, stream, module, shared_bytes = to
        buffer = self._packer.pack(values, () if module.records is None else (module.records.address,))
        launch = driver.api().CUlaunchConfig()  # what native launchers fill is `native_tables.LAUNCH`
        launch.gridDimX, launch.gridDimY, launch.gridDimZ = size.grid
        launch.blockDimX, launch.blockDimY, launch.blockDimZ = size.block
        launch.sharedMemBytes, launch.hStream = shared_bytes, stream
        if attributes != PLAIN_LAUNCH:
            launch.attrs = [_driver_attribute(*each) for each in _named(attributes)]
            launch.numAttrs = len(launch.attrs)
        if attributes.cooperative:
            self._check_fit(launch, size, module.function, device)
        driver.call("cuLaunchKernelEx", launch, module.function, buffer.pointers, 0)
        if device < tables.DEVICES:
            driver.last_launches[device] = self._number

    def _check_fit(self, launch: Any, size: LaunchSize, function: Any, device: int) -> None:
        """Refuse a launch of which not all blocks can run at the same time."""
        fit = driver.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, math.prod(size.block), launch.sharedMemBytes
        )
        count = int(fit) * driver.attribute("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", device)
        if size.blocks > count:
            raise LaunchError(errors.GridTooLarge(self._name, size.blocks, driver.device_name(device), count))

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest, launch_other: LaunchOther) -> PreparedLaunch:
        """Return a function that launches. A stream that still writes to an argument is waited for now, not at each launch."""
        gpu = self._reading(brackets, args)
        values = self._read(args, gpu)
        size = self._size(values, args, brackets)
        general = super().prepare(args, brackets, launch_other)
        state = self.native_state(brackets) if native_process.has_functions() else None
        if state is None or gpu.on_host is not None:
            return general
        with self._ready(gpu, size, self._attributes(brackets)) as (device, _, _, shared_bytes):
            buffer = self._packer.pack(values)
        stream_of = id(cupy_stream) if gpu.stream_of is cupy_stream else native_process.stream_of(args)
        words = {"pointers": buffer.pointers, "device": device, "stream_of": stream_of}
        words |= size_words(LaunchRequest(size._replace(shared_bytes=shared_bytes)))
        return native_process.make_prepared("enqueue_prepared", self._name, general, state, words, args, gpu, buffer)

    def written_down(self, arguments: Sequence[Any], brackets: LaunchRequest, devices: Sequence[int]) -> WrittenLaunch:
        gpu = GpuReading(lambda _: 0)
        values = self._read(arguments, gpu)
        size, attributes = self._size(values, arguments, brackets), self._attributes(brackets)
        self._provide_rows()
        for gpu.device in devices:
            with self._ready(gpu, size, attributes):
                pass  # the code is there now
        count, table = _attribute_table(attributes)
        addresses = self._number, ctypes.addressof(self._rows), count, ctypes.addressof(table) if count else 0
        shared_bytes = size.shared_bytes + self.artifact.added_shared_bytes
        return WrittenLaunch(self, addresses, self._slot_words(values), size, shared_bytes)

    def _reading(self, brackets: LaunchRequest, arguments: Sequence[Any]) -> GpuReading:
        given = None if brackets.stream is None else stream_handle(brackets.stream)
        if given is not None:
            return GpuReading(lambda _: given)
        return GpuReading(owners_stream(arguments) or driver.current_stream)

    @contextmanager
    def _ready(
        self, gpu: GpuReading, size: LaunchSize, attributes: LaunchAttributes = PLAIN_LAUNCH
    ) -> Iterator[_Destination]:
        """Make the arguments' device current, load the kernel there, and let the stream wait for those that still write to an
        argument.
        """
        device = driver.current_device() if gpu.device is None else gpu.device
        stream = gpu.stream_of(device)
        if attributes != PLAIN_LAUNCH:
            _check_attributes(self._name, attributes, device)
        with driver.on_device(device):
            with self._load_lock:
                if device not in self._modules:
                    with ranges.span(f"load {self._name} on cuda:{device}"):
                        self._modules[device] = _LoadedModule(self.artifact, device)
            module, shared_bytes = self._modules[device], size.shared_bytes + self.artifact.added_shared_bytes
            module.allow_shared(shared_bytes)
            if self._rows is not None:
                self._tell_native(device, module)
            module.report()
            for producer in {view.stream for view in gpu.views} - {None, stream}:
                driver.wait_for(stream, producer)  # type: ignore[arg-type]
            yield _Destination(device, stream, module, shared_bytes)

    def report(self) -> None:
        """Print and raise what finished launches recorded, on every device."""
        for device, module in list(self._modules.items()):
            with driver.on_device(device):
                module.report()

    def native_state(self, request: LaunchRequest) -> State | None:
        """Return a state, or None if a launch does more than launch: records are read, it waits, or all blocks run at once."""
        attributes = self._attributes(request)
        if self.artifact.has_records or self.artifact.is_debug or attributes.cooperative:
            return None
        self._provide_rows()
        stream = 0 if request.stream is None else stream_handle(request.stream)
        words = {"code": ctypes.addressof(self._rows), "kernel_number": self._number, "device": _NO_DEVICE}
        words |= {"stream": stream, "has_stream": tables.GIVEN * (request.stream is not None)}
        count, table = _attribute_table(attributes)
        words |= {"attribute_count": count, "attributes": ctypes.addressof(table) if count else 0}
        return State(
            {**words, **size_words(request)}, {"fail": _fail_launch}, (self, self._rows, request.stream, table)
        )

    def _provide_rows(self) -> None:
        """Make the rows where machine code looks for the kernel, and tell it where the driver is."""
        _complete_process()
        if self._rows is None:
            self._rows = (ctypes.c_uint64 * (len(tables.DEVICE) * tables.DEVICES))()
            for device, module in list(self._modules.items()):
                self._tell_native(device, module)

    def _tell_native(self, device: int, module: _LoadedModule) -> None:
        """Put a module into the row where native launchers look for it."""
        if device < tables.DEVICES:
            row = [int(module.function), int(driver.context_of(device)), module.allowed_shared]
            self._rows[len(row) * device : len(row) * (device + 1)] = row


# Attributes ---------------------------------------------------------------------------------------------------------


def _named(attributes: LaunchAttributes) -> list[tuple[str, Axes]]:
    """Return the driver's name of each attribute that a launch has, and its value as three numbers."""
    rows: dict[str, Axes] = {
        "CLUSTER_DIMENSION": attributes.cluster,
        "COOPERATIVE": (int(attributes.cooperative), 0, 0),
        "PROGRAMMATIC_STREAM_SERIALIZATION": (int(attributes.programmatic), 0, 0),
    }
    return [(name, value) for name, value in rows.items() if value not in ((1, 1, 1), (0, 0, 0))]


def _driver_attribute(name: str, value: Axes) -> Any:
    """Return a `CUlaunchAttribute`."""
    attribute = driver.api().CUlaunchAttribute()
    attribute.id = getattr(driver.api().CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    if name == "CLUSTER_DIMENSION":
        cluster = attribute.value.clusterDim
        cluster.x, cluster.y, cluster.z = value
    elif name == "COOPERATIVE":
        attribute.value.cooperative = value[0]
    else:
        attribute.value.programmaticStreamSerializationAllowed = value[0]
    return attribute


@functools.cache
def _attribute_table(attributes: LaunchAttributes) -> tuple[int, Any]:
    """Return how many attributes a launch has, and the memory that holds them for native launchers."""
    rows = _named(attributes)
    table = (tables.LaunchAttribute * len(rows))()
    for row, (name, value) in zip(table, rows):
        row.id, row.value = tables.ATTRIBUTE_IDS[name], value
    return len(rows), table


def _check_attributes(kernel: str, attributes: LaunchAttributes, device: int) -> None:
    """Refuse attributes that a GPU is too old for."""
    x, y, z = attributes.cluster
    asked = {f"cluster=({x}, {y}, {z})": (x, y, z) != (1, 1, 1), "programmatic=True": attributes.programmatic}
    for text, is_asked in asked.items():
        if is_asked and driver.capability(device) < _HOPPER:
            has = f"{driver.capability(device) / 10:.1f}"
            raise LaunchError(errors.LaunchTooNew(kernel, text, driver.device_name(device), has))


_recording: weakref.WeakSet[CudaKernel] = weakref.WeakSet()


@hide_frames
def synchronize(device: int | None = None) -> None:
    """Wait for a device, or for all that stagekit has used; then print what kernels recorded and raise failed asserts."""
    for index in driver.used_devices() if device is None else (driver.device_number(synchronize, device),):
        driver.wait(index)
    for kernel in list(_recording):
        kernel.report()


@hide_frames
def capability(device: int = 0) -> int:
    """Return the compute capability of a device, ten times the version: 90 for an H100."""
    return driver.capability(driver.device_number(capability, device))


@hide_frames
def max_shared_bytes(device: int = 0) -> int:
    """Return the most shared memory that a block may have on a device, in bytes: 232448 on an H100."""
    return driver.attribute(_MOST_SHARED, driver.device_number(max_shared_bytes, device))


class _Destination(NamedTuple):
    """Where a launch runs: its device and stream, the kernel's code there, and the shared memory that it needs and is allowed."""

    device: int
    stream: int
    module: _LoadedModule
    shared_bytes: int


class _LoadedModule:
    """A kernel's code on one device, which is current when it is loaded. records: their address is the last native parameter."""

    def __init__(self, artifact: Artifact, device: int) -> None:
        self._artifact = artifact
        self._device = device
        self.handle = _load(artifact, device)
        self.allowed_shared = max(_SHARED_WITHOUT_ASKING - artifact.shared_bytes, 0)
        self.records = None
        try:
            self.function = driver.call("cuModuleGetFunction", self.handle, artifact.entry.encode())
            if artifact.has_records:
                # In host memory that the device can write, so that looking for records needs no copy.
                address = driver.call("cuMemHostAlloc", CAPACITY_WORDS * 8, _PORTABLE_AND_MAPPED)
                self.records = RecordBuffer(address=int(address))
        except CudaError:  # nobody else has the handle, and the next launch would load it anew
            self.unload()
            raise

    def allow_shared(self, dynamic_bytes: int) -> None:
        """Allow the kernel this much dynamic shared memory."""
        if dynamic_bytes <= self.allowed_shared:
            return
        limit = driver.attribute(_MOST_SHARED, self._device)
        if self._artifact.shared_bytes + dynamic_bytes > limit:
            own, given = self._artifact.own_shared_bytes, dynamic_bytes - self._artifact.added_shared_bytes
            name = driver.device_name(self._device)
            raise LaunchError(errors.SharedMemoryLimit(self._artifact.kernel_name, own, given, name, limit))
        attribute = driver.api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuFuncSetAttribute", self.function, attribute, dynamic_bytes)
        self.allowed_shared = dynamic_bytes

    def report(self) -> None:
        """Print and raise what is recorded. This waits for the device only if there is something."""
        if self.records is not None and self.records.has_records:
            driver.wait(self._device)
            report(self.records, self._artifact.record_sites)

    def unload(self) -> None:
        """Free everything once all launches have ended."""
        driver.free_later(self._device, "cuModuleUnload", self.handle)
        if self.records is not None:
            driver.free_later(self._device, "cuMemFreeHost", self.records.address)


@hide_frames
def _fail_launch(status: int) -> None:
    """Raise the driver's refusal of a launch. Native launchers call this."""
    raise driver.failure("cuLaunchKernelEx", driver.api().CUresult(status))


@functools.cache
def _complete_process() -> None:
    """Tell native launchers where the driver is, and how to read our own arrays."""
    process = native_process.process()
    for name, function in _FUNCTIONS.items():
        process.set(name, driver.function_address(function))
    process.set("device_array_slot", tensor_slot())
    process.point("device_array", DeviceArray)
    process.set("last_launches", ctypes.addressof(driver.last_launches))
    process.point("cupy_stream", cupy_stream)
    # A forked child must not call the driver: without this function launches go the general way, which raises.
    os.register_at_fork(after_in_child=lambda: process.set("get_context", 0))


_FUNCTIONS = {
    "launch_kernel": "cuLaunchKernelEx",
    "encode_tiled": "cuTensorMapEncodeTiled",
    "get_context": "cuCtxGetCurrent",
    "set_context": "cuCtxSetCurrent",
}


def _load(artifact: Artifact, device: int) -> Any:
    needed, has = artifact.capability, driver.capability(device)
    if has < needed:
        versions = f"{needed / 10:.1f}", driver.device_name(device), f"{has / 10:.1f}"
        raise LaunchError(errors.CapabilityTooLow(artifact.kernel_name, *versions))
    options = driver.api().CUjit_option
    log = bytearray(_LOG_BYTES)
    asked = {options.CU_JIT_ERROR_LOG_BUFFER: log, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(log)}
    if b"\t.loc\t" in artifact.code:
        asked[options.CU_JIT_GENERATE_LINE_INFO] = 1
    status, module = driver.api().cuModuleLoadDataEx(artifact.code + b"\0", len(asked), [*asked], [*asked.values()])
    if status and status.name not in errors.MODULE_FAULTS:
        raise driver.failure("cuModuleLoadDataEx", status)
    if status:
        text = log.split(b"\0", 1)[0].decode(errors="replace").strip()
        where = driver.device_name(device)
        raise CudaError(
            errors.ModuleRefused(artifact.kernel_name, where, status.name, text or "the driver left no log")
        )
    return module


def _unload(modules: dict[int, _LoadedModule]) -> None:
    for module in modules.values():
        module.unload()
    modules.clear()
