"""Arrays in host memory, given to a kernel on a GPU: what is copied there, where it lies, and what comes back.

The driver is a fake, whose GPU memory is the host's; its kernels are Python functions of arrays there.
"""

from __future__ import annotations

import ctypes
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.artifact import RecordSite
from stagekit.diagnostics import Loc
from stagekit.dtypes import float32, int32, int64
from stagekit.kernels.host import is_on_cpu
from stagekit.runtime.args import read_array
from stagekit.runtime.array_list import ArrayList
from stagekit.runtime.cuda import CudaKernel
from stagekit.runtime.device_copies import plan_copies
from stagekit.runtime.errors import ArgumentError, CudaError, KernelAssertionError, LaunchError
from stagekit.runtime.host_copies import ALIGNMENT, byte_range
from stagekit.runtime.launch_config import LaunchRequest, LaunchSize
from stagekit.signature import ArraySpec, ParamSlot, PointerSpec, Signature
from tests.launch.fake_gpu import FakeNativeDriver
from tests.runtime.fake_driver import CAPTURING, Status, installed
from tests.runtime.handmade import array, artifact, signature_of

Array = np.ndarray[Any, np.dtype[Any]]
ONE_BLOCK = LaunchRequest(LaunchSize((1, 1, 1), (32, 1, 1), 0, 1))


class Gpu(FakeNativeDriver):
    """Runs `kernel`, a function of the arrays that `signature` describes, in its own memory."""

    def __init__(self, signature: Signature, kernel: Callable[..., None]) -> None:
        super().__init__()
        self.signature, self.kernel = signature, kernel

    def do_cuLaunchKernel(self, function: str, *sizes: int) -> None:
        *_, pointers, _ = sizes
        slots = (ctypes.POINTER(ctypes.c_int64) * len(self.signature.slots)).from_address(pointers)
        words = iter([slot[0] for slot in slots])
        self.kernel(*[_array_at(spec, words) for spec in self.signature.specs])


def _array_at(spec: Any, words: Iterator[int]) -> Any:
    if isinstance(spec, PointerSpec):
        return next(words)
    address, shape = next(words), [next(words) for _ in range(spec.rank)]
    strides = None if spec.is_contiguous else [next(words) * spec.dtype.itemsize for _ in range(spec.rank)]
    return _at(address, shape, spec.dtype.numpy, strides)


def _at(address: int, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None) -> Array:
    """The array at an address, which `ndarray` takes for the middle of all memory that its strides reach."""
    pointer = ctypes.cast(address, ctypes.POINTER(np.ctypeslib.as_ctypes_type(dtype)))
    first = np.ctypeslib.as_array(pointer, (1,))
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def kernel_of(signature: Signature, **changes: Any) -> CudaKernel:
    fields = {"target": "cuda", "capability": 75, "code": b".version 8.0"}
    return CudaKernel(artifact("k", signature, **(fields | changes)))


def launch(gpu: Gpu, *arguments: Any, brackets: LaunchRequest = ONE_BLOCK, **changes: Any) -> None:
    kernel_of(gpu.signature, **changes).launch(arguments, brackets)


def strided(name: str, view: Array, written: bool) -> ArraySpec:
    return array(name, int32, (None,) * view.ndim, contiguous=False, written=written)


# -- any arrays --------------------------------------------------------------------------------------------------------


def mixes(written: Sequence[bool]) -> Callable[..., None]:
    """A kernel without parallelism: what each element of the outputs becomes depends on all arrays and on the order."""

    def kernel(*arrays: Array) -> None:
        total = 1
        for place, (is_output, each) in enumerate(zip(written, arrays)):
            for index in np.ndindex(each.shape):
                total = (total * 31 + int(each[index]) + place) % 65521
                if is_output:
                    each[index] = total

    return kernel


def slices(size: int) -> st.SearchStrategy[slice]:
    bound, step = st.none() | st.integers(-size - 1, size + 1), st.sampled_from([None, 1, 2, 3, -1, -2])
    return st.builds(slice, bound, bound, step)


@st.composite
def views(draw: st.DrawFn) -> tuple[int, Callable[[Array], Array]]:
    """A view of one of two arrays of 24 elements: of one axis or two, or transposed."""
    whole, one, two, is_turned = draw(st.integers(0, 1)), draw(slices(24)), draw(slices(4)), draw(st.booleans())
    if draw(st.booleans()):
        return whole, lambda base: base[one]
    return whole, lambda base: (base.reshape(4, 6).T if is_turned else base.reshape(4, 6))[two, one]


@settings(max_examples=40, deadline=None)
@given(chosen=st.lists(st.tuples(views(), st.booleans()), min_size=1, max_size=4))
def test_a_launch_on_copies_does_what_one_on_the_arrays_does(chosen: list[Any]) -> None:
    """Overlaps, strides, gaps and views without elements: each array of the host ends as if there were no copies. What
    others write meanwhile beside the outputs stays.
    """
    written = [is_written for _, is_written in chosen]
    memory = np.arange(200, dtype=np.int32)
    whole = memory[3:27], memory[100:124]
    given_views = [of(whole[place]) for (place, of), _ in chosen]
    expected = memory.copy()
    mixes(written)(*[of(expected[3:27] if place == 0 else expected[100:124]) for (place, of), _ in chosen])
    is_output = np.zeros(200, bool)
    for view, is_written in zip(given_views, written):
        for index in np.ndindex(view.shape):
            if is_written:
                is_output[(view[(*index[:-1], slice(index[-1], None))].ctypes.data - memory.ctypes.data) // 4] = True
    expected[~is_output] = -1
    signature = signature_of(*[strided(f"x{k}", view, w) for k, (view, w) in enumerate(zip(given_views, written))])

    def kernel(*arrays: Array) -> None:
        mixes(written)(*arrays)
        memory[~is_output] = -1

    gpu = Gpu(signature, kernel)
    with installed(gpu):
        launch(gpu, *given_views)
        np.testing.assert_array_equal(memory, expected)
        is_empty = all(0 in view.shape for view in given_views)
        assert (len(gpu.named("cuMemAlloc")), len(gpu.named("cuMemFree"))) == ((0, 0) if is_empty else (1, 1))


@settings(max_examples=40)
@given(chosen=st.lists(views(), min_size=1, max_size=5))
def test_copies_keep_order_distance_and_alignment(chosen: list[Any]) -> None:
    """By these three a kernel's entry was chosen: that arrays are aligned, and that they lie apart."""
    memory = np.zeros(200, np.int32)
    found = [read_array(of(memory[at : at + 24])) for at, of in ((3 + 97 * place, of) for place, of in chosen)]
    ranges = [byte_range(view) for view in found if view is not None and 0 not in view.shape]

    plan = plan_copies([view for view in found if view is not None])

    for span in plan.spans:
        assert span.place % ALIGNMENT == span.low % ALIGNMENT
    ends = [(span.place, span.place + span.high - span.low) for span in plan.spans]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert all(end <= plan.size_bytes for _, end in ends)
    for low, high in ranges:
        (home,) = [span for span in plan.spans if span.low <= low and high <= span.high]
        assert plan.place_of(high - 1) - plan.place_of(low) == high - 1 - low
        assert plan.place_of(low) - home.place == low - home.low


# -- which arrays ------------------------------------------------------------------------------------------------------

PAIR = signature_of(array("x"), array("out", written=True))


def doubles(x: Array, out: Array) -> None:
    out[:] = 2 * x


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    """A GPU whose kernel doubles."""
    made = Gpu(PAIR, doubles)
    with installed(made):
        yield made


def test_only_what_the_kernel_writes_comes_back(gpu: Gpu) -> None:
    """So an input may be read-only, and is copied one way."""
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    x.flags.writeable = False

    launch(gpu, x, out)

    np.testing.assert_array_equal(out, 2 * x)
    assert [call[2] for call in gpu.named("cuMemcpyHtoDAsync")] == [32, 32]
    assert [call[2] for call in gpu.named("cuMemcpyDtoH")] == [32]
    with pytest.raises(ArgumentError, match="`out`: the kernel writes it"):
        launch(gpu, out, x)


def test_bytes_between_the_elements_of_a_pointer_come_back(gpu: Gpu) -> None:
    """A kernel that is given an address alone may write anywhere between the array's first element and its last."""
    gpu.signature = Signature((PointerSpec("p", int32, True, 1),), (ParamSlot("address", 0, int32),))
    gpu.kernel = lambda address: _at(address, [7], np.int32).__setitem__(slice(None), 5)
    memory = np.zeros(8, np.int32)

    launch(gpu, memory[:7:2])

    np.testing.assert_array_equal(memory, [5] * 7 + [0])


def test_arrays_of_any_library_are_copied(gpu: Gpu) -> None:
    class Tensor:
        def __init__(self, held: Array) -> None:
            self.held = held

        def __dlpack__(self, **_: Any) -> Any:
            return self.held.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    x, out = Tensor(np.ones(8, np.float32)), Tensor(np.zeros(8, np.float32))

    launch(gpu, x, out)

    np.testing.assert_array_equal(out.held, np.full(8, 2))


def test_pinned_memory_is_used_where_it_is(gpu: Gpu) -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    gpu.pinned[out.ctypes.data] = out.ctypes.data

    launch(gpu, x, out)

    np.testing.assert_array_equal(out, np.full(8, 2))
    assert [call[2] for call in gpu.named("cuMemcpyHtoDAsync")] == [32]
    assert not gpu.named("cuMemcpyDtoH")


@pytest.mark.parametrize("is_packed", [True, False])
def test_the_arrays_of_a_list_lie_where_the_copied_rows_say(gpu: Gpu, is_packed: bool) -> None:
    """Copies have other distances than the arrays, and rows are nothing but distances and sizes."""
    width = 3 if is_packed else 4
    gpu.signature = signature_of(
        array("A.rows", int64, (None, width)), array("A", float32, (None,), contiguous=False, written=True)
    )

    def kernel(rows: Array, base: Array) -> None:
        for number, (distance, size, *_, last) in enumerate(rows):
            step = 1 if is_packed else last
            each = _at(base.ctypes.data + 4 * int(distance), [int(size)], np.float32, [4 * int(step)])
            each[:] = number

    gpu.kernel = kernel
    memory = np.full(100, -1, np.float32)
    step = 1 if is_packed else 2
    arrays = [memory[60:64:step], memory[2:9:step], memory[40:40], np.zeros(6, np.float32)[::step]]
    listed = ArrayList(arrays)
    before = listed.rows.copy()

    launch(gpu, listed.rows, listed.base)

    for number, each in enumerate(arrays):
        np.testing.assert_array_equal(each, np.full(each.shape, number))
    assert np.count_nonzero(memory == -1) == 100 - sum(each.size for each in arrays[:3])
    np.testing.assert_array_equal(listed.rows, before)


# -- when it fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoH"])
def test_memory_is_freed_where_a_step_fails(gpu: Gpu, failing: str) -> None:
    gpu.failing.add(failing)
    out = np.zeros(8, np.float32)

    with pytest.raises(CudaError):
        launch(gpu, np.ones(8, np.float32), out)

    assert gpu.named("cuMemFree") == [[address] for address in gpu.freed]
    assert len(gpu.freed) == 1
    assert failing == "cuMemcpyDtoH" or not out.any()


def test_too_little_memory_is_told_before_anything_runs(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuMemAlloc", lambda size: (Status(2), None), raising=False)

    with pytest.raises(CudaError, match="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        launch(gpu, np.ones(8, np.float32), np.zeros(8, np.float32))

    assert not gpu.named("cuLaunchKernel")


def test_a_captured_launch_is_refused(gpu: Gpu) -> None:
    """It would have to wait."""
    brackets = LaunchRequest(ONE_BLOCK.size, CAPTURING)

    with pytest.raises(LaunchError, match="`k`: `x` lies on the CPU, and the stream is being captured"):
        launch(gpu, np.ones(8, np.float32), np.zeros(8, np.float32), brackets=brackets)

    assert not gpu.named("cuMemAlloc")


def test_a_failed_assert_is_raised_by_the_launch_itself(gpu: Gpu) -> None:
    """The outputs hold what was written until then, as on the CPU."""
    site = RecordSite("assert", "value {0}", (int64,), Loc(__file__, 1, 0, 1, 9, "kernel"))
    kernel = kernel_of(PAIR, record_sites=(site,))
    out = np.zeros(8, np.float32)

    def fails(x: Array, out: Array) -> None:
        doubles(x, out)
        (module,) = kernel._modules.values()
        assert module.records is not None
        words = (ctypes.c_uint64 * 12).from_address(module.records.address)
        words[4:12] = [1, 2, 0, 0, 7, 0, 0, 42]
        words[0] = 12

    gpu.kernel = fails
    with pytest.raises(KernelAssertionError, match="value 42"):
        kernel.launch((np.ones(8, np.float32), out), ONE_BLOCK)
    np.testing.assert_array_equal(out, np.full(8, 2))


def test_a_launch_of_nothing_copies_nothing(gpu: Gpu) -> None:
    launch(
        gpu,
        np.ones(8, np.float32),
        np.zeros(8, np.float32),
        brackets=LaunchRequest(LaunchSize((0, 1, 1), (32, 1, 1), 0, 0)),
    )

    assert not gpu.named("cuMemAlloc")


# -- from a user's kernel ------------------------------------------------------------------------------------------------


N = sk.dynamic("n")


def scale(x: sk.Tensor((N,), sk.float32), out: sk.Tensor((N,), sk.float32), BLOCK: sk.constexpr = 32):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    n = x.shape[0]
    sk.store(out + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)


@pytest.fixture
def on_gpu() -> Iterator[Gpu]:
    """A GPU for `scale`."""
    signature = sk.jit(scale).specialize().signature
    made = Gpu(signature, doubles)

    def run(function: Any, *sizes: int) -> None:
        *_, pointers, _ = sizes
        words = [slot[0] for slot in (ctypes.POINTER(ctypes.c_int64) * len(signature.slots)).from_address(pointers)]
        found = {slot.kind + str(slot.argument): word for slot, word in zip(signature.slots, words)}
        doubles(*[_at(found[f"address{k}"], [found["size0"]], np.float32) for k in (0, 1)])

    made.do_cuLaunchKernel = run  # type: ignore[method-assign]
    with installed(made):
        yield made


@pytest.mark.parametrize("asked_by", ["switch", "option"])
def test_every_launch_of_many_copies_and_so_does_a_prepared_one(
    on_gpu: Gpu, asked_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code, which launches from the third one on, leaves arrays of the host to Python."""
    kernel = sk.jit(target="cuda")(scale) if asked_by == "option" else sk.jit(scale)
    if asked_by == "switch":
        monkeypatch.setenv("STAGEKIT_TARGET", "cuda")
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for number in range(4):
        x[:] = number
        kernel[1](x, out)
        np.testing.assert_array_equal(out, 2 * x)
    again = kernel.prepare[1](x, out)
    for number in range(3):
        x[:] = 10 + number
        again()
        np.testing.assert_array_equal(out, 2 * x)

    assert not on_gpu.native
    assert len(on_gpu.named("cuMemAlloc")) == len(on_gpu.named("cuMemFree")) == 7


def test_arrays_on_the_gpu_are_not_copied_nor_mixed_with_others(on_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", "cuda")
    kernel = sk.jit(scale)
    x, out = sk.cuda.to_device(np.ones(8, np.float32)), sk.cuda.empty(8, float32)

    kernel[1](x, out)

    assert not on_gpu.named("cuMemcpyHtoDAsync")
    np.testing.assert_array_equal(out.to_host(), np.full(8, 2))
    with pytest.raises(
        ArgumentError, match=r"`x`: expected an array that the cuda target can reach, got .* on the CPU"
    ):
        kernel[1](np.ones(8, np.float32), out)


ON_HOST, ON_GPU = (
    np.zeros(1),
    types.SimpleNamespace(
        __cuda_array_interface__={"shape": (1,), "typestr": "<f4", "data": (256, False), "version": 3}
    ),
)


@pytest.mark.parametrize(
    ("switch", "arrays", "target"),
    [
        ("", [], "cpu"),
        ("", [ON_HOST], "cpu"),
        ("", [ON_GPU], "cuda"),
        ("", [ON_HOST, ON_GPU], "cuda"),
        ("cuda", [], "cuda"),
        ("cuda", [ON_HOST], "cuda"),
        ("cpu", [ON_GPU], "cpu"),
        ("interp", [ON_HOST], "interp"),
    ],
)
def test_a_program_asks_where_a_launch_runs(
    switch: str, arrays: list[Any], target: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", switch)

    assert sk.target_for(*arrays) == target
    with sk.sanitize():
        assert sk.target_for(*arrays) == "interp"
    if [*map(id, arrays)] == [id(ON_HOST)]:  # by which the shelf chooses tiles
        assert is_on_cpu(ON_HOST) == (target != "cuda")


def test_what_is_no_array_runs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGEKIT_TARGET", raising=False)
    with pytest.raises(TypeError, match="`target_for`: 'x' is no array"):
        sk.target_for("x")
    with pytest.raises(TypeError, match="`kernel` is 3, no kernel"):
        sk.target_for(kernel=3)


@pytest.mark.parametrize("switch", ["", "cuda", "interp"])
def test_a_kernel_knows_its_own_target(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is bound to comes before the switch, and the switch before its option, as at a launch."""
    monkeypatch.setenv("STAGEKIT_TARGET", switch)
    plain, own = sk.jit(scale), sk.jit(target="cuda")(scale)
    names = own.specialize(BLOCK=64), sk.compile(own.specialize(BLOCK=64), "cpu"), sk.sanitize(plain)

    assert sk.target_for(ON_HOST, kernel=plain) == (switch or "cpu")
    assert [sk.target_for(ON_HOST, kernel=each) for each in (own, *names)] == [switch or "cuda"] * 2 + ["cpu", "interp"]
    with sk.sanitize():
        assert sk.target_for(kernel=names[1]) == "interp"


# -- on a real GPU -------------------------------------------------------------------------------------------------------


@sk.jit
def mix(a, b, out, listed, pair, BLOCK: sk.constexpr = 64):
    """Reads and writes what may overlap, one thread after the other."""
    if sk.cuda.thread_idx("x") == 0:
        for i in range(len(out)):
            out[i] = 3 * out[i] + a[i] - b[i] + pair.x[i]
        for g in range(len(listed)):
            listed[g][0] = listed[g][0] + g + 1
        pair.y[0] = out[0]


def _arguments() -> tuple[list[Any], list[Array]]:
    """Arguments for `mix`, and all the memory that they are views of."""
    base = np.arange(40, dtype=np.int32)
    others = np.zeros(12, np.int32)
    fields = np.zeros(12, [("x", np.int32), ("y", np.int32)])
    fields["x"] = np.arange(12)
    lists = sk.ArrayList([others[8:9], others[1:3], base[39:]])
    return [base[20:8:-1], base[:24:2], base[5:29:2], lists, fields], [base, others, fields]


@pytest.mark.gpu
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_gpu_gives_what_the_cpu_gives(is_prepared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping views with strides of both signs, a list of arrays, and fields of a structured array."""
    results = {}
    for target in ("cpu", "cuda"):
        monkeypatch.setenv("STAGEKIT_TARGET", target)
        arguments, memory = _arguments()
        for _ in range(3):
            mix.prepare[1, 64](*arguments)() if is_prepared else mix[1, 64](*arguments)
        results[target] = memory

    for there, here in zip(results["cuda"], results["cpu"]):
        np.testing.assert_array_equal(there, here)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bool_", "int8", "float16", "float64", "complex64"])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_arrays_of_any_dtype_and_size_come_back(dtype: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", "cuda")
    x = (np.arange(2 * size) % 2).astype(getattr(sk, dtype).numpy)[::-2]
    out = np.zeros_like(x)

    @sk.jit
    def copy(x, out):
        i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
        if i < len(x):
            out[i] = x[i]

    copy[4, 256](x, out)

    np.testing.assert_array_equal(out, x)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 100, 5000])
def test_the_shelf_gives_on_a_gpu_what_it_gives_on_the_cpu(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It chooses blocks, and kernels, for the GPU then, which work on copies."""
    rng = np.random.default_rng(0)
    x, square = rng.standard_normal((8, size), np.float32), rng.standard_normal((100, 100), np.float32)
    q = rng.standard_normal((1, 2, 70, 64), np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: kernels.softmax(x),
        lambda: kernels.sum(x.reshape(-1)),
        lambda: kernels.cumsum(x.reshape(-1)),
        lambda: kernels.matmul(square, square),
        lambda: kernels.transpose(x),
        lambda: kernels.attention(q, q, q, causal=True),
    ]
    for call in calls:
        monkeypatch.setenv("STAGEKIT_TARGET", "cpu")
        expected = call()
        monkeypatch.setenv("STAGEKIT_TARGET", "cuda")
        np.testing.assert_allclose(call(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.gpu
def test_what_fails_and_what_is_printed_on_a_gpu_is_told_by_the_launch(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", "cuda")

    @sk.jit(debug=True)
    def check(x):
        print("seen", x[0])  # noqa: T201
        x[1] = 7
        assert x[0] < 0, "not below zero"

    x = np.zeros(4, np.int32)
    with pytest.raises(KernelAssertionError, match="not below zero"):
        check[1, 1](x)

    assert capfd.readouterr().out == "seen 0\n"  # the driver writes it, not Python
    assert list(x) == [0, 7, 0, 0]
