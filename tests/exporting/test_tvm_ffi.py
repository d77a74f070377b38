"""`sk.export(..., tvm_ffi=True)`: a module of tvm-ffi calls kernels on the arrays' device, and says what is wrong with a call."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk

if importlib.util.find_spec("tvm_ffi") is None:
    pytest.skip("apache-tvm-ffi is not installed", allow_module_level=True)

import tvm_ffi

N, M = sk.dynamic("n"), sk.dynamic("m")


@sk.jit
def scale(x: sk.Tensor((N,), sk.float32), out: sk.Tensor((N,), sk.float32), b: sk.float32, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    n = x.shape[0]
    sk.store(out + i, sk.load(x + i, mask=i < n) * b, mask=i < n)


@sk.function
def row_sums(a: sk.Tensor((M, N), sk.float64, (None, None)), sums: sk.Tensor((M,), sk.float64)):
    """A launch that it computes itself, of arrays with any strides."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=a.shape[0], block=32))
    total = 0.0
    for column in range(sk.cuda.thread_idx("x"), a.shape[1], 32):
        total = total + a[sk.cuda.block_idx("x"), column]
    total = sk.block_reduce(total, lambda p, q: p + q)
    if sk.cuda.thread_idx("x") == 0:
        sums[sk.cuda.block_idx("x")] = total


@sk.function
def fill(p: sk.Pointer(sk.int16), count: sk.int32, to: sk.uint8, flag: sk.bool_):
    """A pointer, integers and a bool, in a thread-level launch."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if flag and i < count:
        sk.store(p + i, to)


@sk.function
def small(out: sk.Tensor((4,), sk.float64), a: sk.float16, b: sk.bfloat16, c: sk.float8_e4m3fn, d: sk.float8_e5m2):
    """Numbers that C takes by their bits."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
    out[0], out[1], out[2], out[3] = a, b, c, d


def module_in(folder: Path, *targets: str) -> Any:
    kernels = {"scale": scale.specialize(BLOCK=64), "row_sums": row_sums, "fill": fill, "small": small}
    made = sk.export(kernels, folder, name="demo", targets=targets, block=32, tvm_ffi=True)
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-O1",
        "-fPIC",
        "-shared",
        "-o",
        "demo.so",
    ]
    libraries = ["-lm", "-ldl", "-lpthread"]
    subprocess.run(["gcc", *flags, *made.sources, str(made.tvm_ffi), *libraries], cwd=folder, check=True)
    return tvm_ffi.load_module(str(folder / "demo.so"))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_in(tmp_path_factory.mktemp("tvm"), "cpu")


def floats(n: int) -> Any:
    return np.arange(n, dtype=np.float32)


def test_a_module_runs_kernels(module: Any) -> None:
    x, out = floats(1000), floats(1000)
    for factor, grid in ((3.0, 16), (-2, tvm_ffi.Shape((16, 1, 1)))):
        module.scale(x, out, factor, grid)
        np.testing.assert_array_equal(out, factor * x)
    module.scale(x[:0], out[:0], 1.0, 0)  # nothing to do
    module.scale(out[:999], out[1:], 2.0, tvm_ffi.Shape(()))  # arrays that overlap run another entry
    a, sums = np.arange(210.0).reshape(70, 3), np.zeros(3)
    module.row_sums(a.T, sums)
    np.testing.assert_array_equal(sums, a.sum(0))
    p = np.zeros(100, np.int16)
    module.fill(p, 70, 200, True, 4, 32)
    np.testing.assert_array_equal(p, [200] * 70 + [0] * 30)


def test_small_floats_are_rounded_as_a_launch_does(module: Any) -> None:
    numbers = np.random.default_rng(0).standard_normal(300) * 2.0 ** np.arange(-150, 150)
    edges = [0.0, -0.0, 1, True, 464.0, 465.0, 61440.0, 65519.99, 65520.0, 1e39, 1e-45, np.inf, -np.inf, np.nan]

    for number in [*edges, *numbers.tolist()]:
        found, wanted = np.zeros(4), np.zeros(4)
        module.small(found, *[number] * 4)
        small(wanted, *[number] * 4)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


X, P = floats(100), np.zeros(100, np.int16)
WRONG = [
    ("scale", (X, X, 3.0), TypeError, "scale: 4 arguments are needed, got 3"),
    ("scale", (X, X, "a", 2), TypeError, "`b` is to be a float"),
    ("scale", (1, X, 1.0, 2), TypeError, "`x` is to be an array of float32 of rank 1"),
    ("scale", (None, X, 1.0, 2), TypeError, "`x` is to be an array"),
    ("scale", (X.astype("f8"), X, 1.0, 2), TypeError, "`x` is to be an array"),
    ("scale", (X, X.reshape(10, 10), 1.0, 2), TypeError, "`out` is to be an array"),
    ("scale", (X, X[:9], 1.0, 2), ValueError, "`out` is refused: an array has another size"),
    ("scale", (X[::2], X[:50], 1.0, 2), ValueError, "`x` is refused: an array has other strides"),
    ("scale", (X, X, 1.0, (2,)), TypeError, "`grid` is to be an int or a Shape of three axes at most"),
    ("scale", (X, X, 1.0, -2), ValueError, "`grid` is beyond the limits"),
    ("fill", (P, 2**31, 1, True, 4, 32), ValueError, "`count` is to be an integer that int32 holds"),
    ("fill", (P, 1, -1, True, 4, 32), ValueError, "`to` is to be an integer that uint8 holds"),
    ("fill", (P, 1.0, 1, True, 4, 32), TypeError, "`count` is to be an integer"),
    ("fill", (P, 1, 1, 2, 4, 32), ValueError, "`flag` is to be a bool"),
    ("fill", (P, 1, 1, True, 4, 1), RuntimeError, "fill: a block beyond the limits"),
    ("fill", (P, 1, 1, True, 4, tvm_ffi.Shape((32, 1, 1, 1))), TypeError, "`block` is to be"),
]


@pytest.mark.parametrize(("name", "arguments", "kind", "words"), WRONG)
def test_a_wrong_call_is_refused_in_words(module: Any, name: str, arguments: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind) as error:
        getattr(module, name)(*arguments)

    assert words in str(error.value)
    assert not P.any()


@pytest.mark.gpu
def test_a_module_runs_kernels_on_the_arrays_device_and_stream(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = module_in(tmp_path, "cpu", "cuda")
    x, stream = torch.arange(100_000.0, device="cuda"), torch.cuda.Stream()
    out, on_host = torch.zeros_like(x), np.zeros(100, np.float32)
    stream.wait_stream(torch.cuda.current_stream())

    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x += 1
        module.scale(x, out, 2.0, 1563)  # behind the sum, on this stream
    stream.synchronize()
    module.scale(X, on_host, 3.0, 2)

    torch.testing.assert_close(out, 2 * x)
    np.testing.assert_array_equal(on_host, 3 * X)
    with pytest.raises(ValueError, match="`out` is on another device"):
        module.scale(x[:100], on_host, 1.0, 2)
    with pytest.raises(ValueError, match="other strides"):
        module.scale(x[::2], out[::2], 1.0, 2)
