"""Calls of the library that are stamped: a trace has the ops, at the places, that it has where each call is carried out."""

from __future__ import annotations

import concurrent.futures
import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend import direct, stamps
from stagekit.frontend import kernel as frontend_kernel
from stagekit.ir import Builder, walk
from stagekit.ir.printer import print_function

X = sk.Tensor((None,), sk.float32)
Given = Callable[..., Any]


def sums(x, y, i, n, src, out):
    sk.store(out + i, x + x)
    sk.store(out + i, x + y)
    sk.store(out + i, y + x)
    sk.store(out + i, y + y)


def literals(x, y, i, n, src, out):
    sk.store(out + i, (x + 1.5) * 1.5 - -0.0)
    sk.store(out + i, (x + 1.5) * 0.0 - 2)


def one_array_or_two(x, y, i, n, src, out):
    sk.store(out + i, sk.load(src + i))
    sk.store(src + i, sk.load(src + i))


def aligned_and_not(x, y, i, n, src, out):
    for offset in sk.static_range(0, 5):
        sk.store(out + offset + i, sk.load(src + offset + i, mask=i + offset < n))


def masks(x, y, i, n, src, out):
    for mask in (i < n, i <= n, i < 7, i < n + 1, (i < n) & (i > 3)):
        sk.store(out + i, sk.load(src + i, mask=mask, other=1.0), mask=mask)
        sk.store(out + i, sk.load(out + i, mask=mask), mask=mask)


def in_branches(x, y, i, n, src, out):
    if n > 7:
        sk.store(out + i, sk.load(src + i) + 1.0)
    else:
        sk.store(out + i, sk.load(src + i) + 1.0)
    sk.store(out + i, sk.load(src + i) + 1.0)


def in_loops(x, y, i, n, src, out):
    total = sk.zeros(x.shape, sk.float32)
    for k in range(n):
        total = total + sk.load(src + k * 64 + i)
        total = sk.where(total > 0, total, 0.5)
    sk.store(out + i, total)


def reductions(x, y, i, n, src, out):
    for each in (x, y, x * y):
        sk.store(out, sk.reduce_sum(each))
        sk.store(out + 1, sk.reduce_max(each))
        sk.store(out + 2, sk.argmax(each))
    sk.store(out + i, sk.cumsum(x))


def converted(x, y, i, n, src, out):
    for each in (x, y, x):
        sk.store(out + i, each.to(sk.float16).to(sk.float32))
        sk.store(out + i, sk.exp(each) + sk.abs(each) + sk.maximum(each, 0))
        sk.store(out + i, each + n)


def of_two_axes(x, y, i, n, src, out):
    rows, cols = sk.arange(0, 16)[:, None], sk.arange(0, 8)[None, :]
    for step in sk.static_range(3):
        mask = (rows < n) & (cols < 7)
        tile = sk.load(src + rows * n + cols + step, mask=mask)
        sk.store(out + rows * n + cols, tile * tile - tile, mask=mask)
        sk.store(out + rows * n + cols, tile.T.T + sk.reduce_sum(tile, axis=1)[:, None])


@sk.inline(per_thread=True)
def doubled(out, i, x):
    sk.store(out + i, x + x)


def per_thread(x, y, i, n, src, out):
    sk.store(out + i, x + x)
    doubled(out, i, x)
    doubled(out, i, y)


def atomics(x, y, i, n, src, out):
    for mask in (i < n, i < 5):
        sk.atomic_add(out + i, x, mask=mask)


def selected(x, y, i, n, src, out):
    for known in (True, False):
        sk.store(out + i, sk.where(known, x, y))
        sk.store(out + i, sk.where(n > 3, x, y))
        sk.store(out + i, sk.where(x > y, x, sk.float32(known)))


def not_numbers(x, y, i, n, src, out):
    for _ in sk.static_range(3):
        for nan in (float("nan"), -float("nan"), np.float32("nan"), np.uint32(0xFFD00001).view(np.float32)):
            sk.store(out + i, x + nan)
            sk.store(out + i, sk.where(x > 0, nan, x))
            sk.store(out + i, sk.full(x.shape, nan, sk.float32))
            sk.store(out + i, sk.load(src + i, mask=i < n, other=nan))


EVERY = (
    sums, literals, not_numbers, one_array_or_two, aligned_and_not, masks, in_branches, in_loops, reductions, converted,
    of_two_axes, per_thread, atomics, selected,
)  # fmt: skip


@sk.jit
def kernel(src: X, out: X, n: sk.int32, GIVEN: sk.constexpr, BLOCK: sk.constexpr, SALT: sk.constexpr):
    i = sk.arange(0, BLOCK)
    x, y = sk.load(src + i), sk.load(src + BLOCK + i, mask=i < n)
    GIVEN(x, y, i, n, src, out)


_salts = itertools.count()


def traced(given: Given, block: int, target: str) -> tuple[str, list[Any], Any]:
    """Return the text of a kernel that nothing has traced before, the places of its ops, and what it takes for granted."""
    salt = next(_salts)
    made = sk.jit(kernel.function, target=target).specialize(GIVEN=given, BLOCK=block, SALT=salt).trace()
    places = [[(at.file, at.line, at.col, at.function) for at in op.loc.chain()] for op in walk(made.function.body)]
    found = [getattr(made, name) for name in ("waits", "is_placed", "is_of_hopper", "lacks_hosts", "widened", "style")]
    found.append(re.sub(rf"SALT_{salt}\b|<.*? at 0x\w+>", "", repr(made.signature)))
    return print_function(made.function).replace(f"SALT_{salt}", "SALT"), places, found


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that were stamped."""
    found = list[Any]()
    carry_out = stamps._carried_out
    monkeypatch.setattr(stamps, "_carried_out", lambda *args: found.append(args[1]) or carry_out(*args))
    return found


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("block", [64, 1000, 1024])
@pytest.mark.parametrize("given", EVERY)
def test_stamps_change_nothing(given: Given, block: int, target: str, monkeypatch: Any, uses: list[Any]) -> None:
    with monkeypatch.context() as here:
        here.setattr(stamps, "_STAMPS", {})
        here.setattr(stamps, "_MOST_ALIKE", 0)
        plain = traced(given, block, target)
        assert not uses

    for _ in range(3):
        assert traced(given, block, target) == plain

    assert uses


def test_stamps_of_other_kernels_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel meets what was recorded of all others, in any order."""
    with monkeypatch.context() as here:
        here.setattr(stamps, "_STAMPS", {})
        here.setattr(stamps, "_MOST_ALIKE", 0)
        plain = {given: traced(given, 128, "cuda") for given in EVERY}

    for seed in range(3):
        for number in np.random.default_rng(seed).permutation(len(EVERY)):
            assert traced(EVERY[number], 128, "cuda") == plain[EVERY[number]]


@pytest.mark.parametrize("given", EVERY)
def test_ops_that_are_stamped_count(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a kernel keeps to the budget of ops is no question of what was traced before."""
    builders = list[Builder]()
    monkeypatch.setattr(frontend_kernel, "Builder", lambda *args: builders.append(Builder(*args)) or builders[-1])
    with monkeypatch.context() as here:
        here.setattr(stamps, "_STAMPS", {})
        here.setattr(stamps, "_MOST_ALIKE", 0)
        here.setattr(direct, "_OF_LIBRARY", {})
        traced(given, 128, "cuda")
    plain = builders[-1].op_count

    for _ in range(3):
        traced(given, 128, "cuda")
        assert builders[-1].op_count == plain


NANS = (float("nan"), -float("nan"), np.float32("nan"), np.uint32(0xFFD00001).view(np.float32))


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_every_nan_that_is_written_is_the_same(target: str) -> None:
    """Stamps and the disk cache do not tell one from another, so there must be no other one."""

    @sk.jit(target=target)
    def nans(out: X, n: sk.int32, WHICH: sk.constexpr):
        i = sk.arange(0, 64)
        sk.store(out + i, sk.full((64,), NANS[WHICH], sk.float32))
        sk.store(out + 64 + i, sk.where(i < n, NANS[WHICH], 1.0))
        sk.store(out + 128 + i, NANS[WHICH])
        sk.store(out + 192 + i, sk.load(out + i, mask=i > n, other=NANS[WHICH]))

    for which in range(len(NANS)):
        out = np.zeros(256, np.float32)
        nans[1](out, 64, which)
        assert {*out.view(np.uint32).tolist()} == {0x7FC00000}


def test_kernels_are_stamped_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each forgets what the others have recorded."""
    plain = {given: traced(given, 128, "cuda") for given in EVERY}
    monkeypatch.setattr(stamps, "_MOST", 8)
    monkeypatch.setattr(stamps, "_MOST_ROWS", 2)
    monkeypatch.setattr(direct, "_MOST", 2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda given: traced(given, 128, "cuda"), [*EVERY, *EVERY]))
    finally:
        sys.setswitchinterval(interval)

    assert found == [*plain.values()] * 2


def test_all_recordings_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that specialises kernels again and again forgets its oldest recordings, whatever they depend on."""
    monkeypatch.setattr(stamps, "_STAMPS", {})
    monkeypatch.setattr(stamps, "_MOST_IN_ALL", 50)
    counts = []
    for target, block, given in itertools.product(("cuda", "cpu"), (64, 128, 192, 256), (sums, masks, in_branches)):
        traced(given, block, target)
        counts.append(sum(map(len, stamps._STAMPS.values())))

    assert 50 < max(counts) < 100


@pytest.mark.parametrize("last", [1, 2, 3, 5])
def test_a_stamp_says_of_its_own_view_what_may_be_accessed(last):
    """The sizes of a view are operands of no op: only the interpreter looks at them."""

    @sk.jit(threads=32)
    def kernel(a, out, n):
        i = sk.arange(0, 32)
        for k in sk.static_range(last + 1):
            view = a[k : n - (1 if k == last else 0)]
            sk.store(out + (k * 32 + i), sk.load(view + i, mask=i < 33 - k))

    a, out = np.arange(33, dtype=np.float32), np.zeros(32 * (last + 1), np.float32)
    with pytest.raises(sk.StagekitError) as caught:
        sk.sanitize(kernel)[(1,)](a, out, 33)

    assert caught.value.id == "OUT_OF_BOUNDS"
    assert f"a view of `a` with shape ({32 - last},)" in str(caught.value)
