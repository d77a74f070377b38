"""Values lie in memory as kernels read them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.dtypes import ALL_DTYPES, DType, float32, int64
from stagekit.runtime.checks import convert
from stagekit.runtime.kernel import Packer
from stagekit.signature import ParamSlot, ScalarSpec


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_slot_holds_the_value_at_its_low_end_and_zeros_above(dtype: DType, data: st.DataObject) -> None:
    numbers: Any = st.floats(-400, 400, width=16) if dtype.is_float else st.integers(dtype.min, dtype.max)
    number = data.draw(numbers)

    buffer = Packer([ParamSlot("value", 0, dtype)]).pack([convert(ScalarSpec("x", dtype), number)])

    expected = np.array(number).astype(dtype.numpy).tobytes().ljust(8, b"\0")
    assert ctypes.string_at(buffer.address, 8) == expected


def test_pointers_point_to_each_slot() -> None:
    slots = [ParamSlot("address", 0, float32), ParamSlot("size", 0, int64), ParamSlot("value", 1, float32)]

    buffer = Packer(slots, extra="2q").pack([2**63, -5, 1.5], (7, 8))

    pointers = (ctypes.c_void_p * 5).from_address(buffer.pointers)
    words = [ctypes.c_int64.from_address(p or 0).value for p in pointers]
    assert words == [-(2**63), -5, np.float32(1.5).view(np.int32), 7, 8]


def test_a_buffer_is_never_shared() -> None:
    packer = Packer([ParamSlot("size", 0, int64)])

    first, second = packer.pack([1]), packer.pack([2])

    assert first.address != second.address


def test_no_parameters_are_fine() -> None:
    assert Packer([]).pack([]).address
