"""Several entries of one kernel: the launcher chooses by the arguments, whatever machine code there is for them by then."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import stagekit as sk
from stagekit import testing

Floats = sk.Tensor((None,), sk.float32)
BLOCK = 32
QUICK, GENERAL, OVERLAPPING = 2.0, 3.0, 4.0


@sk.jit
def turned(x: Floats, out: Floats, mark: Floats, n: sk.int32, BLOCK: sk.constexpr):
    """Which entry ran is in `mark`; `out` is x from its end on, and the elements of x that were there before stay right."""
    i = sk.arange(0, BLOCK)
    quick = sk.speculate(x, multiple_of=16) and sk.speculate(n % 4 == 0)
    sk.store(out + i, sk.load(x + (BLOCK - 1 - i)))
    sk.store(mark, 2.0 if quick else 3.0)


def arguments(entry: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return arguments that this entry runs."""
    memory = np.zeros(4 * BLOCK, np.float32)
    start = -memory.ctypes.data % 16 // 4
    memory[:] = np.arange(4 * BLOCK)
    x = memory[start : start + BLOCK]
    out = memory[start + 2 * BLOCK :][:BLOCK]
    if entry == "general":
        x = memory[start + 1 : start + 1 + BLOCK]
    if entry == "overlapping":
        out = memory[start + 3 : start + 3 + BLOCK]
    return x, out, np.zeros(1, np.float32), 8


def launched(kernel, entry: str) -> float:
    """Launch with arguments for an entry, check the result, and return what the kernel says which one it was."""
    x, out, mark, n = arguments(entry)
    expected = x[::-1].copy()
    kernel(x, out, mark, n)
    np.testing.assert_array_equal(out, expected)
    return float(mark[0])


ANSWERS = {"quick": QUICK, "general": GENERAL, "overlapping": GENERAL}


def test_launches_go_to_the_entry_that_fits_in_any_order():
    kernel = turned.specialize(BLOCK=BLOCK)
    order = np.random.default_rng(1).choice(list(ANSWERS), 60)

    assert [launched(kernel[1], entry) for entry in order] == [ANSWERS[entry] for entry in order]


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
@pytest.mark.parametrize("first", ANSWERS)
def test_every_entry_is_launched_by_machine_code_from_its_second_launch_on(first, monkeypatch):
    kernel = sk.jit(turned.function).specialize(BLOCK=BLOCK)
    launch = kernel[1]
    for entry in (first, *ANSWERS):
        launched(launch, entry)
        launched(launch, entry)
    general = []
    monkeypatch.setattr(type(kernel), "_launch", lambda *given: general.append(given))

    assert [launched(kernel[1], entry) for entry in ANSWERS] == list(ANSWERS.values())
    assert [launched(launch, entry) for entry in ANSWERS] == list(
        ANSWERS.values()
    )  # which was taken before there was any
    assert not general


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
def test_the_entry_that_a_launch_needs_is_compiled_and_no_other():
    kernel = sk.jit(turned.function).specialize(BLOCK=BLOCK)

    launched(kernel[1], "general")
    assert [event.kind for event in kernel.history.events].count("traced") == 2  # the quick one says what to look at
    assert [event.kind for event in kernel.history.events if event.what] == ["compiled"]
    assert "the general entry, since this does not hold: `x` begins at a multiple of 16 bytes" in kernel.explain()


def test_constexprs_given_by_the_call_and_captures_count_for_each_entry():
    factor = [1.0]

    @sk.jit
    def scaled(x, n, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        if sk.speculate(n % 4 == 0):
            sk.store(x + i, sk.load(x + i) * 2)
        else:
            sk.store(x + i, sk.load(x + i) * factor[0])

    def result(n: int, block: int = BLOCK) -> float:
        x = np.ones(64, np.float32)
        scaled[1](x, n, block)
        assert not x[block:].sum() - (64 - block)
        return float(x[0])

    assert [result(n) for n in (3, 3, 4, 4, 3, 4)] == [1, 1, 2, 2, 1, 2]
    assert [result(n, 64) for n in (3, 3, 4, 4)] == [1, 1, 2, 2]
    factor[0] = 5.0  # what the general entry alone has read
    assert [result(n) for n in (3, 4, 3, 4, 3, 3)] == [5, 2, 5, 2, 5, 5]


def test_an_array_that_one_entry_alone_writes_must_be_writable_for_it():
    @sk.jit
    def kernel(x, n, BLOCK: sk.constexpr):
        i = sk.arange(0, BLOCK)
        if not sk.speculate(n % 4 == 0):
            sk.store(x + i, 7)

    x, frozen = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    frozen.flags.writeable = False
    for _ in range(4):
        kernel[1](frozen, 4, BLOCK)
        kernel[1](x, 5, BLOCK)
        with pytest.raises(sk.ArgumentError, match="READ_ONLY_OUTPUT"):
            kernel[1](frozen, 5, BLOCK)
    assert x.sum() == 7 * BLOCK
    assert not frozen.any()


def test_each_entry_has_its_own_block_and_grid():
    @sk.jit
    def kernel(out, n):
        block = 64 if sk.speculate(n % 64 == 0) else 32
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, block), block=block))
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < n:
            out[i] = sk.cuda.block_dim("x")

    for n, block in [(128, 64), (100, 32)] * 4:
        out = np.zeros(n + 1, np.float32)
        kernel(out, n)
        assert (out[:n] == block).all()
        assert out[n] == 0


@pytest.mark.parametrize("entry", ANSWERS)
def test_a_prepared_launch_keeps_to_its_entry(entry):
    x, out, mark, n = arguments(entry)
    expected = x[::-1].copy()
    launch = turned.specialize(BLOCK=BLOCK).prepare[1](x, out, mark, n)
    launch()
    np.testing.assert_array_equal(out, expected)
    assert mark[0] == ANSWERS[entry]


def test_a_prepared_launch_that_reads_its_arguments_anew_takes_the_entry_that_fits_them_now():
    @sk.jit
    def kernel(x, BLOCK: sk.constexpr):
        sk.store(x + sk.arange(0, BLOCK), 1 if sk.speculate(x.shape[0] % 2 == 0) else 2)

    x = np.zeros(8, np.float32)
    launch = sk.compile(kernel.specialize(BLOCK=4), "interp").prepare[1](x)
    launch()
    assert x[0] == 1
    x.resize(5, refcheck=False)
    launch()
    assert x[0] == 2


def test_threads_that_launch_different_entries_do_not_mix_them_up():
    kernel = sk.jit(turned.function).specialize(BLOCK=BLOCK)
    wrong = []

    def work(entry: str) -> None:
        wrong.extend(each for each in (launched(kernel[1], entry) for _ in range(200)) if each != ANSWERS[entry])

    workers = [threading.Thread(target=work, args=(entry,)) for entry in ANSWERS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("entry", ANSWERS)
def test_an_entry_can_be_forced_on_any_arguments_that_it_runs(entry, target):
    kernel = sk.compile(turned.specialize(BLOCK=BLOCK), target)
    runs = {"quick": ["quick"], "general": ["quick", "general"], "overlapping": list(ANSWERS)}[entry]

    for given in ANSWERS:
        if given in runs:
            assert launched(testing.force_entry(kernel, entry)[1], given) == ANSWERS[entry]
            assert launched(sk.sanitize(testing.force_entry(kernel, entry))[1], given) == ANSWERS[entry]
        else:
            with pytest.raises(sk.LaunchError, match="ENTRY_UNFIT"):
                launched(testing.force_entry(kernel, entry)[1], given)


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
def test_compiling_ahead_of_a_launch_makes_every_entry():
    kernel = sk.jit(turned.function).specialize(BLOCK=BLOCK)
    sk.compile_all([kernel], "cpu")
    steps = len(kernel.history.events)

    assert [launched(kernel[1], entry) for entry in ANSWERS] == list(ANSWERS.values())
    assert len(kernel.history.events) == steps


def test_an_error_of_one_entry_has_its_place_and_says_which():
    @sk.jit
    def kernel(x, n, BLOCK: sk.constexpr):
        if sk.speculate(n % 4 == 0):
            sk.store(x + sk.arange(0, BLOCK), 1)
        else:
            sk.store(x + sk.arange(0, BLOCK), nowhere)  # noqa: F821

    kernel[1](np.zeros(8, np.float32), 4, 8)
    with pytest.raises(sk.StagingError) as caught:
        kernel[1](np.zeros(8, np.float32), 5, 8)
    assert "UNKNOWN_NAME" in str(caught.value)
    assert "nowhere" in str(caught.value)
    assert "the general entry, since this does not hold: `n` is a multiple of 4" in str(caught.value)
