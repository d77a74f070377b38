"""Functions of the library that CPython runs while a kernel is traced: what they cost, where their ops are, what they call."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.diagnostics import place_of_user
from stagekit.frontend.evaluation import EVALUATORS
from stagekit.ir import I32, ops, walk
from tests.places import each_place, run

ANY = sk.Tensor((None,), sk.float32)


@sk.jit
def softmax(src: ANY, dst: ANY, n: sk.int32, BLOCK: sk.constexpr):
    tid = sk.arange(0, BLOCK)
    mask = tid < n
    x = sk.load(src + tid, mask=mask, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(dst + tid, -e / sk.reduce_sum(e), mask=mask)


def test_a_tile_is_not_interpreted_element_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []

    def counting(evaluator: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            evaluated.append(args[-1])
            return evaluator(*args)

        return count

    for kind, evaluator in list(EVALUATORS.items()):
        monkeypatch.setitem(EVALUATORS, kind, counting(evaluator))

    softmax.specialize(BLOCK=2048).trace()
    few = len(evaluated)
    softmax.specialize(BLOCK=32768).trace()

    assert len(evaluated) - few == few


def test_what_tiles_ask_for_again_is_computed_once_in_a_block_of_code() -> None:
    """An index, a mask, a constant and a splat; in the arm of an `if`, which another path does not reach, once more."""

    @sk.jit
    def copies(src: ANY, dst: ANY, n: sk.int32):
        i = sk.arange(0, 4096)
        x = sk.load(src + i, mask=i < n, other=1.0)
        sk.store(dst + i, x + 2.5, mask=i < n)
        if n > 7:
            sk.store(dst + 4096 + i, x - 2.5, mask=i < n)

    body = copies.specialize().trace().function.body
    arm = next(op for op in body.ops if isinstance(op, ops.If)).then_body

    for block in (body, arm):
        computed = [op for op in block.ops if isinstance(op, ops.Constant | ops.Splat | ops.IntrinsicOp | ops.Compare)]
        rows = [
            (type(op), op.result.type, *(getattr(op, n) for n in op.ATTRIBUTE_FIELDS), *op.operands())
            for op in computed
        ]
        assert len(set(rows)) == len(rows)
        assert sum(isinstance(op, ops.Compare) and op.operands()[0].type is I32 for op in block.ops) == 4 + (
            block is body
        )


@each_place
def test_constants_that_are_equal_but_not_the_same_are_kept_apart(place) -> None:
    @sk.jit
    def signs(out: ANY):
        i = sk.arange(0, 8)
        sk.store(out + i, sk.copysign(sk.full(8, 1.0, sk.float32), sk.float32(0.0)))
        sk.store(out + 8 + i, sk.copysign(sk.full(8, 1.0, sk.float32), sk.float32(-0.0)))

    (out,) = run(place, signs[1], [np.zeros(16, np.float32)])

    assert out.tolist() == [1.0] * 8 + [-1.0] * 8


def test_every_op_of_a_tile_stands_at_a_line_of_the_user() -> None:
    traced = softmax.specialize(BLOCK=64).trace()

    places = [place_of_user(op.loc) for op in walk(traced.function.body)]

    assert {__file__} == {place.file for place in places if place}
    assert {"softmax"} == {place.function for place in places if place}


def test_a_function_given_to_a_reduction_is_staged() -> None:
    """CPython could not run its `if` on a run-time value."""

    @sk.jit
    def kernel(src, dst):
        def larger(a, b):
            if a > b:
                return a
            return b

        t = sk.cuda.thread_idx("x")
        dst[t] = sk.warp_reduce(src[t], larger)

    src, dst = np.random.default_rng(1).standard_normal(32).astype(np.float32), np.zeros(32, np.float32)

    kernel[1, 32](src, dst)

    assert (dst == src.max()).all()


def test_a_mistake_in_an_element_shows_the_users_line() -> None:
    @sk.jit
    def kernel(src: ANY, dst: ANY):
        tid = sk.arange(0, 64)
        sk.store(dst + tid, sk.load(src + tid) << 2)

    with pytest.raises(sk.StagekitError) as raised:
        kernel.specialize().trace()

    assert raised.value.id == "BAD_OPERANDS"
    assert raised.value.loc is not None
    assert raised.value.loc.file == __file__


def test_typed_numbers_of_compile_time_keep_their_arithmetic() -> None:
    """Elements of `zeros` and `full` are known: they wrap and saturate as at run time, not as NumPy's scalars warn and do."""

    @sk.jit
    def kernel(dst: sk.Tensor((None,), sk.int8)):
        tid = sk.arange(0, 32)
        wrapped = (sk.full(32, 100, sk.int8) + sk.full(32, 100, sk.int8)) // sk.zeros(32, sk.int8)
        sk.store(dst + tid, wrapped + sk.full(32, 3e9, sk.float32).to(sk.int8))

    dst = np.zeros(32, np.int8)

    kernel[1](dst)

    assert (dst == 127).all()


def test_a_function_given_to_a_scan_is_interpreted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    trace_name = EVALUATORS[ast.Name]
    monkeypatch.setitem(EVALUATORS, ast.Name, lambda frame, node: looked_up.append(node.id) or trace_name(frame, node))

    @sk.jit
    def kernel(src: ANY, dst: ANY):
        def combine(earlier, later):
            if later > 0:
                return earlier * later
            return earlier

        tid = sk.arange(0, 2048)
        sk.store(dst + tid, sk.scan(sk.load(src + tid), combine))

    kernel.specialize().trace()

    assert looked_up.count("earlier") == 2


@pytest.mark.parametrize("prints", [False, True])
def test_a_function_that_does_more_than_compute_is_interpreted_at_each_call(
    prints: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    @sk.jit
    def kernel(src: ANY, dst: ANY, PRINTS: sk.constexpr):
        calls = []

        def combine(a, b):
            if PRINTS:
                sk.static_print("called")
            else:
                calls.append(a)
            return a + b

        t = sk.cuda.thread_idx("x")
        dst[t] = sk.warp_reduce(src[t], combine) + len(calls)

    src, dst = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)

    kernel.specialize(PRINTS=prints)[1, 32](src, dst)

    calls = capsys.readouterr().out.count("called") if prints else int(dst[0] - src.sum())
    assert (calls, len(set(dst))) == (5, 1)  # 32 lanes in 5 steps


def test_a_copied_function_tells_its_arguments_from_what_it_captures() -> None:
    """Each element of `full` is the very number that the function captures."""

    @sk.jit
    def kernel(dst: ANY, start: sk.float32):
        tid = sk.arange(0, 64)
        sk.store(dst + tid, sk.scan(sk.full(64, start, sk.float32), lambda a, b: a + b + start))

    dst = np.zeros(64, np.float32)

    kernel[1](dst, 1.0)

    assert (dst == 1 + 2 * np.arange(64)).all()


def test_a_copied_loop_has_values_of_its_own() -> None:
    @sk.jit
    def kernel(src: sk.Tensor((None,), sk.int32), one: sk.Tensor((1,), sk.int32), dst: sk.Tensor((None,), sk.int32)):
        def add(a, b):
            for i in range(b):
                a += one[i - i]
            return a

        tid = sk.arange(0, 100)
        sk.store(dst + tid, sk.scan(sk.load(src + tid), add))

    src, dst = np.arange(100, dtype=np.int32) % 3, np.zeros(100, np.int32)

    with sk.sanitize():
        kernel[1](src, np.ones(1, np.int32), dst)

    assert (dst == np.cumsum(src)).all()
