"""Arguments that hold others: every form, on every target, by every way to launch; what is static in them and what is not."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.diagnostics import StagekitError
from stagekit.testing import run_in_python

n = sk.dynamic("n")
LENGTH = 5
TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))


class Pair(NamedTuple):
    one: Any
    other: Any


class Longer(Pair):
    """Derived, with a method and room for attributes."""

    def sum(self, i):
        return self.one[i] + self.other[i]


@dataclass
class Record:
    one: Any
    other: Any

    def sum(self, i):
        return self.one[i] + self.other[i]

    @property
    def first(self):
        return self.one


@dataclass(frozen=True)
class Frozen:
    one: Any
    other: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    one: Any
    other: Any


@dataclass(slots=True)
class OpenSlots:
    one: Any


@dataclass
class Derived(OpenSlots):
    """A slot of the base and a `__dict__` of its own."""

    other: Any
    third: int = 7


@dataclass
class Computed:
    """An attribute that is no field, as `__post_init__` and `cached_property` leave them."""

    one: Any
    other: Any
    half: Any = field(init=False)

    def __post_init__(self) -> None:
        self.half = len(self.one) / 2
        self.extra = 3


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "named": Pair,
    "longer": Longer,
    "record": Record,
    "frozen": Frozen,
    "slotted": Slotted,
    "derived": Derived,
    "nested": lambda a, b: [(a,), {"pair": Pair(None, Record(b, ()))}["pair"]],
}


def parts_of(value: Any) -> tuple[Any, Any]:
    """Run while specialising."""
    if type(value) is list and type(value[0]) is tuple:
        return value[0][0], value[1].other.one
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value.one, value.other)


@sk.jit
def total(held, factor, out):
    i = sk.cuda.thread_idx("x")
    one, other = parts_of(held)
    out[i] = one[i] * factor + other[i]


def arrays(count: int = 2, dtype: Any = np.float32) -> list[Any]:
    return [np.arange(LENGTH).astype(dtype) * 10**k for k in range(count)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_on_every_target(form: str, target: str) -> None:
    (a, b), out = arrays(), np.zeros(LENGTH, np.float32)
    moved = sk.cuda.to_device if target == "cuda" else np.asarray
    given, result = FORMS[form](moved(a), moved(b)), moved(out)
    kernel = sk.compile(total.specialize(), target)

    for factor in (2, 3, 4):  # the second has native code made, the third runs it
        kernel[1, LENGTH](given, factor, result)
        found = result.to_host() if target == "cuda" else result
        assert (a * factor + b == found).all()


@pytest.mark.parametrize("form", FORMS)
def test_by_keyword_prepared_sanitized_and_in_a_fragment(form: str) -> None:
    (a, b), out = arrays(), np.zeros(LENGTH, np.float32)
    held = FORMS[form](a, b)

    total[1, LENGTH](out=out, held=held, factor=2)
    assert (a * 2 + b == out).all()
    total.prepare[1, LENGTH](held, 3, out)()
    assert (a * 3 + b == out).all()
    sk.sanitize(total, outputs=["out"])[1, LENGTH](held, 4, out)
    assert (a * 4 + b == out).all()

    @sk.jit
    def outer(pair, out):
        total(pair, 5, out)

    outer[1, LENGTH](held, out)
    assert (a * 5 + b == out).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int8", "uint16", "int64", "uint64", "bool_"])
def test_leaves_of_any_dtype(name: str) -> None:
    dtype = getattr(sk, name)
    values = np.array([0, 1, 1, 0, 1], dtype.numpy)
    out = np.zeros(LENGTH, dtype.numpy)

    @sk.jit
    def copy(held: tuple[sk.Tensor((n,), dtype), sk.Tensor((n,), dtype)], number):
        i = sk.cuda.thread_idx("x")
        held[1][i] = sk.where(i < 2, held[0][i], number[0])

    for _ in range(3):
        copy[1, LENGTH]((values, out), [dtype.numpy.type(1)])

    assert [0, 1, 1, 1, 1] == out.astype(int).tolist()


@st.composite
def structures(draw: Any) -> tuple[Any, list[Any]]:
    """An argument of any form, and its numbers in order."""
    numbers: list[int] = []

    def leaf(value: int) -> Any:
        numbers.append(value)
        return value

    def made(shape: Any) -> Any:
        if isinstance(shape, int):
            return leaf(shape)
        kind, parts = shape
        held = [made(part) for part in parts]
        if kind in (tuple, list):
            return kind(held)
        return kind(held[0], held[1:]) if held else None

    leaves = st.integers(-100, 100)
    kinds = st.sampled_from([tuple, list, Pair, Record, Frozen, Slotted])
    shape = st.recursive(leaves, lambda inner: st.tuples(kinds, st.lists(inner, max_size=3)), max_leaves=8)
    return made(draw(shape)), numbers


def leaves_in(value: Any) -> list[Any]:
    """Run while specialising: the leaves in order."""
    if value is None:
        return []
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in leaves_in(each)]
    if isinstance(value, Record | Frozen | Slotted):
        return leaves_in(value.one) + leaves_in(value.other)
    return [value]


@sk.jit
def unpack(held, out):
    for place, each in enumerate(leaves_in(held)):
        out[place] = each


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(structures())
def test_any_structure_arrives_as_it_was_passed(case: tuple[Any, list[Any]]) -> None:
    held, numbers = case
    out = np.zeros(max(len(numbers), 1), np.int32)

    unpack[1, 1](held, out)

    assert numbers == out.tolist()[: len(numbers)]


# -- what is static -------------------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    ADD, SUBTRACT = 1, 2


@dataclass
class Marked:
    x: sk.Tensor((n,), sk.float32)
    rate: sk.float64
    mode: Any
    rounds: sk.constexpr[int] = 1
    bias: sk.Tensor((n,), sk.float32) | None = None
    note: str | None = None


@sk.jit
def marked(state: Marked, out):
    i = sk.cuda.thread_idx("x")
    value = state.x[i] * state.rate
    for _ in sk.static_range(state.rounds):
        value = value + 1 if state.mode is Mode.ADD else value - 1
    if state.bias is not None:
        value += state.bias[i]
    out[i] = value


def test_markers_in_a_class_count_as_those_of_parameters() -> None:
    (x, bias), out = arrays(), np.zeros(LENGTH, np.float32)

    marked[1, LENGTH](Marked(x, 2, Mode.ADD), out)
    assert (x * 2 + 1 == out).all()
    marked[1, LENGTH](Marked(x, np.float16(3), Mode.SUBTRACT, 4, bias), out)
    assert (x * 3 - 4 + bias == out).all()
    assert "state.rate: float64" in str(marked.signature)


def test_numbers_never_retrace_and_constants_do_once() -> None:
    (x, _), out = arrays(), np.zeros(LENGTH, np.float32)
    kernel = sk.jit(marked.function).specialize()
    for rate in range(5):
        kernel[1, LENGTH](Marked(x, rate, Mode.ADD), out)
    kernel[1, LENGTH](Marked(x, 1, Mode.SUBTRACT), out)
    kernel[1, LENGTH](Marked(x, 1, Mode.ADD), out)

    assert 2 == len(list(kernel._distinct_variants()))


MORE = Pair(3, None)


def _triple(x):
    return x * 3


def test_functions_dtypes_and_enums_are_static_parts() -> None:
    """Also what is a dataclass inside, as our own operations are."""
    out = np.ones(1, np.float32)

    @sk.jit
    def kernel(steps, out):
        for function, dtype, mode, factor in steps:
            value = dtype(function(out[0]) * factor)
            out[0] = value if mode is Mode.ADD else -value

    for _ in range(3):
        out[0] = 1
        kernel[1, 1]([(_triple, sk.int32, Mode.ADD, 2), (sk.sqrt, sk.float64, Mode.SUBTRACT, 1.0)], out)
        assert np.float32(-np.sqrt(np.float32(6))) == out[0]


def test_defaults_hold_others_too() -> None:
    out = np.zeros(1, np.float32)

    @sk.jit
    def kernel(out, pair=(1, 2.5), *, more=MORE):
        out[0] = pair[0] + pair[1] + more.one

    for _ in range(3):
        kernel[1, 1](out)
        assert 6.5 == out[0]
        kernel[1, 1](out, (2, 3), more=Pair(1, None))
        assert 6 == out[0]


def test_python_takes_them_apart_and_makes_others() -> None:
    out = np.zeros(4, np.float32)

    @sk.jit
    def kernel(record, pairs, out, flag):
        match record:
            case Record(one, other):
                out[0] = one[0] * other
        kept = record
        for k in range(3):
            kept = dataclasses.replace(kept, other=kept.other + k)
        out[1] = kept.other
        first, *rest = pairs
        chosen = rest[0] if flag else first
        out[2] = chosen.one + len(pairs)
        out[3] = sum(pair.other for pair in pairs)

    kernel[1, 1](Record(np.full(1, 2, np.float32), 4), (Pair(1, 2), Pair(3, 4)), out, True)

    assert [8, 7, 5, 6] == out.tolist()


def test_a_changed_leaf_is_seen_by_the_next_launch() -> None:
    """The lists and objects are read at each launch, natively too: nothing is remembered of what they held."""
    (a, b), out = arrays(), np.zeros(LENGTH, np.float32)
    held: list[Any] = [a, b]
    record = Record(a, b)
    for _ in range(3):
        total[1, LENGTH](held, 1, out)
        total[1, LENGTH](record, 1, out)
    held[0], record.one = b, b

    total[1, LENGTH](held, 1, out)
    assert (b + b == out).all()
    total[1, LENGTH](record, 2, out)
    assert (b * 2 + b == out).all()
    record.third = 1  # type: ignore[attr-defined]
    total[1, LENGTH](record, 3, out)
    assert (b * 3 + b == out).all()


def test_what_is_stored_beside_the_fields_counts() -> None:
    out = np.zeros(1, np.float32)

    @sk.jit
    def read(state, out):
        out[0] = state.half + state.extra

    for size in (2, 4, 6, 8):
        read[1, 1](Computed(np.zeros(size, np.float32), None), out)
        assert size / 2 + 3 == out[0]


def test_a_prepared_launch_keeps_the_leaves_that_it_was_given() -> None:
    (a, b), out = arrays(), np.zeros(LENGTH, np.float32)
    held: list[Any] = [a, b]
    launch = total.prepare[1, LENGTH](held, 2, out)
    held.clear()

    launch()

    assert (a * 2 + b == out).all()


def test_a_grid_function_sees_the_object() -> None:
    (a, b), out = arrays(), np.zeros(LENGTH, np.float32)

    @sk.jit
    def blocks(held, out):
        i = sk.cuda.block_idx("x")
        out[i] = held.sum(i) + held.first[i]

    for _ in range(3):
        blocks[lambda given: given["held"].first.shape, 1](Record(a, b), out)

    assert (a + b + a == out).all()


def test_a_kernel_may_compute_its_grid_from_leaves() -> None:
    @sk.function
    def fill(held: tuple[sk.Tensor((n,), sk.float32), sk.float32]):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=n, block=1))
        held[0][sk.cuda.block_idx("x")] = held[1]

    out = np.zeros(LENGTH, np.float32)
    for value in (1, 2, 3):
        fill((out, value))
        assert (out == value).all()


def test_block_level_kernels_overlapping_arguments_and_python() -> None:
    """Tiles over leaves; two leaves that overlap take the entry for that."""

    @sk.jit
    def shift(held, BLOCK: sk.constexpr):
        at = sk.arange(0, BLOCK)
        sk.store(held.other + at, sk.load(held.one + at) + 1)

    memory = np.arange(65, dtype=np.float32)
    for source, target in ((memory[:64].copy(), np.zeros(64, np.float32)), (memory[:64], memory[1:])):
        expected = source + 1
        shift[(1,)](Record(source, target), 64)
        assert (expected == target).all()

    target = np.zeros(64, np.float32)
    run_in_python(shift, (1,), Record(np.arange(64, dtype=np.float32), target), 64)
    assert (np.arange(64) + 1 == target).all()


# -- specialise by example -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "example",
    [
        lambda: Record(sk.Tensor((None,), sk.float32), sk.Tensor((None,), sk.float32)),
        lambda: Record(*arrays()),
        lambda: Record(sk.Tensor((None,), sk.float32), arrays()[0]),
    ],
)
def test_specialised_by_example(example: Callable[[], Any]) -> None:
    vector = sk.Tensor((None,), sk.float32)
    kernel = total.specialize(held=example(), factor=sk.int32, out=vector)

    assert "held.one: Tensor((?,), float32)" in str(kernel.signature)
    assert ".visible .entry total" in kernel.ptx
    assert kernel is total.specialize(held=example(), factor=sk.int32, out=vector)


def test_specialised_by_annotation() -> None:
    vector = sk.Tensor((None,), sk.float32)

    kernel = total.specialize(held=tuple[vector, vector], factor=sk.int32, out=vector)

    assert "held[1]: Tensor((?,), float32)" in str(kernel.signature)
    assert kernel is total.specialize(held=tuple[vector, vector], factor=sk.int32, out=vector)


def test_sizes_in_annotations_of_parts() -> None:
    """A dynamic size that several parts name must be the same in all; a quoted one is a constexpr."""

    @sk.jit
    def sized(held: tuple[sk.Tensor((n,), sk.float32), sk.Tensor(("N",), sk.float32)], N: sk.constexpr):
        held[0][0] = n + N

    a, b = np.zeros(3, np.float32), np.zeros(4, np.float32)
    sized[1, 1]((a, b), 4)
    assert 7 == a[0]
    with pytest.raises(StagekitError, match=r"held\[1\].*expected 5 element"):
        sized[1, 1]((a, b), 5)


# -- refusals ------------------------------------------------------------------------------------------------------------


class Deceiver(tuple):
    """A tuple with more than items."""


def _endless() -> list[Any]:
    held: list[Any] = [np.zeros(LENGTH, np.float32)]
    held.append(held)
    return held


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (lambda: (np.zeros(5, np.float32), np.zeros(5, "U1")), r"`held\[1\]` is an array of <U1"),
        (lambda: [np.zeros(5, np.float32), {}], r"`held\[1\]` is an object of type dict"),
        (lambda: Record(np.zeros(5, np.float32), set()), r"`held\.other` is an object of type set"),
        (_endless, r"`held\[1\]` is a list of 2 parts, which holds itself"),
        (lambda: [0] * 5000, r"`held` is a list of 5000 parts"),
        (lambda: Deceiver((np.zeros(5, np.float32),)), r"`held` is an object of type Deceiver"),
        (lambda: object(), r"`held` is an object of type object"),
    ],
)
def test_what_cannot_be_held_is_named(held: Callable[[], Any], message: str) -> None:
    with pytest.raises(StagekitError, match=message):
        total[1, LENGTH](held(), 1, np.zeros(LENGTH, np.float32))


def test_a_number_that_does_not_fit_is_named() -> None:
    with pytest.raises(StagekitError, match=r"`held\.other`: 1099511627776 is outside int32"):
        unpack[1, 1](Pair(1, 2**40), np.zeros(2, np.int32))


def _assign_item(held):
    held[0] = 1


def _augment(held):
    held[0] += 1


def _append(held):
    held.append(1)


def _extend(held):
    held += [1]


def _delete(held):
    del held[0]


def _sort(held):
    held.sort()


def _attribute_of_part(held):
    held[1].one = 2


def _joined(held):
    other = held if held[0] > 0 else [1, held[1]]
    other[0] = 2


@pytest.mark.parametrize(
    "change", [_assign_item, _augment, _append, _extend, _delete, _sort, _attribute_of_part, _joined]
)
def test_no_leaf_is_assigned(change: Callable[[Any], None]) -> None:
    held = [3, Record(1, 2)]

    with pytest.raises(StagekitError, match=r"ARGUMENT_MUTATION|SEALED_MUTATION"):
        sk.jit(change)[1, 1](held)

    assert [3, Record(1, 2)] == held


def test_a_copy_may_be_changed() -> None:
    out = np.zeros(4, np.int32)

    @sk.jit
    def change(held, out):
        own = list(held)
        own[0] += 1
        own.append(held[1].one)
        record = Record(own[2], 9)
        record.other += own[0]
        for place, each in enumerate((*own[:1], own[2], record.one, record.other)):
            out[place] = each

    change[1, 1]([3, Record(1, 2)], out)

    assert [4, 1, 1, 13] == out.tolist()


def test_the_sanitizer_names_the_part() -> None:
    a, b = arrays()

    with pytest.raises(StagekitError, match=r"reads element 5 of `held\.one`"):
        sk.sanitize(total)[1, LENGTH + 1](Record(a, b), 1, np.zeros(LENGTH + 1, np.float32))


def test_one_of_several_entries_and_capture_guards() -> None:
    """Native code checks captures and parts together."""
    steps: Sequence[int] = (1, 2)

    @sk.jit
    def add(held, out):
        out[0] = held[0] + sum(steps)

    out = np.zeros(1, np.int32)
    for value in range(4):
        add[1, 1]((value,), out)
        assert value + 3 == out[0]
    steps = (5,)
    add[1, 1]((1,), out)
    assert 6 == out[0]
