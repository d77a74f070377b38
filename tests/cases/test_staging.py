"""Cases about staging: what is decided when, which branch runs, how often something is evaluated."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
import time
from typing import Annotated

import numpy as np
import pytest

import stagekit as sk

i = 99  # a global with the name of loop variables below


def _out(count=4, dtype=np.int64):
    return np.full(count, -7, dtype)


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
def test_each_unrolled_copy_may_bind_compile_time_names(run, trips):  # P3
    @sk.jit
    def kernel(x, out, TRIPS: sk.constexpr):
        total = x[0] * 0
        for j in sk.static_range(TRIPS):
            w = j * j
            total += w
        out[0] = total

    out = _out()
    run(kernel, np.array([5]), out, TRIPS=trips)
    assert out[0] == sum(j * j for j in range(trips))


def test_break_under_a_run_time_condition_in_an_unrolled_loop(run):  # P4
    @sk.jit
    def kernel(x, t: sk.int64, out):
        seen = 0
        for j in sk.static_range(4):
            if x[j] > t:
                break
            seen = seen + 1
        out[0] = seen

    x = np.array([1, 5, 2, 8])
    for t in range(10):
        out = _out()
        run(kernel, x, t, out)
        assert out[0] == next((k for k in range(4) if x[k] > t), 4)


def test_code_after_a_taken_static_return_is_not_traced(run):  # P4
    @sk.jit
    def kernel(out, MODE: sk.constexpr):
        if MODE == 0:
            out[0] = 1
            return
        out[0] = out.no_such_attribute

    out = _out()
    run(kernel, out, MODE=0)
    assert out[0] == 1
    with pytest.raises(sk.StagingError, match="NO_ATTRIBUTE"):
        run(kernel, out, MODE=1)


@sk.inline
def _takes_i(i):
    return i + 1


def test_the_innermost_name_wins(run):  # P6
    @sk.jit
    def kernel(out):
        for i in sk.static_range(3):
            out[i] = _takes_i(i) - 1
        out[3] = _takes_i(10)

    out = _out()
    run(kernel, out)
    assert list(out) == [0, 1, 2, 11]


def test_a_change_of_type_names_the_variable_both_types_and_lines(run):  # P8
    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.int32), out):
        v = x[0]
        if x[1] > 0:
            v = sk.float32(x[0])
        out[0] = v

    with pytest.raises(sk.StagingError) as error:
        run(kernel, np.ones(2, np.int32), _out())
    assert error.value.id == "JOIN_MISMATCH"
    for part in ("`v`", "int32", "float32"):
        assert part in str(error.value)
    assert error.value.notes[0].loc.line != error.value.loc.line


def test_a_loaded_bool_is_a_bool(run):  # P8
    @sk.jit
    def kernel(m, n, out):
        found = False
        for j in range(n):
            found = found or m[j]
        out[0] = found

    for flags in ([0, 0, 0], [0, 1, 0]):
        out = _out()
        run(kernel, np.array(flags, bool), 3, out)
        assert out[0] == any(flags)


def test_and_or_guard_their_right_side(run):  # P9
    @sk.jit
    def kernel(a, n, flag, out, SHAPE: sk.constexpr = None):
        j = sk.cuda.thread_idx("x")
        out[j] = 1 if j < n and a[j] > 0 else 0
        if SHAPE is not None and SHAPE.x:
            out[0] = 9
        if flag == 1 or flag == 2 or a[1_000_000_000] > 0:
            out[j] += 10

    a, out = np.array([1, -1, 1], np.int32), np.zeros(32, np.int64)
    run(kernel, a, 3, 2, out, at=(1, 32))
    assert list(out) == [11, 10, 11] + [10] * 29


def test_a_chain_evaluates_its_middle_once(run):  # P9
    @sk.jit
    def kernel(counter, out):
        out[0] = 0 < sk.atomic_add(counter + 0, 1) + 1 < 5

    counter, out = np.zeros(1, np.int32), _out()
    run(kernel, counter, out)
    assert (counter[0], out[0]) == (1, 1)


def test_only_the_markers_count_among_annotations(run):  # P24
    @sk.jit
    def kernel(a: int, b: Annotated[int, "documentation"], c: Undefined, out, N: Annotated[sk.constexpr, "n"]):  # noqa: F821
        out[0] = a + b * c + N

    out = _out()
    run(kernel, 2, 3, 4, out, N=100)
    assert out[0] == 114


def test_arguments_bind_as_in_python(run):  # P25
    @sk.inline
    def scaled(v, *, by=2):
        return v * by

    @sk.jit
    def kernel(out, n, *, scale=2.0, N: sk.constexpr = 1):
        out[0] = n * scale + scaled(1) + scaled(1, by=N)

    out = _out(dtype=np.float64)
    sk.compile(kernel.specialize(N=3), "cpu")[1, 1](out, n=5)
    assert out[0] == 15
    sk.compile(kernel.specialize(N=3), "cpu")[1, 1](out, 5, scale=1.0)
    assert out[0] == 10
    for wrong, id_ in (({}, "MISSING"), ({"n": 1, "m": 2}, "UNKNOWN")):
        with pytest.raises(sk.StagekitError, match=id_):
            kernel[1, 1](out, **wrong)
    with pytest.raises(sk.SpecializeError, match="did you mean `N`"):
        kernel.specialize(NN=2)


def test_an_error_two_inlines_deep_shows_the_whole_chain(run):  # P27
    @sk.inline
    def inner(v):
        return v.wrong

    @sk.inline
    def outer(v):
        return inner(v) + 1

    @sk.jit
    def kernel(out, N: sk.constexpr):
        for j in sk.static_range(3):
            if j == 2:
                out[j] = outer(out[j])

    with pytest.raises(sk.StagingError) as error:
        run(kernel, _out(), N=5)
    text = str(error.value)
    for part in ("v.wrong", "`inner` inlined at", "`outer` inlined at", "j = 2", "N=5"):
        assert part in text


def test_inlined_names_are_the_helpers_own(run):  # P28
    @sk.inline
    def h(a):
        a = a + 1
        t = a * 2
        if t > 100:
            return t - 100
        return t

    @sk.jit
    def kernel(x, out):
        a = sk.float32(0.5)
        t = x[0]
        out[0] = h(t) + h(x[1]) * 1000
        out[1] = t * 10 + a * 2
        for _ in range(2):
            t = h(t)
        out[2] = t

    out = _out()
    run(kernel, np.array([5, 60]), out)
    assert list(out[:3]) == [12 + 22 * 1000, 51, 26]


def test_endless_recursion_is_refused_with_the_call_chain(run):  # P28
    @sk.jit
    def kernel(out):
        def down(v):
            return down(v + 1)

        out[0] = down(out[0])

    with pytest.raises(sk.StagingError, match="RECURSION_BUDGET"):
        run(kernel, _out())


@pytest.mark.parametrize("stages", list(itertools.product("cr", repeat=3)))
def test_chains_compare_every_link(run, stages):  # Q1
    @sk.jit
    def kernel(x, out, A: sk.constexpr, B: sk.constexpr, C: sk.constexpr):
        a = A if A is not None else x[0]
        b = B if B is not None else x[1]
        c = C if C is not None else x[2]
        out[0] = int(a < b < c)

    for values in itertools.product((1, 3, 5), repeat=3):
        fixed = [v if s == "c" else None for v, s in zip(values, stages)]
        out = _out()
        run(kernel, np.array(values), out, **dict(zip("ABC", fixed)))
        assert out[0] == int(values[0] < values[1] < values[2])


def test_only_the_chosen_side_of_a_ternary_happens(run):  # Q2
    @sk.jit
    def kernel(a, n, counts, out):
        def noted(k, v):
            sk.atomic_add(counts + k, 1)
            return v

        j = sk.cuda.thread_idx("x")
        out[j] = noted(0, a[j]) if j < n else noted(1, 0)

    a, counts, out = np.array([5, 6], np.int32), np.zeros(2, np.int32), np.zeros(32, np.int32)
    run(kernel, a, 2, counts, out, at=(1, 32))
    assert list(out) == [5, 6] + [0] * 30
    assert list(counts) == [2, 30]


def test_lists_rebound_in_a_branch_merge_item_by_item_or_say_why_not(run):  # Q5
    @sk.jit
    def kernel(p: sk.int32, out, SAME: sk.constexpr):
        xs = [1, 2]
        if p > 0:
            xs = [3, 4] if SAME else [3, 4, 5]
        out[0] = xs[0] * 10 + xs[1]

    for p, wanted in ((0, 12), (1, 34)):
        out = _out()
        run(kernel, p, out, SAME=True)
        assert out[0] == wanted
    with pytest.raises(sk.StagingError) as error:
        run(kernel, 1, _out(), SAME=False)
    for part in ("`xs`", "length 2", "length 3"):
        assert part in str(error.value)


@dataclasses.dataclass(frozen=True)
class Tile:
    space: str

    def scale(self, v):
        return v * 2 if self.space == "gmem" else v + 100


@pytest.mark.parametrize(("space", "wanted"), [("gmem", 14), ("smem", 107)])
def test_a_static_attribute_prunes_and_methods_of_objects_work_under_run_time_tests(run, space, wanted):  # Q6, Q8
    @sk.jit
    def kernel(x, out, T: sk.constexpr):
        if T.space == "gmem" or T.space == "smem":
            pass
        else:
            out[0] = x.nonsense
        if sk.cuda.thread_idx("x") == 0:
            out[0] = T.scale(x[0])

    out = _out()
    run(kernel, np.array([7]), out, T=Tile(space))
    assert out[0] == wanted


def _plain_helper(v, n):
    if n > 2:
        return v * max(n, 1)
    return v


_inline_helper = sk.inline(_plain_helper)


def test_helpers_are_staged_the_same_however_they_are_marked():  # Q7
    def make(helper):
        @sk.jit(name="kernel")
        def kernel(x: sk.Tensor((None,), sk.int32), N: sk.constexpr):
            def nested(v, n):
                if n > 2:
                    return v * max(n, 1)
                return v

            x[0] = (helper or nested)(x[0], N)

        return kernel.specialize(N=5).ir

    assert make(_plain_helper) == make(_inline_helper) == make(None)


SPELLINGS = ["N: sk.constexpr", "N: 'sk.constexpr'", "N: C", "N: sk.constexpr[int]"]


@pytest.mark.parametrize("future", [True, False])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_constexpr_is_recognised_in_every_spelling(tmp_path, monkeypatch, future, spelling):  # Q10
    text = f"""
        import stagekit as sk
        C = sk.constexpr
        class Holder:
            @staticmethod
            @sk.jit
            def kernel(out, *, {spelling}):
                out[0] = N
    """
    head = "from __future__ import annotations\n" if future else ""
    name = f"spelled_{future}_{SPELLINGS.index(spelling)}"
    (tmp_path / f"{name}.py").write_text(head + textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(name)
    out = _out()
    module.Holder.kernel[1, 1](out, N=12)
    assert out[0] == 12


def test_explicit_and_implicit_specialisation_share_one_kernel():  # Q13
    @sk.jit
    def kernel(out, N: sk.constexpr):
        out[0] = N

    explicit = kernel.specialize(N=3)
    assert kernel.specialize(N=3) is explicit
    kernel[1, 1](_out(), 3)
    kernel[1, 1](_out(), N=3)
    assert kernel.cache_size == 1
    assert len(explicit._variants) == 1


def test_rebinding_in_a_branch_takes_effect_there_only(run):  # Q16
    @sk.jit
    def kernel(p: sk.int32, out, START: sk.constexpr, OTHER: sk.constexpr):
        s = START
        if p > 0:
            if p > 1:
                s = OTHER
        out[0] = s
        for _ in range(2):
            if p > 2:
                s = OTHER
        out[1] = s

    for start, other in ((1, 2), (1.5, 2.5), (True, False)):
        for p in range(4):
            out = _out(dtype=np.float64)
            run(kernel, p, out, START=start, OTHER=other)
            assert list(out[:2]) == [other if p > 1 else start, other if p > 1 else start]


def test_captured_values_separate_kernels(run):  # Q17
    class Config:
        scale = 4

    def make(k):
        table = {"k": k}

        @sk.jit
        def kernel(out, d=k):
            out[0] = k * 100 + table["k"] * 10 + Config.scale
            out[1] = d

        return kernel

    two, three = make(2), make(3)
    for kernel, k in ((two, 2), (three, 3), (two, 2)):
        out = _out()
        run(kernel, out, k)
        assert out[0] == k * 110 + 4


def test_boolean_operators_on_run_time_values(run):  # Q20
    @sk.jit
    def kernel(x: sk.int32, out, C: sk.constexpr):
        out[0] = 1 if C and x else 0
        out[1] = 1 if x and C else 0
        out[2] = 1 if not x else 0
        out[3] = 1 if not (x and not C) or x > 5 else 0

    for c, x in itertools.product((False, True), (0, 3, 9)):
        out = _out()
        run(kernel, x, out, C=c)
        assert list(out) == [int(bool(c and x)), int(bool(x and c)), int(not x), int(not (x and not c) or x > 5)]


def _is_inside(t, n):
    return t < n


def test_staging_follows_the_value_not_the_syntax():  # Q22
    def ir_of(style):
        @sk.jit(name="kernel")
        def kernel(x: sk.Tensor((None,), sk.int32), n: sk.int64, STYLE: sk.constexpr):
            t = sk.cuda.thread_idx("x")
            if STYLE == "inline":
                condition = t < n
            elif STYLE == "tuple":
                condition = (0, t < n)[1]
            elif STYLE == "helper":
                condition = _is_inside(t, n)
            else:
                condition = (lambda a, b: a < b)(t, n)
            if condition:
                x[t] = 1

        text = kernel.specialize(STYLE=style).ir
        return text[text.index("\n") :]

    assert ir_of("inline") == ir_of("tuple") == ir_of("helper") == ir_of("lambda")


def _collatz(v):
    steps = 0
    while v > 1:
        if v % 2 == 0:
            v = v // 2
        else:
            v = 3 * v + 1
        steps += 1
    return steps


def test_a_while_in_a_helper_under_an_if_in_a_loop(run):  # Q23
    @sk.jit
    def kernel(x, n, out):
        for j in range(n):
            if x[j] > 2:
                out[j] = _collatz(x[j])

    x = np.array([1, 7, 3, 2, 27])
    out = _out(5)
    run(kernel, x, 5, out)
    assert list(out) == [_collatz(int(v)) if v > 2 else -7 for v in x]


@pytest.mark.parametrize("order", [(32, 64), (64, 32)])
def test_only_the_branch_of_this_block_size_is_checked(order):  # Q27
    @sk.jit
    def kernel(out, BLOCK: sk.constexpr):
        if BLOCK >= 64:
            pair = (sk.arange(0, BLOCK), 1)
            sk.store(out + pair[0], pair[1])
        else:
            tile = sk.arange(0, BLOCK)
            sk.store(out + tile, tile * 2)

    for block in order:
        out = np.zeros(64, np.int64)
        kernel[(1,)](out, block)
        assert out[3] == (1 if block == 64 else 6)


def test_helpers_leave_no_call_and_locals_no_local_memory():  # Q29
    @sk.inline
    def poly(v, c):
        total = sk.float32(0)
        for k in c:
            total = total * v + k
        return total

    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), n: sk.int64):
        kept = sk.alloc_local((4,), sk.float32)
        for j in range(n):
            for k in sk.static_range(4):
                kept[k] = poly(x[j], (1, 2, 3)) + k
            x[j] = kept[0] + kept[3]

    report = kernel.specialize().report()
    ptx = kernel.specialize().ptx
    assert ".local" not in ptx
    assert not any(name.startswith("call") for name in report.instructions)
    assert sum(report.instructions.values()) < 120


def test_unrolling_has_a_budget_that_names_the_loops():  # Q30
    def make(budget):
        @sk.jit(unroll_budget=budget)
        def kernel(x: sk.Tensor((None,), sk.int32)):
            for a in sk.static_range(300):
                for b in sk.static_range(300):
                    if a * b == 1:
                        x[0] = 1

        return kernel.specialize()

    start = time.perf_counter()
    with pytest.raises(sk.StagingError, match="UNROLL_BUDGET") as error:
        _ = make(2000).ir
    assert time.perf_counter() - start < 5
    assert str(error.value).count("iterations") >= 2
    assert "x" in make(100_000).ir
