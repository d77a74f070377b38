"""Paths meet by value (R10): at a join and round a loop, in the least dtype that holds every value of both."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, DType, least_common
from tests.frontend.agreement import refuse
from tests.frontend.sources import module_of

TARGETS = ("interp", "cpu")


def _least(a: DType, b: DType) -> DType | None:
    """By the definition: the first, from narrow to wide, of those of one kind that hold every value of both."""
    if a is b:
        return a
    if "bool" in (a.kind, b.kind) or a.is_float != b.is_float:
        return None
    wider = sorted((d for d in ALL_DTYPES if d.is_float == a.is_float and d.kind != "bool"), key=lambda d: d.bits)
    return next((d for d in wider if _holds(d, a) and _holds(d, b)), None)


def _holds(wide: DType, narrow: DType) -> bool:
    if wide.is_integer:
        return wide.min <= narrow.min and narrow.max <= wide.max
    w, n = ml_dtypes.finfo(wide.numpy), ml_dtypes.finfo(narrow.numpy)
    in_range = float(w.max) >= float(n.max) and float(w.smallest_subnormal) <= float(n.smallest_subnormal)
    return bool(w.nmant >= n.nmant and in_range)


def test_two_dtypes_meet_in_the_least_that_holds_both():
    pairs = itertools.product(ALL_DTYPES, repeat=2)
    assert [] == [(a, b) for a, b in pairs if least_common(a, b) is not _least(a, b)]


@sk.jit
def chosen(out, x, y, swap):
    """The same choice in every construct that joins."""
    if swap:
        by_if = y[0]
    else:
        by_if = x[0]
    carried = x[0]
    for i in range(swap):
        carried = y[0]
    counted = x[0]
    i = 0
    while i < swap:
        i += 1
        counted = y[0]
        if i == 1:
            break
    out[0] = by_if
    out[1] = y[0] if swap else x[0]
    out[2] = carried
    out[3] = counted
    out[4] = returned(x[0], y[0], swap)
    match swap:
        case 1:
            matched = y[0]
        case _:
            matched = x[0]
    out[5] = matched
    pair = [x[0], y[0]]
    if swap:
        pair[0] = y[0]
    out[6] = pair[0]


def returned(a, b, swap):
    if swap:
        return b
    return a


def _edges(dtype: DType) -> list[object]:
    if dtype.is_integer:
        return [dtype.min, dtype.max, 1]
    info = ml_dtypes.finfo(dtype.numpy)
    return [float(info.max), float(info.smallest_subnormal), -0.0]


PAIRS = [
    (a, b)
    for kind in (INTEGER_DTYPES, FLOAT_DTYPES)
    for a, b in itertools.combinations(kind, 2)
    if least_common(a, b) is not None
]


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda d: d.name)
def test_no_value_is_lost_where_two_dtypes_meet(a, b):
    met = least_common(a, b)
    for swap, (left, right) in itertools.product((0, 1), zip(_edges(a), _edges(b))):
        out = np.zeros(7, met.numpy)
        sk.compile(chosen, "interp")[1, 1](out, np.array([left], a.numpy), np.array([right], b.numpy), swap)
        wanted = np.array([right if swap else left], met.numpy)
        assert out.tobytes() == wanted.tobytes() * 7


@pytest.mark.parametrize(("a", "b"), [(sk.int32, sk.uint32), (sk.int8, sk.uint8), (sk.float16, sk.bfloat16)])
def test_no_value_is_lost_on_the_cpu_either(a, b):
    out = np.zeros(7, least_common(a, b).numpy)
    chosen[1, 1](out, np.array([_edges(a)[0]], a.numpy), np.array([_edges(b)[1]], b.numpy), 1)
    assert (out == np.array(_edges(b)[1], out.dtype)).all()


REFUSED = [(sk.int64, sk.uint64), (sk.int8, sk.uint64), (sk.int32, sk.float32), (sk.bool_, sk.int32)]


@pytest.mark.parametrize(("a", "b"), REFUSED)
def test_what_no_dtype_holds_is_refused(a, b):
    with pytest.raises(sk.StagingError) as error:
        chosen[1, 1](np.zeros(7), np.zeros(1, a.numpy), np.zeros(1, b.numpy), 1)
    assert error.value.id in ("JOIN_MISMATCH", "LOOP_TYPE_CHANGE")
    assert a.name in str(error.value)
    assert b.name in str(error.value)


def test_a_python_int_changed_by_a_loop_counter():  # R10
    @sk.jit
    def kernel(out, col, n):
        for i in range(n):
            if col > i:
                col -= i + 1
        out[0] = col

    for target in TARGETS:
        out = np.zeros(1, np.int64)
        sk.compile(kernel, target)[1, 1](out, 20, 4)
        assert out[0] == 20 - 1 - 2 - 3 - 4


LITERALS = [
    (sk.int8, 127, sk.int8),
    (sk.int8, 128, sk.int32),
    (sk.uint8, -1, sk.int32),
    (sk.uint32, -1, sk.int64),
    (sk.int32, 2**40, sk.int64),
    (sk.uint64, 2**63, sk.uint64),
]


@pytest.mark.parametrize(("dtype", "literal", "met"), LITERALS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_literal_that_does_not_fit_counts_as_its_own_type(dtype, literal, met, target):
    @sk.jit
    def kernel(out, x, c):
        out[0] = x[0] if c else literal
        start = literal
        for i in range(c):
            start = x[0]
        out[1] = start

    given = np.array([dtype.max], dtype.numpy)
    for c, wanted in ((1, dtype.max), (0, literal)):
        out = np.zeros(2, met.numpy)
        sk.compile(kernel, target)[1, 1](out, given, c)
        assert out.tolist() == [wanted, wanted]


def test_a_number_made_of_literals_at_run_time_keeps_its_value_beside_a_narrow_one():
    @sk.jit
    def kernel(out, x, n):
        k = 0
        while k < n:
            k += 1
        if n > 500:
            k = x[0]
        out[0] = k

    for target in TARGETS:
        out = np.zeros(1, np.int64)
        sk.compile(kernel, target)[1, 1](out, np.ones(1, np.int8), 300)
        assert out[0] == 300


def test_a_store_into_an_element_keeps_the_dtype_of_the_array():
    @sk.jit
    def kernel(A, n):
        for i in range(n):
            A[0] += i

    given = np.zeros(1, np.int8)
    kernel[1, 1](given, 5)
    assert given.tolist() == [10]


def divided_by_what_starts_as_zero(x, n):
    v, s = 0, 0
    for i in range(n):
        if i > 0:
            s += 10 // v
        v = i + 1
    return s


def integer_before_the_float_comes(x, n):
    acc, last = 0, 0
    for i in range(n):
        acc = last * i
        last = x[i]
    return acc


def float_and_integer_until_both_are_floats(x, n):
    h = 0
    for i in range(n):
        if i > 2:
            h += min(h, h * 1.25) * 3
        else:
            h = x[i] if i > 0 else 0.5
    return h


def in_a_loop_of_an_inner_loop(x, n):
    col, total = sk.int32(9), 0
    for i in range(n):
        j = 0
        while j < n:
            j += 1
            for k in range(j):
                if col > k:
                    col -= k
                total += col
    return total


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "program",
    [
        divided_by_what_starts_as_zero,
        integer_before_the_float_comes,
        float_and_integer_until_both_are_floats,
        in_a_loop_of_an_inner_loop,
    ],
)
def test_an_error_of_a_round_with_wrong_types_is_not_one(program, target):
    @sk.jit
    def kernel(out, x, n):
        out[0] = program(x, n)

    out, given = np.zeros(1), np.arange(1, 9, dtype=np.float32)
    sk.compile(kernel, target)[1, 1](out, given, 5)
    assert out[0] == program(given.tolist(), 5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_literal_is_measured_by_the_dtype_that_the_loop_ends_with(target):
    @sk.jit
    def kernel(out, n):
        v = sk.int8(1)
        for i in range(n):
            if i > 1:
                v = v + 1000  # too large for the int8 of the first round
            v = v + i
        out[0] = v

    out = np.zeros(1)
    sk.compile(kernel, target)[1, 1](out, 5)
    assert out[0] == 1 + 3 * 1000 + sum(range(5))


def test_an_error_of_the_last_round_is_reported_once_with_its_line():
    def program(n):
        v = 0
        for i in range(n):
            w = v.nope
            v = i
        return v

    error = refuse(program, 3)
    assert error.id == "NO_ATTRIBUTE"
    assert error.loc.line == program.__code__.co_firstlineno + 3


def test_a_text_that_a_loop_changes_inside_a_tuple_is_refused():
    def program(n):
        pair = ("a", n)
        for i in range(n):
            pair = ("b", pair[1] + 1)
        return 1 if pair[0] == "a" else 2

    assert refuse(program, 3).id == "LOOP_TYPE_CHANGE"


VARIABLES = ("a", "b", "v0", "v1")


@st.composite
def blocks(draw, indent: int, depth: int) -> list[str]:
    """Statements over integers of several widths, whose values stay small."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["set", "set", "if", "for", "while"] if depth < 3 else ["set"]))
        name, other = (
            draw(st.sampled_from(VARIABLES)),
            draw(st.sampled_from([*VARIABLES, "x[a % 3]", "y[b % 3]", "7", "-2"])),
        )
        pad = "    " * indent
        if kind == "set":
            operator = draw(st.sampled_from(["+", "-", "*"]))
            lines += [f"{pad}{name} = {draw(st.sampled_from([other, f'({name} {operator} {other}) % 101']))}"]
            continue
        head = {"if": f"if {name} > {other}:", "for": f"for i{depth} in range({name} % 4):"}
        if kind == "while":
            lines += [f"{pad}k{depth} = 0", f"{pad}while k{depth} < {name} % 3:", f"{pad}    k{depth} += 1"]
        else:
            lines.append(pad + head[kind])
        inner = draw(blocks(indent + 1, depth + 1))
        lines += inner if kind == "if" else [*inner, f"{pad}    {name} = {other} + {'ik'[kind == 'while']}{depth}"]
    return lines


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_integers_of_mixed_widths_give_what_python_gives(data, tmp_path_factory):
    text = "def program(a, b, v0, v1, x, y):\n" + "\n".join(data.draw(blocks(1, 0))) + "\n    return a, b, v0, v1\n"
    program = module_of(tmp_path_factory.mktemp("joins"), text).program
    x_dtype, y_dtype = (data.draw(st.sampled_from([sk.int16, sk.int32, sk.int64])) for _ in "xy")
    v0, v1 = (data.draw(st.sampled_from([0, np.int16(3), np.int64(-4), np.int32(5)])) for _ in "vw")
    x, y, out = np.array([3, 50, 99], x_dtype.numpy), np.array([-7, 0, 8], y_dtype.numpy), np.zeros(4, np.int64)

    @sk.jit
    def kernel(out, a, b, x, y):
        for index, value in enumerate(program(a, b, v0, v1, x, y)):
            out[index] = value

    sk.compile(kernel, data.draw(st.sampled_from(TARGETS)))[1, 1](out, 6, 9, x, y)
    assert out.tolist() == list(program(6, 9, int(v0), int(v1), x.tolist(), y.tolist()))


def test_the_trace_names_the_lines_where_a_variable_widened():
    @sk.jit
    def kernel(out, col, x, n):
        for i in range(n):
            if col > i:
                col -= i + 1
        y = col if n > 2 else x[0]
        acc = 0
        for i in range(n):
            acc += x[i]
        out[0] = y + acc

    made = kernel.specialize(out=sk.Tensor((None,), sk.int64), col=sk.int32, x=sk.Tensor((None,), sk.int16), n=sk.int32)
    first = kernel.__wrapped__.__code__.co_firstlineno
    assert made.trace().widened == (
        f"line {first + 2}: col is int64, where int32 and int64 meet",
        f"line {first + 5}: the result is int64, where int16 and int64 meet",
    )


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32])
def test_min_and_max_take_literals_that_the_other_dtype_does_not_hold(dtype, target):  # R10
    @sk.jit
    def kernel(out, A):
        low, high = -70_000, 5_000_000_000
        out[0] = min(A[0], 0, high)
        out[1] = max(A[0], low)
        out[2] = max(A[0], high)
        out[3] = min(A[0], low, 3)
        out[4] = max((1, A[0]), key=lambda each: 0 - int(each))

    out = np.zeros(5, np.int64)
    sk.compile(kernel, target)[1, 1](out, np.array([7], dtype))

    assert out.tolist() == [0, 7, 5_000_000_000, -70_000, 1]
