"""Whoever made an array, the launcher sees the same: address, shape, element strides, dtype, device (case T11)."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from stagekit.dtypes import ALL_DTYPES, DType, dtype_from_numpy, float32, float64
from stagekit.runtime import args, driver, native_process, views
from stagekit.runtime.args import read_array
from stagekit.runtime.views import CPU, ArrayView, Device

Array = np.ndarray[Any, Any]


class Exporter:
    """An array of "another library" that speaks the current DLPack protocol."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class OldExporter(Exporter):
    """The same before 2023.12: neither `max_version` nor `copy`."""

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.array.__dlpack__(stream=stream)


class OwnExporter(Exporter):
    """The same through our own capsules."""

    def __dlpack__(self, **_: Any) -> Any:
        view = read_array(self.array)
        assert view is not None
        return views.wrap(view, self)


class CudaInterface:
    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (4096, False),
            "strides": None,
        } | changes


@st.composite
def numpy_views(draw: st.DrawFn) -> Array:
    """Strided, reversed, transposed and empty views."""
    base = np.arange(240.0, dtype=draw(st.sampled_from(["f4", "f8", "i2"]))).reshape(2, 3, 8, 5)
    view = base[draw(npst.basic_indices(base.shape, allow_ellipsis=False, allow_newaxis=True))]
    view = np.asarray(view)
    return view.transpose(draw(st.permutations(range(view.ndim))))


@given(numpy_views())
@settings(max_examples=100, deadline=None)
def test_a_numpy_view_is_read_as_numpy_describes_it(array: Array) -> None:
    view = read_array(array)

    assert view is not None
    assert view.address == array.__array_interface__["data"][0]
    assert view.shape == array.shape
    assert view.strides is not None
    assert tuple(s * array.itemsize for s in view.strides) == array.strides
    assert view.dtype is dtype_from_numpy(array.dtype)
    assert view.device == CPU
    assert view.is_contiguous == array.flags.c_contiguous


@pytest.mark.parametrize("exporter", [Exporter, OldExporter, OwnExporter])
@given(array=numpy_views())
@settings(max_examples=60, deadline=None)
def test_dlpack_gives_the_same_view(exporter: type[Exporter], array: Array) -> None:
    ours, theirs = read_array(array), read_array(exporter(array))

    assert ours is not None
    assert theirs is not None
    assert theirs[:5] == ours[:5] or (not array.size and theirs.shape == ours.shape)


@pytest.mark.parametrize("exporter", [Exporter, OwnExporter])
def test_peeking_takes_nothing_and_keeps_nothing(exporter: type[Exporter]) -> None:
    array = np.zeros(3)
    before = sys.getrefcount(array)

    for _ in range(10):
        read_array(exporter(array))
    gc.collect()

    assert sys.getrefcount(array) == before
    assert not views._exported


def test_others_can_consume_our_capsules() -> None:
    array = np.arange(12.0).reshape(3, 4)[:, ::2]
    copy = np.from_dlpack(OwnExporter(array))

    np.testing.assert_array_equal(copy, array)
    assert len(views._exported) == 1
    del copy
    assert not views._exported


def test_dlpack_read_only_is_seen() -> None:
    array = np.zeros(3)
    array.flags.writeable = False

    view = read_array(Exporter(array))

    assert view is not None
    assert not view.is_writable


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_every_dtype_is_recognised_through_numpy_and_dlpack_codes(dtype: DType) -> None:
    view = read_array(np.zeros(2, dtype.numpy))

    assert view is not None
    assert view.dtype is dtype
    assert views._DTYPES[dtype.dlpack, dtype.itemsize * 8] is dtype


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (np.zeros(2, ">f4"), ">f4"),
        (np.zeros(2, "M8[s]"), "datetime64[s]"),
        (np.zeros(2, "O"), "object"),
        (np.zeros(2, [("a", "i4")]), "[('a', '<i4')]"),
        (np.zeros(2, np.clongdouble), "complex256"),
        (np.zeros(2, ml_dtypes.float8_e4m3b11fnuz), "float8_e4m3b11fnuz"),
    ],
)
def test_a_foreign_dtype_keeps_its_name(array: Any, name: str) -> None:
    assert str(read_array(array)).startswith(f"an array of {name}")


def test_a_step_of_part_of_an_element_is_seen() -> None:
    field = np.zeros(4, [("a", "f8"), ("b", "i1")])["a"]  # steps of 9 bytes

    view = read_array(field)

    assert view is not None
    assert view.strides is None
    assert not view.is_contiguous
    one = read_array(field[:1])
    assert one is not None
    assert one.is_contiguous, "a step that is never taken does not matter"


@pytest.mark.parametrize("value", [None, 3, [1, 2], (1.0,), "abc", b"abc", np.float32(3), object(), {}])
def test_what_is_no_array_is_none(value: Any) -> None:
    assert read_array(value) is None


def test_cuda_array_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "device_of_address", lambda address: address // 4096)

    view = read_array(CudaInterface())
    strided = read_array(CudaInterface(strides=(32, 8), data=(8192, True), stream=5))

    assert view == ArrayView(4096, (2, 3), (3, 1), float32, Device("cuda", 1), True)
    assert strided == ArrayView(8192, (2, 3), (8, 2), float32, Device("cuda", 2), False, stream=5)


def test_a_gpu_owner_is_told_which_stream_will_read() -> None:
    """Stream 0 is spelt 1 in the protocol: the legacy default stream."""
    told = []

    class OnGpu(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 3

        def __dlpack__(self, *, stream: int, **_: Any) -> Any:
            told.append(stream)
            return views.wrap(ArrayView(512, (2,), (1,), float64, Device("cuda", 3), True), self)

    array = OnGpu(np.zeros(2))
    for stream in (0, 77):
        view = read_array(array, lambda device, stream=stream: stream)
        assert view is not None
        assert view.device == Device("cuda", 3)

    assert told == [1, 77]


def test_plain_torch_tensors_take_the_short_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of torch only, since torch is not needed to test."""

    class Tensor:
        device = types.SimpleNamespace(type="cuda", index=1)
        dtype = "torch.float64"
        shape = (2, 3)

        def is_neg(self) -> bool:
            return False

        is_conj = is_neg

        def data_ptr(self) -> int:
            return 512

        def stride(self) -> tuple[int, ...]:
            return (1, 2)

    torch: Any = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.nn = types.SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))
    torch.float64 = "torch.float64"
    monkeypatch.setitem(sys.modules, "torch", torch)
    args._torch_dtypes.cache_clear()

    view = read_array(Tensor())

    args._torch_dtypes.cache_clear()
    assert view == ArrayView(512, (2, 3), (1, 2), float64, Device("cuda", 1), True)


def test_real_torch_tensors_and_views() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6)[1:, ::2]

    view = read_array(tensor)

    assert view == ArrayView(tensor.data_ptr(), (3, 3), (6, 2), float32, CPU, True)


@given(numpy_views())
@settings(max_examples=60, deadline=None)
def test_the_address_of_a_numpy_array_is_read_from_the_object(array: Array) -> None:
    assert args.address_of(array) == array.ctypes.data


def test_the_layout_of_this_numpy_is_known() -> None:
    assert native_process.has_array_layout()
