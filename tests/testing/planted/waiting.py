"""Loops that wait for what nobody will do."""

from __future__ import annotations

import stagekit as sk

from .table import block, clean, fault, ints


@fault("NO_PROGRESS", "waits for memory that nobody will change", (2, 1), {"flag": ints(1)})
def flag_that_is_set_behind_the_wait(flag):
    while sk.atomic_add(flag, 0) == 0:
        pass
    sk.atomic_exchange(flag, 1)


@fault("NO_PROGRESS", "", (1, 32), {"lock": ints(1)})
def lock_between_lanes_of_a_warp(lock):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    sk.atomic_exchange(lock, 0)


@clean((3, 1), {"turn": ints(1), "out": ints(3)}, outputs=["out"])
def blocks_in_turn(turn, out):
    while sk.atomic_add(turn, 0) != block("x"):
        pass
    sk.threadfence()
    out[block("x")] = block("x")
    sk.threadfence()
    sk.atomic_add(turn, 1)


@fault("NO_PROGRESS", "rounds", (1, 1), {"out": ints(1), "n": 1}, max_iterations=1000)
def loop_that_never_ends(out, n):
    while n > 0:
        out[0] = n


@fault("NO_PROGRESS", "still running after 1024 rounds", (1, 1), {"flag": ints(1), "out": ints(1)}, max_iterations=1000)
def wait_that_counts_its_rounds(flag, out):
    rounds = 0
    while sk.atomic_add(flag, 0) == 0:
        rounds += 1
    out[0] = rounds


@fault("PLAIN_POLLING", "nothing in this loop changes what it asks", (1, 1), {"flag": ints(1), "out": ints(1)})
def wait_without_atomics_that_counts_its_rounds(flag, out):
    rounds = 0
    while flag[0] == 0:
        rounds += 1
    out[0] = rounds
