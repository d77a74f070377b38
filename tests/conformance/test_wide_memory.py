"""Loads and stores of vectors, by dtype and width: they move what single ones would, in accesses as wide as may be."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from stagekit.backends import interp, nvptx, ptxas
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import ALL_DTYPES, DType, bfloat16, bool_, float32, int8, int64
from stagekit.intrinsics import registry
from stagekit.ir import INDEX, VECTOR_WIDTHS, Builder, Function, Pointer, Scalar, Space, Value, Vector, semantics
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from tests.backends.host import running
from tests.backends.nvptx.test_meaning import run as run_text
from tests.numerics import exact

THREADS = 40
CUDA = PassContext("cuda", 90, fastmath=False, debug=False)
INTERP = PassContext("interp", 0, fastmath=False, debug=False)
Array = np.ndarray[Any, np.dtype[Any]]

each_dtype = pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.short)
each_width = pytest.mark.parametrize("width", VECTOR_WIDTHS)


def kernel(dtype: DType, width: int, align: int, *, has_threads: bool) -> Function:
    """Vectors of `x` to `plain`, through local memory; to `filled`, read where `on`; to `kept`, written where `on`."""
    names = ("x", "plain", "filled", "kept", "fill")
    given = [*[Value(Pointer(dtype, Space.GLOBAL), name) for name in names], Value(Pointer(bool_, Space.GLOBAL), "on")]
    b = Builder(UNKNOWN, given)
    x, plain, filled, kept, fill, on = given

    def do(thread: Value) -> None:
        at, mask = b.mul(thread, b.index(width)), b.load(b.offset(on, thread))
        local = b.alloc(dtype, Space.LOCAL, width, align)
        found = b.load(b.offset(x, at), count=width, align=align)
        b.store(local, found, align=align)
        b.store(b.offset(plain, at), b.load(local, count=width, align=align), align=align)
        chosen = b.load(b.offset(x, at), mask, b.splat(b.load(fill), width), count=width, align=align)
        b.store(b.offset(filled, at), chosen, align=align)
        b.store(b.offset(kept, at), found, mask, align=align)

    if has_threads:
        do(b.call_one(registry.by_name("thread_idx"), (), ("x",)))
    else:
        thread = Value(INDEX)
        with b.block((thread,)) as loop:
            do(thread)
            b.yield_()
        b.for_((b.index(0), b.index(THREADS), b.index(1)), (), loop.done())
    b.yield_()
    return Function("k", b.current.done())


def interpret(fn: Function, slots: list[Any]) -> None:
    report = interp.run(lower(fn, INTERP, ()), slots, (1, 1, 1), (THREADS, 1, 1), options=interp.CHECKED)
    assert report.is_clean, report


def run_on_cpu(fn: Function, slots: list[Any]) -> None:
    running.run(fn, slots, (1, 1, 1), (THREADS, 1, 1))


def run_text_of_cuda(fn: Function, slots: list[Any]) -> None:
    run_text(lower(fn, PassContext("cuda", 75, fastmath=False, debug=False), ()), *slots, capability=75)


RUN = {"cpu": run_on_cpu, "interp": interpret, "text of cuda": run_text_of_cuda}


def aligned(values: Array) -> Array:
    """A copy at a multiple of 64 bytes."""
    memory = np.zeros(values.nbytes + 64, np.uint8)
    copy = memory[-memory.ctypes.data % 64 :][: values.nbytes].view(values.dtype)
    copy[...] = values
    return copy


def moving(dtype: DType, width: int, target: str) -> Any:
    """The cpu moves by bits: of dtypes that have as many, vectors of more than two are the same there."""
    is_slow = target == "cpu" and width > 2 and dtype not in ALIKE
    return pytest.param(
        dtype, width, target, marks=pytest.mark.slow if is_slow else (), id=f"{target}-{width}-{dtype.short}"
    )


ALIKE = (
    bool_,
    int8,
    bfloat16,
    float32,
    int64,
)  # one of each number of bits, and bool, of which any byte but zero is true
MOVING = [moving(*each) for each in itertools.product(ALL_DTYPES, VECTOR_WIDTHS, RUN)]


@pytest.mark.parametrize(("dtype", "width", "target"), MOVING)
def test_a_vector_moves_as_its_elements_do(dtype: DType, width: int, target: str) -> None:
    x, before = (aligned(np.resize(exact.samples(dtype, 64, seed), THREADS * width)) for seed in (1, 2))
    on, fill = np.arange(THREADS) % 3 > 0, exact.samples(dtype, 64, 3)[1:2].copy()
    for align in {dtype.itemsize, dtype.itemsize * width}:
        plain, filled, kept = (aligned(before) for _ in range(3))

        RUN[target](
            kernel(dtype, width, align, has_threads=target != "text of cuda"), [x, plain, filled, kept, fill, on]
        )

        is_on = np.repeat(on, width)
        for found, wanted in ((plain, x), (filled, np.where(is_on, x, fill[0])), (kept, np.where(is_on, x, before))):
            assert exact.same_numbers(wanted, found, dtype).all()


def test_any_byte_but_zero_is_true_in_a_vector_too() -> None:
    x, on = np.arange(THREADS * 4, dtype=np.uint8) % 3 * 127, np.ones(THREADS, np.bool_)
    for target, launch in RUN.items():
        plain, filled, kept = (np.full_like(x, 9) for _ in range(3))

        launch(kernel(bool_, 4, 1, has_threads=target != "text of cuda"), [x, plain, filled, kept, x, on])

        assert plain.tolist() == filled.tolist() == kept.tolist() == (x != 0).tolist()


# -- which instructions -----------------------------------------------------------------------------------------------


ACCESS = re.compile(r"\b(ld|st)\.(?:global|shared|local)\.(?:v(\d)\.)?b(\d+)\b")


def copying(dtype: DType, width: int, align: int, space: Space) -> Function:
    """Vectors from `x` to `out`, under one mask, or through shared memory."""
    x, out = (Value(Pointer(dtype, Space.GLOBAL), name) for name in ("x", "out"))
    on = Value(Scalar(bool_), "on")
    b = Builder(UNKNOWN, [x, out, on])
    at = b.mul(b.call_one(registry.by_name("thread_idx"), (), ("x",)), b.index(width))
    zeros = b.constant(semantics.round_to(0, dtype), Vector(dtype, width))
    found = b.load(b.offset(x, at), on, zeros, count=width, align=align)
    if space is Space.SHARED:
        held = b.alloc(dtype, Space.SHARED, THREADS * width, align)
        b.store(b.offset(held, at), found, align=align)
        b.call(registry.by_name("syncthreads"), ())
        found = b.load(b.offset(held, b.sub(b.index((THREADS - 1) * width), at)), count=width, align=align)
    b.store(b.offset(out, at), found, on, align=align)
    b.yield_()
    return Function("k", b.current.done(), (("block", (THREADS, 1, 1)),))


@each_dtype
@each_width
def test_accesses_are_as_wide_as_their_alignment_allows(dtype: DType, width: int) -> None:
    """At most 16 bytes, and no more than the address is a multiple of: a shared array begins where its size allows."""
    size, align = dtype.itemsize * width, dtype.itemsize
    while align <= size:
        of_global, of_shared = min(align, size, 16), min(size, 16)
        for space, widest in ((Space.GLOBAL, [of_global]), (Space.SHARED, [of_global, of_shared])):
            ptx = nvptx.compile(lower(copying(dtype, width, align, space), CUDA, ()), 90).ptx

            found = [(side, int(count or 1) * int(bits) // 8) for side, count, bits in ACCESS.findall(ptx)]

            assert sorted(found) == sorted((side, w) for w in widest for side in ("ld", "st") for _ in range(size // w))
            assert len(re.findall("@%p.*bra", ptx)) <= 2
        align *= 2


def test_one_instruction_under_a_predicate_moves_sixteen_bytes() -> None:
    if ptxas.find_tool("ptxas") is None or ptxas.find_tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed (pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm)")
    for dtype, width in ((float32, 4), (bfloat16, 8)):
        for space in (Space.GLOBAL, Space.SHARED):
            ptx = nvptx.compile(lower(copying(dtype, width, 16, space), CUDA, ()), 90).ptx
            sass = ptxas.disassemble(ptxas.assemble(ptx).cubin)
            found = re.findall(r"\b(LDG|STG|LDS|STS)\.(\S+)", sass)
            assert {wide for _, wide in found} <= {"E.128", "128"}
            assert len(found) == (2 if space is Space.GLOBAL else 4)
