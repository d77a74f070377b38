"""Every wrong use of a kernel's methods is a catalogued error that ends in the user's own line."""

from __future__ import annotations

import functools
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk

PACKAGE = str(Path(sk.__file__).parent)
ARRAY = sk.Tensor((None,), sk.float32)


@sk.jit
def scaled(x, n, B: sk.constexpr):
    x[0] = n * B


@sk.jit
def plain(x: ARRAY):
    x[sk.cuda.thread_idx("x")] = 1


@sk.jit
def tile(x: ARRAY):
    sk.store(x + sk.arange(0, 64), 1.0)


class Holder:
    def method(self, x):
        pass


def generator(x):
    yield x


async def coroutine(x):
    pass


async def asynchronous_generator(x):
    yield x


fragment = sk.inline(lambda x: x)
special, special_tile = plain.specialize(), tile.specialize()
partial, cached = functools.partial(generator, 1), functools.lru_cache(generator)
bound = sk.compile(plain, "cpu")
x = np.zeros(64, np.float32)
size = sk.dynamic("size")

MISUSES = {
    "WRONG_ARGUMENTS": """
        scaled.specialize(3)
        special.specialize(3)
        bound.specialize(3)
        special.compile("cpu", 90)
        special.compile("cuda", option=1)
        scaled.explain(3)
        special.report(3)
        sk.compile()
        sk.compile(plain, "cpu", 3)
        sk.compile(plain, option=1)
        sk.compile_all()
        sk.compile_all([special], option=3)
        sk.compile_all([special], executor=3)
        sk.compile_all([special], progress=3)
        special.view(3)
        sk.jit(plain, 3)
        sk.jit()()
        sk.function()()
        sk.inline(generator, 3)
        sk.inline()()
        sk.sanitize(plain, 3)
        sk.cuda.LaunchConfig()
        sk.cuda.LaunchConfig(1, 1, option=2)
        sk.cuda.LaunchConfig(1, 1).replace(3)
        sk.cuda.LaunchConfig(1, 1).replace(option=2)
        sk.cuda.to_device()
        sk.cuda.to_device([[1], [1, 2]])
        sk.cuda.empty()
        sk.cuda.empty("x", sk.float32)
        sk.cuda.empty((-1,), sk.float32)
        sk.cuda.empty(1.5, sk.float32)
        sk.cuda.empty(True, sk.float32)
        sk.cuda.empty((3, False), sk.float32)
        sk.cuda.synchronize(1, 2)
        sk.cuda.synchronize("x")
        sk.cuda.synchronize(-1)
        sk.cuda.capability(1, 2)
        sk.cuda.capability("x")
        sk.cuda.capability([])
        sk.cuda.capability(-1)
        sk.cuda.capability(True)
        sk.cuda.capability(2**40)
        sk.cuda.device_count(3)
        sk.cuda.is_available(3)
        sk.cuda.empty(3, sk.float32, "x")
        sk.cuda.empty(3, sk.float32, -1)
        sk.cuda.empty(2**70, sk.float32)
        sk.cuda.empty((0, 2**70), sk.float32)
        sk.cuda.to_device([1], "x")
        sk.cuda.DeviceArray()
        sk.cuda.DeviceArray("x", sk.float32)
        sk.cuda.DeviceArray(3, sk.float32, 1.5)
    """,
    "UNSUPPORTED_DTYPE": """
        sk.cuda.empty(3, 3)
        sk.cuda.empty(3, "nosuch")
        sk.cuda.empty(3, np.clongdouble)
    """,
    "NOT_A_FUNCTION": """
        sk.jit(3)
        sk.jit("x")
        sk.jit()(3)
        sk.jit(len)
        sk.jit(np.sin)
        sk.jit(Holder)
        sk.jit(Holder())
        sk.jit(Holder().method)
        sk.jit(generator)
        sk.jit(coroutine)
        sk.jit(asynchronous_generator)
        sk.jit(partial)
        sk.jit(cached)
        sk.jit(staticmethod(generator))
        sk.jit(classmethod(generator))
        sk.jit(property(generator))
        sk.jit(plain)
        sk.jit(special)
        sk.jit(bound)
        sk.jit(fragment)
        sk.function(3)
        sk.function(len)
        sk.function(Holder)
        sk.function(generator)
        sk.function(plain)
        sk.inline(3)
        sk.inline(len)
        sk.inline(generator)
        sk.inline(coroutine)
        sk.inline(plain)
        sk.inline(fragment)
        sk.compile(3)
        sk.compile(lambda x: x, "cpu")
        sk.compile_all(3)
        sk.compile_all("ab")
        sk.compile_all([3])
        sk.compile_all(special)
    """,
    "BAD_OPTION": """
        sk.inline(fastmath=True)
        sk.inline(per_thread=1)
        special.compile(3)
        special.compile("gpu")
        special.compile("interp")
        special.compile("cpu", capability=90)
        special.compile("cuda", block=64)
        special.compile("cuda", capability="x")
        special.compile("cuda", capability=True)
        special.compile("cuda", capability=3)
        special.compile("cuda", capability=85.5)
        special.compile("cpu", block=0)
        special.compile("cpu", block=(4, 0))
        sk.compile(plain, "gpu")
        sk.compile(plain, 3)
        sk.compile_all([special], "gpu")
        sk.compile_all([special], 3)
        sk.compile_all([special], "interp")
        sk.compile_all([special], "cpu", block=0)
        sk.compile_all([special], "cuda", block=64)
        sk.jit(plain, fastmth=True)
        sk.jit(fastmath=1)
        sk.jit(target=["cpu"])
        sk.jit(name="")
        sk.jit(target="cpu", max_registers=32)
        sk.jit(target="cpu", min_blocks=2)
        sk.jit(min_blocks=33)
        sk.jit(plain.function, min_blocks=2)[1, 1](x)
        sk.function(fastmth=1)
        sk.sanitize(plain, race=False)
        sk.sanitize(race=False)
        sk.sanitize(plain, nan=1)
        sk.sanitize(plain, order="x")
        sk.sanitize(plain, order=["random"])
        sk.sanitize(plain, seed="x")
        sk.sanitize(plain, seed=-1)
        sk.sanitize(plain, outputs=3)
        sk.sanitize(plain, outputs="out")
        sk.sanitize(plain, outputs=[3])
        sk.sanitize(plain, outputs=["y"])
        sk.sanitize(special, outputs=["y"])
        sk.sanitize(bound, outputs=["x", "y"])
        sk.sanitize(sk.sanitize(plain), outputs=["y"])
        sk.sanitize(plain, statistics=1)
        sk.sanitize(plain, collect="no")
        sk.sanitize(plain, max_iterations=0)
    """,
    "LAUNCH_LIMIT": """
        special.compile("cpu", block=-1)
        special.compile("cpu", block=2000)
        sk.compile_all([special], "cpu", block=(64, 64))
    """,
    "LAUNCH_SIZE_TYPE": """
        special.compile("cpu", block="x")
        special.compile("cpu", block=(1, 2, 3, 4))
        special.compile("cpu", block=())
        special.compile("cpu", block=1.5)
        special.compile("cpu", block=True)
        special[True, 1](x)
        special[1, (1, True)](x)
        special[1, 1, False](x)
        special_tile[True](x)
        special_tile[lambda given: True](x)
        sk.cuda.LaunchConfig(True, 1)
        sk.cuda.LaunchConfig(1, 1, False)
    """,
    "NOT_A_STREAM": """
        special[1, 1, 0, True](x)
        special[1, 1, 0, "fast"](x)
        sk.bench(lambda: None, target="cpu", stream=-1)
    """,
    "BLOCK_MISMATCH": """
        special_tile.compile("cpu", block=32)
        special_tile.compile("cpu", block=(8, 8))
    """,
    "MISSING_CONSTEXPR": """
        scaled.specialize()
        scaled[1, 1](x, 1)
        sk.compile(scaled, "cpu")
        sk.compile_all([scaled])
        scaled.ir
        scaled.ptx
        scaled.report()
        scaled.signature
        scaled.launch
        scaled.style
        scaled.compile("cpu")
        scaled.specialize(x=ARRAY).ir
    """,
    "TYPES_UNKNOWN": """
        scaled.specialize(B=1).ir
        scaled.specialize(B=1).report()
        scaled.specialize(B=1).compile("cpu")
    """,
    "BAD_CONSTEXPR": "scaled.specialize(B=[1])",
    "UNKNOWN_PARAMETER": """
        scaled.specialize(C=1)
        special.specialize(C=1)
    """,
    "NOT_CONSTEXPR": """
        scaled.specialize(x=3)
        special.specialize(x=3)
    """,
    "DUPLICATE_ARGUMENT": "scaled[1, 1](x, 1, 2, B=2)",
    "UNKNOWN_ARGUMENT": """
        scaled[1, 1](x, 1, B=2, C=3)
        scaled.specialize(B=2)[1, 1](x, 1, B=2)
    """,
    "TOO_MANY_ARGUMENTS": """
        scaled[1, 1](x, 1, 2, 3)
        special[1, 1](x, x)
    """,
    "MISSING_ARGUMENT": """
        scaled[1, 1](x, B=2)
        special[1, 1]()
        special.prepare[1, 1]()
    """,
    "BRACKETS_MISFIT": """
        special(x)
        special.prepare(x)
        special.prepare[1](x)
        special["a"](x)
        special[[1]](x)
        special[{}](x)
        special[()](x)
        special[1:2](x)
    """,
    "BAD_OPERANDS": """
        size < 3
        3 >= size + 1
        size / 2
        size & 3
        1 | size
        size << size
        2 ** size
        size + "x"
        size * 1.5
        [] - size
        size % None
        size // True
    """,
    "GRID_FUNCTION_FAILED": """
        plain[lambda a: a["C"], 1](x)
        plain[lambda: 1, 1](x)
        special[lambda a: 1 // 0, 1](x)
        bound[lambda a: a.C, 1](x)
        plain.prepare[lambda a: a["C"], 1](x)
        sk.sanitize(plain)[lambda a: a["C"], 1](x)
    """,
}
ROWS = [(line.strip(), id) for id, lines in MISUSES.items() for line in lines.strip().splitlines()]


@pytest.mark.parametrize(("line", "id"), ROWS)
def test_a_misuse_is_told_at_the_users_line(line: str, id: str) -> None:
    with pytest.raises(sk.StagekitError) as caught:
        exec(line)
    assert caught.value.id == id
    assert not [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.startswith(PACKAGE)]


@pytest.mark.skipif(sk.cuda.is_available(), reason="there is a driver")
@pytest.mark.parametrize(
    "line",
    [
        "sk.cuda.capability()",
        "sk.cuda.synchronize(0)",
        "sk.cuda.empty(3, sk.float32)",
        "sk.cuda.to_device([1.0])",
        "sk.cuda.DeviceArray(3, sk.float32)",
    ],
)
def test_a_missing_driver_is_told_at_the_users_line(line: str) -> None:
    test_a_misuse_is_told_at_the_users_line(line, "NO_CUDA_DRIVER")


def test_what_a_fragment_raises_outside_a_kernel_shows_the_users_frames_alone() -> None:
    @sk.inline
    def failing(x):
        return sk.load(x) if x else 1 // x

    for call in (lambda: failing(1.0), lambda: failing(0), lambda: failing()):
        with pytest.raises((sk.StagekitError, ArithmeticError, TypeError)) as caught:
            call()
        assert {__file__} == {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}


def test_the_outputs_of_a_checked_kernel_are_its_parameters() -> None:
    for kernel in (plain, special, bound, sk.sanitize(plain)):
        sk.sanitize(kernel, outputs=["x"])[1, 64](x)


def test_sizes_are_made_of_numpys_integers_too() -> None:
    assert "mod(add(size, 3), 4)" == repr((size + np.int64(3)) % 4)
    assert "mod(7, size)" == repr(7 % size)


def test_a_signature_is_shown_as_it_is_written() -> None:
    assert "<Signature (x: Tensor((?,), float32))>" == repr(special.signature)


def test_a_kernel_that_has_run_shows_what_ran_last() -> None:
    @sk.jit
    def kernel(x, B: sk.constexpr):
        x[0] = B

    for value in (5, 7, 5):
        kernel[1, 1](x, value)
        assert f"const {value}.0" in kernel.ir
    partial = kernel.specialize(x=ARRAY)
    with pytest.raises(sk.SpecializeError, match="MISSING_CONSTEXPR"):
        partial.ir


def test_brackets_are_no_items() -> None:
    for thing in (scaled, special, bound, plain.prepare, sk.sanitize(plain)):
        with pytest.raises(TypeError, match="not iterable"):
            list(thing)
        with pytest.raises(TypeError, match=r"not (a container|iterable)"):
            3 in thing


def test_a_bound_kernel_has_all_of_its_kernel() -> None:
    assert bound.ir == special.ir
    assert bound.name == "plain"
    assert bound.specialize().target == "cpu"
    assert sk.compile(bound, "interp").target == "interp"
    assert sk.compile_all([bound, plain], "cpu", block=4) == [special, special]


def test_a_block_is_for_the_kernels_that_fix_none() -> None:
    assert sk.compile_all([plain, tile], "cpu", block=32) == [special, special_tile]
    assert special_tile.fixed_block == (64, 1, 1)
    assert special.fixed_block is None


def test_a_size_is_taken_from_the_first_array_that_is_there() -> None:
    @sk.jit
    def kernel(a: sk.Tensor(("N",), sk.float32) | None, b: sk.Tensor(("N",), sk.float32), N: sk.constexpr):
        b[0] = N

    out: Any = np.zeros(7, np.float32)
    kernel[1, 1](None, out)
    assert out[0] == 7
    kernel[1, 1](np.zeros(7, np.float32), out)
    kernel[1, 1](None, out, 7)
    with pytest.raises(sk.ArgumentError, match="WRONG_SIZE"):
        kernel[1, 1](np.zeros(6, np.float32), out)
    with pytest.raises(sk.ArgumentError, match="WRONG_SIZE"):
        kernel[1, 1](None, out, 6)
