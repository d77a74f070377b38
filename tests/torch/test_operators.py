"""Operators of torch: what `opcheck` asks of one, on the CPU and on a GPU, and what each word of `operator` does."""

from __future__ import annotations

import importlib.util
import io
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import stagekit as sk

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import Tensor

import stagekit.torch as skt
from stagekit import kernels

pytestmark = pytest.mark.filterwarnings("default")  # torch warns of what it does itself
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
n = sk.dynamic("n")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


def kernel_of(value: float, BLOCK: int = 128) -> Any:
    """A factory: `value` is a constant of the kernel."""

    @sk.function
    def add(A: sk.Tensor((n,), sk.float32), B: sk.Tensor((n,), sk.float32)) -> None:
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, BLOCK), block=BLOCK))
        i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
        if i < n:
            B[i] = A[i] + value

    return add


@sk.jit
def scaled(x, out, factor: sk.float32, count: sk.int64, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(x + i, mask=i < count) * factor, mask=i < count)


def launch(x: Tensor, out: Tensor, factor: float, BLOCK: int = 256) -> None:
    scaled[sk.cdiv(x.numel(), BLOCK)](x, out, factor, x.numel(), BLOCK)


@skt.operator("tests::scale_", mutates="x", vmap="loop")
def scale_(x: Tensor, factor: float) -> None:
    launch(x, x, factor)


def _scale_backward(gradient: Tensor, factor: float) -> Tensor:
    return scale(gradient, factor)


@skt.operator("tests::scale", outputs={"out": "x"}, backward=_scale_backward, saves="factor", vmap="x")
def scale(x: Tensor, factor: float = 2.0, *, out: Tensor) -> None:
    launch(x, out, factor)


@skt.operator("tests::blocked", outputs={"out": "x"})
def blocked(x: Tensor, *, out: Tensor) -> None:
    launch(x, out, 3.0, BLOCK=max(32, 1 << (x.shape[-1] - 1).bit_length()))  # a constexpr of a size


@skt.operator("tests::sums", outputs={"rows": lambda x: x.new_empty(x.shape[0]), "largest": "like"}, vmap="loop")
def sums(x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    return kernels.sum(x.contiguous(), axis=-1), kernels.max(x.contiguous(), axis=-1)


@skt.operator("tests::add_all", mutates="xs")
def add_all(xs: list[Tensor], value: float) -> None:
    for x in xs:
        kernels.elementwise(lambda a, b: a + b, x, value, out=x)


add_two = skt.operator("tests::add_two", kernel_of(2), outputs="B", vmap="loop")


def gives(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32, needs: bool = True) -> Tensor:
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=needs)


SHELF: dict[str, Any] = {
    "softmax": (skt.softmax, lambda d: (gives(3, 5, 33, device=d),)),
    "rmsnorm": (skt.rmsnorm, lambda d: (gives(5, 33, device=d), gives(33, device=d))),
    "layernorm": (skt.layernorm, lambda d: (gives(5, 33, device=d), gives(33, device=d), gives(33, device=d), 1e-4)),
    "layernorm without bias": (skt.layernorm, lambda d: (gives(5, 33, device=d), gives(33, device=d))),
    "swiglu": (skt.swiglu, lambda d: gives(4, 66, device=d).chunk(2, dim=1)),
    "cross_entropy": (skt.cross_entropy, lambda d: (gives(3, 9, device=d), torch.tensor([1, -100, 8], device=d))),
    "matmul": (skt.matmul, lambda d: (gives(5, 16, device=d), gives(7, 16, device=d).t())),
    "attention": (
        torch.ops.stagekit.attention.default,
        lambda d: (gives(1, 4, 5, 16, device=d), *(gives(1, 2, 7, 16, device=d) for _ in "kv"), True),
    ),
}
OURS: dict[str, Any] = {
    "scale": (scale, lambda d: (gives(10, device=d), 3.0)),
    "scale of nothing": (scale, lambda d: (gives(0, device=d), 3.0)),
    "scale_": (scale_, lambda d: (gives(10, device=d, needs=False), 3.0)),
    "blocked": (blocked, lambda d: (gives(4, 10, device=d, needs=False),)),
    "sums": (sums, lambda d: (gives(4, 10, device=d, needs=False), gives(4, device=d, needs=False))),
    "add_all": (add_all, lambda d: ([gives(3, device=d, needs=False), gives(2, 2, device=d, needs=False)], 1.0)),
    "add_two": (add_two, lambda d: (gives(300, device=d, needs=False),)),
}


@each_device
@pytest.mark.parametrize("name", [*OURS, *SHELF])
def test_torch_finds_nothing_wrong(name: str, device: str) -> None:
    """Schema, autograd, fake tensors, and tracing with sizes that are not known."""
    made, arguments = {**OURS, **SHELF}[name]

    found = torch.library.opcheck(made, arguments(device))

    assert set(found.values()) == {"SUCCESS"}


REFERENCES: dict[str, Any] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "rmsnorm": lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, 1e-6),
    "layernorm": lambda x, w, b, eps: torch.nn.functional.layer_norm(x, w.shape, w, b, eps),
    "layernorm without bias": lambda x, w: torch.nn.functional.layer_norm(x, w.shape, w),
    "swiglu": lambda gate, up: torch.nn.functional.silu(gate) * up,
    "cross_entropy": lambda x, targets: torch.nn.functional.cross_entropy(x, targets, reduction="none"),
    "matmul": torch.matmul,
    "attention": lambda q, k, v, causal: _attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
}


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    sees = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=sees)


@each_device
@pytest.mark.parametrize("name", SHELF)
def test_the_shelf_has_the_values_and_gradients_of_torch(name: str, device: str) -> None:
    made, arguments = SHELF[name]
    given = arguments(device)
    leaves = [x.detach().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given]
    needing = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]

    found, wanted = made(*leaves), REFERENCES[name](*leaves)
    found = found[0] if isinstance(found, tuple) else found
    along = torch.randn_like(wanted)

    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    for one, other in zip(torch.autograd.grad(found, needing, along), torch.autograd.grad(wanted, needing, along)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# -- compiled, exported, batched ----------------------------------------------------------------------------------------


@each_device
def test_a_compiled_program_is_one_graph_for_all_sizes(device: str) -> None:
    """Sizes stay numbers of run time, also where a constexpr is made of one: the operator hides it from torch."""
    graphs = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def program(x: Tensor, weight: Tensor) -> Tensor:
        return blocked(skt.swiglu(skt.rmsnorm(x + 1, weight), x))

    compiled = torch.compile(program, backend=counting, fullgraph=True, dynamic=True)
    for rows, columns in ((5, 7), (1000, 33), (6, 100)):
        x, weight = gives(rows, columns, device=device), gives(columns, device=device)
        torch.testing.assert_close(compiled(x, weight), program(x, weight))

    assert len(graphs) == 1


@each_device
def test_a_program_compiled_by_inductor_has_the_gradients_of_eager(device: str) -> None:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        return (skt.softmax(skt.rmsnorm(x * 2, weight)) * x).sum()

    def gradients(of: Any) -> Any:
        x, weight = gives(6, 40, device=device), gives(40, device=device)
        return torch.autograd.grad(of(x, weight), (x, weight))

    torch.manual_seed(1)
    eager = gradients(program)
    torch.manual_seed(1)
    compiled = gradients(torch.compile(program, fullgraph=True))

    torch.testing.assert_close(compiled, eager)


@each_device
def test_what_a_compiled_program_writes_in_place_is_written(device: str) -> None:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        scale_(y, 3.0)
        scale_(x, 2.0)
        return y + 1

    x = gives(10, device=device, needs=False)
    before = x.clone()

    y = torch.compile(program, fullgraph=True, backend="aot_eager")(x)

    torch.testing.assert_close(x, before * 2)
    torch.testing.assert_close(y, before * 3 + 1)


@each_device
def test_an_exported_program_is_saved_and_loaded(device: str) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(12, device=device))

        def forward(self, x: Tensor) -> Tensor:
            return skt.softmax(skt.rmsnorm(x, self.weight))

    block, rows = Block(), torch.export.Dim("rows", min=2, max=100)
    exported = torch.export.export(block, (gives(4, 12, device=device),), dynamic_shapes=({0: rows},))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file).module()

    for count in (2, 50):
        x = gives(count, 12, device=device)
        torch.testing.assert_close(loaded(x), block(x))
    assert "stagekit.rmsnorm" in str(exported.graph)


@each_device
@pytest.mark.parametrize("size", [3, 1, 0])
def test_a_batch_is_one_call_or_a_call_for_each(size: int, device: str) -> None:
    x, weight, each = (gives(*shape, device=device) for shape in ((4, size, 6), (6,), (size, 6)))

    torch.testing.assert_close(torch.vmap(skt.softmax, in_dims=1)(x), skt.softmax(x.transpose(0, 1)))
    torch.testing.assert_close(
        torch.vmap(skt.rmsnorm, in_dims=(1, None))(x, weight), skt.rmsnorm(x.transpose(0, 1), weight)
    )
    if size:
        wanted = torch.stack([skt.rmsnorm(x[:, i], each[i]) for i in range(size)])
        torch.testing.assert_close(torch.vmap(skt.rmsnorm, in_dims=(1, 0))(x, each), wanted)
        gate = torch.stack([skt.swiglu(x[:, i], x[:, 0]) for i in range(size)])
        torch.testing.assert_close(torch.vmap(skt.swiglu, in_dims=(1, None))(x, x[:, 0]), gate)
    rows, largest = torch.vmap(sums, in_dims=(1, None))(x, x.new_empty(4))
    torch.testing.assert_close((rows, largest), (x.sum(2).t(), x.transpose(0, 1).amax(2)))
    with torch.no_grad():
        torch.vmap(scale_, in_dims=(0, None), out_dims=None)(written := x.clone(), 2.0)
    torch.testing.assert_close(written, 2 * x)


@each_device
def test_a_jacobian_goes_over_the_backward_in_batches(device: str) -> None:
    x = gives(4, device=device)

    found = torch.autograd.functional.jacobian(lambda x: scale(x, 3.0), x, vectorize=True)

    torch.testing.assert_close(found, 3 * torch.eye(4, device=device))


@each_device
def test_autocast_gives_the_dtype_that_was_asked_for(device: str) -> None:
    precise = skt.operator(
        "tests::precise", lambda x, out: kernels.softmax(x, out=out), outputs={"out": "x"},
        schema="(Tensor x) -> Tensor", autocast=torch.float32,
    )  # fmt: skip
    x = gives(3, 8, device=device, dtype=torch.bfloat16, needs=False)

    with torch.autocast(device, dtype=torch.bfloat16):
        assert precise(x).dtype == torch.float32
        assert torch.compile(precise, fullgraph=True, backend="aot_eager")(x).dtype == torch.float32
        with pytest.raises(ValueError, match="float64"):  # which autocast leaves
            precise(x.double())
    assert precise(x).dtype == torch.bfloat16


# -- gradients ----------------------------------------------------------------------------------------------------------


def test_a_second_derivative_is_there_where_the_backward_has_one() -> None:
    x = gives(5)

    (first,) = torch.autograd.grad((scale(x, 3.0) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)

    torch.testing.assert_close(second, torch.full_like(x, 18.0))


def test_a_second_derivative_of_a_kernel_is_refused() -> None:
    x, weight = gives(3, 8), gives(8)
    first = torch.autograd.grad(skt.rmsnorm(x, weight).sum(), x, create_graph=True)[0]

    with pytest.raises(skt.OperatorError, match="the backward of `stagekit::rmsnorm`, of which") as refused:
        first.sum().backward()
    assert refused.value.id == "NO_BACKWARD"


def test_gradients_that_are_not_needed_are_not_given() -> None:
    x, weight = gives(3, 8), gives(8, needs=False)

    skt.rmsnorm(x, weight).sum().backward()

    assert x.grad is not None
    assert weight.grad is None


def test_a_change_of_what_was_saved_is_seen() -> None:
    x, weight = gives(3, 8), gives(8)
    kept = x * 1
    y = skt.rmsnorm(kept, weight)
    with torch.no_grad():
        scale_(kept, 2.0)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_what_writes_to_inputs_refuses_gradients(way: str) -> None:
    x = gives(5) * 1
    call = scale_ if way == "eager" else torch.compile(scale_, backend="aot_eager", fullgraph=True)

    with pytest.raises(Exception, match=r"GradientOfMutated|GRADIENT_OF_MUTATED"):
        call(x, 2.0)
    with torch.inference_mode():
        scale_(gives(5), 2.0)


def test_a_backward_that_gives_too_little_is_refused() -> None:
    @skt.operator("tests::short", outputs={"out": "x"}, backward=lambda gradient: gradient)
    def short(x: Tensor, y: Tensor, *, out: Tensor) -> None:
        launch(x, out, 1.0)

    with pytest.raises(skt.OperatorError, match="gave 1 gradient, for 2 tensor inputs"):
        short(gives(3), gives(3)).sum().backward()


@each_device
def test_autograd_runs_it_from_threads_of_its_own_on_several(device: str) -> None:
    results: list[Tensor | None] = [None] * 4

    def work(i: int) -> None:
        x, weight = torch.full((64, 128), i + 1.0, device=device, requires_grad=True), torch.ones(128, device=device)
        for _ in range(5):
            x.grad = None
            (skt.rmsnorm(scale(x, i + 1.0), weight) * x).sum().backward()
        results[i] = x.grad

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for found in results:
        assert found is not None
        torch.testing.assert_close(found, torch.ones_like(found))


# -- definitions --------------------------------------------------------------------------------------------------------


def test_the_schema_is_read_off_the_function_or_the_kernel() -> None:
    @sk.function
    def free(A: sk.Pointer(sk.int32), B: sk.Tensor((n, 2), sk.int32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
        B[0, 0] = sk.load(A)

    @sk.function
    def plain(A: sk.Tensor((n, 2), sk.int32), k: sk.int64, x: sk.float32, B: sk.Tensor((2 * n, n // 2, 3), sk.float64)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
        B[0, 0, 0] = A[0, 0] + k + x

    made = skt.operator("tests::plain", plain, outputs="B")
    out = made(torch.full((4, 2), 7, dtype=torch.int32), 1, 0.5)

    assert str(made._schema) == "tests::plain(Tensor A, SymInt k, float x) -> Tensor"
    assert (tuple(out.shape), out.dtype, out[0, 0, 0].item()) == ((8, 2, 3), torch.float64, 8.5)
    with pytest.raises(skt.OperatorError, match=r"`A` of shape \(\) has no axis 0, and an output"):
        made(torch.tensor(7, dtype=torch.int32), 1, 0.5)
    absent = skt.operator("tests::absent", lambda x, y, out: None, schema="(Tensor? x, Tensor y) -> Tensor", **LIKE_X)
    with pytest.raises(skt.OperatorError, match="`x` is None, and an output"):
        absent(None, x := gives(4))
    # torch's integers are ones of run time too
    assert str(scale._schema) == "tests::scale(Tensor x, float factor=2.) -> Tensor"
    assert str(add_all._schema) == "tests::add_all(Tensor(a0!)[] xs, float value) -> ()"
    torch.testing.assert_close(scale(x), 2 * x)
    torch.testing.assert_close(scale(factor=3.0, x=x), 3 * x)
    with pytest.raises(skt.OperatorError, match="the size `n` of `B` is that of no input"):
        skt.operator("tests::free", free, outputs="B")


def test_annotations_may_name_what_a_function_around_it_knows() -> None:
    Kind = Tensor

    @skt.operator("tests::local", outputs={"out": "x"})
    def local(x: Kind, by: float, *, out: Kind) -> None:
        launch(x, out, by)

    assert str(local._schema) == "tests::local(Tensor x, float by) -> Tensor"
    with pytest.raises(skt.OperatorError, match="annotations mean nothing"):

        @skt.operator("tests::refused", **LIKE_X)
        def unknown(x: Nowhere, out: Tensor) -> None:  # type: ignore[name-defined]  # noqa: F821
            """Nothing."""


def test_a_name_may_be_defined_again() -> None:
    def define(factor: float) -> Any:
        return skt.operator(
            "tests::again", lambda x, out: launch(x, out, factor), outputs={"out": "x"}, schema="(Tensor x) -> Tensor"
        )

    x = gives(4)
    for factor in (2.0, 3.0):
        torch.testing.assert_close(define(factor)(x), factor * x)
        torch.testing.assert_close(torch.ops.tests.again(x), factor * x)
    for options in ({"schema": "(Tensor y) -> Tensor"}, {"vmap": "y"}, {"schema": "x -> y"}):  # leaves what there is
        with pytest.raises(skt.OperatorError):
            skt.operator("tests::again", nothing, **({"schema": "(Tensor x) -> Tensor"} | LIKE_X | options))
        torch.testing.assert_close(torch.ops.tests.again(x), 3 * x)


def nothing(x: Tensor, out: Tensor) -> None:
    """A function to be refused."""


def untyped(x, out) -> None:  # type: ignore[no-untyped-def]
    """As well."""


def starred(*xs: Tensor) -> None:
    """As well."""


LIKE_X = {"outputs": {"out": "x"}}
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (nothing, {}, "has no output and writes to no input"),
    (untyped, LIKE_X, "`x` has no type"),
    (starred, LIKE_X, "has no name of its own"),
    (3, LIKE_X, "3 is no function"),
    (nothing, {"outputs": {"out": "y"}}, "to be like `y`, which is no input"),
    (nothing, {"outputs": {"out": lambda y: y}}, "asks for `y`, which is no input"),
    (nothing, {"outputs": {"out": 3}}, "`out` is made by 3"),
    (nothing, {"outputs": "out"}, "nothing says what `out` is"),
    (nothing, {"outputs": {"out": "x", "more": "x"}}, "`more` is no parameter"),
    (nothing, {"mutates": "y"}, "`y` is no parameter"),
    (nothing, {**LIKE_X, "mutates": "out"}, "`out` is an output and an input"),
    (nothing, {**LIKE_X, "saves": "x"}, "`saves` is for a `backward`"),
    (nothing, {"outputs": 3}, "`outputs` is 3"),
    (nothing, {**LIKE_X, "vmap": 3}, "`vmap` is 3"),
    (nothing, {**LIKE_X, "backward": 3}, "`backward` is 3"),
    (nothing, {**LIKE_X, "saves": "y", "backward": nothing}, "`saves` names `y`"),
    (nothing, {"mutates": "x", "backward": nothing}, "it writes to `x`, so autograd"),
    (nothing, {**LIKE_X, "vmap": "y"}, "`vmap` names `y`"),
    (nothing, {**LIKE_X, "schema": "(Tensor y) -> Tensor"}, "`schema` has y by position"),
    (nothing, {**LIKE_X, "schema": "(Tensor x) -> ()"}, "`schema` returns 0"),
    (nothing, {**LIKE_X, "schema": "(Tensor(a!) x) -> Tensor"}, "`schema` writes to x"),
    (nothing, {**LIKE_X, "schema": "x -> y"}, "tests::refused"),
]


@pytest.mark.parametrize(("function", "options", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_a_definition_that_means_nothing_is_refused(function: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(skt.OperatorError) as error:
        skt.operator("tests::refused", function, **options)

    assert error.value.id == "BAD_OPERATOR"
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["softmax", "a::b::c", "a::", 3, "a-b::c"])
def test_a_name_without_its_namespace_is_refused(name: Any) -> None:
    with pytest.raises(skt.OperatorError, match="it is no name of an operator"):
        skt.operator(name, nothing, **LIKE_X)


def test_an_output_is_new_memory() -> None:
    shared = skt.operator("tests::shared", nothing, outputs={"out": lambda x: x[1:]})
    twice: dict[int, Tensor] = {}
    same = skt.operator(
        "tests::same", lambda x, a, b: None, schema="(Tensor x) -> (Tensor, Tensor)",
        outputs={"a": lambda x: twice.setdefault(0, torch.empty_like(x)), "b": lambda x: twice[0]},
    )  # fmt: skip

    with pytest.raises(skt.OperatorError, match="the output `out` shares the memory of `x`"):
        shared(gives(3))
    with pytest.raises(skt.OperatorError, match="the output `b` shares the memory of `a`"):
        same(gives(3))


def test_a_function_returns_what_outputs_says() -> None:
    wrong = skt.operator("tests::wrong", lambda x: x.double(), outputs={"y": "x"}, schema="(Tensor x) -> Tensor")

    with pytest.raises(skt.OperatorError, match=r"`y` is to be float32 of shape .* returned float64 of shape"):
        wrong(gives(3))


def test_vmap_of_an_operator_without_a_rule_is_refused() -> None:
    with pytest.raises(skt.OperatorError, match="NO_BATCHING_RULE"):
        torch.vmap(blocked)(gives(3, 4))
    add_ = skt.operator(
        "tests::add_", lambda x, y: None, mutates="x", vmap="loop", schema="(Tensor(a!) x, Tensor y) -> ()"
    )
    ones = torch.ones(3)
    with pytest.raises(skt.OperatorError, match="`tests::add_` writes to `x`, over which"):
        torch.vmap(lambda other: add_(ones, other))(ones)


# -- on a GPU -----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_graph_of_cuda_replays_a_step_of_training() -> None:
    x, weight = gives(32, 64, device="cuda"), gives(64, device="cuda")

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad((skt.rmsnorm(x, weight) * x).sum(), (x, weight))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(gives(32, 64, device="cuda"))
    graph.replay()
    replayed = [each.clone() for each in found]

    torch.testing.assert_close(replayed, [*step()])


@pytest.mark.gpu
def test_compiled_with_cuda_graphs() -> None:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        return skt.swiglu(skt.rmsnorm(x + 1, weight), x) * 2

    compiled = torch.compile(program, mode="reduce-overhead", fullgraph=True)
    weight = gives(64, device="cuda", needs=False)
    for _ in range(4):
        x = gives(32, 64, device="cuda", needs=False)
        torch.testing.assert_close(compiled(x, weight), program(x, weight))


@pytest.mark.gpu
def test_the_stream_that_is_current_runs_it() -> None:
    stream, x = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1
        y = scale(x, 2.0)
    stream.synchronize()

    assert y.min() == y.max() == 2


def test_an_error_of_the_users_function_has_no_frame_of_ours() -> None:
    """Of torch's there are some: the one that called the operator is the user's."""

    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    def copies(x: Tensor, *, out: Tensor) -> None:
        out.copy_(x)

    of_function = skt.operator(
        "sk_test::fails", lambda x, out: fails(), outputs={"out": "x"}, schema="(Tensor x) -> Tensor"
    )
    of_maker = skt.operator("sk_test::fails_to_make", copies, outputs={"out": lambda x: fails()})
    of_backward = skt.operator("sk_test::fails_backward", copies, outputs={"out": "x"}, backward=fails)
    x = torch.ones(3, requires_grad=True)

    for call in (lambda: of_function(x), lambda: of_maker(x), lambda: of_backward(x).sum().backward()):
        with pytest.raises(ZeroDivisionError) as raised:
            call()
        frames = traceback.extract_tb(raised.value.__traceback__)
        assert frames[-1].name == "fails"
        assert not [frame for frame in frames if frame.filename.startswith(str(Path(sk.__file__).parent))]
