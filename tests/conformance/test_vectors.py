"""Every elementwise op on vectors, dtype by dtype and width by width, against what the tables mean for each number.

The cases are derived from the kinds of the core ops and from the records of intrinsics. A kernel does all of one dtype and width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from stagekit.backends import interp, nvptx, ptxas
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import ALL_DTYPES, DType, bool_
from stagekit.intrinsics import registry
from stagekit.ir import (
    INDEX,
    VECTOR_WIDTHS,
    BinaryKind,
    Builder,
    CompareKind,
    Function,
    Intrinsic,
    IrError,
    Llvm,
    Pointer,
    Scalar,
    Space,
    UnaryKind,
    Value,
    of_dtype,
    semantics,
)
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from tests.backends.host import running
from tests.backends.nvptx.test_meaning import run as run_text
from tests.numerics import exact

LENGTH = 320  # numbers of each operand
SHIFTS = (BinaryKind.SHL, BinaryKind.SHR)
Array = np.ndarray[Any, np.dtype[Any]]


class Part(NamedTuple):
    """One op: what builds it of up to three vectors, what it means, and how far a target may be from that.

    is_plain: on cuda it needs nothing that only a GPU has, so that its LLVM text can be run here.
    """

    name: str
    result: DType
    build: Callable[..., Value]
    meaning: Callable[..., Any]
    ulp: dict[str, float]
    is_plain: bool


def core_parts(dtype: DType) -> Iterator[Part]:
    for kind in BinaryKind:
        build, meaning = functools.partial(_binary, kind), functools.partial(_binary_meaning, kind, dtype)
        yield Part(kind.value, dtype, build, meaning, {}, not (kind in SHIFTS and dtype.bits == 64))
    for sign in UnaryKind:
        yield Part(
            sign.value,
            dtype,
            lambda b, x, y, z, sign=sign: b.unary(sign, x),
            lambda x, y, z, sign=sign: semantics.unary(sign, dtype, x),
            {},
            True,
        )
    for order in CompareKind:
        yield Part(
            order.value,
            bool_,
            lambda b, x, y, z, order=order: b.compare(order, x, y),
            lambda x, y, z, order=order: semantics.compare(order, dtype, x, y),
            {},
            True,
        )
    yield Part(
        "select",
        dtype,
        lambda b, x, y, z: b.select(b.compare(CompareKind.LT, x, y), z, x),
        lambda x, y, z: np.where(semantics.compare(CompareKind.LT, dtype, x, y), z, x),
        {},
        True,
    )
    for target in ALL_DTYPES:
        yield Part(
            f"to {target.short}",
            target,
            lambda b, x, y, z, target=target: b.cast(x, target),
            lambda x, y, z, target=target: semantics.cast(x, dtype, target),
            {},
            not (dtype.is_float and target.is_integer),
        )
        if target.bits == dtype.bits:
            yield Part(
                f"as {target.short}",
                target,
                lambda b, x, y, z, target=target: b.bitcast(x, of_dtype(target, x.type)),
                lambda x, y, z, target=target: x.view(target.numpy),
                {},
                True,
            )


def _binary(kind: BinaryKind, b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.binary(kind, x, y)


def _binary_meaning(kind: BinaryKind, dtype: DType, x: Array, y: Array, z: Array) -> Any:
    return semantics.binary(kind, dtype, x, y)


def intrinsic_parts(dtype: DType) -> Iterator[Part]:
    for spec in registry.all_intrinsics():
        for sig in spec.sigs:
            if spec.is_elementwise and spec.evaluate and not spec.params and set(sig.args) == {Scalar(dtype)}:
                yield _of_record(spec, sig.results[0].dtype, len(sig.args), dtype)


def _of_record(spec: Intrinsic, result: DType, count: int, dtype: DType) -> Part:
    assert spec.evaluate is not None
    evaluate = spec.evaluate
    is_plain = dtype.is_float and isinstance(spec.lowering("cuda", (Scalar(dtype),) * count, fastmath=False), Llvm)
    return Part(
        spec.name,
        result,
        lambda b, *operands: b.call_one(spec, operands[:count]),
        lambda *operands: evaluate(*operands[:count]),
        {target: spec.tolerance.get(target, 0.0) for target in ("cpu", "cuda")},
        is_plain,
    )


def builds(part: Part, dtype: DType) -> bool:
    """Is there such an op of scalars?"""
    operands = [Value(Scalar(dtype))] * 3
    try:
        part.build(Builder(UNKNOWN, operands), *operands)
    except IrError:
        return False
    return True


@functools.cache
def parts_of(dtype: DType, family: str) -> list[Part]:
    found = core_parts(dtype) if family == "core" else intrinsic_parts(dtype)
    return [part for part in found if builds(part, dtype)]


def kernel(parts: list[Part], dtype: DType, width: int, *, has_threads: bool) -> Function:
    """Each of `parts` done to `width` numbers of x, y and z at a time: each thread its own, or one thread all of them."""
    results = [Pointer(part.result, Space.GLOBAL) for part in parts]
    given = [Value(t) for t in (*[Pointer(dtype, Space.GLOBAL)] * 3, *results)]
    b = Builder(UNKNOWN, given)

    def do(first: Value) -> None:
        places = [b.add(first, b.index(lane * (LENGTH // width))) for lane in range(width)]  # as a tile's elements lie
        operands = [b.pack([b.load(b.offset(source, place)) for place in places]) for source in given[:3]]
        for part, target in zip(parts, given[3:]):
            found = part.build(b, *operands)
            for lane, place in enumerate(places):
                b.store(b.offset(target, place), b.extract(found, lane))

    if has_threads:
        do(b.call_one(registry.by_name("thread_idx"), (), ("x",)))
    else:
        first = Value(INDEX)
        with b.block((first,)) as loop:
            do(first)
            b.yield_()
        b.for_((b.index(0), b.index(LENGTH // width), b.index(1)), (), loop.done())
    b.yield_()
    return Function("k", b.current.done())


def operands_of(dtype: DType) -> list[Array]:
    return [np.resize(exact.samples(dtype, LENGTH, seed), LENGTH) for seed in (1, 2, 3)]


ONE = (1, 1, 1)
CUDA = PassContext("cuda", 90, fastmath=False, debug=False)
INTERP = PassContext("interp", 0, fastmath=False, debug=False)


def run_on_cpu(fn: Function, arrays: list[Array], threads: int) -> None:
    running.run(fn, arrays, ONE, (threads, 1, 1))


def interpret(fn: Function, arrays: list[Array], threads: int) -> None:
    interp.run(lower(fn, INTERP, ()), arrays, ONE, (threads, 1, 1), options=interp.UNCHECKED)


def run_text_of_cuda(fn: Function, arrays: list[Array], threads: int) -> None:
    # older ones compute with bfloat16 and round to it by other arithmetic, as this machine must
    run_text(lower(fn, PassContext("cuda", 75, fastmath=False, debug=False), ()), *arrays, capability=75)


RUN = {"cpu": run_on_cpu, "interp": interpret, "text of cuda": run_text_of_cuda}

each_dtype = pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.short)
CASES = [(family, width) for family in ("core", "intrinsics") for width in VECTOR_WIDTHS]


def case(family: str, width: int, *target: str) -> Any:
    """The scalars that the cpu makes of vectors are tested elsewhere; and of what a record means the width changes nothing.

    For cuda LLVM makes two vectors of four of one of eight.
    """
    reasons = [family == "intrinsics", "cpu" in target, width > 2, width > 4 and "interp" not in target]
    is_slow = sum(reasons) > 1
    return pytest.param(family, width, *target, marks=pytest.mark.slow if is_slow else ())


@each_dtype
@pytest.mark.parametrize(("family", "width", "target"), [case(*each, target) for each in CASES for target in RUN])
def test_an_op_on_vectors_does_to_each_lane_what_it_does_to_a_number(
    dtype: DType, family: str, width: int, target: str
) -> None:
    parts = [part for part in parts_of(dtype, family) if part.is_plain or target != "text of cuda"]
    operands = operands_of(dtype)
    results = [np.zeros(LENGTH, part.result.numpy) for part in parts]

    fn = kernel(parts, dtype, width, has_threads=target != "text of cuda")
    RUN[target](fn, [*operands, *results], LENGTH // width)

    for part, found in zip(parts, results):
        check(part, operands, found, "cuda" if target == "text of cuda" else target)


def check(part: Part, operands: list[Array], found: Array, target: str) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(part.meaning(*operands)).astype(part.result.numpy)
    is_same = exact.same_numbers(wanted, found, part.result)
    if part.ulp.get(target, 0.0) and part.result.is_float:
        is_same |= exact.ulp_distance(wanted, found, part.result) <= part.ulp[target]
    wrong = np.flatnonzero(~is_same)
    assert wrong.size == 0, f"{part.name}: {[(*(x[i] for x in operands), wanted[i], found[i]) for i in wrong[:3]]}"


@each_dtype
@pytest.mark.parametrize(("family", "width"), [case(*each) for each in CASES])
def test_vectors_assemble(dtype: DType, family: str, width: int) -> None:
    if ptxas.find_tool("ptxas") is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    ptxas.assemble(
        nvptx.compile(lower(kernel(parts_of(dtype, family), dtype, width, has_threads=True), CUDA, ()), 90).ptx
    )
