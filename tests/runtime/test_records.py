"""What kernels recorded is printed in order, and the first failed assert is raised."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from stagekit.artifact import RecordSite
from stagekit.diagnostics import Loc
from stagekit.dtypes import bool_, float64, int64, uint64
from stagekit.runtime.errors import KernelAssertionError
from stagekit.runtime.records import RecordBuffer, report
from tests.runtime.handmade import NO_ARGUMENTS, MakeKernel

HERE = Loc(__file__, 1, 0, 1, 10, "kernel")
PRINT = RecordSite("print", "b = {0}, half = {1:.1f}\n", (int64, float64), HERE)
ASSERT = RecordSite("assert", "block {0} is odd", (int64, float64), HERE)


def test_prints_come_in_the_order_of_blocks(make_kernel: MakeKernel, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = make_kernel("record", NO_ARGUMENTS, record_sites=(PRINT, PRINT))

    for _ in range(2):  # the buffer is used again
        kernel.launch((), kernel.request(100))

        lines = capsys.readouterr().out.splitlines()
        assert lines == [f"b = {-b}, half = {b + 0.5:.1f}" for b in range(100)]


def test_a_failed_assert_tells_message_place_block_and_thread(make_kernel: MakeKernel) -> None:
    kernel = make_kernel("record", NO_ARGUMENTS, record_sites=(ASSERT, ASSERT))

    with pytest.raises(KernelAssertionError) as caught:
        kernel.launch((), kernel.request(3))

    error = caught.value
    assert isinstance(error, AssertionError)
    assert (error.message, error.block, error.thread) == ("block 0 is odd", (0, 0, 0), (7, 0, 0))
    assert error.loc is HERE
    assert f"({Path(__file__)}:1:1)" in str(error)
    assert "block 0 is odd (block (0, 0, 0), thread (7, 0, 0); and 2 more)" in str(error)
    kernel.launch((), kernel.request(0))


def test_what_was_printed_before_a_failed_assert_is_seen(
    make_kernel: MakeKernel, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = make_kernel("record", NO_ARGUMENTS, record_sites=(PRINT, ASSERT))

    with pytest.raises(KernelAssertionError, match="block -1 is odd"):
        kernel.launch((), kernel.request(4))

    assert capsys.readouterr().out.splitlines() == ["b = 0, half = 0.5", "b = -2, half = 2.5"]


def test_records_without_room_are_counted(make_kernel: MakeKernel, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = make_kernel("record", NO_ARGUMENTS, record_sites=(PRINT, PRINT))

    kernel.launch((), kernel.request(10_000))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 65_532 // 9 + 1
    assert lines[-1] == f"stagekit: {10_000 - 65_532 // 9} more records of this launch found no room"


def test_words_are_read_as_their_dtypes() -> None:
    site = RecordSite("print", "{0} {1} {2} {3}", (int64, uint64, bool_, float64), HERE)
    buffer = RecordBuffer(32)
    words = (ctypes.c_uint64 * 32).from_address(buffer.address)
    words[4:15] = [1, 3, 2, 1, 0, 0, 0, 2**64 - 5, 2**64 - 5, 1, 0x3FF8000000000000]
    words[0] = 15

    ((record,), dropped) = buffer.drain([site])

    assert record.values == (-5, 2**64 - 5, True, 1.5)
    assert record.block == (3, 2, 1)
    assert dropped == 0
    assert not buffer.has_records
    assert list(words[4:15]) == [0] * 11


def test_nothing_recorded_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    report(RecordBuffer(8), [])

    assert capsys.readouterr().out == ""
