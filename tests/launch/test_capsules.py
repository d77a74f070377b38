"""Capsules that few libraries make: a native launcher reads those that fit, and leaves the others to the general way."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import native_tables as tables
from stagekit.jit.launchable import Launcher
from stagekit.runtime import native_process, views

pytestmark = [
    pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here"),
    pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are"),
]

n = sk.dynamic("n")
OLD, VERSIONED = b"dltensor", b"dltensor_versioned"
OPENCL = 4


@sk.function
def fill(out: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 64), block=64))
    i = sk.cuda.block_idx("x") * 64 + sk.cuda.thread_idx("x")
    if i < n:
        out[i] = 5


@sk.function
def double(x: sk.Tensor((n,), sk.float32), out: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 64), block=64))
    i = sk.cuda.block_idx("x") * 64 + sk.cuda.thread_idx("x")
    if i < n:
        assert x[i] < 1000
        out[i] = x[i] * 2


class Owner:
    """Hands out capsules of this name, in which `fields` stand in place of what is so."""

    def __init__(self, array: Any, name: bytes = VERSIONED, **fields: Any) -> None:
        self.array, self.name = array, ctypes.create_string_buffer(name)
        axes = ctypes.c_int64 * array.ndim
        shape, strides = axes(*array.shape), axes(*(step // array.itemsize for step in array.strides))
        own = {"data": array.ctypes.data, "device_type": 1, "ndim": array.ndim, "code": 2, "bits": 32, "lanes": 1}
        given = {"major": 1, **own, "shape": shape, "strides": strides, **fields}
        header = {word: given.pop(word) for word in ("major", "minor", "flags") if word in given}
        given["data"] -= given.get("byte_offset", 0)
        tensor = views._DlTensor(**given)
        self.managed = views._Managed(tensor) if name == OLD else views._Versioned(**header, tensor=tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
        return views._new_capsule(ctypes.addressof(self.managed), self.name, None)


@pytest.fixture(autouse=True)
def _kernels_are_launched_natively() -> None:
    for _ in range(3):
        fill(Owner(np.zeros(8, np.float32)))
        double(Owner(np.zeros(8, np.float32)), np.zeros(8, np.float32))
    assert fill._native.without_brackets is not None
    assert double._native.without_brackets is not None


FITTING: dict[str, dict[str, Any]] = {
    "as it is": {},
    "before version 1": {"name": OLD},
    "a later minor version": {"minor": 9},
    "the flag of a copy": {"flags": 2},
    "no strides": {"strides": None},
    "an offset": {"byte_offset": 64},
}


@pytest.mark.parametrize("fields", FITTING.values(), ids=FITTING)
def test_a_capsule_that_fits_is_read_natively(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(100, np.float32)
    monkeypatch.setattr(type(fill), "_launch", lambda *_: pytest.fail("the general way"))

    fill(Owner(array, **fields))

    assert (array == 5).all()


def test_an_empty_array_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fill), "_launch", lambda *_: pytest.fail("the general way"))

    fill(Owner(np.zeros(0, np.float32), data=0))


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "without memory": ("UNREADABLE_ARRAY", {"data": 0}),
    "without sizes": ("UNREADABLE_ARRAY", {"shape": None}),
    "of a negative size": ("UNREADABLE_ARRAY", {"shape": (ctypes.c_int64 * 1)(-100)}),
    "of more elements than addresses": ("UNREADABLE_ARRAY", {"shape": (ctypes.c_int64 * 1)(1 << 62)}),
    "of a negative rank": ("UNREADABLE_ARRAY", {"ndim": -1}),
    "of too many axes": ("UNREADABLE_ARRAY", {"ndim": 65}),
    "used": ("UNREADABLE_ARRAY", {"name": b"used_dltensor_versioned"}),
    "of an unknown name": ("UNREADABLE_ARRAY", {"name": b"tensor"}),
    "a later major version": ("UNREADABLE_ARRAY", {"major": 2}),
    "read-only": ("READ_ONLY_OUTPUT", {"flags": 1}),
    "elsewhere": ("WRONG_DEVICE", {"device_type": OPENCL}),
    "of vectors": ("WRONG_DTYPE", {"lanes": 2}),
    "of another code": ("WRONG_DTYPE", {"code": 0}),
    "of fewer bits": ("WRONG_DTYPE", {"bits": 16}),
    "of another rank": ("WRONG_RANK", {"ndim": 0}),
}


@pytest.mark.parametrize("launched", [fill, sk.sanitize(fill)], ids=["native", "checked"])
@pytest.mark.parametrize(("error", "fields"), REFUSED.values(), ids=REFUSED)
def test_another_capsule_is_refused_and_nothing_is_written(error: str, fields: dict[str, Any], launched: Any) -> None:
    array = np.zeros(100, np.float32)

    with pytest.raises(sk.StagekitError) as caught:
        launched(Owner(array, **fields))

    assert caught.value.id == error
    assert not array.any()


def test_steps_between_elements_count_unless_there_is_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(16, np.float32)

    for _ in range(3):
        fill(Owner(array[::2]))
    assert array.tolist() == [5, 0] * 8
    monkeypatch.setattr(type(fill), "_launch", lambda *_: pytest.fail("the general way"))
    fill(Owner(array[1:2], strides=(ctypes.c_int64 * 1)(7)))
    assert array.tolist() == [5, 5] + [5, 0] * 7


@pytest.mark.parametrize("first", [True, False], ids=["first launch", "warm"])
def test_an_owner_that_takes_the_memory_of_another_device_for_the_cpus_is_refused(first: bool) -> None:
    class Liar(Owner):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    array = np.zeros(100, np.float32)
    if not first:
        fill(Liar(array.copy()))

    with pytest.raises(sk.StagekitError, match=r"`__dlpack_device__` says .* on the CPU, `__dlpack__` .* cuda:0"):
        fill(Liar(array, device_type=tables.ON_CUDA))
    assert not array.any()


# Memory that only the capsule keeps ----------------------------------------------------------------------------------

_lent: dict[int, tuple[Owner, list[Any]]] = {}
"""By the address of each capsule's struct."""


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _spoil(capsule: int) -> None:
    owner, returned = _lent.pop(views._pointer_at(capsule, VERSIONED))
    returned.append(owner.array.tolist())
    owner.array[:] = np.nan


class Lender:
    """Each `__dlpack__` gives new memory, which is overwritten and freed with the capsule. returned: what each held then."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = numbers
        self.returned: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        owner = Owner(np.array(self.numbers, np.float32))
        address = ctypes.addressof(owner.managed)
        _lent[address] = owner, self.returned
        return views._new_capsule(address, VERSIONED, ctypes.cast(_spoil, ctypes.c_void_p))


@pytest.fixture(autouse=True)
def _everything_lent_is_returned() -> Iterator[None]:
    for _ in range(3):
        fill(Lender(0))
        double(Lender(0), np.zeros(1, np.float32))
    yield
    assert not _lent


WAYS: dict[str, Callable[[Any], Any]] = {
    "native": lambda kernel: kernel,
    "general": lambda kernel: Launcher(kernel._launch, None),
    "checked": sk.sanitize,
    "prepared": lambda kernel: lambda *given: kernel.prepare(*given)(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_capsule_keeps_alive_lives_until_the_kernel_has_run(way: Callable[[Any], Any]) -> None:
    source, target, out = Lender(1, 2, 3), Lender(0, 0), np.zeros(3, np.float32)

    way(double)(source, out)
    way(fill)(target)

    assert out.tolist() == [2, 4, 6]
    assert [5, 5] in target.returned


def test_a_launch_of_many_blocks_keeps_its_capsules_while_workers_run() -> None:
    numbers = range(0, 500_000, 1000)
    source, out = Lender(*(n / 1e6 for n in numbers for _ in range(2000))), np.zeros(1_000_000, np.float32)

    for _ in range(3):
        double(source, out)
        assert np.array_equal(out, 2 * np.array(source.numbers, np.float32))


@pytest.mark.parametrize("way", [WAYS["native"], WAYS["general"]], ids=["native", "general"])
def test_a_capsule_is_given_back_by_a_launch_that_fails(way: Callable[[Any], Any]) -> None:
    """Its destructor runs Python while the error is on its way."""
    source, out = Lender(1, 1000), np.zeros(2, np.float32)

    with pytest.raises(sk.StagekitError, match="ASSERTION_FAILED"):
        way(double)(source, out)
    with pytest.raises(sk.StagekitError, match="WRONG_DTYPE"):
        way(double)(source, out.astype(np.float64))

    assert len(source.returned) >= 2


def test_a_prepared_launch_keeps_its_capsules_while_it_lives() -> None:
    source, out = Lender(1, 2), np.zeros(2, np.float32)

    launch = double.prepare(source, out)
    for _ in range(3):
        out[:] = 0
        launch()
        assert out.tolist() == [2, 4]
    assert _lent
    del launch
