"""The sanitizer on GPU arrays: they are copied to the host, checked there, and what has changed is copied back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import DType, dtype_from_numpy, element_dtype
from stagekit.runtime.device_array import DeviceArray
from stagekit.runtime.views import ArrayView, Device
from tests.runtime.fake_driver import FakeDriver, Status, installed


class Memory(FakeDriver):
    """Knows which of its addresses are allocated."""

    def cuPointerGetAttribute(self, attribute: str, address: int) -> tuple[Any, ...]:
        is_there = any(low <= address < low + len(block) for low, block in self.memory.items())
        return (0, 0) if is_there else (Status(1), None)


@pytest.fixture
def fake() -> Iterator[Memory]:
    made = Memory()
    with installed(made):
        yield made


class View:
    """Part of a `DeviceArray`, as torch and CuPy have them. strides, offset: in elements."""

    def __init__(
        self,
        whole: DeviceArray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int = 0,
        is_writable: bool = True,
    ) -> None:
        self.whole = whole
        seen = whole.__stagekit_view__()
        assert isinstance(seen.dtype, DType)
        address = seen.address + offset * seen.dtype.itemsize
        self.view = ArrayView(address, shape, strides, seen.dtype, Device("cuda", 0), is_writable)

    def __stagekit_view__(self) -> ArrayView:
        return self.view


@sk.jit
def shift(src, dst):
    i = sk.cuda.thread_idx("x")
    dst[i] = src[i] + 1


def numbers(count: int, dtype: Any = np.float32) -> Any:
    return np.arange(count).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.float64, ml_dtypes.bfloat16], ids=str)
def test_results_come_back(fake: Memory, dtype: Any) -> None:
    src, dst = sk.cuda.to_device(numbers(8, dtype)), sk.cuda.to_device(np.zeros(8, dtype))

    with sk.sanitize() as watch:
        shift[1, 8](src, dst)

    assert () == watch.findings
    assert (numbers(8, dtype) + 1).astype(dtype).tolist() == dst.to_host().tolist()
    assert fake.launched == []


def test_the_wrapper_and_the_switch_do_the_same(fake: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    src = sk.cuda.to_device(numbers(8))
    wrapped, switched = sk.cuda.to_device(np.zeros(8, np.float32)), sk.cuda.to_device(np.zeros(8, np.float32))

    sk.sanitize(shift)[1, 8](src, wrapped)
    monkeypatch.setenv("STAGEKIT_SANITIZE", "1")
    shift[1, 8](src, switched)

    assert wrapped.to_host().tolist() == switched.to_host().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_only_what_has_changed_is_copied_back(fake: Memory) -> None:
    src, dst = sk.cuda.to_device(numbers(8)), sk.cuda.to_device(numbers(64) + 1)
    fake.calls.clear()

    sk.sanitize(shift)[1, 8](src, View(dst, (64,), (1,)))

    assert [] == [
        (source, size) for _, source, size in fake.named("cuMemcpyHtoD")
    ]  # the same numbers are there already


def test_a_fault_is_found_before_anything_is_lost(fake: Memory) -> None:
    src, dst = sk.cuda.to_device(numbers(8)), sk.cuda.to_device(np.zeros(9, np.float32))

    with pytest.raises(sk.StagekitError, match=r"reads element 8 of `src`, which has 8 elements"):
        sk.sanitize(shift)[1, 9](src, dst)

    assert [1, 2, 3, 4, 5, 6, 7, 8, 1] == dst.to_host().tolist()  # the lane at fault read 0


@pytest.mark.parametrize("strides", [(1, 4), (12, 2), (-12, 2), (8, -1)], ids=str)
def test_strides_are_followed_and_gaps_stay_as_they_are(fake: Memory, strides: tuple[int, int]) -> None:
    @sk.jit
    def fill(dst):
        i, j = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
        dst[i, j] = 100 + 10 * i + j

    low = sum((n - 1) * s for n, s in zip((3, 4), strides) if s < 0)
    whole = sk.cuda.to_device(numbers(40))
    expected = numbers(40)
    for i in range(3):
        for j in range(4):
            expected[-low + i * strides[0] + j * strides[1]] = 100 + 10 * i + j

    sk.sanitize(fill)[1, (3, 4)](View(whole, (3, 4), strides, -low))

    assert expected.tolist() == whole.to_host().tolist()


def test_two_views_of_one_array_are_one_memory(fake: Memory) -> None:
    @sk.jit
    def race(a, b):
        i = sk.cuda.thread_idx("x")
        a[i] = b[i] + i

    whole = sk.cuda.to_device(numbers(65))
    watch = sk.sanitize(race, collect=True)

    watch[1, 64](View(whole, (64,), (1,)), View(whole, (64,), (1,), offset=1))

    assert {"BLOCK_RACE"} == {f.id for f in watch.report.findings}


@sk.jit
def next_and_mirrored(x, out, N: sk.constexpr):
    i = sk.arange(0, N)
    sk.store(out + i, sk.load(x + i) + 1)
    sk.store(out + N - 1 - i, sk.load(x + i))


@pytest.mark.parametrize("distance", [0, 1, 5, 40])
def test_a_block_level_kernel_does_its_statements_in_order_on_arguments_that_overlap(
    fake: Memory, distance: int
) -> None:
    given = np.arange(80, dtype=np.float32)
    whole = sk.cuda.to_device(given)

    sk.sanitize(next_and_mirrored)[1](View(whole, (40,), (1,)), View(whole, (40,), (1,), distance), 40)

    x, out = given[:40], given[distance : distance + 40]
    out[:] = x + 1
    out[::-1] = x.copy()
    assert whole.to_host().tolist() == given.tolist()


def test_views_that_do_not_overlap_race_with_nobody(fake: Memory) -> None:
    whole = sk.cuda.to_device(numbers(64))
    watch = sk.sanitize(shift)

    watch[1, 32](View(whole, (32,), (1,)), View(whole, (32,), (1,), offset=32))

    assert watch.report.is_clean
    assert (numbers(32) + 1).tolist() == whole.to_host()[32:].tolist()


def test_freed_memory_is_found_where_it_is_used(fake: Memory) -> None:
    src = sk.cuda.to_device(numbers(8))
    view, dst = View(src, (8,), (1,)), sk.cuda.to_device(np.zeros(8, np.float32))
    view.whole = dst
    del src
    gc.collect()

    with pytest.raises(
        sk.StagekitError, match=r"(?s)FREED_ACCESS.*reads element 0 of `src`, at address .* no array is alive"
    ):
        sk.sanitize(shift)[1, 8](view, dst)


def test_freed_memory_that_is_not_used_is_no_finding(fake: Memory) -> None:
    @sk.jit
    def some(src, dst, n):
        i = sk.cuda.thread_idx("x")
        dst[i] = src[i] if i < n else 0.0

    src = sk.cuda.to_device(numbers(8))
    view, dst = View(src, (8,), (1,)), sk.cuda.to_device(np.zeros(8, np.float32))
    view.whole = dst
    del src
    gc.collect()

    sk.sanitize(some)[1, 8](view, dst, 0)


def refusal(launch: Any) -> str:
    with pytest.raises(sk.ArgumentError) as caught:
        launch()
    return str(caught.value)


def test_what_a_gpu_launch_refuses_is_refused(fake: Memory) -> None:
    there, here = sk.cuda.to_device(numbers(8)), numbers(8)
    elsewhere = sk.cuda.to_device(numbers(8), device=1)
    read_only = View(there, (8,), (1,), is_writable=False)
    kernel = sk.sanitize(shift)

    assert "to_device(dst) copies it to the GPU" in refusal(lambda: kernel[1, 8](there, here))
    assert "DEVICE_MISMATCH" in refusal(lambda: kernel[1, 8](there, elsewhere))
    assert "READ_ONLY_OUTPUT" in refusal(lambda: kernel[1, 8](there, read_only))
    assert [] == fake.named("cuMemcpyDtoH")


def test_empty_arrays_and_single_numbers(fake: Memory) -> None:
    @sk.jit
    def first(src, dst):
        if len(src) > 0:
            dst[0] = src[0]

    empty, one = sk.cuda.to_device(np.zeros(0, np.float32)), sk.cuda.to_device(np.ones(1, np.float32))

    sk.sanitize(first)[1, 1](empty, one)

    assert [1] == one.to_host().tolist()


def test_the_interpreter_as_a_target_takes_gpu_arrays_too(fake: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", "interp")
    src, dst = sk.cuda.to_device(numbers(8)), sk.cuda.to_device(np.zeros(8, np.float32))

    shift[1, 8](src, dst)

    assert (numbers(8) + 1).tolist() == dst.to_host().tolist()


# -- other libraries' arrays in host memory ----------------------------------------------------------------------------


class Foreign:
    """An array that is not NumPy's, where a NumPy array is."""

    def __init__(self, array: Any, kind: Any = "cpu") -> None:
        self.array = array
        strides = tuple(step // array.itemsize for step in array.strides)
        dtype = dtype_from_numpy(array.dtype)
        assert dtype is not None
        self.view = ArrayView(array.ctypes.data, array.shape, strides, dtype, Device(kind), is_writable=True)

    def __stagekit_view__(self) -> ArrayView:
        return self.view


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.bool_], ids=str)
def test_arrays_of_other_libraries_are_worked_on_where_they_are(dtype: Any) -> None:
    src, dst = numbers(16, dtype)[::-2], np.zeros(16, dtype)[3:11]

    sk.sanitize(shift)[1, 8](Foreign(src), Foreign(dst))

    assert (src + 1).astype(dtype).tolist() == dst.tolist()


@pytest.mark.parametrize("launched", [shift, sk.sanitize(shift)], ids=["launched", "checked"])
def test_an_array_without_memory_is_refused(launched: Any) -> None:
    gone = Foreign(numbers(8))
    gone.view = gone.view._replace(address=0)

    with pytest.raises(sk.StagekitError, match=r"`src`: .* refused: it has elements, but its memory is at address 0"):
        launched[1, 8](gone, numbers(8))


def test_memory_that_is_neither_here_nor_on_a_gpu_of_ours_is_refused() -> None:
    assert "WRONG_DEVICE" in refusal(lambda: sk.sanitize(shift)[1, 8](Foreign(numbers(8), "other"), numbers(8)))


# -- on a GPU ---------------------------------------------------------------------------------------------------------


def of_stagekit(array: Any) -> Any:
    return sk.cuda.to_device(array), lambda there: there.to_host()


def of_torch(array: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(array).cuda(), lambda there: there.cpu().numpy()


def of_cupy(array: Any) -> Any:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray(array), lambda there: there.get()


@pytest.mark.gpu
@pytest.mark.parametrize("library", [of_stagekit, of_torch, of_cupy])
def test_arrays_of_each_library_on_a_gpu(library: Any) -> None:
    src, _ = library(numbers(64))
    dst, fetch = library(np.zeros(64, np.float32))
    short, _ = library(numbers(60))

    with sk.sanitize() as watch:
        shift[1, 64](src, dst)

    assert watch.report is not None
    assert watch.report.is_clean
    assert (numbers(64) + 1).tolist() == fetch(dst).tolist()
    with pytest.raises(sk.StagekitError, match=r"reads element 60 of `src`"):
        sk.sanitize(shift)[1, 64](short, dst)
    shift[1, 64](src, dst)  # the context lives on
    assert (numbers(64) + 1).tolist() == fetch(dst).tolist()


@pytest.mark.gpu
def test_strided_and_overlapping_tensors_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(64, dtype=torch.float32, device="cuda").reshape(8, 8)
    dst = torch.zeros(8, 8, dtype=torch.float32, device="cuda")
    column, out = whole[:, 3], dst.t()[2]

    sk.sanitize(shift)[1, 8](column, out)

    assert (whole[:, 3] + 1).tolist() == dst[:, 2].tolist()
    assert 0 == dst[:, :2].abs().sum().item()
    watch = sk.sanitize(shift, collect=True)
    watch[1, 64](whole.reshape(-1)[:63], whole.reshape(-1)[1:])
    assert {"BLOCK_RACE", "OUT_OF_BOUNDS"} == {f.id for f in watch.report.findings}


def test_dtypes_that_no_kernel_knows_are_refused_by_name(fake: Memory) -> None:
    assert element_dtype(np.dtype(np.clongdouble)) is None
    odd = View(sk.cuda.to_device(numbers(8)), (8,), (1,))
    odd.view = odd.view._replace(dtype="complex256")
    dst = sk.cuda.to_device(numbers(8))

    with pytest.raises(sk.ArgumentError, match="UNSUPPORTED_ARGUMENT"):
        sk.sanitize(shift)[1, 8](odd, dst)
