"""What random block-level kernels have at hand: fragments of a user, read once, and combiners for tiles."""

from __future__ import annotations

from typing import Any

import stagekit as sk

Number = Any  # a number in CPython, a value of the kernel when staged
Numbers = tuple[Number, ...]


@sk.inline
def between(low: int, x: Number) -> Number:
    return max(min(x, low + 9), low)


def mixed(n: int, x: Number) -> Number:
    for k in range(n):
        if k == 1:
            x = x * n
    return -x


@sk.inline(per_thread=True)
def mirrored(memory: Any, i: Any, x: Any, last: int) -> Any:
    """Return the elements from the last to the first, through memory: each thread waits for the others."""
    sk.store(memory + i, x)
    sk.syncthreads()
    return sk.load(memory + (last - i))


def mirrored_in_order(memory: Any, i: Any, x: Any, last: int) -> Any:
    """Do what `mirrored` does, in CPython: one program has no threads."""
    sk.store(memory + i, x)
    return sk.load(memory + (last - i))


# -- combiners: associative, most of them not commutative ---------------------------------------------------------------


def follow(p: Numbers, q: Numbers) -> Numbers:
    return p[0] * q[0], p[1] * q[0] + q[1]


def latest(a: Number, b: Number) -> Number:
    return sk.where(b != 0, b, a)


def added(a: Number, b: Number) -> Number:
    return a + b


def smaller(a: Number, b: Number) -> Number:
    return b if b < a else a


def higher(p: Numbers, q: Numbers) -> Numbers:
    """Return the pair with the larger number, of equal ones the first."""
    is_first = p[0] >= q[0]
    return sk.where(is_first, p[0], q[0]), sk.where(is_first, p[1], q[1])


def segmented(p: Numbers, q: Numbers) -> Numbers:
    """Return whether a segment begins, how long the last one is, and the sum of its elements."""
    begins = q[0] != 0
    return p[0] | q[0], sk.where(begins, q[1], p[1] + q[1]), sk.where(begins, q[2], p[2] + q[2])
