"""CuPy's own objects, read without CuPy: their fields are where they are looked for. No GPU is touched."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stagekit.runtime import cupy_fields, native
from tests.launch.fake_gpu import FakeNativeDriver
from tests.launch.test_gpu import STRIDED, Launches, gpu

__all__ = ["gpu"]

pytestmark = pytest.mark.skipif(not native.is_available(), reason="no native launchers here")


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def no_exchanges() -> Iterator[None]:
    """No array type is known during the test."""
    process = native.process()
    rows, count = list(process._rows), process.get("exchange_count")
    process.set("exchange_count", 0)
    yield
    process._rows[:] = rows
    process.set("exchange_count", count)


def array_at(cupy: Any, address: int, shape: tuple[int, ...], strides: Any = None, dtype: str = "f4") -> Any:
    memory = cupy.cuda.UnownedMemory(address, 1 << 20, None, device_id=0)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0), strides=strides)


def test_the_layout_is_the_known_one(cupy: Any) -> None:
    assert cupy_fields.has_layout(cupy)


@pytest.mark.parametrize("other", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace(UnownedMemory=dict))])
def test_another_cupy_is_read_by_attributes(other: Any) -> None:
    assert not cupy_fields.has_layout(other)


@pytest.mark.usefixtures("no_exchanges")
@pytest.mark.parametrize("has_fields", [True, False])
def test_fields_and_attributes_say_the_same(has_fields: bool, cupy: Any, gpu: FakeNativeDriver) -> None:
    current = SimpleNamespace(ptr=9000)
    gpu.parameter_count = 5
    launch = Launches(STRIDED, key=(2, 64), style="thread", launch=None, block=None).load(0)
    native.process().add_cupy(cupy.ndarray, lambda device: current, has_fields)

    assert launch(array_at(cupy, 0x50000, (3, 5), (40, 4))) is None
    assert launch(array_at(cupy, 0x50000, (3, 5), (40, 8))) is None
    assert launch(array_at(cupy, 0x50000, (3, 5), (40, 6))) == "general", "half an element"
    assert launch(array_at(cupy, 0x50000, (3, 5), (40, 8), "f8")) == "general"
    assert launch(array_at(cupy, 0x50000, (3, 5, 1), (40, 8, 4))) == "general"

    assert [(0, 0x50000, (3, 5), s) for s in ((10, 1), (10, 2))] == [
        (stream - 9000, words[0], words[1:3], words[3:]) for _, _, _, stream, words in gpu.native
    ]
