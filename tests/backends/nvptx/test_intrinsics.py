"""Every intrinsic and overload that cuda has, lowered and assembled for every kind of GPU, strictly and under fastmath."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from stagekit import dtypes
from stagekit.backends import nvptx, ptxas
from stagekit.diagnostics import StagekitError
from stagekit.intrinsics import registry
from stagekit.intrinsics.clusters import map_shared_rank
from stagekit.ir import Builder, Function, Intrinsic, Pointer, Sig, Space, Unsupported, Value
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from tests.backends.nvptx.kernels import array, kernel, thread

PER_KERNEL = 40
GPUS = {75: 0, 80: 76, 90: 0, 120: 0}
"""Kinds of GPU, and how new what is tried for them is at least: for 8.0 what is new there."""


def calls(capability: int, *, fastmath: bool) -> Iterator[tuple[Intrinsic, Sig]]:
    """Every overload that this GPU has, or does as older ones do; products of warpgroups have a test of their own."""
    newest = GPUS[capability]
    for spec in [each for each in registry.all_intrinsics() if not each.max_capability]:
        for sig in spec.sigs if newest <= spec.min_capability <= capability or (spec.older and not newest) else ():
            is_there = capability >= map_shared_rank.min_capability or not any(map(_is_of_a_peer, sig.args))
            if is_there and not isinstance(spec.lowering("cuda", sig.args, fastmath=fastmath), Unsupported):
                yield spec, sig


def _is_of_a_peer(type_: object) -> bool:
    return isinstance(type_, Pointer) and type_.space is Space.CLUSTER


def calling(batch: tuple[tuple[Intrinsic, Sig], ...], *, fastmath: bool) -> Function:
    """A kernel that makes each of these calls, its scalars from one array per dtype, its results into others."""

    def body(b: Builder, *arrays: Value) -> None:
        i = thread(b)
        place = {p.type.dtype: b.offset(p, i) for p in arrays}

        def argument(type_: Pointer | object) -> Value:
            if not isinstance(type_, Pointer):
                return b.load(place[type_.dtype])  # type: ignore[attr-defined]
            if type_.space is Space.GLOBAL:
                return place[type_.dtype]
            if _is_of_a_peer(type_):
                own = b.alloc(type_.dtype, Space.SHARED, 4, type_.dtype.itemsize)
                return b.call(map_shared_rank, (own, b.index(1)))[0]
            return b.alloc(type_.dtype, type_.space, 4, type_.dtype.itemsize)

        for spec, sig in batch:
            args = [argument(t) for t in sig.args]
            for result in b.call(spec, args, [_any_choice(p.choices) for p in spec.params]):
                own = place[result.type.dtype]
                b.store(*((result, b.load(own)) if isinstance(result.type, Pointer) else (own, result)))

    arrays = {d.short: array(d) for d in dtypes.ALL_DTYPES}
    return kernel(arrays, body, block=(128, 1, 1), fastmath=fastmath, tensor_maps=(1,))


def _any_choice(choices: object) -> object:
    return choices[-1] if isinstance(choices, tuple) else {int: 1, bool: True, str: "", tuple: ()}[choices]  # type: ignore[index]


@pytest.mark.parametrize("capability", GPUS)
def test_every_intrinsic_assembles(capability: int) -> None:
    """A form that the GPU lacks would end the process in LLVM ("Cannot select"), so all of them are tried here."""
    assert_all_assemble(capability, fastmath=False)


def test_every_intrinsic_assembles_under_fastmath() -> None:
    assert_all_assemble(90, fastmath=True)


def assert_all_assemble(capability: int, *, fastmath: bool) -> None:
    """Try many calls at once; where ptxas objects, one at a time, to name the records that need a higher `min_capability`."""
    context = PassContext("cuda", capability, fastmath=fastmath, debug=False)

    def objection(*batch: tuple[Intrinsic, Sig]) -> str:
        fn = lower(calling(batch, fastmath=fastmath), context, hooks=())
        ptx = nvptx.compile(fn, capability).ptx
        try:
            return "".join(ptxas.assemble(ptx).warnings)
        except StagekitError as error:
            return str(error)

    todo, refused = calls(capability, fastmath=fastmath), dict[str, str]()
    while batch := tuple(itertools.islice(todo, PER_KERNEL)):
        if together := objection(*batch):
            alone = {f"{spec.name}{sig}": objection((spec, sig)) for spec, sig in batch}
            refused |= {name: text for name, text in alone.items() if text} or {"several together": together}

    assert {} == refused
