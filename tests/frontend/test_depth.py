"""R13: long chains and deep nesting work on every target, or are refused in words: no RecursionError, no crash."""

from __future__ import annotations

import signal
import sys
import threading

import numpy as np
import pytest

import stagekit as sk
from stagekit import recursion
from tests.frontend.sources import module_of

DEEP = 500


def _cases(form: str, last: str) -> str:
    return "\n".join([*(form.format(i) for i in range(1, DEEP)), last])


# Each computes `deep[x]`: 2 * x below DEEP, else -1.
CHAINS = {
    "elif": "if x == 0:\n    r = 0\n" + _cases("elif x == {0}:\n    r = 2 * {0}", "else:\n    r = -1"),
    "case": "match x:\n    case 0:\n        r = 0\n"
            + _cases("    case {0}:\n        r = 2 * {0}", "    case _:\n        r = -1"),
    "conditional": "r = " + " ".join(f"2 * {i} if x == {i} else" for i in range(DEEP)) + " -1",
    "and": "r = -1\nif not (" + " and ".join(f"x != {i}" for i in range(DEEP)) + "):\n    r = 2 * x",
    "and that loads": "r = -1\nif not (" + " and ".join(f"table[{i}] != x" for i in range(DEEP)) + "):\n    r = 2 * x",
    "or": "r = 2 * x if " + " or ".join(f"x == {i}" for i in range(DEEP)) + " else -1",
    "or as a value": "found = " + " or ".join(f"x * int(x == {i})" for i in range(1, DEEP)) + "\nr = 2 * found\n"
                     f"if x >= {DEEP}:\n    r = -1",
    "alternatives": "match x:\n    case " + " | ".join(map(str, range(DEEP))) + ":\n        r = 2 * x\n"
                    "    case _:\n        r = -1",
    "comparison": "r = 2 * x\nif " + " <= ".join([f"{DEEP}"] * DEEP) + " <= x:\n    r = -1",
    "sum": f"r = -1\nif x < {DEEP}:\n    r = (" + " + ".join(["x"] * DEEP) + f") // {DEEP // 2}",
    "signs": f"r = -1\nif x < {DEEP}:\n    r = 2 * " + "-" * 2 * DEEP + "x",
    "continue": "r = -1\nfor i in range(1):\n" + _cases("    if x == {0}:\n        r = 2 * {0}\n        continue",
                "    if x == 0:\n        r = 0"),
    "return": "r = chosen(x)",
    "helpers": f"r = -1\nif x < {DEEP}:\n    r = first_helper(x) - x",
    "closures": f"f = lambda v: v\nfor i in sk.static_range({DEEP}):\n    f = (lambda g: lambda v: g(v) + 2)(f)\n"
                f"r = -1\nif x < {DEEP}:\n    r = f(2 * x) - {2 * DEEP}",
    "lambdas": "r = -1\nif x < 500:\n    r = 2 * (" + "lambda: " * 400 + "x)" + "()" * 400,
}  # fmt: skip

HELPERS = (
    "def chosen(x):\n"
    + "".join(f"    if x == {i}:\n        return {2 * i}\n" for i in range(DEEP))
    + "    return -1\n\n"
    "def helper0(v):\n    return v\n\n"
    + "".join(f"def helper{i}(v):\n    return helper{i - 1}(v) + v * 0\n\n" for i in range(1, DEEP))
    + f"def first_helper(x):\n    return helper{DEEP - 1}(2 * x) + x\n\n"
)


def _kernel(tmp_path, body: str):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    helpers = HELPERS if "chosen" in body or "helper" in body else ""
    return module_of(
        tmp_path, f"import stagekit as sk\n\n{helpers}@sk.jit\ndef kernel(out, table, x):\n{lines}\n    out[0] = r\n"
    )


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_five_hundred_means_the_same_on_every_target(tmp_path, name):
    kernel = _kernel(tmp_path, CHAINS[name]).kernel
    table, limit = np.arange(DEEP, dtype=np.int32), sys.getrecursionlimit()

    for launch in (kernel, sk.sanitize(kernel)):
        for x in (0, 1, DEEP - 1, DEEP):
            out = np.zeros(1, np.int32)
            launch[1, 1](out, table, x)
            assert out[0] == (2 * x if x < DEEP else -1), (launch, x)
    assert ".entry" in kernel.ptx
    assert sys.getrecursionlimit() == limit


def test_what_nests_more_deeply_than_can_be_compiled_says_what_and_where(tmp_path):
    chain = "r = 0\n" + "\n".join(f"{'elif' if i else 'if'} x == {i}:\n    r = {i}" for i in range(2_300))
    kernel = _kernel(tmp_path, chain).kernel

    with pytest.raises(sk.StagingError, match="run-time branches stand 2000 deep") as caught:
        kernel[1, 1](np.zeros(1, np.int32), np.zeros(1, np.int32), 0)
    assert caught.value.id == "NESTING_BUDGET"
    assert caught.value.loc.line > 2_000


def test_helpers_that_nest_too_deeply_are_not_called_a_recursion(tmp_path):
    text = "import stagekit as sk\ndef f0(x):\n    return x\n"
    text += "".join(f"def f{i}(x):\n    return f{i - 1}(x)\n" for i in range(1, 1_100))
    kernel = module_of(tmp_path, text + "@sk.jit\ndef kernel(out, x):\n    out[0] = f1099(x)\n").kernel

    with pytest.raises(sk.StagingError, match="calls stand 1000 deep in each other") as caught:
        kernel[1, 1](np.zeros(1, np.int32), 0)
    assert caught.value.id == "NESTING_BUDGET"
    assert "ecurs" not in str(caught.value)
    assert len(str(caught.value).splitlines()) < 30


def _even(n):
    return True if n == 0 else _odd(n - 1)


def _odd(n):
    return False if n == 0 else _even(n - 1)


def test_functions_that_call_each_other_without_end_are_called_a_recursion():
    @sk.jit
    def kernel(out, n):
        out[0] = 1 if _even(n) else 0

    with pytest.raises(sk.StagingError, match="calls itself") as caught:
        kernel[1, 1](np.zeros(1, np.int32), 3)
    assert caught.value.id == "RECURSION_BUDGET"


class Endless:
    def __getattr__(self, name):
        return getattr(self, name)

    def __repr__(self):
        return repr(self)


def _by_sort(x):
    return sorted([1, 2], key=_by_sort)


@pytest.mark.parametrize("run", [lambda: Endless().value, lambda: str(Endless()), lambda: _by_sort(1)])
def test_a_recursion_of_the_users_own_that_cpython_runs_is_a_refusal_and_no_crash(run):
    """In CPython 3.11 a raised recursion limit alone would end the process."""
    run.__globals__["host_function"] = host = lambda: run()
    host.__stagekit_host__ = True

    @sk.jit
    def kernel(out):
        out[0] = 1 if host() else 0

    with pytest.raises(sk.StagekitError) as caught:
        kernel[1, 1](np.zeros(1, np.int32))
    assert caught.value.id in ("STATIC_FAILURE", "NESTING_BUDGET")


def test_deep_work_gives_what_it_gives_and_raises_what_it_raises():
    def depth(n: int) -> int:
        return 1 + depth(n - 1) if n else 0

    before = sys.getrecursionlimit(), threading.stack_size()

    assert recursion.repeated_deeply(depth)(20_000) == 20_000
    with pytest.raises(ZeroDivisionError):
        recursion.deeply(lambda: 1 // 0)
    with pytest.raises(RecursionError):
        recursion.repeated_deeply(depth)(10**9)
    assert (sys.getrecursionlimit(), threading.stack_size()) == before


def test_a_signal_ends_deep_work_and_is_raised_when_the_work_has_ended():
    steps = []

    def work() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            for _ in range(10**9):
                steps.append(None)
        finally:
            steps.clear()
            steps.append("ended")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            recursion.deeply(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["ended"]
    assert recursion.deeply(lambda: 3) == 3
