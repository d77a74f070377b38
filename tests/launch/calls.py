"""Kernels and argument lists, right and wrong, for launching the same call natively and by the general way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import stagekit as sk
from stagekit.diagnostics import StagekitError
from stagekit.frontend.structures import form_of, held_by, put_together
from stagekit.jit.launchable import Launcher

n = sk.dynamic("n")
m = sk.dynamic("m")


@sk.function
def scale(
    x: sk.Tensor((n,), sk.float32),
    out: sk.Tensor((n,), sk.float32),
    factor: sk.float32 = 2.0,
    *,
    offset: sk.int32 = 0,
):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 64), block=64))
    i = sk.cuda.block_idx("x") * 64 + sk.cuda.thread_idx("x")
    if i < n:
        out[i] = x[i] * factor + offset


@sk.jit
def plain(x, out, count, factor, flag):
    i = sk.cuda.thread_idx("x")
    if i < count and i < x.size and i < out.size:  # whatever is passed, memory is safe
        if flag:
            out[i] = x[i] * factor
        else:
            out[i] = x[i]


@sk.jit
def block(src: sk.Pointer(sk.int32), dst: sk.Pointer(sk.int32, align=16), count: sk.int64, BLOCK: sk.constexpr = 64):
    at = sk.arange(0, BLOCK)
    is_wanted = (at < count) & (at < 64)
    sk.store(dst + at, sk.load(src + at, mask=is_wanted) + 1, mask=is_wanted)


@sk.jit
def sized(
    A: sk.Tensor((N,), sk.float64),  # noqa: F821
    B: sk.Tensor((n + 1, N), sk.float64),  # noqa: F821
    C: sk.Tensor((n,), sk.uint8),
    N: sk.constexpr,
):
    i = sk.cuda.thread_idx("x")
    if i < N and n > 0:
        B[0, i] = A[i] + C[0]


@sk.jit
def either(x: sk.Tensor((n,), sk.float32) | None, out: sk.Tensor((n, m), sk.float32, strides=(None, 2))):
    i = sk.cuda.thread_idx("x")
    if i < n and m > 0:
        out[i, 0] = 1.0 if x is None else x[i]


class Pair(NamedTuple):
    x: Any
    out: Any


@dataclass
class Settings:
    """factor and bias are annotated and converted; the others are as they come, `rounds` is compiled in."""

    factor: sk.float64
    bias: sk.Tensor((None,), sk.float32) | None
    count: Any
    rounds: sk.constexpr = 2


@dataclass(slots=True)
class Slotted:
    least: Any
    name: str


@sk.jit
def held(pair, settings, more: list[sk.float32], slotted):
    i = sk.cuda.thread_idx("x")
    if i < settings.count and i < pair.x.size and i < pair.out.size:
        total = pair.x[i] * settings.factor + slotted.least
        for each in more:
            total = (total + each) * settings.rounds
        pair.out[i] = total


@dataclass(frozen=True)
class Case:
    """A kernel behind its brackets (None: without), and what an argument list for it may look like by parameter."""

    kernel: Any
    key: Any
    likely: dict[str, Callable[[], Any]]

    def native(self) -> Any:
        return self.kernel if self.key is None else self.kernel[self.key]

    def has_native(self) -> bool:
        """Is what is called machine code by now?"""
        launchers = self.kernel._native
        return (launchers.without_brackets if self.key is None else launchers.find(self.key)) is not None

    def general(self) -> Any:
        return Launcher(self.kernel._launch, self.key)


def floats(count: int = 100) -> Any:
    return np.linspace(-1, 1, count, dtype=np.float32)


CASES = {
    "scale": Case(scale, None, {"x": floats, "out": floats, "factor": lambda: 0.5, "offset": lambda: -7}),
    "plain": Case(
        plain.specialize(),
        (1, 32),
        {"x": floats, "out": floats, "count": lambda: 20, "factor": lambda: 1.5, "flag": lambda: True},
    ),
    "jit": Case(
        plain,
        (2, 32),
        {"x": floats, "out": floats, "count": lambda: 20, "factor": lambda: 3, "flag": lambda: 1},
    ),
    "block": Case(
        block,
        (1,),
        {
            "src": lambda: np.arange(64, dtype=np.int32),
            "dst": lambda: np.zeros(64, np.int32),
            "count": lambda: 33,
            "BLOCK": lambda: 64,
        },
    ),
    "sized": Case(
        sized,
        (1, 16),
        {
            "A": lambda: np.ones(8),
            "B": lambda: np.zeros((4, 8)),
            "C": lambda: np.full(3, 5, np.uint8),
            "N": lambda: 8,
        },
    ),
    "held": Case(
        held,
        (1, 32),
        {
            "pair": lambda: Pair(floats(), floats()),
            "settings": lambda: Settings(0.5, floats(), 20),
            "more": lambda: [1.5, 2.0],
            "slotted": lambda: Slotted(3, "name"),
        },
    ),
    "either": Case(
        either,
        (1, 8),
        {"x": lambda: floats(5), "out": lambda: np.zeros((5, 6), np.float32)[:, ::2]},
    ),
}


class Deceiver(np.ndarray):
    """A subclass is read the general way."""


class Exporter:
    """An array that only speaks DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class OldExporter(Exporter):
    """The same before 2023.12: neither `max_version` nor `copy`."""

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.array.__dlpack__(stream=stream)


def _misaligned() -> Any:
    return np.zeros(401, np.uint8)[1:401].view(np.float32)


def _read_only() -> Any:
    array = floats()
    array.flags.writeable = False
    return array


SOMETHING, MEMORY = object(), memoryview(b"1234")  # one only: as a constexpr, each would be another specialisation

EXPORTED: tuple[Callable[[], Any], ...] = (
    *(floats, floats, lambda: floats(200)[::2], lambda: floats(99), _misaligned, _read_only, lambda: np.ones(8)),
    *(lambda: np.arange(64, dtype=np.int32), lambda: np.zeros((5, 6), np.float32)[:, ::2], lambda: np.zeros((4, 8))),
    lambda: np.zeros(3, ">f4"),
)

ODD: tuple[Callable[[], Any], ...] = (
    *(lambda t=t: np.zeros(100, t) for t in ("f4", "f8", "i4", ">f4", "u1", "?", "c8", "f2", ml_dtypes.bfloat16, "O")),
    *(lambda s=s: np.zeros(s, np.float32) for s in ((), (0,), (1,), (99,), (100, 1), (1, 100), (0, 5), (2, 3, 4))),
    lambda: floats(200)[::2],
    lambda: floats()[::-1],
    lambda: np.zeros((100, 1), np.float32)[:, 0],
    lambda: np.broadcast_to(np.float32(1), (100,)),
    lambda: np.ma.masked_array(floats(), mask=False),
    lambda: floats().view(Deceiver),
    lambda: np.zeros((4, 8), order="F"),
    lambda: np.zeros((4, 9)),
    lambda: np.zeros((4, 16))[:, ::2],
    lambda: np.zeros(80, np.int32)[1:],
    _misaligned,
    _read_only,
    *(lambda k=k, make=make: k(make()) for k in (Exporter, OldExporter) for make in EXPORTED),
    *(lambda v=v: v for v in (0, 1, -1, 255, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, -(2**63), 2**64, 10**30)),
    *(
        lambda v=v: v
        for v in (0.0, -0.5, 1e39, -1e300, float("nan"), float("inf"), True, False, None, "text", [1.0], ...)
    ),
    *(lambda t=t: t(7) for t in (np.int8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_)),
    lambda: SOMETHING,
    lambda: MEMORY,
)


@dataclass(frozen=True)
class Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def random_call(case: Case, rng: random.Random) -> Callable[[], Call]:
    """A call that can be made again with fresh arrays; four in ten are right."""
    makers = dict(case.likely)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        name = rng.choice(list(makers))
        makers[name] = _spoiled(makers[name], rng)
    names = list(makers)
    positional = rng.randint(0, len(names)) if rng.random() < 0.4 else len(names) - (case.kernel is scale)
    left_out = {name for name in names[positional:] if rng.random() < 0.2}
    strange = rng.choice((None,) * 30 + ("facter", names[0]))
    extra = rng.random() < 0.02

    def make() -> Call:
        args = [makers[name]() for name in names[:positional]] + [1] * extra
        kwargs = {name: makers[name]() for name in names[positional:] if name not in left_out}
        return Call(tuple(args), {**kwargs, **({strange: 1} if strange else {})})

    return make


def _spoiled(make: Callable[[], Any], rng: random.Random) -> Callable[[], Any]:
    """Make something odd, or one that holds something odd, or one part less or more."""
    odd, form = rng.choice(ODD), form_of(make())
    if form is None or rng.random() < 0.2:
        return odd
    place = rng.randrange(form.count + form.has_items)

    def spoiled() -> Any:
        parts = list(held_by(make(), form))
        parts[place : place + 1] = [odd()]
        return put_together(form, parts)

    return spoiled


def _leaves(value: Any) -> Iterator[Any]:
    form = form_of(value)
    if form is None:
        yield value
    for part in held_by(value, form) if form else ():
        yield from _leaves(part)


def outcome(launch: Any, call: Call) -> tuple[Any, ...]:
    """What a call did: its error in words, or what its arrays hold now."""
    try:
        result = launch(*call.args, **call.kwargs)
    except StagekitError as error:
        return type(error), str(error)
    leaves = _leaves((*call.args, *call.kwargs.values()))
    values = (v.array if isinstance(v, Exporter) else v for v in leaves)
    return result, *(v.tobytes() for v in values if isinstance(v, np.ndarray) and v.dtype != object)
