"""Native launches on GPUs, against a driver that notes what machine code asks of it."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import native_tables as tables
from stagekit.dtypes import float32, int64
from stagekit.hostexpr import HostOp, Slot
from stagekit.jit.native_launchers import NativeLaunchers
from stagekit.runtime import driver, native_process
from stagekit.runtime.args import read_array
from stagekit.runtime.checks import GpuReading
from stagekit.runtime.cuda import CudaKernel, _LoadedModule
from stagekit.runtime.device_array import DeviceArray, empty
from stagekit.runtime.errors import ArgumentError, CudaError
from stagekit.runtime.launch_config import LaunchRequest
from stagekit.runtime.native_process import CallShape, LaunchParameter
from stagekit.runtime.tensor_maps import TensorMaps
from stagekit.signature import LaunchAttributes, LaunchSpec, ParamSlot, ScalarSpec, Signature, TensorMapSpec
from tests.launch.fake_gpu import (
    STREAM_OF_FIRST,
    STREAM_OF_SECOND,
    CapsuleTensor,
    FakeNativeDriver,
    FakeTensor,
    ForeignTensor,
    OldCapsuleTensor,
)
from tests.runtime.fake_driver import installed
from tests.runtime.handmade import SAXPY, SAXPY_LAUNCH, array, artifact, signature_of

FACTOR = int(np.float32(1.5).view(np.uint32))

pytestmark = [
    pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here"),
    pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are"),
]


@pytest.fixture
def gpu() -> Iterator[FakeNativeDriver]:
    made = FakeNativeDriver()
    made.current = 100
    made.parameter_count = 4
    with installed(made):
        yield made


class General:
    """What stands for the general way: it notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "general"


class Launches:
    """A kernel, its native launcher, and the general way behind it."""

    def __init__(self, signature: Signature = SAXPY, key: Any = None, name: str = "saxpy", **changes: Any) -> None:
        fields = {"target": "cuda", "capability": 75, "code": b".version 8.0", "style": "entry", "launch": SAXPY_LAUNCH}
        self.kernel = CudaKernel(artifact(name, signature, **(fields | changes)))
        self.general = General()
        parameters = tuple(LaunchParameter(name, ..., place) for place, name in enumerate(signature.names))
        launchers = NativeLaunchers("saxpy", lambda key: self.general)
        for _ in range(2):
            launchers.offer(key, self.kernel, lambda: CallShape(parameters, 0))
        self.native = launchers.without_brackets if key is None else launchers.find(key)
        assert self.native is not None

    def load(self, *devices: int) -> Launches:
        """Have the kernel's module on these devices."""
        for device in devices:
            with driver.on_device(device):
                self.kernel._modules[device] = _LoadedModule(self.kernel.artifact, device)
                self.kernel._tell_native(device, self.kernel._modules[device])
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.native(*args, **kwargs)


def test_tensors_are_read_and_the_kernel_is_enqueued_on_their_current_stream(gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0)

    assert launch(FakeTensor((1000,), (1,)), FakeTensor((1000,), (1,), address=0x20000), 1.5) is None

    grid_and_block = [4, 1, 1, 256, 1, 1, 0]
    ((*launched, (*words, factor)),) = gpu.native
    assert launched == [1100, 100, grid_and_block, STREAM_OF_FIRST]
    assert words == [0x10000, 1000, 0x20000]
    assert factor & 0xFFFFFFFF == FACTOR, "above a value, its word may hold anything"
    assert not launch.general.calls


def test_tensor_maps_are_built_as_the_general_way_builds_them_and_what_has_none_goes_there(gpu: Any) -> None:
    half = HostOp("floordiv", (Slot(1), 2))
    spec = TensorMapSpec("x", 0, Slot(0), (2, half), (half, 1), float32, (2, 32), 128, "nan", is_written=True)
    launch = Launches(dataclasses.replace(SAXPY, maps=(spec, dataclasses.replace(spec, number=1, swizzle=0)))).load(0)
    gpu.parameter_count = 6
    own = (ctypes.c_uint8 * 192)()

    launch(FakeTensor((1000,), (1,)), FakeTensor((1000,), (1,), address=0x20000), 1.5)
    start = ctypes.addressof(own)
    TensorMaps("saxpy", (spec,)).encode([0x10000, 1000, 0x20000, 1.5], [start + -start % 64])

    ((*_, (*_, first, second)),) = gpu.native
    assert (first, second) == (0, 1)
    plain, unswizzled, general = gpu.maps
    assert plain == general == (7, 2, 0x10000, (500, 2), (2000,), (32, 2), (1, 1), (0, 3, 2, 1))
    assert unswizzled[-1] == (0, 0, 2, 1)
    for size, address in ((12, 0x10000), (1000, 0x10004), (0, 0x10000)):
        gpu.native.clear()
        launch(FakeTensor((size,), (1,), address=address), FakeTensor((size,), (1,), address=0x20000), 1.5)
        assert not gpu.native
    assert len(launch.general.calls) == 3

    row = dataclasses.replace(spec, shape=(Slot(1),), strides=(1,), box=(32,), swizzle=0)
    for is_written, launched in ((True, [1]), (False, [1, 1])):
        launch = Launches(dataclasses.replace(SAXPY, maps=(dataclasses.replace(row, is_written=is_written),))).load(0)
        gpu.parameter_count = 5
        gpu.native.clear()
        for size in (1000, 1001):
            launch(FakeTensor((size,), (1,)), FakeTensor((size,), (1,), address=0x20000), 1.5)
        assert [1 for _ in gpu.native] == launched, "the end of a row of 4004 bytes would be written over"


def test_attributes_reach_the_driver_and_a_grid_that_clusters_do_not_divide_goes_the_general_way(gpu: Any) -> None:
    own = dataclasses.replace(SAXPY_LAUNCH, attributes=LaunchAttributes((2, 1, 1), programmatic=True))
    config = sk.cuda.LaunchConfig(4, 256, cluster=(2, 1))
    for launch, expected in (
        (Launches(launch=own), [(4, (2, 1, 1)), (6, (1, 0, 0))]),
        (Launches(key=config, launch=None, style="thread"), [(4, (2, 1, 1))]),
        (Launches(), []),
    ):
        x, y = empty((1000,), float32), empty((1000,), float32)
        assert launch.load(0)(x, y, 1.5) is None
        assert gpu.attributes[-1] == expected

    x, y = empty((600,), float32), empty((600,), float32)
    assert Launches(launch=own).load(0)(x, y, 1.5) == "general", "three blocks"


def test_a_device_array_of_ours_is_read_without_a_call(gpu: FakeNativeDriver) -> None:
    launch, (x, y) = Launches().load(0), (empty((300,), float32), empty((300,), float32))

    assert launch(x, k=1.5, y=y) is None

    ((_, _, _, stream, (*words, _)),) = gpu.native
    assert (stream, words) == (0, [x._address, 300, y._address])


def test_the_second_gpu_has_its_own_module_and_its_context_is_left_as_it_was(gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0, 1)
    tensors = [FakeTensor((10,), (1,), device=1) for _ in range(2)]

    launch(*tensors, 1.5)

    ((function, context, _, stream, _),) = gpu.native
    assert (function, context, stream) == (1101, 101, STREAM_OF_SECOND)
    assert gpu.current == 100


def test_an_empty_grid_launches_nothing(gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0)

    assert launch(FakeTensor((0,)), FakeTensor((0,)), 1.5) is None

    assert not gpu.native
    assert not launch.general.calls


OWN_BLOCK = signature_of(ScalarSpec("threads", int64))


@pytest.mark.parametrize("key", [(0, 64), ((1, 0), 64), (1, 0), (1, (64, 1, 0)), (1, (0, 0))])
def test_brackets_with_a_zero_launch_nothing(key: Any, gpu: FakeNativeDriver) -> None:
    launch = Launches(STRIDED, key=key, style="thread", launch=None, block=None).load(0)

    assert launch(FakeTensor((3, 5), (10, 1))) is None

    assert not gpu.native
    assert not launch.general.calls


@pytest.mark.parametrize("axis", range(3))
def test_a_block_of_run_time_threads_launches_nothing_where_there_are_none(axis: int, gpu: FakeNativeDriver) -> None:
    gpu.parameter_count = 1
    block = tuple(Slot(0) if i == axis else 2 for i in range(3))
    own = LaunchSpec((1,) * 3, block, 0)
    launch = Launches(OWN_BLOCK, launch=own, block=None).load(0)

    assert launch(0) is None
    assert not gpu.native
    assert launch(2) is None
    assert len(gpu.native) == 1
    assert launch(-1) == "general"


def test_the_drivers_refusal_is_an_error(gpu: FakeNativeDriver) -> None:
    launch, gpu.status = Launches().load(0), 700

    with pytest.raises(CudaError, match="cuLaunchKernel"):
        launch(FakeTensor((10,)), FakeTensor((10,)), 1.5)


def test_the_kernel_launched_last_is_known_and_a_refused_launch_is_none(gpu: FakeNativeDriver) -> None:
    """R28: what the driver reports at a launch is the fault of a kernel before it."""
    before, after = (Launches(name=name).load(0, 1) for name in ("before", "after"))
    tensors = [(FakeTensor((10,), device=d), FakeTensor((10,), device=d), 1.5) for d in (0, 1)]
    after(*tensors[0])
    before(*tensors[0])
    after(*tensors[1])
    gpu.broken, gpu.status = {100: 700}, 700

    with pytest.raises(CudaError, match="cuda:0: the kernel launched last there is `before`"):
        after(*tensors[0])


RIGHT = FakeTensor((10,), (1,))
GENERAL = {
    "a GPU without the module": (FakeTensor((10,), device=1), FakeTensor((10,), device=1), 1.0),
    "two GPUs": (RIGHT, FakeTensor((10,), device=1), 1.0),
    "no such GPU": (FakeTensor((10,), device=99), FakeTensor((10,), device=99), 1.0),
    "on the CPU": (RIGHT, FakeTensor((10,), kind=1), 1.0),
    "pinned": (RIGHT, FakeTensor((10,), kind=3), 1.0),
    "another dtype": (FakeTensor((10,), code=(2, 64)), RIGHT, 1.0),
    "another rank": (FakeTensor((10, 1)), RIGHT, 1.0),
    "another size": (RIGHT, FakeTensor((11,)), 1.0),
    "with gaps": (FakeTensor((10,), (2,)), RIGHT, 1.0),
    "a reader that fails": (type("T", (FakeTensor,), {})((10,)), RIGHT, 1.0),
    "NumPy": (np.ones(10, np.float32), RIGHT, 1.0),
    "a list": ([1.0], RIGHT, 1.0),
    "too few": (RIGHT, RIGHT),
    "too many": (RIGHT, RIGHT, 1.0, 1.0),
    "negated": (FakeTensor((1,), (1,), is_negated=True), FakeTensor((1,), (1,)), 1.0),
    "perhaps read-only": (RIGHT, ForeignTensor((10,), (1,)), 1.0),
}


@pytest.mark.parametrize("what", GENERAL)
def test_the_general_way_is_asked_about(what: str, gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0)

    assert launch(*GENERAL[what]) == "general"

    assert launch.general.calls == [(GENERAL[what], {})]
    assert not gpu.native


def test_a_tensor_that_cannot_be_read_goes_the_general_way(gpu: FakeNativeDriver) -> None:
    launch, broken = Launches().load(0), FakeTensor((10,))
    broken.fails = True

    assert launch(broken, RIGHT, 1.0) == "general"


def test_a_foreign_tensor_is_read_where_nothing_is_written(gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0)

    assert launch(ForeignTensor((10,), (1,)), RIGHT, 1.0) is None
    assert len(gpu.native) == 1


def test_one_element_may_be_negated_and_mostly_is_not(gpu: FakeNativeDriver) -> None:
    launch = Launches().load(0)

    assert launch(FakeTensor((1,), (1,)), FakeTensor((1,), (1,)), 1.0) is None
    assert len(gpu.native) == 1


STRIDED = signature_of(array("x", shape=(None, None), contiguous=False, written=True))


def strided_launches() -> Launches:
    return Launches(STRIDED, key=(2, 64), style="thread", launch=None, block=None).load(0)


def test_strides_are_parameters(gpu: FakeNativeDriver) -> None:
    gpu.parameter_count, launch = 5, strided_launches()

    assert launch(FakeTensor((3, 5), (10, 1), address=64)) is None

    ((_, _, sizes, _, parameters),) = gpu.native
    assert (sizes, parameters) == ([2, 1, 1, 64, 1, 1, 0], (64, 3, 5, 10, 1))


@pytest.mark.parametrize("strides", [(5, 1), None], ids=["packed", "no strides"])
def test_an_array_without_gaps_has_another_specialisation(strides: Any, gpu: FakeNativeDriver) -> None:
    assert strided_launches()(FakeTensor((3, 5), strides)) == "general"


def test_a_stream_in_the_brackets_is_the_one(gpu: FakeNativeDriver) -> None:
    gpu.parameter_count = 5
    launch = Launches(STRIDED, key=(2, 64, 0, 4242), style="thread", launch=None, block=None).load(0)

    launch(FakeTensor((3, 5), (10, 1)))

    assert gpu.native[0][3] == 4242


def test_more_shared_memory_than_was_allowed_is_allowed_by_the_general_way(gpu: FakeNativeDriver) -> None:
    gpu.parameter_count = 5
    launch = Launches(STRIDED, key=(2, 64, 60_000), style="thread", launch=None, block=None).load(0)
    tensor = FakeTensor((3, 5), (10, 1))
    assert launch(tensor) == "general"

    size = launch.kernel.request((2, 64, 60_000)).size
    with launch.kernel._ready(GpuReading(lambda device: 0, device=0), size):  # type: ignore[arg-type]
        pass
    assert launch(tensor) is None

    assert gpu.native[0][2][-1] == 60_000


def test_a_prepared_launch_asks_for_the_stream_each_time(gpu: FakeNativeDriver) -> None:
    Launches()  # so that the machine code is there
    kernel = Launches().kernel
    x, y = empty((300,), float32), empty((300,), float32)

    launch = kernel.prepare((x, y, 1.5), LaunchRequest(), pytest.fail)
    del x
    for _ in range(2):
        assert launch() is None

    first, second = gpu.native
    assert first == second
    assert first[2:] == ([2, 1, 1, 256, 1, 1, 0], 0, first[4])
    assert first[4][1] == 300


def test_the_struct_of_a_device_array_says_what_the_array_says(gpu: FakeNativeDriver) -> None:
    made = DeviceArray((3, 4), float32, 1)

    tensor = made._tensor
    assert (tensor.data, tensor.device_id, tensor.ndim) == (made._address, 1, 2)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([3, 4], [4, 1])


def test_a_kernel_without_arrays_runs_where_the_current_context_is(gpu: FakeNativeDriver) -> None:
    gpu.parameter_count, signature = 1, Signature((ScalarSpec("n", int64),), (ParamSlot("value", 0, int64),))
    launch = Launches(signature, key=(1, 64), style="thread", launch=None, block=None).load(0, 1)

    gpu.current = 101
    launch(7)
    gpu.current = 102
    assert launch(7) == "general"

    ((function, context, _, _, parameters),) = gpu.native
    assert (function, context, parameters) == (1101, 101, (7,))


@pytest.fixture
def capsules(gpu: FakeNativeDriver) -> Iterator[None]:
    """Tensors of these types have been read before, and every capsule of theirs is freed."""
    for kind in (CapsuleTensor, OldCapsuleTensor):
        read_array(kind((1,)), lambda device: 0)
    CapsuleTensor.made = CapsuleTensor.freed = 0
    yield
    assert CapsuleTensor.made == CapsuleTensor.freed


@pytest.mark.parametrize("strides", [(1,), None], ids=["strides", "no strides"])
@pytest.mark.parametrize("major", [0, 1])
def test_the_capsule_of_an_array_is_read_and_its_owner_told_the_stream(
    strides: Any, major: int, gpu: FakeNativeDriver, capsules: None
) -> None:
    """Stream 0 is spelt 1 in the protocol: the legacy default stream."""
    launch = Launches().load(0, 1)
    x, y = (CapsuleTensor((1000,), strides, address=a, device=1, major=major) for a in (0x10000, 0x20000))

    assert launch(x, y, 1.5) is None

    ((function, context, _, stream, (*words, _)),) = gpu.native
    assert (function, context, stream) == (1101, 101, 0)
    assert words == [0x10000, 1000, 0x20000]
    assert x.asked == y.asked == [{"stream": 1, "max_version": (1, 0), "copy": False}]
    assert not launch.general.calls


def test_an_owner_of_before_versions_is_told_the_stream_alone(gpu: FakeNativeDriver, capsules: None) -> None:
    launch, x = Launches().load(0), OldCapsuleTensor((1000,), (1,))

    assert launch(x, x, 1.5) is None

    assert len(gpu.native) == 1
    assert x.asked == [{"stream": 1}] * 2


def test_a_stream_in_the_brackets_is_told_to_the_owner(gpu: FakeNativeDriver, capsules: None) -> None:
    gpu.parameter_count, tensor = 5, CapsuleTensor((3, 5), (10, 1))
    launch = Launches(STRIDED, key=(2, 64, 0, 4242), style="thread", launch=None, block=None).load(0)

    assert launch(tensor) is None

    ((*_, stream, parameters),) = gpu.native
    assert stream == tensor.asked[0]["stream"] == 4242
    assert parameters[1:] == (3, 5, 10, 1)


def test_the_stream_of_the_first_that_has_one_is_told_to_who_has_none(gpu: FakeNativeDriver, capsules: None) -> None:
    launch, with_stream, without = Launches().load(0), FakeTensor((10,), (1,)), CapsuleTensor((10,), (1,))

    assert launch(with_stream, without, 1.5) is None
    assert launch(without, with_stream, 1.5) == "general"

    assert gpu.native[0][3] == without.asked[0]["stream"] == STREAM_OF_FIRST


class Refusing(CapsuleTensor):
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("not today")


GENERAL_CAPSULES = {
    "read-only": CapsuleTensor((10,), (1,), is_read_only=True),
    "a later DLPack": CapsuleTensor((10,), (1,), major=2),
    "on another GPU": CapsuleTensor((10,), (1,), device=1),
    "another size": CapsuleTensor((11,), (1,)),
    "another rank": CapsuleTensor((10, 1), (1, 1)),
    "another dtype": CapsuleTensor((10,), (1,), code=(2, 64)),
    "with gaps": CapsuleTensor((10,), (2,)),
    "on the CPU": CapsuleTensor((10,), (1,), kind=1),
    "consumed": CapsuleTensor((10,), (1,), name=b"used_dltensor_versioned"),
    "refusing": Refusing((10,), (1,)),
}


@pytest.mark.parametrize("what", GENERAL_CAPSULES)
def test_the_general_way_is_asked_about_a_capsule(what: str, gpu: FakeNativeDriver, capsules: None) -> None:
    launch, tensor, right = Launches().load(0, 1), GENERAL_CAPSULES[what], CapsuleTensor((10,), (1,))
    native_process.offer_capsules(Refusing, 0, is_versioned=True)

    assert launch(right, tensor, 1.5) == "general"

    assert launch.general.calls == [((right, tensor, 1.5), {})]
    assert not gpu.native


@pytest.mark.parametrize("answer", [None, 2, (), (2,), ("2", 0), (2, "0"), (2, 1 << 40), (1, 0), (2, 1), (2, -1)])
def test_a_strange_device_is_refused_by_the_general_way(answer: Any, gpu: FakeNativeDriver, capsules: None) -> None:
    launch, tensor = Launches().load(0, 1), CapsuleTensor((10,), (1,))
    tensor.device = answer

    assert launch(tensor, tensor, 1.5) == "general"
    with pytest.raises(ArgumentError, match="UNREADABLE_ARRAY"):
        launch.kernel.launch((tensor, tensor, 1.5))
    assert not gpu.native


def freed_when_launched(gpu: FakeNativeDriver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that will hold, of each launch, how many capsules had been freed when the driver was called."""
    freed: list[int] = []
    gpu.on_launch = lambda: freed.append(CapsuleTensor.freed)
    monkeypatch.setattr(gpu, "do_cuLaunchKernel", lambda *_: gpu.on_launch())
    return freed


def test_capsules_live_until_the_kernel_is_enqueued(
    gpu: FakeNativeDriver, capsules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, tensor = Launches().load(0), CapsuleTensor((10,), (1,))
    freed = freed_when_launched(gpu, monkeypatch)

    launch(tensor, tensor, 1.5)
    assert CapsuleTensor.freed == 2
    launch.kernel.launch((tensor, tensor, 1.5))
    assert CapsuleTensor.freed == 4

    assert freed == [0, 2]


def test_capsules_live_as_long_as_a_prepared_launch(
    gpu: FakeNativeDriver, capsules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, tensor = Launches().kernel, CapsuleTensor((10,), (1,))
    freed = freed_when_launched(gpu, monkeypatch)

    launch = kernel.prepare((tensor, tensor, 1.5), LaunchRequest(), pytest.fail)
    launch()
    launch()
    assert freed == [0, 0]
    del launch
    assert CapsuleTensor.freed == 2


def test_capsules_are_freed_where_the_driver_refuses_the_launch(gpu: FakeNativeDriver, capsules: None) -> None:
    launch, tensor, gpu.status = Launches().load(0), CapsuleTensor((10,), (1,)), 1

    with pytest.raises(CudaError):
        launch(tensor, tensor, 1.5)

    assert CapsuleTensor.freed == 2


@pytest.mark.parametrize("method", ["__dlpack__", "__dlpack_device__"])
def test_an_interrupt_while_an_owner_answers_is_raised(
    method: str, gpu: FakeNativeDriver, capsules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    launch, first, tensor = Launches().load(0), CapsuleTensor((10,), (1,)), OldCapsuleTensor((10,), (1,))
    monkeypatch.setattr(OldCapsuleTensor, method, interrupted)

    with pytest.raises(KeyboardInterrupt):
        launch(first, tensor, 1.5)
    assert not launch.general.calls


class FakeCupy:
    """As much of CuPy as is looked at: arrays that speak DLPack without the exchange API, and a current stream."""

    class ndarray(CapsuleTensor):
        pass

    cuda = SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=9000 + device))


@pytest.fixture
def cupy(capsules: None, monkeypatch: pytest.MonkeyPatch) -> type[FakeCupy]:
    """Its arrays have been read before."""
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy)  # type: ignore[arg-type]
    read_array(FakeCupy.ndarray((1,)))
    return FakeCupy


def test_cupys_arrays_are_launched_on_cupys_stream(gpu: FakeNativeDriver, cupy: type[FakeCupy]) -> None:
    """By native code and the general way; who made the array orders it before the launch."""
    launch, array = Launches().load(0, 1), cupy.ndarray((1000,), (1,), device=1)

    assert launch(array, array, 1.5) is None
    launch.kernel.launch((array, array, 1.5))

    ((_, _, sizes, stream, _),) = gpu.native
    assert (sizes[:6], stream) == ([4, 1, 1, 256, 1, 1], 9001)
    ((_, *sizes, stream, _, _),) = gpu.named("cuLaunchKernel")
    assert (sizes[:6], stream) == ([4, 1, 1, 256, 1, 1], 9001)
    assert [options["stream"] for options in array.asked] == [9001] * 4


def test_a_stream_in_the_brackets_is_told_to_cupy(gpu: FakeNativeDriver, cupy: type[FakeCupy]) -> None:
    launch = Launches(STRIDED, key=(2, 64, 0, 4242), style="thread", launch=None, block=None).load(0)
    array = cupy.ndarray((3, 5), (10, 1))

    launch.kernel.launch((array,), launch.kernel.request((2, 64, 0, 4242)))

    assert [options["stream"] for options in array.asked] == [4242]
    assert gpu.named("cuLaunchKernel")[0][8] == 4242


def test_a_prepared_launch_of_cupys_arrays_asks_cupy_for_the_stream_each_time(
    gpu: FakeNativeDriver, cupy: type[FakeCupy], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, array = Launches().kernel, cupy.ndarray((300,), (1,))
    launch = kernel.prepare((array, array, 1.5), LaunchRequest(), pytest.fail)
    asked = len(array.asked)

    for stream in (1, 2):
        monkeypatch.setattr(FakeCupy.cuda, "get_current_stream", lambda _, ptr=stream: SimpleNamespace(ptr=ptr))
        launch()

    assert [call[3] for call in gpu.native] == [1, 2]
    assert len(array.asked) == asked, "its arguments were read once"


def test_the_general_way_is_taken_where_cupy_cannot_tell_its_stream(
    gpu: FakeNativeDriver, cupy: type[FakeCupy], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, array = Launches().load(0), cupy.ndarray((300,), (1,))
    monkeypatch.setattr(FakeCupy, "cuda", None)

    assert launch(array, array, 1.5) == "general"


def test_the_settings_of_a_launch_are_where_the_driver_reads_them() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    made = bindings.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ, made.blockDimX, made.blockDimY, made.blockDimZ = range(1, 7)
    made.sharedMemBytes, made.hStream = 7, 8

    memory = ctypes.string_at(made.getPtr(), tables.LAUNCH_BYTES)

    words = {name: int.from_bytes(memory[at : at + 4], "little") for name, at in tables.LAUNCH.items()}
    assert list(words.values()) == [1, 2, 3, 4, 5, 6, 7, 8, 0, 0]


def test_each_entry_is_enqueued_with_its_own_code_block_and_grid(gpu: FakeNativeDriver) -> None:
    @sk.jit
    def kernel(out, n: sk.int32):
        block = 64 if sk.speculate(out, multiple_of=16) else 32
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(out.shape[0], block), block=block))
        out[0] = n

    gpu.parameter_count = 3
    tensors = {64: CapsuleTensor((100,), address=0x10000), 32: CapsuleTensor((100,), address=0x10004)}
    for tensor in (*tensors.values(), *tensors.values()):
        kernel(tensor, 5)
    gpu.native.clear()

    for block, tensor in (*tensors.items(), *reversed(tensors.items())):
        kernel(tensor, 5)
        ((_, _, sizes, _, parameters),) = gpu.native
        assert sizes == [-(-100 // block), 1, 1, block, 1, 1, 0]
        assert parameters[:2] == (0x10000 + 4 * (block == 32), 100)
        gpu.native.clear()
