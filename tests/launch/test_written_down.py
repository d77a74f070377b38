"""Launches on a GPU that were written down: what machine code that another library calls asks of a driver, which is a fake."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from stagekit import native_tables as tables
from stagekit.backends.launcher import Functions, load_sequence
from stagekit.dtypes import float32
from stagekit.hostexpr import Slot
from stagekit.operators.recording import LaunchRecorder, RecordingError
from stagekit.runtime import driver, native_process
from stagekit.runtime.cuda import CudaKernel
from stagekit.runtime.launch_config import LaunchRequest
from stagekit.runtime.views import _DlTensor
from stagekit.signature import ArraySpec, Signature, TensorMapSpec
from tests.launch.fake_gpu import FakeNativeDriver
from tests.runtime.fake_driver import installed
from tests.runtime.handmade import SAXPY, SAXPY_LAUNCH, artifact

pytestmark = pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here")

_SEQUENCE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
_STREAM = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32)
_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)
_PARTS = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int32)
_NAME = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p))


class _Any(ctypes.Structure):
    """TVMFFIAny: the address of a DLTensor."""

    _fields_ = (("type", ctypes.c_int32), ("_pad", ctypes.c_int32), ("value", ctypes.c_void_p))


@pytest.fixture
def gpu() -> Iterator[FakeNativeDriver]:
    made = FakeNativeDriver()
    made.current, made.parameter_count = 100, 4
    with installed(made):
        yield made


class Sequence:
    """SAXPY on two arrays of 1,000 elements, written down for some GPUs. errors: what tvm-ffi was told."""

    def __init__(self, *devices: int, signature: Signature = SAXPY, **changes: Any) -> None:
        fields = {"target": "cuda", "capability": 75, "code": b".version 8.0", "style": "entry", "launch": SAXPY_LAUNCH}
        kernel, recorder = CudaKernel(artifact("saxpy", signature, **(fields | changes))), LaunchRecorder(devices)
        arrays = [recorder.array((1000,), float32, is_writable=True) for _ in "xy"]
        recorder.recording(kernel).launch((*arrays, 1.5))
        self.errors: list[str] = []
        self._name = _NAME(self._names)
        self._of_library = (
            _ERROR(lambda kind, text: self.errors.append(text.decode())),
            _PARTS(lambda kind, parts, count: self.errors.append(b"".join(parts[:count]).decode())),
            _STREAM(lambda kind, device: 9000 + 10 * kind + device),
        )
        own = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (*self._of_library, self._name)]
        steps, self._kept = recorder.steps([0, 1])
        functions = Functions(*own[:3], native_process.process().address, 0, own[3])
        self._code, self._texts = load_sequence(steps, 2, functions)

    def _names(self, status: int, to: Any) -> int:
        self._said = to[0] = f"ERROR_{status}".encode()
        return 0

    def __call__(self, *addresses: int, device: int = 0) -> int:
        tensors = [_DlTensor(each, tables.ON_CUDA, device, 1, 2, 32, 1, None, None, 32) for each in addresses]
        arguments = (_Any * 2)(*[_Any(7, 0, ctypes.addressof(each)) for each in tensors])
        return int(_SEQUENCE(self._code.address)(None, ctypes.addressof(arguments), 2, None))


def test_a_launch_has_the_arrays_of_the_call_on_their_device_and_stream(gpu: FakeNativeDriver) -> None:
    sequence = Sequence(0, 1)
    assert not gpu.native

    assert [sequence(0x10000, 0x20000, device=device) for device in (0, 1)] == [0, 0]

    for device, (*launched, (*words, factor)) in enumerate(gpu.native):
        context = 100 + device
        assert launched == [1000 + context, context, [4, 1, 1, 256, 1, 1, 0], 9020 + device]
        assert words == [0x10020, 1000, 0x20020]
        assert factor & 0xFFFFFFFF == 0x3FC00000
    assert gpu.current == 100  # as it was before
    assert driver.last_launches[1] == driver.kernel_number("saxpy")


def test_what_goes_wrong_at_a_call_is_said_in_words(gpu: FakeNativeDriver) -> None:
    specs = tuple(dataclasses.replace(spec, align=16) if isinstance(spec, ArraySpec) else spec for spec in SAXPY.specs)
    sequence = Sequence(0, signature=dataclasses.replace(SAXPY, specs=specs))
    before = driver.last_launches[0]
    gpu.status = 700

    assert [sequence(0x10000, 0x20000, device=1), sequence(0x10004, 0x20000), sequence(0x10000, 0x20000)] == [-1] * 3

    assert sequence.errors == [
        "`saxpy` is not loaded on the GPU where the arrays are",
        "array 0 does not lie at a multiple of 16 bytes",
        "`saxpy` was refused by cuLaunchKernelEx: ERROR_700",
    ]
    assert driver.last_launches[0] == before  # what the driver then reports is the fault of a kernel before it


def test_tensor_maps_are_of_the_arrays_of_the_call(gpu: FakeNativeDriver) -> None:
    spec = TensorMapSpec("x", 0, Slot(0), (Slot(1),), (1,), float32, (32,), 128, "zero", is_written=False)
    sequence = Sequence(0, signature=dataclasses.replace(SAXPY, maps=(spec,)))
    gpu.parameter_count = 5

    assert [sequence(0x10000, 0x20000), sequence(0x10004, 0x20000)] == [0, -1]

    assert [made[2] for made in gpu.maps] == [0x10020]
    assert sequence.errors == ["an array does not lie as its tensor map needs it"]


def test_a_stream_in_the_brackets_is_refused(gpu: FakeNativeDriver) -> None:
    recorder = LaunchRecorder((0,))
    kernel = CudaKernel(artifact("saxpy", SAXPY, target="cuda", capability=75, style="entry", launch=SAXPY_LAUNCH))

    with pytest.raises(RecordingError, match="its brackets name a stream"):
        recorder.recording(kernel).launch((), LaunchRequest(stream=7))
