"""Lists of arrays, chosen at run time: on every target, over dtypes, sizes and strides; what they refuse; races and ends."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from tests.cells import cell
from tests.frontend.sources import module_of

TARGETS = pytest.mark.parametrize("target", ["cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu)])


@sk.jit
def scale(A, sizes, factor):
    g, i = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
    if g < len(A):
        each = A[g]
        if i < each.shape[0]:
            for j in range(each.shape[1]):
                each[i, j] *= factor
        if i == 0:
            sizes[g] = each.size


@sk.jit
def by_lane(A, out):
    i = sk.cuda.thread_idx("x")
    out[i] = A[i % len(A)][i // len(A)]


@sk.jit
def by_program(A, sums):
    g = sk.program_id(0)
    x, i = A[g], sk.arange(0, 64)
    tile = sk.load(x + i, mask=i < x.shape[0], other=0)
    sk.store(x + i, tile + 1, mask=i < x.shape[0])
    sums[g] = sk.reduce_sum(tile)


def placed(array: Any, target: str) -> Any:
    return sk.cuda.to_device(array) if target == "cuda" else array


def on_host(array: Any) -> Any:
    return array.to_host() if hasattr(array, "to_host") else array


@TARGETS
def test_arrays_of_any_size_are_chosen_at_run_time(target: str) -> None:
    kernel = sk.compile(scale.specialize(), target)
    for dtype in (np.float32, np.int16):
        for shapes in ([(3, 2), (5, 7), (0, 3), (1, 1)], [(4, 4)]):
            whole = [np.ones(shape, dtype) for shape in shapes]
            arrays = [placed(each, target) for each in whole]
            sizes = placed(np.zeros(len(arrays), np.int32), target)
            kernel[len(arrays) + 1, 8](sk.ArrayList(arrays), sizes, dtype(3))
            with cell(dtype, shapes):
                assert all((on_host(each) == 3).all() for each in arrays)
                assert on_host(sizes).tolist() == [each.size for each in whole]

    out = placed(np.zeros(8, np.int64), target)
    arrays = [placed(np.arange(8) + 100 * k, target) for k in range(3)]
    sk.compile(by_lane.specialize(), target)[1, 8](sk.ArrayList(arrays), out)
    assert on_host(out).tolist() == [0, 100, 200, 1, 101, 201, 2, 102]

    sums, arrays = placed(np.zeros(2, np.float32), target), [placed(np.ones(n, np.float32), target) for n in (5, 64)]
    sk.compile(by_program.specialize(), target)[2](sk.ArrayList(arrays), sums)
    assert on_host(sums).tolist() == [5, 64]
    assert all((on_host(each) == 2).all() for each in arrays)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_arrays_with_gaps(target: str) -> None:
    kernel, sizes = sk.compile(scale.specialize(), target), np.zeros(3, np.int32)
    memory = np.ones((6, 8), np.float32)
    kernel[3, 8](sk.ArrayList([memory[::2, ::3], memory[1::2].T[::-1], memory[:0]]), sizes, 2.0)
    expected = np.ones((6, 8))
    expected[::2, ::3] = expected[1::2] = 2
    np.testing.assert_array_equal(memory, expected)
    assert sizes.tolist() == [9, 24, 0]


def test_a_list_is_a_leaf_of_other_arguments_and_keeps_its_arrays() -> None:
    @dataclass
    class Group:
        weights: Any
        factor: float

    @sk.jit
    def kernel(group):
        i = sk.cuda.thread_idx("x")
        group.weights[1][i] *= group.factor

    x = [np.ones(4), np.ones(4)]
    held = sk.ArrayList(each.copy() for each in x)
    seen = weakref.ref(held.arrays[1])
    for _ in range(2):
        gc.collect()
        kernel[1, 4](Group(held, 2.0))
        sk.sanitize(kernel)[1, 4](Group(held, 0.5))
    assert (held[1] == 1).all()
    assert len(held) == 2
    assert "global" in kernel.specialize(group=Group(held, 1.0)).ptx
    del held
    gc.collect()
    assert seen() is None


@pytest.mark.gpu
def test_lists_of_other_libraries() -> None:
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    for ones in (lambda *shape: torch.ones(*shape, device="cuda"), lambda *shape: cupy.ones(shape, cupy.float32)):
        arrays = [ones(3, 5), ones(8, 2)]
        sizes = sk.cuda.to_device(np.zeros(2, np.int32))
        for _ in range(3):
            scale[2, 8](sk.ArrayList(arrays), sizes, 2.0)
        sk.sanitize(scale)[2, 8](sk.ArrayList([each.T for each in arrays]), sizes, 0.25)
        assert all((each == 2).all() for each in arrays)


ODD = np.ones(9, np.float64).view(np.uint8)[4:-4].view(np.float64)
WRONG = {
    "takes a list of one array or more, got []": [],
    "got 5": 5,
    "got array": np.ones(3),
    "item 1, 3 (int), is no array of real numbers": [np.ones(3), 3],
    "item 0, an array of complex64": [np.ones(3, np.complex64)],
    "array 1, an array of float32 (shape (3,)) on the CPU, has another dtype": [np.ones(3), np.ones(3, np.float32)],
    "has another number of axes than the first": [np.ones(3), np.ones((3, 1))],
    "4 bytes off the elements": [np.ones(3), ODD],
}


def test_what_is_no_list_of_arrays_is_refused() -> None:
    for words, arrays in WRONG.items():
        with cell(words), pytest.raises(sk.StagekitError, match=re.escape(words)):
            sk.ArrayList(arrays)
    fixed = np.ones((3, 1), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(sk.ArgumentError, match="READ_ONLY_OUTPUT"):
        scale[2, 8](sk.ArrayList([np.ones((3, 1), np.float32), fixed]), np.zeros(2, np.int32), 2.0)


LINES = {
    "A[0] = 1": "assign their elements, `A[g][i] = x`",
    "x = A[0, 1]": "further ones an element of it",
    "x = A + 1": "index it: `A[g]` is an array",
    "for x in A: pass": "a list of arrays of float32 is not iterable",
    "x = A[0.5]": "an index must be an integer",
}


def test_what_a_list_does_not_do_is_said_at_its_line(tmp_path: Path) -> None:
    for line, words in LINES.items():
        kernel = module_of(tmp_path, f"import stagekit as sk\n@sk.jit\ndef kernel(A):\n    {line}\n").kernel
        with cell(line), pytest.raises(sk.StagekitError, match=re.escape(words)):
            kernel[1, 1](sk.ArrayList([np.ones(3, np.float32)]))


@sk.jit
def crossed(A, out, k):
    i = sk.cuda.thread_idx("x")
    A[0][i + 1] = i
    out[i] = A[k][i + 1]


def test_the_sanitizer_sees_ends_and_races_of_each() -> None:
    memory, watch = np.zeros(10, np.float32), sk.sanitize(crossed)
    out = np.zeros(9, np.float32)
    apart, over = sk.ArrayList([memory[:5], memory[5:]]), sk.ArrayList([memory[:6], memory[1:7]])
    watch[1, 4](apart, out, 1)
    for words, arrays, k, threads in (
        ("WARP_RACE", over, 1, 4),
        ("a view of `A[0]` with shape (5,): axis 0 has 5 elements", apart, 1, 5),
        ("reads `A.rows[2, :]` of shape (2, 3): axis 0 has 2 elements", apart, 2, 4),
    ):
        with cell(words), pytest.raises(sk.StagekitError, match=re.escape(words)):
            watch[1, threads](arrays, out, k)
