"""Kernels go to other processes by name, as functions do, with what is fixed; a copy of a kernel is the kernel."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import stagekit as sk
from stagekit.diagnostics import UNKNOWN, Note
from tests.launch import pickled
from tests.launch.pickled import ARRAY, Holder, applied, doubled, filled, run, shifted

NAMED: dict[str, Any] = {
    "a kernel": shifted,
    "a specialised kernel": shifted.specialize(B=3),
    "with types": shifted.specialize(B=3, C=5, x=ARRAY),
    "a partial specialisation": shifted.specialize(C=2),
    "an operation as a constexpr": applied.specialize(OP=sk.exp, B=0),
    "a fragment as a constexpr": applied.specialize(OP=doubled, B=0),
    "a function of the language as a constexpr": applied.specialize(OP=sk.where, B=0),
    "one of @function": filled,
    "a fragment": doubled,
    "one of a class": Holder.kernel,
    "an intrinsic": sk.exp,
    "an index": sk.cuda.thread_idx,
    "a function of the language": sk.load,
    "a fragment of the library": sk.arange,
}


@pytest.mark.parametrize("what", NAMED)
def test_a_pickle_gives_the_very_object(what: str) -> None:
    for protocol in range(4, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(NAMED[what], protocol)) is NAMED[what]


@pytest.mark.parametrize("what", NAMED)
def test_a_copy_is_the_object_itself(what: str) -> None:
    assert copy.copy(NAMED[what]) is NAMED[what]
    assert copy.deepcopy([NAMED[what]])[0] is NAMED[what]


@pytest.mark.parametrize(
    "value", [Note("a", UNKNOWN), ARRAY, sk.dynamic("n") + 1, sk.cuda.LaunchConfig(4, 32)], ids=repr
)
def test_what_is_never_changed_is_copied_and_refuses_changes(value: Any) -> None:
    again = [pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)]
    assert [repr(each) for each in again] == [repr(value)] * 3
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)


def test_a_bound_kernel_is_bound_to_the_same() -> None:
    bound = sk.compile(filled, "interp")
    again = pickle.loads(pickle.dumps(bound))
    assert (again.target, again.ir) == ("interp", bound.ir)
    assert copy.deepcopy(bound) is bound


def test_a_kernel_without_a_name_is_refused_as_functions_are() -> None:
    @sk.jit
    def kernel(x, B: sk.constexpr):
        x[0] = B

    for thing in (
        kernel,
        kernel.specialize(B=1),
        kernel.specialize(x=ARRAY),
        sk.compile(kernel.specialize(B=1), "cpu"),
    ):
        with pytest.raises((pickle.PicklingError, AttributeError), match="kernel"):
            pickle.dumps(thing)
        assert copy.deepcopy(thing) is thing


def test_a_hidden_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "shifted", shifted.function)
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(shifted)


def test_a_process_pool_runs_them() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        jobs = [
            executor.submit(run, shifted, 3),
            executor.submit(run, shifted.specialize(B=3, C=5)),
            executor.submit(run, shifted.specialize(C=2), 3),
            executor.submit(run, applied.specialize(OP=sk.sqrt, B=15)),
            executor.submit(run, filled),
        ]
        assert [job.result() for job in jobs] == [4, 8, 5, 4, 7]
