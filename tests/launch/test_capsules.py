"""Capsules that few libraries make: a native launcher reads those that fit, and leaves the others to the general way."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import stagekit as sk
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
        tensor = views._Tensor(**given)
        self.managed = views._Managed(tensor) if name == OLD else views._Versioned(**header, tensor=tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
        return views._new_capsule(ctypes.addressof(self.managed), self.name, None)


@pytest.fixture(autouse=True)
def _fill_is_launched_natively() -> None:
    for _ in range(3):
        fill(Owner(np.zeros(8, np.float32)))
    assert fill._native.without_brackets is not None


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


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
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


@pytest.mark.parametrize(("error", "fields"), REFUSED.values(), ids=REFUSED)
def test_another_capsule_is_refused_and_nothing_is_written(error: str, fields: dict[str, Any]) -> None:
    array = np.zeros(100, np.float32)

    with pytest.raises(sk.StagekitError) as caught:
        fill(Owner(array, **fields))

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
