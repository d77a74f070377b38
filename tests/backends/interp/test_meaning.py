"""Every op on every dtype, against one thread at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.backends.interp import CHECKED, UNCHECKED, Options, Schedule, run
from stagekit.backends.interp.engine import BUILDERS
from stagekit.backends.interp.natives import NATIVES
from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES, DType
from stagekit.ir import INDEX, BinaryKind, CompareKind, Function, IrError, Native, UnaryKind, Value, ops, semantics
from stagekit.ir.core import OP_CLASSES
from tests.backends.interp.kernels import Kernel, pointer, scalar
from tests.backends.interp.per_thread import run_threads
from tests.cells import cell

Array = np.ndarray[Any, np.dtype[Any]]
ONE = (1, 1, 1)

_EDGES = {
    "bool": [False, True],
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.0, float("inf"), float("-inf"), float("nan"), 1e-5, 65504.0],
}


def edges(dtype: DType) -> Array:
    """Values at which arithmetic tends to be wrong."""
    given = _EDGES.get(dtype.kind) or [
        0,
        1,
        2,
        3,
        7,
        dtype.max,
        dtype.max - 1,
        dtype.min,
        dtype.min + 1,
        dtype.max // 2,
    ]
    return np.array([semantics.typed(v, dtype) for v in given], dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Every pair of edge values."""
    values = edges(dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def same_bits(a: Array, b: Array) -> bool:
    """Equal bit for bit, all NaNs being one."""
    as_bytes = [np.where(np.isnan(x.astype(np.float64)), 0, 1) for x in (a, b)]
    return np.array_equal(as_bytes[0], as_bytes[1]) and np.array_equal(
        a[as_bytes[0] == 1].view(f"u{a.itemsize}"), b[as_bytes[1] == 1].view(f"u{b.itemsize}")
    )


def run_elementwise(fn: Function, arrays: list[Array], out: Array) -> Array:
    """One thread per element of `out`."""
    run(fn, [*arrays, out], ONE, (len(out), 1, 1))
    return out


def elementwise(inputs: list[DType], result: DType, compute: Any) -> Function:
    """A thread per element."""
    k = _with_arrays(inputs, result)
    _compute_at(k, k.tid(), compute)
    return k.done()


def one_by_one(inputs: list[DType], result: DType, compute: Any) -> Function:
    """All threads do all elements: every value is a scalar that they share."""
    k = _with_arrays(inputs, result)
    with k.repeat(k.dim()) as i:
        _compute_at(k, i, compute)
    return k.done()


def _with_arrays(inputs: list[DType], result: DType) -> Kernel:
    return Kernel(**{f"X{i}": pointer(d) for i, d in enumerate(inputs)}, OUT=pointer(result))


def _compute_at(k: Kernel, i: Value, compute: Any) -> None:
    inputs = [p for name, p in k.params.items() if name != "OUT"]
    k.store(k.OUT, i, compute(k, *(k.load(p, i) for p in inputs)))


each_shape = pytest.mark.parametrize("shape", [elementwise, one_by_one], ids=["lanes", "uniform"])


def _op(name: str, kind: Any) -> Any:
    return lambda k, *operands: getattr(k, name)(kind, *operands)


def _allowed(build: Any) -> Function | None:
    """The kernel, or None where the typing rules have no such op."""
    try:
        return build()
    except IrError:
        return None


@each_shape
@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_binary(shape: Any, dtype: DType) -> None:
    a, b = pairs(dtype)
    for kind in BinaryKind:
        compute = _op("binary", kind)
        fn = _allowed(lambda compute=compute: shape([dtype] * 2, dtype, compute))
        if fn is None:
            continue
        expected = np.array([semantics.binary(kind, dtype, x, y) for x, y in zip(a, b, strict=True)])
        with cell(kind):
            assert same_bits(expected, run_elementwise(fn, [a, b], np.zeros_like(a)))


@each_shape
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_compare(shape: Any, dtype: DType) -> None:
    a, b = pairs(dtype)
    for kind in CompareKind:
        fn = shape([dtype] * 2, dtypes.bool_, _op("compare", kind))
        expected = np.array([semantics.compare(kind, dtype, x, y) for x, y in zip(a, b, strict=True)])
        with cell(kind):
            assert np.array_equal(expected, run_elementwise(fn, [a, b], np.zeros(len(a), np.bool_)))


@each_shape
@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_unary(shape: Any, dtype: DType) -> None:
    values = edges(dtype)
    for kind in UnaryKind:
        compute = _op("unary", kind)
        fn = _allowed(lambda compute=compute: shape([dtype], dtype, compute))
        if fn is None:
            continue
        expected = np.array([semantics.unary(kind, dtype, x) for x in values])
        with cell(kind):
            assert same_bits(expected, run_elementwise(fn, [values], np.zeros_like(values)))


@each_shape
@pytest.mark.parametrize("source", ALL_DTYPES, ids=lambda d: d.name)
def test_cast(shape: Any, source: DType) -> None:
    values = edges(source)
    for target in ALL_DTYPES:
        fn = shape([source], target, lambda k, x, target=target: k.cast(x, target))
        expected = np.array([semantics.cast(x, source, target) for x in values], target.numpy)
        with cell(target.name):
            assert same_bits(expected, run_elementwise(fn, [values], np.zeros(len(values), target.numpy)))


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.kind != "bool"], ids=lambda d: d.name)
def test_bitcast_to_an_integer_and_back(dtype: DType) -> None:
    integer = dtypes.dtype_named(f"uint{dtype.bits}")
    values = edges(dtype)

    there = elementwise([dtype], integer, lambda k, x: k.bitcast(x, scalar(integer)))
    back = elementwise([integer], dtype, lambda k, x: k.bitcast(x, scalar(dtype)))
    bits = run_elementwise(there, [values], np.zeros(len(values), integer.numpy))

    assert np.array_equal(values.view(integer.numpy), bits)
    assert same_bits(values, run_elementwise(back, [bits], np.zeros_like(values)))


@each_shape
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_select(shape: Any, dtype: DType) -> None:
    a, b = pairs(dtype)
    flags = np.arange(len(a)) % 3 == 0
    fn = shape([dtypes.bool_, dtype, dtype], dtype, lambda k, c, x, y: k.select(c, x, y))

    assert same_bits(np.where(flags, a, b), run_elementwise(fn, [flags, a, b], np.zeros_like(a)))


def test_any_byte_but_zero_is_true() -> None:
    """A bool is one byte in memory, and foreign code may have left any value there."""
    stored = np.array([0, 1, 2, 255], np.uint8)
    fn = elementwise([dtypes.bool_], dtypes.int32, lambda k, x: k.cast(x, dtypes.int32))

    assert [0, 1, 1, 1] == run_elementwise(fn, [stored.view(np.bool_)], np.zeros(4, np.int32)).tolist()


def test_every_op_and_every_native_has_a_builder() -> None:
    elsewhere = {ops.Constant, ops.Yield, ops.Condition}  # in the compiler
    gone = {ops.InlineAsm, ops.Splat, ops.Pack, ops.Extract}  # expanded, and taken apart, by then
    gone |= {ops.ActOnce, ops.Statement}  # they live while a kernel is traced

    by_exchanges = {Native.ATOMIC_INC, Native.ATOMIC_DEC}  # of GPUs alone

    assert set(OP_CLASSES.values()) == {*BUILDERS, *elsewhere, *gone}
    assert set(Native) - by_exchanges == set(NATIVES)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_masked_load_and_store_touch_nothing_where_the_mask_is_false() -> None:
    k = Kernel(A=pointer(dtypes.float32), B=pointer(dtypes.float32), n=INDEX)
    i = k.tid()
    wild = k.select(k.lt(i, k.n), i, k.mul(i, k.i64(10**12)))
    mask = k.lt(i, k.n)
    k.store(k.B, wild, k.load(k.A, wild, mask, k.f32(-1)), mask)
    k.store(k.B, i, k.load(k.A, wild, mask, k.f32(-1)), k.not_(mask))
    a, b = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)

    report = run(k.done(), [a, b, 5], ONE, (8, 1, 1), options=CHECKED)

    assert report.is_clean
    assert [0, 1, 2, 3, 4, -1, -1, -1] == b.tolist()


def test_the_last_lane_wins_an_element() -> None:
    k = Kernel(A=pointer(dtypes.int64), B=pointer(dtypes.int64))
    k.store(k.A, k.i64(0), k.tid())
    k.store(k.B, k.mod(k.tid(), k.i64(3)), k.tid())
    a, b = np.zeros(1, np.int64), np.zeros(3, np.int64)

    run(k.done(), [a, b], ONE, (64, 1, 1))

    assert [63] == a.tolist()
    assert [63, 61, 62] == b.tolist()


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_a_view_is_reached_through_its_address(step: int) -> None:
    """A pointer is the address of element 0, wherever it lies in the memory of the view."""
    whole = np.arange(100, dtype=np.int32)
    view = whole[10:40:step] if step > 0 else whole[40:10:step]
    k = Kernel(A=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    k.store(k.OUT, k.tid(), k.load(k.A, k.mul(k.tid(), k.i64(step))))
    out = np.zeros(len(view), np.int32)

    report = run(k.done(), [view, out], ONE, (len(view), 1, 1), options=CHECKED)

    assert report.is_clean
    assert np.array_equal(view, out)


def test_local_memory_is_one_per_thread_and_shared_memory_one_per_block() -> None:
    k = Kernel(OUT=pointer(dtypes.int64))
    mine, ours = k.local(dtypes.int64, 4), k.shared(dtypes.int64, 1)
    with k.repeat(k.i64(4)) as i:
        k.store(mine, i, k.mul(k.tid(), i))
    with k.when(k.eq(k.tid(), k.i64(0))):
        k.store(ours, k.i64(0), k.bid())
    k.barrier()
    total = k.add(k.load(mine, k.i64(3)), k.mul(k.load(ours, k.i64(0)), k.i64(1000)))
    k.store(k.OUT, k.global_id(), total)
    out = np.zeros(3 * 40, np.int64)

    report = run(k.done(), [out], (3, 1, 1), (40, 1, 1), options=CHECKED)

    assert report.is_clean
    assert [1000 * b + 3 * t for b in range(3) for t in range(40)] == out.tolist()


def test_dynamic_shared_memory_has_the_size_of_the_launch() -> None:
    k = Kernel(OUT=pointer(dtypes.int32))
    first, again = k.shared(dtypes.int32, None, "dynamic"), k.shared(dtypes.int32, None, "dynamic")
    k.store(first, k.tid(), k.cast(k.tid(), dtypes.int32))
    k.store(k.OUT, k.tid(), k.load(again, k.tid()))
    fn, out = k.done(), np.zeros(32, np.int32)

    assert run(fn, [out], ONE, (32, 1, 1), 128, CHECKED).is_clean
    assert list(range(32)) == out.tolist()
    assert ["OUT_OF_BOUNDS"] * 2 == [f.id for f in run(fn, [out], ONE, (32, 1, 1), 64, CHECKED).findings]


def test_pointers_into_different_arrays_may_meet() -> None:
    k = Kernel(A=pointer(dtypes.int32), B=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    i = k.tid()
    place = k.select(k.lt(i, k.i64(10)), k.at(k.A, i), k.at(k.B, i))
    moved = k.select(k.eq(k.mod(i, k.i64(2)), k.i64(0)), place, k.offset(place, k.i64(1)))
    k.store(k.OUT, i, k.b.load(moved))
    a, b, out = np.arange(20, dtype=np.int32), np.arange(100, 121, dtype=np.int32), np.zeros(20, np.int32)

    report = run(k.done(), [a, b, out], ONE, (20, 1, 1), options=CHECKED)

    assert report.is_clean
    assert [(0 if i < 10 else 100) + i + i % 2 for i in range(20)] == out.tolist()


@pytest.mark.parametrize("options", [UNCHECKED, CHECKED], ids=["unchecked", "checked"])
def test_pointers_are_carried_through_loops_and_branches(options: Options) -> None:
    """Each lane walks as far as its number says, from an array that its parity chooses."""
    k = Kernel(A=pointer(dtypes.int32), B=pointer(dtypes.int32), OUT=pointer(dtypes.int32))
    i, b = k.tid(), k.b
    arms = []
    for base in (k.A, k.B):
        with b.block() as arm:
            b.yield_(k.at(base, k.i64(1)))
        arms.append(arm.done())
    (start,) = b.if_(k.eq(k.mod(i, k.i64(2)), k.i64(0)), arms[0], arms[1])
    counter, place = Value(INDEX), Value(start.type)
    with b.block((counter, place)) as body:
        b.yield_(k.offset(place, k.i64(2)))
    (end,) = b.for_((k.i64(0), i, k.i64(1)), (start,), body.done())
    k.store(k.OUT, i, b.load(end))
    arrays = np.arange(50, dtype=np.int32), np.arange(1000, 1050, dtype=np.int32)
    out = np.zeros(20, np.int32)

    report = run(k.done(), [*arrays, out], ONE, (20, 1, 1), options=options)

    assert report.is_clean
    assert [1 + 2 * n + 1000 * (n % 2) for n in range(20)] == out.tolist()


def test_a_pointer_to_other_elements_sees_the_same_bytes() -> None:
    k = Kernel(A=pointer(dtypes.float32), OUT=pointer(dtypes.uint8))
    k.store(k.OUT, k.tid(), k.load(k.bitcast(k.at(k.A, k.i64(1)), pointer(dtypes.uint8)), k.tid()))
    a, out = np.arange(3, dtype=np.float32), np.zeros(8, np.uint8)

    assert run(k.done(), [a, out], ONE, (8, 1, 1), options=CHECKED).is_clean
    assert a[1:].view(np.uint8).tolist() == out.tolist()


def test_addresses_compare_and_show_their_alignment() -> None:
    k = Kernel(A=pointer(dtypes.float32), OUT=pointer(dtypes.int64))
    here, there = k.at(k.A, k.tid()), k.at(k.A, k.i64(3))
    k.store(k.OUT, k.tid(), k.sub(k.bitcast(here, INDEX), k.bitcast(k.A, INDEX)))
    k.store(k.OUT, k.tid(), k.i64(-1), k.eq(here, there))
    out = np.zeros(5, np.int64)

    run(k.done(), [np.zeros(5, np.float32), out], ONE, (5, 1, 1))

    assert [0, 4, 8, -1, 16] == out.tolist()


# -- indices ----------------------------------------------------------------------------------------------------------


def test_indices_along_three_axes() -> None:
    k = Kernel(OUT=pointer(dtypes.int64))
    number = k.i64(0)
    for axis, extent in zip("zyx", (2, 3, 4), strict=True):
        number = k.add(k.mul(number, k.i64(extent)), k.bid(axis))
    for axis, extent in zip("zyx", (2, 5, 3), strict=True):
        number = k.add(k.mul(number, k.i64(extent)), k.tid(axis))
    k.store(k.OUT, number, number)
    out = np.full(24 * 30, -1, np.int64)

    report = run(k.done(), [out], (4, 3, 2), (3, 5, 2), options=CHECKED)

    assert report.is_clean
    assert list(range(720)) == out.tolist()


def test_extents_lanes_and_warps() -> None:
    k = Kernel(OUT=pointer(dtypes.int64))
    total = k.add(k.mul(k.call("warp_id"), k.i64(1000)), k.call("lane_id"))
    for name in ("block_dim", "grid_dim"):
        total = k.add(total, k.mul(k.call(name, params=("y",)), k.i64(10**6)))
    k.store(k.OUT, k.add(k.tid(), k.mul(k.tid("y"), k.i64(25))), total)
    out = np.zeros(50, np.int64)

    run(k.done(), [out], (1, 7, 1), (25, 2, 1))

    assert [t // 32 * 1000 + t % 32 + 9 * 10**6 for t in range(50)] == out.tolist()


# -- prints and asserts -----------------------------------------------------------------------------------------------


def test_prints_keep_blocks_together() -> None:
    k = Kernel()
    with k.when(k.lt(k.tid(), k.i64(2))):
        k.print_("{} of {}\n", (k.tid(), k.bid()))
        k.print_("again {}\n", (k.tid(),))

    report = run(k.done(), [], (2, 1, 1), (64, 1, 1))

    expected = [f"{t} of {b}\n" if not again else f"again {t}\n" for b in (0, 1) for again in (0, 1) for t in (0, 1)]
    assert expected == [m.text for m in report.prints]
    assert ((1, 0, 0), (1, 0, 0)) == (report.prints[-1].who.block, report.prints[-1].who.thread)


def test_a_failed_assert_is_reported_and_the_kernel_goes_on() -> None:
    k = Kernel(OUT=pointer(dtypes.float32))
    value = k.cast(k.tid(), dtypes.float32)
    k.check(k.lt(value, k.f32(3)), "{:.1f} is too much", (value,))
    k.store(k.OUT, k.tid(), value)
    out = np.zeros(5, np.float32)

    report = run(k.done(), [out], ONE, (5, 1, 1))

    assert ["3.0 is too much", "4.0 is too much"] == [m.text for m in report.failures]
    assert (3.0,) == report.failures[0].values
    assert 4.0 == out[4]


# -- programs ---------------------------------------------------------------------------------------------------------

LANES = 40
_LEAF = st.sampled_from(["input", "other", "lane", "constant"])


@st.composite
def statements(draw: st.DrawFn, depth: int) -> list[Any]:
    """A list of statements over one integer variable."""
    kinds = ["add", "mul", "sub", "mod", "shr", "select", "store"]
    nested = ["if", "for", "while"] if depth else []
    made = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds + nested * 2))
        body = [draw(statements(depth - 1)) for _ in range(2)] if kind in nested else []
        made.append((kind, draw(_LEAF), draw(st.integers(-3, 9)), body))
    return made


class Writer:
    """Turns statements into IR. The variable is an int64, kept small by `mod`."""

    def __init__(self) -> None:
        self.k = Kernel(A=pointer(dtypes.int64), B=pointer(dtypes.int64), OUT=pointer(dtypes.int64))
        self.lane = self.k.global_id()

    def leaf(self, name: str, number: int) -> Value:
        k = self.k
        table = {
            "input": lambda: k.load(k.A, self.lane),
            "other": lambda: k.load(k.B, k.mod(k.add(self.lane, k.i64(number)), k.i64(LANES))),
            "lane": lambda: self.lane,
            "constant": lambda: k.i64(number),
        }
        return table[name]()

    def run(self, program: list[Any], x: Value) -> Value:
        for kind, leaf, number, bodies in program:
            x = getattr(self, f"make_{kind}", self.make_binary)(kind, x, self.leaf(leaf, number), bodies)
        return x

    def make_binary(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        return self.k.mod(self.k.binary(BinaryKind(kind), x, y), self.k.i64(1009))

    def make_select(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        return self.k.select(self.k.lt(x, y), y, self.k.neg(x))

    def make_store(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        self.k.store(self.k.OUT, self.lane, self.k.add(self.k.load(self.k.OUT, self.lane), x))
        return x

    def make_if(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        b = self.k.b
        arms = []
        for body in bodies:
            with b.block() as arm:
                b.yield_(self.run(body, x))
            arms.append(arm.done())
        return b.if_(self.k.lt(x, y), arms[0], arms[1])[0]

    def make_for(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        k, b = self.k, self.k.b
        counter, carried = Value(INDEX), Value(INDEX)
        with b.block((counter, carried)) as body:
            b.yield_(self.run(bodies[0], k.add(carried, counter)))
        stop = k.mod(y, k.i64(5))
        return b.for_((k.i64(-2), stop, k.i64(2)), (x,), body.done())[0]

    def make_while(self, kind: str, x: Value, y: Value, bodies: list[Any]) -> Value:
        k, b = self.k, self.k.b
        rounds = k.mod(y, k.i64(4))
        n, value, m, there = (Value(INDEX) for _ in range(4))
        with b.block((n, value)) as before:
            b.condition(k.lt(n, rounds), n, self.run(bodies[0], value))
        with b.block((m, there)) as after:
            b.yield_(k.add(m, k.i64(1)), self.run(bodies[1], there))
        return b.while_((k.i64(0), x), before.done(), after.done())[1]

    def done(self, program: list[Any]) -> Function:
        self.k.store(self.k.OUT, self.lane, self.run(program, self.k.load(self.k.A, self.lane)))
        return self.k.done()


_SCHEDULES = [UNCHECKED, CHECKED, Options(schedule=Schedule("random", 5)), Options(schedule=Schedule("backward"))]


@settings(max_examples=60, deadline=None)
@given(
    program=statements(depth=2),
    seed=st.integers(0, 100),
    blocks=st.sampled_from([1, 4]),
    options=st.sampled_from(_SCHEDULES),
)
def test_control_flow_under_masks_means_what_one_thread_does(
    program: list[Any], seed: int, blocks: int, options: Options
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-20, 20, LANES) for _ in range(2))
    fn = Writer().done(program)
    expected, actual = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)

    run_threads(fn, [a, b, expected], LANES // blocks, blocks)
    report = run(fn, [a, b, actual], (blocks, 1, 1), (LANES // blocks, 1, 1), options=options)

    assert {f.id for f in report.findings} <= {"SHIFT_OUT_OF_RANGE", "DIVISION_BY_ZERO"}
    assert expected.tolist() == actual.tolist()


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(dtypes.INTEGER_DTYPES),
    bounds=st.lists(st.tuples(*[st.integers(-130, 130)] * 3), min_size=1, max_size=20),
)
def test_a_range_has_pythons_length_lane_by_lane(dtype: DType, bounds: list[tuple[int, int, int]]) -> None:
    """Bounds that differ between lanes, at the ends of the dtype too, where the counter must not wrap."""
    columns = [
        np.array([min(max(x, dtype.min), dtype.max) for x in c]).astype(dtype.numpy) for c in zip(*bounds, strict=True)
    ]
    k = Kernel(**dict.fromkeys(("LO", "HI", "STEP"), pointer(dtype)), OUT=pointer(dtypes.int64))
    i, counter, carried = k.tid(), Value(scalar(dtype)), Value(INDEX)
    with k.b.block((counter, carried)) as body:
        k.b.yield_(k.add(k.mul(carried, k.i64(3)), k.cast(counter, dtypes.int64)))
    loop = tuple(k.load(p, i) for p in (k.LO, k.HI, k.STEP))
    k.store(k.OUT, i, k.b.for_(loop, (k.i64(0),), body.done())[0])
    fn = k.done()
    expected, actual = np.zeros(len(bounds), np.int64), np.zeros(len(bounds), np.int64)

    run_threads(fn, [*columns, expected], len(bounds))
    run(fn, [*columns, actual], ONE, (len(bounds), 1, 1))

    assert expected.tolist() == actual.tolist()
