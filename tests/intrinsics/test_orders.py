"""Loads, stores, atomics and fences with an order and a scope: their instructions, their meaning, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from tests.cells import cell
from tests.places import each_place, run

SCOPES = {"block": "cta", "gpu": "gpu", "sys": "sys"}
INTEGERS = (sk.int8, sk.uint16, sk.int32, sk.uint32, sk.int64, sk.uint64)
WIDTHS = (*INTEGERS, sk.float16, sk.bfloat16, sk.float32, sk.float64)
UPDATES = ("add", "sub", "min", "max", "and", "or", "xor", "exchange", "cas")

ORDERED = r"^\t*((?:ld\.(?:relaxed|acquire)|st\.(?:relaxed|release)|atom|fence|membar)[.\w]*)"


def instructions(kernel, *, is_assembled=True):
    """What of the PTX is ordered or atomic, without operands, once the real ptxas has taken it."""
    if is_assembled and ptxas.find_tool("ptxas"):
        assert ptxas.assemble(kernel.ptx).cubin
    return re.findall(ORDERED, kernel.ptx, re.M)


# -- instructions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("load_order", "store_order"), [("relaxed", "relaxed"), ("acquire", "release")])
def test_loads_and_stores_of_every_width(load_order, store_order, scope):
    @sk.jit
    def kernel(base: sk.Pointer(sk.uint8), on: sk.int32):
        for dtype in WIDTHS:
            p = base.to(dtype)
            x = sk.load(p, mask=on > 0, other=0, order=load_order, scope=scope)
            sk.store(p, x, mask=on > 1, order=store_order, scope=scope)

    ends = [f"{SCOPES[scope]}.global.b{dtype.bits}" for dtype in WIDTHS]
    expected = [f"{verb}.{end}" for end in ends for verb in (f"ld.{load_order}", f"st.{store_order}")]
    assert expected == instructions(kernel.specialize())


@pytest.mark.parametrize("scope", ["block", "sys"])
@pytest.mark.parametrize("order", ["relaxed", "acquire", "acq_rel", "seq_cst"])
def test_every_update_has_its_order_in_every_width(order, scope):
    @sk.jit
    def kernel(base: sk.Pointer(sk.uint8), dtypes: sk.constexpr):
        for dtype in dtypes:
            for name in UPDATES:
                for p in (base.to(dtype), sk.alloc_shared(4, dtype).ptr):
                    values = (1, 2) if name == "cas" else (1,)
                    getattr(sk, f"atomic_{name}")(p, *values, order=order, scope=scope)

    # behind a fence that is sequentially consistent LLVM's own compare-and-swap needs only acquire
    sems = ("atom.acq_rel.", "atom.acquire.") if order == "seq_cst" else f"atom.{order}."
    for dtypes in ((sk.int32, sk.uint64), (sk.uint8,)):
        # ptxas takes half a second for each; of a scope there is one word, which loads and stores try with it
        made = instructions(kernel.specialize(dtypes=dtypes), is_assembled=scope == "sys" or order == "acq_rel")
        atoms = [each for each in made if each.startswith("atom")]

        assert len(atoms) == 2 * len(UPDATES) * len(dtypes)
        assert all(SCOPES[scope] in each.split(".") for each in made)
        strong = sum(each.startswith(sems) for each in atoms)
        # LLVM's compare-and-swap of a narrow element is relaxed, between fences
        assert strong == len(atoms) - (2 if dtypes == (sk.uint8,) and order != "relaxed" else 0)


@pytest.mark.parametrize("scope", SCOPES)
def test_fences(scope):
    @sk.jit
    def kernel(p: sk.Pointer(sk.int32)):
        sk.store(p, 1)
        sk.fence(scope=scope)
        sk.store(p, 2)
        sk.fence("seq_cst", scope)
        sk.store(p, 3)

    old = {"block": "cta", "gpu": "gl", "sys": "sys"}[scope]
    assert [f"fence.acq_rel.{SCOPES[scope]}", f"membar.{old}"] == instructions(kernel.specialize())


def test_no_pass_drops_merges_or_moves_what_is_ordered():
    @sk.jit
    def kernel(p: sk.Pointer(sk.int32), q: sk.Pointer(sk.int32), n: sk.int32):
        sk.load(p, order="relaxed")
        if sk.load(p, order="relaxed") == sk.load(p, order="relaxed"):
            sk.store(q, 1, order="relaxed")
            sk.store(q, 1, order="relaxed")
        for _ in range(n):
            sk.store(q, sk.load(p, order="acquire"), order="release")

    made = instructions(kernel.specialize())

    counts = {
        name: sum(name in each for each in made) for name in ("ld.relaxed", "st.relaxed", "ld.acquire", "st.release")
    }
    assert {"ld.relaxed": 3, "st.relaxed": 2} == {name: counts[name] for name in ("ld.relaxed", "st.relaxed")}
    assert counts["ld.acquire"] == counts["st.release"] >= 1


# -- programs of blocks -----------------------------------------------------------------------------------------------


@sk.jit
def running_sums(src, sums, ready, out, WIDTH: sk.constexpr, order: sk.constexpr, back: sk.constexpr):
    """Each program adds up its tile, waits for the sum of those before it, and passes on the sum of both."""
    i, me = sk.arange(0, WIDTH), sk.program_id(0)
    x = sk.load(src + me * WIDTH + i)
    before = sk.int32(0)
    if me > 0:
        while sk.load(ready + me - 1, order="acquire") == 0:
            pass
        before = sk.load(sums + me - 1)
    sk.store(sums + me, before + sk.reduce_sum(x))
    sk.store(out + me * WIDTH + i, x + before)
    if order == "fence":
        sk.fence()
        sk.atomic_exchange(ready + me, 1)
    elif order == "update":
        sk.atomic_add(ready + me, 1, order="release")
    else:
        sk.store(ready + me, 1, order=order)
    if me > 0 and back:  # what the program before has written is there: it is read the other way round
        y = sk.load(out + me * WIDTH - 1 - i)
        sk.store(src + me * WIDTH + i, y)


def expected_sums(src, width, back):
    tiles = src.reshape(-1, width)
    sums = np.cumsum(tiles.sum(axis=1), dtype=np.int32)
    out = tiles + np.concatenate([[0], sums[:-1]]).astype(np.int32)[:, None]
    after = np.concatenate([tiles[:1], out[:-1, ::-1]]) if back else tiles
    return [after.reshape(-1), sums, np.ones(len(sums), np.int32), out.reshape(-1)]


@settings(max_examples=25, deadline=None)
@given(
    programs=st.integers(1, 6),
    width=st.sampled_from([1, 8, 32, 33, 64, 100, 1024, 2048]),
    order=st.sampled_from(["release", "seq_cst", "fence", "update"]),
    back=st.booleans(),
    seed=st.integers(0, 99),
)
def test_programs_hand_over_whatever_the_threads(programs, width, order, back, seed):
    src = np.random.default_rng(seed).integers(-99, 99, programs * width, dtype=np.int32)
    zeros = np.zeros(programs, np.int32)
    named = {"WIDTH": width, "order": order, "back": back}

    watch = sk.sanitize(running_sums, order="random", seed=seed)
    for launch in (running_sums, watch):
        arrays = [src.copy(), zeros.copy(), zeros.copy(), src * 0]
        launch[programs](*arrays, **named)

        for found, expected in zip(arrays, expected_sums(src, width, back), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["release", "seq_cst", "fence", "update"])
@pytest.mark.parametrize("width", [32, 100, 1024])
def test_programs_hand_over_on_a_gpu(width, order):
    src = np.random.default_rng(width).integers(-99, 99, 2000 * width, dtype=np.int32)
    zeros = np.zeros(2000, np.int32)
    arrays = [sk.cuda.to_device(each) for each in (src, zeros, zeros, src * 0)]

    running_sums[2000](*arrays, WIDTH=width, order=order, back=True)

    for found, expected in zip(arrays, expected_sums(src, width, True), strict=True):
        np.testing.assert_array_equal(found.to_host(), expected)


@pytest.mark.parametrize(
    ("order", "reasons"),
    [
        ("relaxed", []),
        ("release", ["a barrier before it releases what other threads did"]),
        ("seq_cst", ["a barrier before it releases what other threads did"]),
    ],
)
def test_a_release_waits_for_the_block_and_nothing_else_does(order, reasons):
    @sk.jit
    def kernel(data: sk.Tensor((128,), sk.int32), flag: sk.Tensor((1,), sk.int32)):
        i = sk.arange(0, 128)
        sk.store(data + i, i)
        sk.store(flag, 1, order=order)

    k = kernel.specialize()

    assert len(reasons) == k.ptx.count("bar.sync") == sum("releases" in line for line in str(k.report()).splitlines())


def test_tiles_are_accessed_with_an_order():
    @sk.jit
    def kernel(src, flags, out, N: sk.constexpr):
        i = sk.arange(0, N)
        if sk.program_id(0) == 0:
            sk.store(out + i, sk.load(src + i))
            sk.store(flags + i, 1, order="release")
        else:
            seen = sk.load(flags + i, order="acquire", mask=i < N - 1, other=1)
            while sk.reduce_sum(seen) < N:
                seen = sk.load(flags + i, order="acquire", mask=i < N - 1, other=1)
            sk.store(src + i, sk.load(out + (N - 1 - i)))

    for n in (2, 31, 64, 100):  # of one element no flag is read: the programs would race
        src, flags, out = np.arange(n, dtype=np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
        kernel[2](src, flags, out, N=n)

        np.testing.assert_array_equal(src, np.arange(n)[::-1])


# -- meaning ----------------------------------------------------------------------------------------------------------


@sk.jit
def every_order(numbers, out, dtype: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    p, bit = numbers.ptr, dtype(i % 7)
    for order in ("relaxed", "acquire", "release", "acq_rel", "seq_cst"):
        for scope in ("block", "gpu", "sys"):
            sk.atomic_add(p, 1, order=order, scope=scope)
            sk.atomic_or(p + 1, dtype(1) << bit, order=order, scope=scope)
            sk.atomic_max(p + 2, dtype(i), order=order, scope=scope)
            sk.atomic_and(p + 3, ~(dtype(1) << bit), order=order, scope=scope)
            sk.atomic_xor(p + 4, dtype(3) << dtype(i % 5), order=order, scope=scope)
    sk.syncthreads()
    sk.store(out + i, sk.load(p + i % 5, order="seq_cst"), order="seq_cst")


@each_place
@pytest.mark.parametrize("dtype", [sk.uint8, sk.int16, sk.int32, sk.uint64], ids=lambda dtype: dtype.name)
def test_every_order_computes_the_same(place, dtype):
    numbers = np.array([0, 0, 0, 127, 1], dtype.numpy)

    after, out = run(place, every_order[1, 64], [numbers, np.zeros(64, dtype.numpy)], dtype=dtype)

    xors = np.bitwise_xor.reduce([1, *[3 << (i % 5) for i in range(64)] * 15])
    expected = np.array([15 * 64, 127, 63, 0, xors]).astype(dtype.numpy)
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(out, expected[np.arange(64) % 5])


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "texts"),
    [
        (lambda p: sk.load(p, order="release"), ["`order` of `load` is 'release'", "'relaxed', 'acquire', 'seq_cst'"]),
        (lambda p: sk.store(p, 1, order="acq_rel"), ["`order` of `store` is 'acq_rel'", "'release'"]),
        (lambda p: sk.atomic_add(p, 1, scope="cta"), ["`scope` of `atomic_add`", "'cta' is called 'block' here"]),
        (lambda p: sk.load(p, order="acquire", scope="device"), ["'device' is called 'gpu' here"]),
        (lambda p: sk.atomic_add(p, 1, order="acquire_release"), ["'acquire_release' is called 'acq_rel' here"]),
        (lambda p: sk.load(p, order="volatile"), ["'volatile' is called 'relaxed' here"]),
        (lambda p: sk.atomic_add(p, 1, sem="relaxed"), ["has no argument `sem`", "it is called `order` here"]),
        (lambda p: sk.load(p, sem="acquire"), ["`sem=` is called `order=` here"]),
        (lambda p: sk.fence("relaxed"), ["`order` of `fence` is 'relaxed'", "'acq_rel', 'seq_cst'"]),
        (lambda p: sk.load(sk.alloc_local(1, sk.int32), order="relaxed"), ["NO_OVERLOAD", "global or shared memory"]),
        (lambda p: sk.load(p.to(sk.bool_), scope="gpu"), ["NO_OVERLOAD", "with an order"]),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_it_is_called_here(call, texts):
    @sk.jit
    def kernel(p: sk.Pointer(sk.int32)):
        call(p)

    with pytest.raises(sk.StagekitError) as caught:
        assert kernel.specialize().ir

    assert all(text in str(caught.value) for text in texts), str(caught.value)


# -- waiting ----------------------------------------------------------------------------------------------------------


def flags_in_turn(flag, out):
    """A loop inside the loop, and a value that the loop takes along."""
    seen = flag[0]
    while seen < 3:
        seen = sk.int32(0)
        for i in range(4):
            seen += flag[i]
    out[0] = seen


def the_other_end(flag, out):
    rounds = 0
    while flag[1] == 0 or flag[0] == 0:
        rounds += 1
    out[0] = rounds


@pytest.mark.parametrize("polls", [flags_in_turn, the_other_end])
def test_a_loop_that_waits_by_plain_loads_is_refused(polls):
    with pytest.raises(sk.StagekitError) as caught:
        sk.jit(polls)[1, 1](np.ones(4, np.int32), np.zeros(1, np.int32))

    assert "PLAIN_POLLING" == caught.value.id


def a_search(flag, out):
    i = 0
    while flag[i] != 7:
        i += 1
    out[0] = i


def a_list(flag, out):
    at = flag[0]
    while at != 7:
        at = flag[at]
    out[0] = at


def a_wait_that_ends(flag, out):
    rounds = 0
    while flag[0] == 0 and rounds < 5:
        rounds += 1
    out[0] = rounds


def a_wait_between_barriers(flag, out):
    while flag[0] == 0:
        sk.syncthreads()
    out[0] = 1


@pytest.mark.parametrize(
    ("goes_on", "expected"), [(a_search, 3), (a_list, 7), (a_wait_that_ends, 0), (a_wait_between_barriers, 1)]
)
def test_a_loop_that_something_ends_is_none(goes_on, expected):
    out = np.zeros(1, np.int32)

    sk.jit(goes_on)[1, 1](np.array([1, 2, 3, 7], np.int32), out)

    assert [expected] == out.tolist()


@sk.jit
def hand_over(data, flag, out, store_order: sk.constexpr, load_order: sk.constexpr, scope: sk.constexpr):
    if sk.cuda.block_idx("x") == 0:
        data[0] = 7
        sk.store(flag.ptr, 1, order=store_order, scope=scope)
    else:
        while sk.load(flag.ptr, order=load_order, scope=scope) == 0:
            pass
        out[0] = data[0]


def test_the_sanitizer_sees_orders_and_scopes_that_are_too_weak():
    for store_order, load_order, scope, is_right in (
        ("release", "acquire", "gpu", True),
        ("seq_cst", "seq_cst", "sys", True),
        ("relaxed", "acquire", "gpu", False),
        ("release", "relaxed", "gpu", False),
        ("relaxed", "relaxed", "sys", False),
        ("release", "acquire", "block", False),
    ):
        arrays = [np.zeros(1, np.int32) for _ in range(3)]
        watch = sk.sanitize(hand_over, collect=True)
        watch[2, 1](*arrays, store_order, load_order, scope)
        with cell(store_order, load_order, scope):
            assert bool(watch.report.of("GRID_RACE")) != is_right, str(watch.report)
