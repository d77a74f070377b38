"""Pointers that some paths do not set: set past an early return, in a loop's body, in one arm, in a tuple, list or object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.cuda import thread_idx

TARGETS = ("interp", "cpu")


@dataclass
class Cursor:
    at: object
    left: int


@sk.jit
def after_a_return_and_round_a_loop(a, out, n):
    if n < 3:
        return
    p = a + n
    for _ in range(2):
        out[0] += sk.load(p)
        p = p + 1


@sk.jit
def after_a_return_and_round_a_while(a, out, n):
    if n < 3:
        return
    p = a + n
    while sk.load(p) < 9:
        p = p + 1
    out[0] = sk.load(p)


@sk.jit
def set_in_the_body_alone(a, out, n):
    for i in range(3):
        p = a + (n + i)
    out[0] = sk.load(p)


@sk.jit
def set_in_a_while_that_breaks(a, out, n):
    i = 0
    while True:
        p = a + i
        i += 1
        if i > n:
            break
    out[0] = sk.load(p)


@sk.jit
def returned_in_the_else(a, out, n):
    if n >= 3:
        p = a + n
    else:
        return
    q = p + 1
    out[0] = sk.load(p) + sk.load(q)


@sk.jit
def skipped_by_a_continue(a, out, n):
    for i in range(n):
        if i < 3:
            continue
        p = a + i
        out[0] += sk.load(p)
        p = p + 1
        out[0] += sk.load(p)


@sk.jit
def in_a_tuple(a, out, n):
    if n < 3:
        return
    p = a + n
    pair = (p, p + 1, n)
    for _ in range(2):
        out[0] += sk.load(pair[0]) + sk.load(pair[1])
        pair = (pair[1], pair[0] + 2, n)


@sk.jit
def in_a_list_and_an_object(a, out, n):
    if n < 3:
        return
    both = [a + n, a + 1]
    cursor = Cursor(a + n, 3)
    while cursor.left > 0:
        out[0] += sk.load(cursor.at) + sk.load(both[0])
        both[0] = both[0] + 1
        cursor.at = cursor.at + 1
        cursor.left -= 1


@sk.jit
def in_arrays(a, out, n):
    if n < 3:
        return
    view = a[n : n + 4]
    for _ in range(2):
        out[0] += view[1]
        view = view[1:]


@sk.jit
def into_shared_and_local_memory(a, out, n):
    if n < 3:
        return
    shared, local = sk.alloc_shared((8,), sk.float32), sk.alloc_local((8,), sk.float32)
    for i in range(8):
        shared[i] = a[i]
        local[i] = a[i]
    p, q = shared.ptr + 1, local.ptr + 2
    for _ in range(2):
        out[0] += sk.load(p) + sk.load(q)
        p = p + 1
        q = q + 1


def pointer_past(a, n):
    if n > 5:
        return a + n
    p = a + 1
    return p + n


@sk.jit
def returned_early_by_a_function(a, out, n):
    if n < 3:
        return
    p = pointer_past(a, n)
    for _ in range(2):
        p = p + 1
    out[0] = sk.load(p)


@sk.jit
def of_tiles(a, out, n):
    if n < 3:
        return
    p = a + sk.arange(0, 4)
    for _ in range(2):
        out[0] += sk.reduce_sum(sk.load(p))
        p = p + 1


ANSWERS = {  # from n = 3 on; a[i] is i
    after_a_return_and_round_a_loop: lambda n: 2 * n + 1,
    after_a_return_and_round_a_while: lambda n: 9,
    set_in_the_body_alone: lambda n: n + 2,
    set_in_a_while_that_breaks: lambda n: n,
    returned_in_the_else: lambda n: 2 * n + 1,
    skipped_by_a_continue: lambda n: sum(2 * i + 1 for i in range(3, n)),
    in_a_tuple: lambda n: 4 * n + 4,
    in_a_list_and_an_object: lambda n: 6 * n + 6,
    in_arrays: lambda n: 2 * n + 3,
    into_shared_and_local_memory: lambda n: 8,
    returned_early_by_a_function: lambda n: n + (2 if n > 5 else 3),
    of_tiles: lambda n: 16,
}
WITHOUT_A_RETURN = {set_in_the_body_alone: 4, set_in_a_while_that_breaks: 2}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ANSWERS, ids=lambda k: k.__name__)
def test_a_pointer_is_what_the_path_that_ran_set(kernel, target):
    compiled = sk.compile(kernel.specialize(), target)
    for n in (2, 3, 5, 7):
        out = np.zeros(1, np.float32)
        compiled[1 if kernel is of_tiles else (1, 1)](np.arange(24, dtype=np.float32), out, n)
        assert out == (ANSWERS[kernel](n) if n > 2 else WITHOUT_A_RETURN.get(kernel, 0)), n


def test_the_gpu_has_the_same_pointers():
    array = sk.Tensor((None,), sk.float32)
    for kernel in ANSWERS:
        ptxas.assemble(kernel.specialize(a=array, out=array, n=sk.int32).ptx)


@sk.jit
def read_after_the_loop(a, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(out + i, i)
    for step in range(3):
        p = a + i + step
    sk.store(out + i, sk.load(p) + 1)


def test_a_pointer_that_a_path_lacks_costs_no_barrier():
    array = sk.Tensor((None,), sk.float32)
    made = read_after_the_loop.specialize(a=array, out=array, BLOCK=64)
    assert "syncthreads" not in str(made.ir)


@sk.jit
def in_the_threads_that_go_on(a, out, n):
    t = thread_idx("x")
    if t >= n:
        return
    p = a + t
    while True:
        q = p + t
        if sk.load(p) >= n:
            break
        p = p + 1
    out[t] = sk.load(p) + sk.load(q)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pointer_is_what_each_thread_set(target):
    out = np.zeros(64, np.float32)
    sk.compile(in_the_threads_that_go_on.specialize(), target)[1, 64](np.arange(128, dtype=np.float32), out, 40)
    assert out.tolist() == [40 + 40 + t if t < 40 else 0 for t in range(64)]
