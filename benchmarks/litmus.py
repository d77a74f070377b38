"""Litmus tests of memory order, run many times: how often each outcome comes, forbidden and allowed ones apart.

    python benchmarks/litmus.py [--target cpu|cuda] [--seconds 40] [--seed 0] [--json FILE] [WORD ...]

Words pick the tests whose names have them all. The tests are those of `docs/memory-model.md`. Each launch runs thousands of
instances of one test; the threads of an instance are in different blocks, or in different warps of one block, wait for each
other, go on after delays that differ between warps and launches, and other blocks keep memory busy meanwhile. The exit status
is 1 if a forbidden outcome came.

Sources: Alglave et al., "GPU Concurrency: Weak Behaviours and Programming Assumptions", ASPLOS 2015, for placing and stress; PTX
ISA, "Memory Consistency Model", for what is forbidden.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

import stagekit as sk

THREADS = 256
BLOCKS = {"cuda": 120, "cpu": 12}  # that run tests; all run at once on any GPU of ten multiprocessors
STRESS_BLOCKS = {"cuda": 40, "cpu": 0}
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31)  # none divides a number of blocks, so that each gives an order of them all
SCRATCH = 1 << 20
BASE = 4  # a result is below; an outcome is a number of that base

Ints = sk.Pointer(sk.int32)
Outcome = tuple[int, ...]
Body = Callable[..., None]
"""Called as (role, x, y, z, see) by every thread; see(slot, value) keeps a result."""


@dataclass(frozen=True)
class Litmus:
    """roles: threads of an instance. slots: results of it. in_block: all its threads are of one block."""

    name: str
    roles: int
    slots: int
    body: Body
    forbidden: frozenset[Outcome] = frozenset()
    in_block: bool = False


# -- the tests --------------------------------------------------------------------------------------------------------


def nothing() -> None:
    pass


def plain_put(p: Any, value: int) -> None:
    sk.store(p, value)


def plain_get(p: Any) -> Any:
    return sk.load(p)


def atomic_put(p: Any, value: int) -> None:
    sk.atomic_exchange(p, value)


def atomic_get(p: Any) -> Any:
    return sk.atomic_add(p, 0)


def by_order(store_order: str, load_order: str, scope: str = "gpu") -> tuple[Any, Any]:
    """Return a store and a load with an order."""

    def put(p: Any, value: int) -> None:
        sk.store(p, value, order=store_order, scope=scope)

    def get(p: Any) -> Any:
        return sk.load(p, order=load_order, scope=scope)

    return put, get


def message(put: Any, get: Any, send: Any, receive: Any) -> Body:
    """x = 1, then y = 1; the other reads y, then x."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            plain_put(x, 1)
            send()
            put(y, 1)
        else:
            flag = get(y)
            receive()
            data = plain_get(x)
            see(0, flag)
            see(1, data)

    return body


def buffering(put: Any, get: Any, fence: Any) -> Body:
    """Each stores one and reads the other."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            put(x, 1)
            fence()
            found = get(y)
            see(0, found)
        else:
            put(y, 1)
            fence()
            found = get(x)
            see(1, found)

    return body


def load_buffering(put: Any, get: Any, fence: Any) -> Body:
    """Each reads one and stores the other."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            found = get(x)
            fence()
            put(y, 1)
            see(0, found)
        else:
            found = get(y)
            fence()
            put(x, 1)
            see(1, found)

    return body


def disagreement(put: Any, get: Any, fence: Any) -> Body:
    """Two store one each, two read both, each the other way round: IRIW."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            put(x, 1)
        elif role == 1:
            put(y, 1)
        elif role == 2:
            first = get(x)
            fence()
            second = get(y)
            see(0, first)
            see(1, second)
        else:
            first = get(y)
            fence()
            second = get(x)
            see(2, first)
            see(3, second)

    return body


def chain(fence: Any, send: str = "relaxed", receive: str = "relaxed") -> Body:
    """x = 1, then a bit of y; another adds a bit to y without a fence; the last reads y, then x."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            plain_put(x, 1)
            fence()
            sk.atomic_or(y, 1, order=send)
        elif role == 1:
            sk.atomic_or(y, 2)
        else:
            flags = sk.load(y, order=receive)
            fence()
            data = plain_get(x)
            see(0, flags)
            see(1, data)

    return body


def passed_on(fence: Any, fence_between: Any) -> Body:
    """x = 1, then y = 1; another reads y and stores it to z; the last reads z, then x: ISA2."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            plain_put(x, 1)
            fence()
            atomic_put(y, 1)
        elif role == 1:
            found = atomic_get(y)
            fence_between()
            if found != 0:
                atomic_put(z, 1)
        else:
            flag = atomic_get(z)
            fence()
            data = plain_get(x)
            see(0, flag)
            see(1, data)

    return body


def coherence(put: Any, get: Any) -> Body:
    """One stores 1, then 2 to an element; the other reads it twice."""

    def body(role: Any, x: Any, y: Any, z: Any, see: Any) -> None:
        if role == 0:
            put(x, 1)
            put(x, 2)
        else:
            first = get(x)
            second = get(x)
            see(0, first)
            see(1, second)

    return body


NO_DATA = frozenset({(1, 0), (3, 0)})  # the flag is seen, what was stored before it is not


def tests() -> Iterator[Litmus]:
    atomics, plain = (atomic_put, atomic_get), (plain_put, plain_get)
    wide, near, light = sk.threadfence, sk.threadfence_block, sk.fence
    relaxed, ordered, strongest = (
        by_order(*both) for both in (("relaxed",) * 2, ("release", "acquire"), ("seq_cst",) * 2)
    )
    for name, pair, bad in (
        ("relaxed", relaxed, frozenset[Outcome]()),
        ("release and relaxed", by_order("release", "relaxed"), frozenset[Outcome]()),
        ("relaxed and acquire", by_order("relaxed", "acquire"), frozenset[Outcome]()),
        ("release and acquire", ordered, NO_DATA),
        ("release and acquire of the block", by_order("release", "acquire", "block"), frozenset[Outcome]()),
    ):
        yield Litmus(f"message, {name}", 2, 2, message(*pair, nothing, nothing), bad)
    yield Litmus("message, relaxed, light fences", 2, 2, message(*relaxed, light, light), NO_DATA)
    in_block = message(*by_order("release", "acquire", "block"), nothing, nothing)
    yield Litmus("message in a block, release and acquire", 2, 2, in_block, NO_DATA, in_block=True)
    yield Litmus("message, plain, no fences", 2, 2, message(*plain, nothing, nothing))
    yield Litmus("message, atomics, no fences", 2, 2, message(*atomics, nothing, nothing))
    yield Litmus("message, atomics, sender's fence", 2, 2, message(*atomics, wide, nothing))
    yield Litmus("message, atomics, receiver's fence", 2, 2, message(*atomics, nothing, wide))
    yield Litmus("message, atomics, fences of blocks", 2, 2, message(*atomics, near, near))
    yield Litmus("message, atomics, both fences", 2, 2, message(*atomics, wide, wide), NO_DATA)
    yield Litmus("message in a block, fences of blocks", 2, 2, message(*atomics, near, near), NO_DATA, in_block=True)
    for name, body, bad in (("store buffering", buffering, (0, 0)), ("load buffering", load_buffering, (1, 1))):
        yield Litmus(f"{name}, plain, no fences", 2, 2, body(*plain, nothing))
        yield Litmus(f"{name}, atomics, no fences", 2, 2, body(*atomics, nothing))
        yield Litmus(f"{name}, atomics, fences", 2, 2, body(*atomics, wide), frozenset({bad}))
        yield Litmus(f"{name}, relaxed", 2, 2, body(*relaxed, nothing))
        yield Litmus(f"{name}, relaxed, fences", 2, 2, body(*relaxed, wide), frozenset({bad}))
        is_forbidden = body is load_buffering
        yield Litmus(
            f"{name}, release and acquire", 2, 2, body(*ordered, nothing), frozenset({bad} if is_forbidden else ())
        )
        yield Litmus(f"{name}, seq_cst", 2, 2, body(*strongest, nothing), frozenset({bad}))
    disagree = frozenset({(1, 0, 1, 0)})
    yield Litmus("readers that disagree, plain", 4, 4, disagreement(*plain, nothing))
    yield Litmus("readers that disagree, atomics, no fences", 4, 4, disagreement(*atomics, nothing))
    yield Litmus("readers that disagree, atomics, fences", 4, 4, disagreement(*atomics, wide), disagree)
    yield Litmus("readers that disagree, release and acquire", 4, 4, disagreement(*ordered, nothing))
    yield Litmus("readers that disagree, seq_cst", 4, 4, disagreement(*strongest, nothing), disagree)
    yield Litmus("chain at one element, release and acquire", 3, 2, chain(nothing, "release", "acquire"), NO_DATA)
    yield Litmus("chain at one element, no fences", 3, 2, chain(nothing))
    yield Litmus("chain at one element, fences", 3, 2, chain(wide), NO_DATA)
    yield Litmus("chain of two elements, none between", 3, 2, passed_on(wide, nothing))
    yield Litmus("chain of two elements, all fences", 3, 2, passed_on(wide, wide), NO_DATA)
    for name, pair in (("atomics", atomics), ("relaxed", relaxed), ("release and acquire", ordered)):
        yield Litmus(f"coherence, {name}", 2, 2, coherence(*pair), frozenset({(1, 0), (2, 0), (2, 1)}))


# -- on a machine -----------------------------------------------------------------------------------------------------


def mixed(n: Any) -> Any:
    """Return a number of 32 bits that looks random."""
    n = (n ^ (n >> 16)) * sk.uint32(0x7FEB352D)
    n = (n ^ (n >> 15)) * sk.uint32(0x846CA68B)
    return n ^ (n >> 16)


def keep_busy(scratch: Any, seed: Any) -> None:
    place = mixed(seed)
    for _ in range(200):
        place = place * sk.uint32(1664525) + sk.uint32(1013904223)
        mine = scratch + (place >> 12).to(sk.int32)
        sk.store(mine, sk.load(mine) + 1)


def wait(rounds: Any, seed: Any, out: Any) -> None:
    """Take a time that no compiler can leave out."""
    n = seed
    for _ in range(rounds):
        n = n * sk.uint32(1664525) + sk.uint32(1013904223)
    if n == 0x12345678:
        sk.atomic_add(out, 0)


@sk.jit
def clear(memory: Ints, out: Ints, gate: Ints, n: sk.int32, count: sk.int32):
    i = sk.cuda.block_idx("x") * THREADS + sk.cuda.thread_idx("x")
    if i < n:
        for part in sk.static_range(3):
            sk.store(memory + i + part * n, 0)
    if i < count:
        sk.store(out + i, 0)
        sk.store(gate + i, 0)


@sk.jit
def instances(
    memory: Ints,
    out: Ints,
    gate: Ints,
    scratch: Ints,
    n: sk.int32,
    stride: sk.int32,
    prime: sk.int32,
    delay: sk.int32,
    seed: sk.int32,
    test: sk.constexpr,
    blocks: sk.constexpr,
):
    """n: elements in each third of `memory`, where x, y and z of the instances are, `stride` elements apart."""
    b, t = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
    own_seed = mixed((seed + b * 8 + t // 32).to(sk.uint32))
    if b >= blocks:
        keep_busy(scratch, own_seed + t.to(sk.uint32))
    else:
        turn = b * prime % blocks
        if test.in_block:
            role, i = t // 32 % test.roles, (turn * 8 + t // 32 // test.roles) * 32 + t % 32
        else:
            role, i = turn % test.roles, turn // test.roles * THREADS + t
        mine = out + i
        sk.atomic_add(gate + i, 1)
        rounds = sk.int32(0)
        while rounds < 1000 and sk.atomic_add(gate + i, 0) < test.roles:
            rounds += 1
        wait((own_seed % delay.to(sk.uint32)).to(sk.int32), own_seed, mine)

        def see(slot, value):
            sk.atomic_add(mine, value * BASE**slot)

        x = memory + i * stride
        test.body(role, x, x + n, x + 2 * n, see)


class Machine:
    """Where the tests run. target: "cpu" or "cuda"."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.random = np.random.default_rng(seed)
        self.blocks, self.stress = BLOCKS[target], STRESS_BLOCKS[target]
        self.count = self.blocks * THREADS  # more than there are instances
        self.n = self.count * 33
        self.memory, self.scratch = self._zeros(3 * self.n), self._zeros(SCRATCH)
        self.out, self.gate = self._zeros(self.count), self._zeros(self.count)

    def _zeros(self, count: int) -> Any:
        zeros = np.zeros(count, np.int32)
        return sk.cuda.to_device(zeros) if self.target == "cuda" else zeros

    def launch(self, test: Litmus) -> Counter[Outcome]:
        """Return how often each outcome came in one launch."""
        pick = self.random.choice
        clear[-(-self.n // THREADS), THREADS](self.memory, self.out, self.gate, self.n, self.count)
        values = int(pick((1, 2, 33))), int(pick(PRIMES)), int(pick((1, 30, 300))), int(self.random.integers(1 << 30))
        arguments = (self.memory, self.out, self.gate, self.scratch, self.n, *values)
        instances[self.blocks + self.stress, THREADS](*arguments, test=test, blocks=self.blocks)
        found = np.asarray(self.out.to_host() if self.target == "cuda" else self.out)
        by_code = np.bincount(found[self._of(test)], minlength=BASE**test.slots)
        return Counter({_digits(code, test.slots): int(by_code[code]) for code in np.flatnonzero(by_code).tolist()})

    def _of(self, test: Litmus) -> np.ndarray[Any, Any]:
        """Return the numbers of the instances all of whose threads run."""
        if not test.in_block:
            return np.arange(self.blocks // test.roles * THREADS)
        warps = np.arange(self.blocks)[:, None] * 8 + np.arange(8 // test.roles)
        return (warps.reshape(-1, 1) * 32 + np.arange(32)).reshape(-1)


def _digits(code: int, slots: int) -> Outcome:
    return tuple(code // BASE**slot % BASE for slot in range(slots))


def run(machine: Machine, test: Litmus, seconds: float) -> Counter[Outcome]:
    found = machine.launch(test)  # compiles
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found += machine.launch(test)
    return found


def told(test: Litmus, found: Counter[Outcome]) -> None:
    """Print a test's outcomes; one that is forbidden also where it never came."""
    bad = {each: found[each] for each in sorted(test.forbidden)}
    rest = {each: count for each, count in sorted(found.items()) if each not in test.forbidden}
    print(f"{test.name:44} {found.total():>13,}")
    for word, outcomes in (("forbidden", bad), ("allowed", rest)):
        if outcomes:
            print(f"    {word:10}", "  ".join(f"{_text(each)}: {count:,}" for each, count in outcomes.items()))


def _text(outcome: Outcome) -> str:
    return " ".join(map(str, outcome))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="that a test's name has; all tests if left out")
    parser.add_argument("--target", choices=["cpu", "cuda"], default="cuda" if sk.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=40, help="for all together, without compiling")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="where to write the counts")
    options = parser.parse_args(arguments)
    chosen = [test for test in tests() if all(word in test.name for word in options.words)]
    print(describe(options.target))
    machine = Machine(options.target, options.seed)
    counts = {}
    for test in chosen:
        counts[test] = run(machine, test, options.seconds / max(len(chosen), 1))
        told(test, counts[test])
    if options.json:
        named = {test.name: {_text(each): count for each, count in counts[test].items()} for test in counts}
        Path(options.json).write_text(json.dumps(named), encoding="utf-8")
    bad = sum(count for test, found in counts.items() for each, count in found.items() if each in test.forbidden)
    print(f"{bad} forbidden")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
