"""Warps with different roles in one kernel: `sk.warp_roles(sk.Role(load, 1, registers=40), sk.Role(multiply, 2, registers=232))`.

    def load(group):
        ...                                        # one warpgroup, of which a thread begins copies

    def multiply(group):
        ...                                        # two warpgroups; group is 0 in the first, 1 in the second

    sk.warp_roles(sk.Role(load, 1, registers=40), sk.Role(multiply, 2, registers=232))

A *warpgroup* is 128 threads. Roles take them in order, the first one those from thread 0 on. Where roles name registers, those
that need few give the rest back, and the others take them: a block of 384 threads begins with 168 for each thread, and there are
65,536 in all. Source: PTX ISA, "setmaxnreg"; CUTLASS, warp-specialised kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.layout import REGISTERS

_THREADS = 128  # of a warpgroup
_STEP, _LEAST, _MOST = 8, 24, 256  # of the registers of a thread


class Role(NamedTuple):
    """What some warpgroups do. run: a function of the number of the warpgroup in the role. registers: of each thread, 24 to 256,
    a multiple of 8; None leaves them as they are.
    """

    run: Callable[[Any], Any]
    warpgroups: int
    registers: int | None = None


@sk._kernel_only
@sk._among_threads
def warp_roles(*roles: Role) -> None:
    """Let the warpgroups of the block run their roles: the first ones roles[0], the next ones roles[1]; those left over go on.

    Every thread calls it, in a kernel whose launch has 128 threads for each warpgroup, along x. A role is a function that
    returns nothing. Refused as STATIC_ASSERTION: registers of which a block has not so many, or that only some roles name.
    From compute capability 9.0 on where registers move, and in the sanitizer.
    """
    _check(roles)
    group = sk.shfl_sync(0xFFFFFFFF, sk.int32(sk.cuda.thread_idx("x")) // _THREADS, 0)
    _run(roles, group, _first_registers(roles))


def _run(roles: tuple[Role, ...], group: Any, registers: int) -> None:
    """Run the role of a warpgroup, which is number `group` of those that are left."""
    role = roles[0]
    if group < role.warpgroups:
        if role.registers is not None:
            if role.registers < registers:
                sk.cuda.setmaxnreg_dec(role.registers)
            elif role.registers > registers:
                sk.cuda.setmaxnreg_inc(role.registers)
        role.run(group)
    elif len(roles) > 1:
        _run(roles[1:], group - role.warpgroups, registers)


def _first_registers(roles: tuple[Role, ...]) -> int:
    """Return how many registers a thread has at first."""
    threads = _THREADS * sum([role.warpgroups for role in roles])
    return min(REGISTERS // threads // _STEP * _STEP, _MOST)


def _check(roles: tuple[Role, ...]) -> None:
    counts = [role.warpgroups for role in roles if type(role.warpgroups) is int and role.warpgroups >= 1]
    if not roles or len(counts) < len(roles):
        sk.static_assert(False, "warp_roles: each role has one warpgroup or more, a compile-time int")
    named = [role for role in roles if role.registers is not None]
    if named and len(named) < len(roles):
        sk.static_assert(False, f"warp_roles: {len(named)} of {len(roles)} roles name registers: all do, or none")
    for role in named:
        if type(role.registers) is not int or role.registers not in range(_LEAST, _MOST + 1, _STEP):
            sk.static_assert(
                False, f"warp_roles: registers are {_LEAST} to {_MOST}, a multiple of {_STEP}, got {role.registers!r}"
            )
    wanted = sum([_THREADS * role.warpgroups * (role.registers or 0) for role in named])
    have = _first_registers(roles) * _THREADS * sum([role.warpgroups for role in roles])
    if wanted > have:
        sk.static_assert(False, f"warp_roles: {wanted} registers in all, and such a block begins with {have}")
