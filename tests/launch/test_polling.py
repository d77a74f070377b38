"""Which loops around atomics only wait: every atomic on every dtype that it has, as it is lowered for the CPU.

while sk.atomic_add(p, 0) == 0: pass       waits
while sk.atomic_add(p, 1) == 0: pass       does not, also where the addition is a loop of its own, as on 16-bit floats
"""

from __future__ import annotations

import pytest

import stagekit as sk
from stagekit.backends.host.safepoints import waiting_loops
from stagekit.intrinsics import registry
from stagekit.jit.compilation import lower_for


def by(name, *values):
    """Return a step by the atomic, which gives the element from before, of a pair the first."""
    atomic = getattr(sk, name)
    if name.endswith("_pair"):
        return lambda p: atomic(p, *values)[0]
    return lambda p: atomic(p, *values)


def again(name):
    """Return a step whose value is what was read just before and one more."""
    atomic = getattr(sk, name)
    return lambda p: atomic(p, sk.load(p, order="relaxed") + 1)


def loads(p):
    return sk.load(p, order="acquire")


def is_taken(p):
    """Take one of what a semaphore has, if it has any; return whether there was one."""
    seen = sk.load(p, order="relaxed")
    return seen != 0 and sk.atomic_cas(p, seen, seen - 1) == seen


def claims(p):
    """Count on by a swap whose success ends no loop."""
    seen = sk.load(p, order="relaxed")
    sk.atomic_cas(p, seen, seen + 1)
    return seen


def claims_by_trying_again(p):
    seen = sk.load(p, order="relaxed")
    found = sk.atomic_cas(p, seen, seen + 1)
    while found != seen:
        seen = found
        found = sk.atomic_cas(p, seen, seen + 1)
    return seen


STAY = {
    **{
        f"atomic_{verb}": by(f"atomic_{verb}", 0)
        for verb in ("add", "sub", "xor", "inc", "dec", "max", "min", "and", "or")
    },
    "atomic_exchange": by("atomic_exchange", 1),
    "atomic_cas": by("atomic_cas", 7, 8),
    "atomic_add_pair": by("atomic_add_pair", 0, 0),
    "atomic_exchange_pair": by("atomic_exchange_pair", 1, 1),
    "atomic_cas_pair": by("atomic_cas_pair", 7, 7, 8, 8),
    "atomic_load": loads,
}
MOVE = {
    **{f"atomic_{verb}": by(f"atomic_{verb}", 1) for verb in ("add", "sub", "xor", "inc", "dec")},
    **{f"atomic_{verb}": again(f"atomic_{verb}") for verb in ("max", "min", "and", "or")},
    "atomic_add_pair": by("atomic_add_pair", 0, 1),
    "atomic_cas": claims,
}
ATOMICS = [record for record in registry.all_intrinsics() if record.name.startswith("atomic_")]
NO_READ = {"atomic_store"}


def on_each_dtype(names):
    found = {(record.name, each.args[0].dtype) for record in ATOMICS if record.name in names for each in record.sigs}
    return [pytest.param(name, dtype, id=f"{name}-{dtype.name}") for name, dtype in sorted(found, key=str)]


def before(step):
    def polls(x):
        while step(x.ptr_to(0)) == 0:
            pass

    return polls


def inside(step):
    def polls(x):
        while True:
            if step(x.ptr_to(0)) != 0:
                break
            sk.nanosleep(10)

    return polls


def by_a_flag(step):
    def polls(x):
        goes_on = True
        while goes_on:
            goes_on = step(x.ptr_to(0)) == 0

    return polls


FORMS = pytest.mark.parametrize("form", [before, inside, by_a_flag])


def waits(kernel, dtype):
    traced = sk.jit(kernel).specialize(x=sk.Tensor((None,), dtype)).trace()
    return len(waiting_loops(lower_for(traced, "cpu", 0)))


def test_every_atomic_is_here():
    assert STAY.keys() == {record.name for record in ATOMICS} - NO_READ
    assert MOVE.keys() == STAY.keys() - {"atomic_load", "atomic_exchange", "atomic_exchange_pair", "atomic_cas_pair"}


@FORMS
@pytest.mark.parametrize(("name", "dtype"), on_each_dtype(STAY))
def test_who_writes_what_stays_waits(name, dtype, form):
    assert waits(form(STAY[name]), dtype) == 1


@FORMS
@pytest.mark.parametrize(("name", "dtype"), on_each_dtype(MOVE))
def test_who_moves_on_does_not_wait(name, dtype, form):
    assert waits(form(MOVE[name]), dtype) == 0


@FORMS
@pytest.mark.parametrize(("name", "dtype"), on_each_dtype(["atomic_cas"]))
def test_a_swap_that_is_tried_again_is_no_wait_and_a_semaphore_is_one(name, dtype, form):
    assert waits(form(claims_by_trying_again), dtype) == 0
    assert waits(form(is_taken), dtype) == 1


@pytest.mark.parametrize(("name", "dtype"), on_each_dtype(MOVE))
def test_an_atomic_alone_never_waits(name, dtype):
    def once(x):
        MOVE[name](x.ptr_to(0))
        STAY[name](x.ptr_to(0))

    assert waits(once, dtype) == 0
