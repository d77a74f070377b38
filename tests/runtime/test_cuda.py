"""GPU launches: what is asked of the driver, in which order; and, where there is a GPU, that it works."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit import native_tables as tables
from stagekit.artifact import RecordSite
from stagekit.diagnostics import Loc
from stagekit.dtypes import bfloat16, float32, int64
from stagekit.runtime import driver
from stagekit.runtime.cuda import CudaKernel, synchronize
from stagekit.runtime.device_array import DeviceArray, empty, to_device
from stagekit.runtime.errors import ArgumentError, CudaError, KernelAssertionError, LaunchError
from stagekit.runtime.launch_config import NO_BRACKETS
from stagekit.signature import ParamSlot, ScalarSpec, Signature
from tests.runtime.fake_driver import ATTRIBUTES, FakeDriver
from tests.runtime.handmade import NO_ARGUMENTS, OUT, SAXPY, SAXPY_LAUNCH, array, artifact


def saxpy(**changes: Any) -> CudaKernel:
    fields = {"target": "cuda", "capability": 75, "code": b".version 8.0", "style": "entry", "launch": SAXPY_LAUNCH}
    return CudaKernel(artifact("saxpy", SAXPY, **(fields | changes)))


def saxpy_arrays(n: int = 1000, device: int = 0) -> tuple[DeviceArray, DeviceArray]:
    return to_device(np.ones(n, np.float32), device), empty(n, float32, device)


def test_a_launch_is_one_driver_call_with_the_parameters_in_order(fake: FakeDriver) -> None:
    kernel, (x, y) = saxpy(), saxpy_arrays()
    fake.parameter_count = 4

    kernel.launch((x, y, 1.5))

    ((function, *sizes, _, extra),) = fake.named("cuLaunchKernel")
    assert function == "saxpy of module on 100"
    assert sizes == [4, 1, 1, 256, 1, 1, 0, 0]
    assert extra == 0
    assert fake.launched == [(x._address, 1000, y._address, int(np.float32(1.5).view(np.uint32)))]


def test_the_module_is_loaded_once_per_device_and_lazily(fake: FakeDriver) -> None:
    kernel = saxpy()
    assert not fake.named("cuModuleLoadDataEx")

    for device in (0, 1, 0, 1):
        kernel.launch((*saxpy_arrays(device=device), 1.0))

    assert len(fake.named("cuModuleLoadDataEx")) == 2
    assert [c[0] for c in fake.named("cuLaunchKernel")] == [f"saxpy of module on {100 + d}" for d in (0, 1, 0, 1)]
    image, *_ = fake.named("cuModuleLoadDataEx")[0]
    assert image == b".version 8.0\0"


@pytest.mark.parametrize("failing", ["cuModuleGetFunction", "cuMemHostAlloc"])
def test_a_module_whose_load_fails_half_way_is_unloaded(fake: FakeDriver, failing: str) -> None:
    kernel = CudaKernel(artifact("k", OUT, target="cuda", code=b"", block=(32, 1, 1), record_sites=(ASSERT,)))
    out = empty(3, int64)
    fake.failing = {failing}

    for _ in range(3):
        with pytest.raises(CudaError, match=failing):
            kernel.launch((out,), kernel.request(1))

    assert len(fake.named("cuModuleUnload")) == len(fake.named("cuModuleLoadDataEx")) == 3


@pytest.mark.parametrize("failing", ["cuEventRecord", "cuStreamWaitEvent"])
def test_an_event_between_streams_is_destroyed_when_a_call_fails(fake: FakeDriver, failing: str) -> None:
    fake.failing = {failing}

    with pytest.raises(CudaError, match=failing):
        driver.wait_for(7, 8)

    assert len(fake.named("cuEventDestroy")) == len(fake.named("cuEventCreate")) == 1


def test_the_driver_is_asked_for_lines_where_the_ptx_has_them(fake: FakeDriver) -> None:
    for ptx in (b".version 8.0", b".version 8.0\n\t.loc\t1 2 3"):
        saxpy(code=ptx).launch((*saxpy_arrays(), 1.0))

    assert [options[2:] for _, _, options, _ in fake.named("cuModuleLoadDataEx")] == [[], ["lines"]]


def test_the_context_that_was_current_is_current_again(fake: FakeDriver) -> None:
    kernel, arguments = saxpy(), (*saxpy_arrays(device=1), 1.0)
    fake.current = 100

    kernel.launch(arguments)
    assert fake.current == 100

    fake.current = 0
    kernel.launch(arguments)
    assert fake.current == 101, "a thread that had none keeps it"


def test_p21_dropping_the_kernel_unloads_its_modules_after_the_last_launch(fake: FakeDriver) -> None:
    kernel = saxpy()
    for device in (0, 1):
        kernel.launch((*saxpy_arrays(device=device), 1.0))
    fake.calls.clear()

    del kernel
    gc.collect()

    names = [name for name, *_ in fake.calls if name in ("cuEventQuery", "cuModuleUnload")]
    assert names == ["cuEventQuery", "cuModuleUnload"] * 2
    assert {m for (m,) in fake.named("cuModuleUnload")} == {"module on 100", "module on 101"}


def test_the_drivers_log_is_in_the_error(fake: FakeDriver) -> None:
    fake.failing = {"cuModuleLoadDataEx"}

    with pytest.raises(CudaError, match="ptxas: line 3: oops") as caught:
        saxpy().launch((*saxpy_arrays(), 1.0))

    assert "`saxpy` on cuda:0 (Fake GPU): CUDA_ERROR_INVALID_PTX" in str(caught.value)


def test_a_failing_call_is_named(fake: FakeDriver) -> None:
    kernel, arguments = saxpy(), (*saxpy_arrays(), 1.0)
    fake.failing = {"cuLaunchKernel"}

    with pytest.raises(CudaError, match=r"cuLaunchKernelEx: CUDA_ERROR_INVALID_PTX \(it did not work\)"):
        kernel.launch(arguments)


def test_a_gpu_that_is_too_old_is_told(fake: FakeDriver) -> None:
    with pytest.raises(LaunchError, match=r"capability 10.0, cuda:0 \(Fake GPU\) has 9.0"):
        saxpy(capability=100).launch((*saxpy_arrays(), 1.0))


def test_shared_memory_above_48_kib_is_opted_in_up_to_the_limit(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = saxpy(style="thread", launch=None, shared_bytes=1024, added_shared_bytes=16)
    arguments = (*saxpy_arrays(), 1.0)

    kernel.launch(arguments, kernel.request((4, 256, 47 * 1024 - 16)))
    assert not fake.named("cuFuncSetAttribute")

    for _ in range(2):
        kernel.launch(arguments, kernel.request((4, 256, 100_000)))
    ((_, name, size),) = fake.named("cuFuncSetAttribute")
    assert (name, size) == ("max dynamic shared", 100_016)
    assert [call[7] for call in fake.named("cuLaunchKernel")] == [47 * 1024, 100_016, 100_016]

    monkeypatch.setitem(ATTRIBUTES, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 101_376)
    with pytest.raises(LaunchError, match=r"1040 bytes per block of its own and the launch adds 100337; .* has 101376"):
        kernel.launch(arguments, kernel.request((4, 256, 100_337)))


class StreamOfTorch:
    cuda_stream = 55


class StreamOfCupy:
    ptr = 55


class StreamOfNumba:
    handle = ctypes.c_void_p(55)


class StreamOfCudaCore:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 55


class StreamOfOldCudaCore:
    __cuda_stream__ = (0, 55)


STREAMS = [55, StreamOfTorch(), StreamOfCupy(), StreamOfNumba(), StreamOfCudaCore(), StreamOfOldCudaCore()]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_in_the_brackets_is_used(fake: FakeDriver, stream: Any) -> None:
    kernel = saxpy(style="thread", launch=None)

    kernel.launch((*saxpy_arrays(), 1.0), kernel.request((4, 256, 0, stream)))

    assert fake.named("cuLaunchKernel")[0][8] == 55


def test_what_is_no_stream_is_told(fake: FakeDriver) -> None:
    kernel = saxpy(style="thread", launch=None)

    with pytest.raises(LaunchError, match="`stream`: expected a CUDA stream"):
        kernel.launch((*saxpy_arrays(), 1.0), kernel.request((4, 256, 0, "fast")))


def test_an_owner_that_still_writes_on_its_stream_is_waited_for(fake: FakeDriver) -> None:
    class Producing:
        def __init__(self) -> None:
            self.memory = to_device(np.ones(1000, np.float32), 1)
            self.__cuda_array_interface__ = self.memory.__cuda_array_interface__ | {"stream": 9}

    x, y = Producing(), Producing()
    kernel = saxpy()

    kernel.launch((x, y, 1.0))

    names = [name for name, *_ in fake.calls]
    assert fake.named("cuEventRecord") == [["event", 9]], "once for both"
    assert fake.named("cuStreamWaitEvent") == [[0, "event", 0]]
    assert names.index("cuStreamWaitEvent") < names.index("cuLaunchKernel")


def test_attributes_of_a_launch_reach_the_driver(fake: FakeDriver) -> None:
    config = sk.cuda.LaunchConfig(4, 256, cluster=2, programmatic=True)
    kernel = saxpy(style="thread", launch=None, block=None)

    kernel.launch((*saxpy_arrays(), 1.0), kernel.request(config))

    assert fake.attributes == [["CLUSTER_DIMENSION", "PROGRAMMATIC_STREAM_SERIALIZATION"]]


def test_attributes_that_a_gpu_is_too_old_for_are_told(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTRIBUTES, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", 8)
    driver.capability.cache_clear()
    kernel = saxpy(style="thread", launch=None, block=None)
    for changes, text in (({"cluster": (2, 1)}, r"cluster=\(2, 1, 1\)"), ({"programmatic": True}, "programmatic=True")):
        with pytest.raises(LaunchError, match=rf"LAUNCH_TOO_NEW.*\n.*\n.*|{text} needs compute capability 9.0"):
            kernel.launch((*saxpy_arrays(), 1.0), kernel.request(sk.cuda.LaunchConfig(4, 256, **changes)))


def test_attributes_are_numbered_and_laid_out_as_the_driver_does() -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    for name, number in tables.ATTRIBUTE_IDS.items():
        assert int(getattr(cuda.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")) == number
    row = tables.LaunchAttribute(tables.ATTRIBUTE_IDS["CLUSTER_DIMENSION"], 0, (2, 3, 1))
    theirs = cuda.CUlaunchAttribute(ctypes.addressof(row))
    assert theirs.id == cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (theirs.value.clusterDim.x, theirs.value.clusterDim.y, theirs.value.clusterDim.z) == (2, 3, 1)


def test_an_empty_grid_reaches_no_driver(fake: FakeDriver) -> None:
    saxpy().launch((empty(0, float32), empty(0, float32), 1.0))

    assert not fake.named("cuLaunchKernel")
    assert not fake.named("cuModuleLoadDataEx")


ASSERT = RecordSite("assert", "value {0}", (int64,), Loc(__file__, 1, 0, 1, 9, "kernel"))


@pytest.mark.parametrize("how", ["next launch", "synchronize"])
def test_a_failed_assert_is_raised_at_the_next_launch_or_synchronisation(fake: FakeDriver, how: str) -> None:
    kernel = CudaKernel(artifact("k", OUT, target="cuda", code=b"", block=(32, 1, 1), record_sites=(ASSERT,)))
    out = empty(3, int64)
    fake.parameter_count = 2
    kernel.launch((out,), kernel.request(1))
    ((_, buffer),) = fake.launched
    words = (ctypes.c_uint64 * 12).from_address(buffer)
    words[4:12] = [1, 2, 0, 0, 7, 0, 0, 42]  # as the kernel would
    words[0] = 12

    with pytest.raises(KernelAssertionError, match=r"value 42 \(block \(2, 0, 0\), thread \(7, 0, 0\)\)"):
        kernel.launch((out,), kernel.request(1)) if how == "next launch" else synchronize()

    kernel.launch((out,), kernel.request(1))
    synchronize()


def test_synchronize_waits_for_every_device_that_was_used(fake: FakeDriver) -> None:
    arrays = [empty(3, int64, device) for device in (0, 1)]
    fake.calls.clear()

    synchronize()

    assert [context for context, _ in fake.named("cuCtxRecordEvent")] == [100 + array.device for array in arrays]


# Device arrays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4)])
def test_a_copy_to_the_device_and_back_is_the_same(fake: FakeDriver, shape: Any, dtype: Any) -> None:
    host = np.arange(np.prod(shape)).reshape(shape).astype(dtype)

    there = to_device(host)
    back = there.to_host()

    np.testing.assert_array_equal(back, host)
    assert (back.dtype, there.shape) == (host.dtype, host.shape)
    assert there.strides == host.strides or not host.size
    names = ("ndim", "size", "nbytes", "itemsize")
    assert [getattr(there, name) for name in names] == [getattr(host, name) for name in names]


def test_a_strided_array_arrives_in_c_order(fake: FakeDriver) -> None:
    host = np.arange(24.0).reshape(4, 6)[::2, ::-1].T

    np.testing.assert_array_equal(to_device(host).to_host(), host)


def test_the_memory_is_freed_with_the_array_and_with_its_last_capsule(fake: FakeDriver) -> None:
    there = to_device(np.zeros(3))
    capsule = there.__dlpack__(stream=-1)
    del there
    gc.collect()
    assert len(fake.memory) == 1

    del capsule
    gc.collect()
    assert len(fake.memory) == 0


def test_another_shape_is_the_same_memory_until_both_are_gone(fake: FakeDriver) -> None:
    there = to_device(np.arange(6))
    turned = there.reshape((2, 3))

    assert (turned.shape, turned.strides, there.shape) == ((2, 3), (24, 8), (6,))
    with pytest.raises(sk.StagekitError, match="6 elements have no shape"):
        there.reshape((4,))
    del there
    gc.collect()
    np.testing.assert_array_equal(turned.to_host(), np.arange(6).reshape(2, 3))
    del turned
    gc.collect()
    assert len(fake.memory) == 0


def test_others_see_a_device_array(fake: FakeDriver) -> None:
    there = empty((2, 3), np.float32, device=1)

    assert there.__dlpack_device__() == (2, 1)
    assert there.__cuda_array_interface__["data"] == (there._address, False)
    assert there.__cuda_array_interface__["typestr"] == "<f4"
    assert repr(there) == "<DeviceArray float32 (2, 3) on cuda:1>"
    assert len(there) == 2


def test_our_dtypes_make_device_arrays_and_no_others_do(fake: FakeDriver) -> None:
    assert empty(3, bfloat16).dtype == np.dtype(ml_dtypes.bfloat16)
    assert empty([2, 3], "int16").shape == (2, 3)
    with pytest.raises(ArgumentError, match="complex256 has no counterpart"):
        to_device(np.zeros(3, np.clongdouble))


# The real driver ------------------------------------------------------------------------------------------------------


def test_importing_the_runtime_loads_no_driver() -> None:
    code = (
        "import sys, stagekit.runtime.cuda, stagekit.runtime.device_array, stagekit.runtime.cpu;"
        "sys.exit('cuda.bindings.driver' in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_gpu_nothing_breaks_until_one_is_needed() -> None:
    if driver.device_count():
        pytest.skip("there is a GPU")
    with pytest.raises(CudaError):
        to_device(np.zeros(3))
    synchronize()


PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mul.wide.s32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
"""
FILL = Signature(
    (array("out", float32, written=True), ScalarSpec("value", float32)),
    (ParamSlot("address", 0, float32), ParamSlot("value", 1, float32)),
)


def fill_kernel(code: bytes = PTX) -> CudaKernel:
    return CudaKernel(artifact("fill", FILL, target="cuda", capability=75, code=code, style="thread", block=None))


@pytest.mark.gpu
def test_a_kernel_runs_on_the_gpu() -> None:
    kernel, out = fill_kernel(), empty(64, float32)

    kernel.launch((out, 1.5), kernel.request((2, 32)))
    synchronize()

    np.testing.assert_array_equal(out.to_host(), 1.5)


@pytest.mark.gpu
def test_broken_ptx_is_refused_with_the_drivers_log() -> None:
    kernel, out = fill_kernel(PTX.replace(b"mad.lo", b"mud.lo")), empty(64, float32)

    with pytest.raises(CudaError, match="ptxas"):
        kernel.launch((out, 1.5), kernel.request((2, 32)))


@pytest.mark.gpu
def test_torch_and_stagekit_share_arrays_and_streams() -> None:
    torch = pytest.importorskip("torch")
    kernel, out = fill_kernel(), torch.zeros(64, device="cuda")

    with torch.cuda.stream(torch.cuda.Stream()):
        kernel.launch((out, 2.5), kernel.request((2, 32)))
        doubled = out * 2
    torch.cuda.synchronize()

    assert (doubled == 5).all()
    ours = to_device(np.arange(4, dtype=np.float32))
    assert torch.from_dlpack(ours).tolist() == [0, 1, 2, 3]


@pytest.mark.gpu
def test_no_brackets_and_no_arrays() -> None:
    code = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n"
    kernel = CudaKernel(
        artifact("nothing", NO_ARGUMENTS, target="cuda", capability=75, code=code, style="block", block=(32, 1, 1))
    )

    kernel.launch((), kernel.request(1))
    synchronize()
    with pytest.raises(LaunchError):
        kernel.launch((), NO_BRACKETS)
