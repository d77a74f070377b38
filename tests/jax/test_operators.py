"""Operators of JAX: what `jit`, `grad` and `vmap` make of kernels, and what each word of `operator` does."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk

if any(importlib.util.find_spec(each) is None for each in ("jax", "jax_tvm_ffi")):
    pytest.skip("jax and jax-tvm-ffi are not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

import stagekit.jax as skj
from stagekit import kernels

each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
n = sk.dynamic("n")
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The device on which JAX makes arrays: the CPU, where a test does not say another one."""
    name = getattr(request, "param", "cpu")
    if name == "cuda" and not skj.plans.gpus():
        pytest.skip("JAX has no plugin for CUDA")
    with jax.default_device(found := jax.local_devices(backend=name)[0]):
        yield found


@sk.jit
def scaled(x, out, factor: sk.float32, count: sk.int64, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i, mask=i < count) * factor, mask=i < count)


@skj.operator(outputs={"out": "x"}, backward=lambda g, factor: scale(g, factor=factor), saves="factor", vmap="x")
def scale(x, *, out, factor, BLOCK=64):
    scaled[sk.cdiv(x.size, BLOCK)](x, out, factor, x.size, BLOCK)


@skj.operator(outputs={"x_gradient": "x", "weight_gradient": "weight"}, vmap="loop")
def rmsnorm_backward(gradient, x, weight, *, eps):
    return kernels.rmsnorm_backward(gradient, x, weight, eps=eps)


@skj.operator(
    outputs={"out": "x"}, backward=lambda *given: rmsnorm_backward(*given[:3], eps=given[3]),
    saves=("x", "weight", "eps"), vmap="x",
)  # fmt: skip
def rmsnorm(x, weight, *, out, eps=1e-6):
    kernels.rmsnorm(x, weight, out=out, eps=eps)


@skj.operator(outputs={"out": lambda a, b: jax.ShapeDtypeStruct((len(a), b.shape[1]), a.dtype)}, vmap="loop")
def matmul(a, b, *, out):
    kernels.matmul(a, b, out=out)


def array(*shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)


def plain_rmsnorm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight


@each_device
@pytest.mark.parametrize("length", [0, 1, 63, 64, 1000])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_every_way_of_calling_gives_the_same(length: int, dtype: Any) -> None:
    x = jnp.asarray(rng.standard_normal(length), dtype)
    expected = (np.asarray(x, np.float32) * np.float32(3)).astype(x.dtype)

    for found in (scale(x, factor=3.0), jax.jit(lambda x: scale(x, factor=3.0))(x), scale(np.asarray(x), factor=3.0)):
        np.testing.assert_array_equal(np.asarray(found), expected)
    if length:
        gradient = jax.jit(jax.grad(lambda x: scale(x, factor=3.0).astype(jnp.float32).sum()))(x)
        np.testing.assert_array_equal(np.asarray(gradient, np.float32), 3.0)


@each_device
def test_gradients_are_those_of_the_plain_function() -> None:
    x, weight = array(7, 300), array(300)

    def loss(f: Callable[..., Any]) -> Any:
        return jax.jit(jax.value_and_grad(lambda x, weight: (f(x, weight) ** 2).sum(), (0, 1)))(x, weight)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), loss(rmsnorm), loss(plain_rmsnorm)
    )


@each_device
def test_second_derivatives_go_as_far_as_there_are_backwards() -> None:
    x = array(5)
    second = jax.grad(lambda x: jax.grad(lambda x: (scale(x, factor=3.0) ** 3).sum())(x).sum())
    np.testing.assert_allclose(second(x), 6 * 27 * x, rtol=1e-5)

    with pytest.raises(skj.OperatorError, match="NO_BACKWARD"):
        jax.grad(lambda x: jax.grad(lambda x: (rmsnorm(x, x) ** 2).sum())(x).sum())(x)
    with pytest.raises(skj.OperatorError, match="NO_BACKWARD"):
        jax.jit(jax.grad(lambda a: matmul(a, a).sum()))(array(3, 3))


@each_device
@pytest.mark.parametrize(
    ("function", "axes", "shapes"),
    [
        (lambda x: scale(x, factor=2.0), (0,), [(3, 5)]),
        (lambda x: scale(x, factor=2.0), (1,), [(5, 3)]),
        (rmsnorm, (0, None), [(3, 4, 20), (20,)]),
        (rmsnorm, (0, 0), [(3, 4, 20), (3, 20)]),  # the weight has no further axis: a call for each
        (matmul, (0, None), [(3, 4, 20), (20, 6)]),
        (matmul, (None, 2), [(4, 20), (20, 6, 3)]),
        (jax.grad(lambda x, w: (rmsnorm(x, w) ** 2).sum(), (0, 1)), (0, 0), [(3, 4, 20), (3, 20)]),
    ],
)
def test_a_batch_is_what_a_call_for_each_gives(function: Any, axes: tuple[Any, ...], shapes: list[Any]) -> None:
    arrays = [array(*shape) for shape in shapes]
    each = [function(*[x if axis is None else jnp.take(x, i, axis) for x, axis in zip(arrays, axes)]) for i in range(3)]

    found = jax.jit(jax.vmap(function, in_axes=axes))(*arrays)

    jax.tree.map(lambda a, *b: np.testing.assert_allclose(a, np.stack(b), rtol=1e-6), found, *each)


@each_device
def test_a_given_rule_makes_the_batch() -> None:
    def rule(axis_size: int, in_batched: list[bool], x: Any, *, factor: float, BLOCK: int) -> Any:
        return jnp.full_like(x, axis_size * factor), True

    ruled = skj.operator(scale.function, outputs={"out": "x"}, vmap=rule)

    np.testing.assert_array_equal(jax.vmap(lambda x: ruled(x, factor=2.0))(jnp.ones((3, 4))), 6.0)


@each_device
def test_an_alias_takes_the_memory_of_an_input_that_is_given_away() -> None:
    doubled = skj.operator(scale.function, outputs={"out": "x"}, aliases={"out": "x"})
    x = jnp.arange(100.0)
    y = doubled(x, factor=2.0)
    np.testing.assert_array_equal(y, 2 * np.arange(100.0))
    np.testing.assert_array_equal(x, np.arange(100.0))  # it is still there: XLA has copied it

    address = y.unsafe_buffer_pointer()
    z = jax.jit(lambda x: doubled(x, factor=2.0), donate_argnums=0)(y)
    assert z.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(z, 4 * np.arange(100.0))


@each_device
def test_memory_of_a_call_and_returned_outputs() -> None:
    """Scratch arrays are memory that XLA gives; outputs may be returned, views taken, launches be several."""

    @skj.operator(outputs={"last": lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)})
    def last_row_times_six(x):
        between = x.new_empty(x.shape)
        last = x.new_empty(x.shape[1:])
        scaled[sk.cdiv(x.size, 64)](x, between, 2.0, x.size, 64)
        scaled[1](between[-1], last, 3.0, last.size, 64)
        return last

    x = array(4, 10)
    np.testing.assert_allclose(jax.jit(last_row_times_six)(x), 6 * x[-1], rtol=1e-6)


@each_device
def test_values_are_told_apart_and_sizes_share_code() -> None:
    x = jnp.ones(3)
    compiled = scaled.specialize(BLOCK=64)

    assert [scale(x, factor=f)[0] for f in (1, True, 2.0, -0.0)] == [1, 1, 2, 0]
    assert np.signbit(scale(x, factor=-0.0))[0]
    scale(array(10), factor=1.0)
    before = len(compiled.history.text())
    scale(array(1001), factor=5.0)
    assert before == len(compiled.history.text())  # sizes and numbers compile nothing


@each_device
def test_a_kernel_says_the_shapes_of_its_outputs() -> None:
    @sk.function
    def pairs(
        x: sk.Tensor((2 * n,), sk.float32),
        known: sk.Tensor((n,), sk.float32),
        out: sk.Tensor((n, 2), sk.float32),
        factor: sk.float32,
    ):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 64), block=64))
        i = sk.cuda.block_idx("x") * 64 + sk.cuda.thread_idx("x")
        if i < n:
            out[i, 0] = x[2 * i] * factor
            out[i, 1] = x[2 * i + 1] + known[i]

    found = skj.operator(pairs, outputs="out")(jnp.arange(4.0), jnp.ones(2), factor=2.0)

    np.testing.assert_array_equal(found, [[0, 2], [4, 4]])


@each_device
def test_threads_of_python_run_while_xla_does() -> None:
    """A launch has no GIL: another thread counts on, and many launches at a time give what each gives alone."""
    x = array(1 << 16)
    wanted, found = np.asarray(x) * np.float32(2), []

    def work() -> None:
        calls = (jax.jit(lambda x: scale(x, factor=2.0, BLOCK=128))(x) for _ in range(10))
        found.extend(np.array_equal(each, wanted) for each in calls)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [True] * 40 == found


@each_device
def test_launches_in_a_loop_that_xla_runs() -> None:
    """The same launch again and again, whose arrays lie elsewhere each time; on a GPU XLA may make a graph of it."""
    found = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda i, y: scale(y, factor=0.5) + x, x))(jnp.ones(1000))

    np.testing.assert_allclose(found, 2.0, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("rows", [1, 300])
def test_a_product_by_tensor_maps_and_clusters(rows: int) -> None:
    if sk.cuda.capability() < 90:
        pytest.skip("tensor maps are of compute capability 9.0")

    @skj.operator(outputs={"out": lambda a, b: jax.ShapeDtypeStruct((len(a), b.shape[1]), a.dtype)})
    def product(a, b, *, out):
        kernels.hopper_matmul(a, b, out=out)

    a, b = (jnp.asarray(rng.integers(-4, 4, shape), jnp.bfloat16) for shape in ((rows, 256), (256, 512)))

    np.testing.assert_array_equal(jax.jit(product)(a, b), jnp.matmul(a, b))


@sk.jit
def copied(x: sk.Tensor((n,), sk.float32), out: sk.Tensor((n,), sk.float32)):
    i = sk.cuda.thread_idx("x")
    out[i] = x[i]


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_what_a_gpu_cannot_run_is_refused_in_words() -> None:
    """Arrays of the host are no outputs of XLA's, and a stream of the user's is none of XLA's."""
    with pytest.raises(sk.StagekitError, match="name a stream"):
        made(lambda x, *, out: copied[1, 4, 0, 7](x, out))
    with pytest.raises(sk.StagekitError, match="WRONG_DEVICE"):
        made(reads_other)


@sk.function
def half_synced(x: sk.Tensor((n,), sk.float32), out: sk.Tensor((n,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=64))
    t = sk.cuda.thread_idx("x")
    if x[t] > 0:
        sk.cuda.syncthreads()
    out[t] = x[t]


@pytest.mark.stagekit_unchecked(reason="a barrier that not all threads reach")
def test_a_fault_of_a_kernel_is_an_error_of_xla() -> None:
    faulty = skj.operator(half_synced, outputs="out")

    with pytest.raises(Exception, match="MISSED_BARRIER"):
        jax.block_until_ready(faulty(jnp.arange(64.0) - 32))
    np.testing.assert_array_equal(faulty(jnp.ones(64)), 1.0)


@sk.jit
def printing(x, out):
    print("here")  # noqa: T201
    sk.store(out, sk.load(x))


def made(function: Callable[..., Any], *, call: bool = True, outputs: Any = None, **options: Any) -> None:
    found = skj.operator(function, outputs={"out": "x"} if outputs is None else outputs, **options)
    if call:
        jax.jit(found)(jnp.ones(4))


def with_numpy(x, *, out):
    np.add(x, 1)


def keeps(x, *, out):
    scaled[1](x, x, 1.0, 4, 64)


def reads_other(x, *, out):
    scaled[1](np.ones(4, np.float32), out, 1.0, 4, 64)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: made(scale.function, call=False, outputs={}), "no output"),
    (lambda: made(scale.function, call=False, outputs={"out": "y"}), "which is no input"),
    (lambda: made(scale.function, call=False, outputs={"out": 3}), "made by 3"),
    (lambda: made(scale.function, call=False, outputs={"out": lambda y: y}), "asks for `y`"),
    (lambda: made(scale.function, call=False, vmap="y"), "`vmap` names `y`"),
    (lambda: made(scale.function, call=False, aliases={"out": "y"}), "`aliases` names `y`"),
    (lambda: made(scale.function, call=False, saves="x"), "there is none"),
    (lambda: made(lambda *, out: None, call=False), "no input"),
    (lambda: skj.operator(scale.function, outputs=3), "`outputs` is 3"),
    (lambda: made(scale.function, call=False, saves=[3], backward=scale), "`saves` is"),
    (lambda: made(scale.function, call=False, vmap=3), "`vmap` is 3"),
    (lambda: made(scale.function, call=False, aliases="x"), "`aliases` is 'x'"),
    (lambda: made(scale.function, call=False, backward=3), "`backward` is 3"),
    (lambda: made(lambda x, *, out: None), "NEVER_WRITTEN"),
    (lambda: made(lambda x, *, out: out), "NEVER_WRITTEN|returned"),
    (lambda: made(with_numpy), "NO_DATA"),
    (lambda: made(lambda x, *, out: x + 1), "NO_DATA"),
    (lambda: made(lambda x, *, out: printing[1, 1](x, out)), "prints"),
    (lambda: made(keeps), "READ_ONLY_OUTPUT"),
    (lambda: made(reads_other), "neither an input nor an output"),
    (lambda: made(lambda x, *, out: scaled.prepare[1](x, out, 1.0, 4, 64)), "prepared"),
    (lambda: made(scale.function, outputs={"out": lambda x: 3}), "returned 3|missing"),
    (
        lambda: jax.vmap(skj.operator(lambda x, *, out: None, outputs={"out": "x"}))(jnp.ones((2, 2))),
        "NO_BATCHING_RULE",
    ),
    (lambda: jax.jit(lambda f: scale(jnp.ones(3), factor=f))(2.0), "must be known when JAX traces"),
    (lambda: scale(jnp.ones(3), factor=[1]), "no hash"),
    (lambda: scale(None, factor=1.0), "`x` is None, and an output"),
    (lambda: skj.operator(half_synced, outputs="out")(jnp.float32(1)), r"of shape \(\) has no axis 0"),
    (lambda: scale(jnp.ones(3, jnp.complex64), factor=1), "complex64"),
    (lambda: jax.jit(lambda x: scale(x, factor=2.0)).trace(jnp.ones(3)).lower(lowering_platforms=("tpu",)), "tpu"),
]


def _raise(*arrays: Any, **others: Any) -> Any:
    raise ZeroDivisionError("the user's own")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: skj.operator(lambda x, *, out: _raise(), outputs={"out": "x"})(x),
        lambda x: skj.operator(lambda x, *, out: None, outputs={"out": lambda x: _raise()})(x),
        lambda x: jax.vmap(skj.operator(lambda x, *, out: None, outputs={"out": "x"}, vmap=_raise))(x),
        lambda x: jax.grad(
            lambda x: skj.operator(
                lambda x, *, out: scaled[1](x, out, 1.0, 3, 64), outputs={"out": "x"}, backward=_raise
            )(x).sum()
        )(x),
    ],
)
def test_what_a_function_of_the_users_raises_shows_no_frames_of_ours(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ZeroDivisionError) as error:
        call(jnp.ones(3))

    package = str(Path(sk.__file__).parent)
    assert [] == [str(each.path) for each in error.traceback if str(each.path).startswith(package)]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: scale(jnp.ones(3)), TypeError, "`scale`: missing a required argument: 'factor'"),
        (lambda: matmul(jnp.ones((3, 3)), wrong=1), TypeError, "call it as `matmul(a, b)`"),
        (lambda: scale("a", factor=1.0), skj.OperatorError, "`x` is 'a', no array"),
        (lambda: scale([1.0, 2.0], factor=1.0), skj.OperatorError, "`x` is [1.0, 2.0], no array"),
    ],
)
def test_a_call_that_does_not_fit_is_told_at_the_call(call: Callable[[], Any], kind: Any, words: str) -> None:
    with pytest.raises(kind) as error:
        call()

    assert words in str(error.value)
    assert {__file__} == {str(each.path) for each in error.traceback}


def test_only_the_backward_of_an_operator_is_called_so() -> None:
    """Operators that are gone leave nothing to one that comes to lie where they were."""
    for _ in range(20):
        skj.operator(scale.function, outputs={"out": "x"}, backward=skj.operator(scale.function, outputs={"out": "x"}))
    with pytest.raises(skj.OperatorError, match=r"`scale` has no `backward`, so"):
        jax.grad(lambda x: skj.operator(scale.function, outputs={"out": "x"})(x, factor=1.0).sum())(jnp.ones(3))


@pytest.mark.parametrize(("make", "word"), REFUSED)
def test_what_cannot_be_is_refused_in_words(make: Callable[[], Any], word: str) -> None:
    with pytest.raises((sk.StagekitError, TypeError), match=word):
        make()
