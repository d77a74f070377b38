"""`check` finds the faults that users' kernels have, and shows the smallest launch that does, as code that runs."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import stagekit as sk
from stagekit import testing

BLOCKS = testing.block_sizes(64)


@sk.jit
def scale(src, dst, n, factor, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(dst + i, sk.load(src + i, mask=i < n) * factor, mask=i < n)


@sk.jit
def scale_without_mask(src, dst, n, factor, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(dst + i, sk.load(src + i) * factor, mask=i < n)


@sk.jit
def scale_all_but_the_last(src, dst, n, factor, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(dst + i, sk.load(src + i, mask=i < n) * factor, mask=i < n - 1)


@sk.jit
def total_of_powers_of_two(src, dst, BLOCK: sk.constexpr):
    """The usual tree, which forgets an element where the block is no power of two."""
    tile = sk.alloc_shared((BLOCK,), sk.int64)
    i = sk.cuda.thread_idx("x")
    tile[i] = src[i]
    sk.syncthreads()
    step = BLOCK // 2
    while step > 0:
        if i < step:
            tile[i] += tile[i + step]
        sk.syncthreads()
        step //= 2
    if i == 0:
        dst[0] = tile[0]


@sk.jit
def reverse_without_barrier(out, BLOCK: sk.constexpr):
    tile = sk.alloc_shared((BLOCK,), sk.int32)
    i = sk.cuda.thread_idx("x")
    tile[i] = i
    out[i] = tile[BLOCK - 1 - i]


def scaled(src: Any, factor: Any) -> dict[str, Any]:
    return {"dst": src * factor}


def scalings(dtype: Any = sk.float32, **arrays: Any) -> Any:
    return testing.launches(
        lambda n, BLOCK: sk.ceildiv(n, BLOCK),
        BLOCK=BLOCKS,
        n=lambda BLOCK: testing.lengths(BLOCK),
        factor=np.float32(3),
        src=lambda n: testing.arrays(dtype, n, **arrays),
        dst=lambda n: testing.outputs(dtype, n),
    )


def failure_of(kernel: Any, reference: Any, launches: Any, **options: Any) -> testing.CheckFailed:
    with pytest.raises(testing.CheckFailed) as caught:
        testing.check(kernel, reference, launches, seed=1, **options)
    return caught.value


def test_a_right_kernel_passes() -> None:
    testing.check(scale, scaled, scalings(), examples=30)
    testing.check(scale, scaled, scalings(values="any"), examples=20)


def test_a_reference_may_write_into_its_arrays() -> None:
    def reference(src: Any, dst: Any, factor: Any) -> None:
        dst[:] = src * factor

    testing.check(scale, reference, scalings(), examples=10)


def test_the_smallest_failing_launch_is_shown_and_runs() -> None:
    failed = failure_of(scale_all_but_the_last, scaled, scalings())

    assert {"BLOCK": 1, "n": 1} == {k: failed.launch.arguments[k] for k in ("BLOCK", "n")}
    assert "`dst`: 1 of 1 elements differ, the first [0] is nan, expected 3.0" in str(failed)
    assert "scale_all_but_the_last[1](BLOCK=1, n=1, factor=np.float32(3.0), src=src, dst=dst)" in str(failed)
    names = {"np": np, "sk": sk, "scale_all_but_the_last": scale_all_but_the_last}
    exec(failed.launch.code("scale_all_but_the_last"), names)
    assert [True] == np.isnan(names["dst"]).tolist()


def test_a_load_out_of_bounds_is_found_though_the_result_is_right() -> None:
    failed = failure_of(scale_without_mask, scaled, scalings())

    assert "interp" == failed.target
    assert "OUT_OF_BOUNDS" in str(failed)
    assert {"BLOCK": 2, "n": 1} == {k: failed.launch.arguments[k] for k in ("BLOCK", "n")}


def test_a_block_that_is_no_power_of_two_is_tried() -> None:
    launches = testing.launches(
        lambda BLOCK: (1, BLOCK),
        BLOCK=BLOCKS,
        src=lambda BLOCK: testing.arrays(sk.int64, BLOCK, values="exact"),
        dst=testing.outputs(sk.int64, 1),
    )

    failed = failure_of(total_of_powers_of_two, lambda src: {"dst": src.sum()}, launches)

    assert 3 == failed.launch.arguments["BLOCK"]


def test_a_race_is_found_unless_it_is_left_out() -> None:
    launches = testing.launches((1, 32), out=testing.outputs(sk.int32, 32), BLOCK=32)

    def reference(BLOCK: int) -> dict[str, Any]:
        return {"out": np.arange(BLOCK)[::-1]}

    assert "WARP_RACE" in str(failure_of(reverse_without_barrier, reference, launches))
    testing.check(reverse_without_barrier, reference, launches, targets=["interp"], sanitize=False)


def test_an_array_that_the_reference_leaves_alone_must_stay_as_it_was() -> None:
    failed = failure_of(scale, lambda: None, scalings())

    assert "`dst`" in str(failed)
    testing.check(scale, lambda: None, scalings(), ignore=["dst"], examples=10)


def test_a_refused_launch_is_a_failure_with_its_text() -> None:
    launches = testing.launches(
        1, src=testing.arrays(sk.float64, 1), dst=testing.outputs(sk.float32, 2), n=1, factor=1.0
    )

    assert "BLOCK" in str(failure_of(scale, scaled, launches))


def test_a_reference_that_names_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"arrays by the names of the kernel's, \['src', 'dst'\]"):
        testing.check(scale, lambda src: {"out": src}, scalings())


def test_a_value_that_is_needed_before_it_is_drawn_is_refused() -> None:
    launches = testing.launches(1, n=lambda BLOCK: BLOCK, BLOCK=1)

    with pytest.raises(ValueError, match="`BLOCK` is not drawn before"):
        testing.check(scale, lambda: None, launches)


def test_a_function_can_be_a_constexpr() -> None:
    @sk.jit
    def apply(dst, F: sk.constexpr):
        dst[0] = F(dst[0])

    def double(x: Any) -> Any:
        return x + x

    launches = testing.launches((1, 1), dst=testing.arrays(sk.int32, 1, values="exact"), F=st.just(double))

    testing.check(apply, lambda dst, F: {"dst": F(dst)}, launches, examples=5)


@pytest.mark.parametrize("dtype", [sk.float16, sk.bfloat16, sk.float32, sk.float64, sk.int32], ids=lambda d: d.name)
def test_the_tolerance_follows_the_dtype(dtype: sk.DType) -> None:
    """A kernel that is off by one unit in the last place passes; one that is off by a hundredth does not. Integers are exact."""
    reference = np.full(4, 100).astype(dtype.numpy)
    little = np.nextafter(reference, dtype.numpy.type(200)) if dtype.is_float else reference
    tolerance = testing.tolerance_of(dtype)

    from stagekit.testing.tolerances import difference

    assert difference(little, reference, tolerance) is None
    assert difference(reference, reference * dtype.numpy.type(2), tolerance) is not None


def test_a_value_that_others_are_made_from_need_not_be_a_parameter() -> None:
    @sk.jit
    def transpose(A, B):
        i, j = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
        n = A.shape[0]
        sk.store(B.ptr + j * n + i, sk.load(A.ptr + i * n + j))  # right for squares

    launches = testing.launches(
        lambda A: (1, A.shape),
        rows=st.integers(1, 9),
        columns=st.integers(1, 9),
        A=lambda rows, columns: testing.arrays(sk.float32, (rows, columns)),
        B=lambda rows, columns: testing.outputs(sk.float32, (columns, rows)),
    )

    failed = failure_of(transpose, lambda A: {"B": A.T}, launches)

    assert (2, 1) == failed.launch.arguments["A"].shape
    assert "transpose[1, (2, 1)](A=A, B=B)" in str(failed)


def test_an_argument_that_nothing_takes_is_refused() -> None:
    launches = testing.launches((1, 1), out=testing.outputs(sk.int32, 1), BLOCK=1, sise=3)

    assert "UNKNOWN_ARGUMENT" in str(failure_of(reverse_without_barrier, lambda: {"out": 0}, launches))


def test_numbers_are_as_plain_as_the_fault_allows() -> None:
    """Random numbers give way to counting ones, where these do as well."""

    @sk.jit
    def halve(src, dst):
        i = sk.cuda.thread_idx("x")
        dst[i] = (src[i].to(sk.float16) * 0.5).to(sk.float32)

    launches = testing.launches((1, 8), src=testing.arrays(sk.float32, 8), dst=testing.outputs(sk.float32, 8))

    failed = failure_of(halve, lambda src: {"dst": src / 2}, launches)

    assert 1 == np.count_nonzero(failed.launch.arguments["src"] != np.arange(1, 9))


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda scr: {"dst": scr}, r"takes `scr`, the launches have BLOCK, n, factor, src, dst; did you mean `src`\?"),
        (lambda src: {"dst": np.zeros((3, 3))}, r"gives `dst` in shape \(3, 3\), the launch has \(0,\)"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused_in_words(reference: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        testing.check(scale, reference, scalings())


def test_a_target_that_there_is_not_is_refused() -> None:
    for targets in (["gpu"], "gpu", 3, [["cpu"]]):
        with pytest.raises(sk.SpecializeError, match="`check`: `targets` holds") as caught:
            testing.check(scale, scaled, scalings(), targets=targets)
        assert [__file__] == [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_one_target_needs_no_list() -> None:
    testing.check(scale, scaled, scalings(), targets="cpu", examples=3)
