"""What is on the shelf is documented, each factory gives the same kernel twice, and arrays of other libraries are taken."""

from __future__ import annotations

import contextlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels import attending, matrices, weights
from stagekit.testing import force_entry

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")


def test_every_name_is_documented_on_the_page_and_in_the_source() -> None:
    missing = [name for name in kernels.__all__ if f"`{name}" not in PAGE]
    untold = [
        name
        for name in kernels.__all__
        if not (isinstance(getattr(kernels, name), dict) or inspect.getdoc(getattr(kernels, name)))
    ]
    plain = [name for name in kernels.__all__ if f"{name}_kernel" in kernels.__all__]

    assert missing == untold == []
    assert [] == [name for name in plain if not re.search(rf"^\| .*`{name}`", str(kernels.__doc__), re.MULTILINE)]


F32, BF16 = sk.float32, sk.bfloat16
ROWS = sk.Tensor((None, None), BF16, strides=(None, 1))
PARTS, VECTOR = sk.Tensor((None, None), F32), sk.Tensor((None,), F32)
WEIGHT = sk.Tensor((None,), BF16, strides=(1,))
SEQUENCES = sk.Tensor((None, None, None), BF16, strides=(None, None, 1))
UNUSED = dict.fromkeys("cdef")  # operands
BLOCKS = attending._blocks_for("forward", sk.float16, 64, on_cpu=False)
PRODUCT = matrices.blocks_for(BF16, "ieee", 4096, 4096)


def of_heads(name, dtype=BF16):
    return dtype, 128, True, 1, attending._blocks_for(name, dtype, 128, on_cpu=False)


def laplacian(at):
    return at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4 * at(0, 0)


SPECIALISED = {
    "softmax": (kernels.softmax_kernel(BF16, 4096, True), {}),
    "softmax of tiles": (kernels.softmax_kernel(BF16, 4096, False), {}),
    "rmsnorm": (kernels.rmsnorm_kernel(BF16, BF16, 8192, True), {"residual": ROWS}),
    "layernorm": (kernels.layernorm_kernel(BF16, BF16, 8192, True), {"residual": ROWS, "bias": WEIGHT}),
    "backward": (kernels.norm_backward_kernel(BF16, BF16, 4096, True, True), {"bias_parts": PARTS}),
    "backward of tiles": (kernels.norm_backward_kernel(BF16, BF16, 4096, False, True), {"bias_parts": PARTS}),
    "cross_entropy": (kernels.cross_entropy_kernel(BF16, sk.int64, 4096, True), {"gradient": ROWS}),
    "swiglu_backward": (kernels.swiglu_backward_kernel(BF16, 1024), {}),
    "rope": (kernels.rope_kernel(BF16, F32, 64, False, 8), {}),
    "dropout": (kernels.dropout_kernel(BF16, 1, 1024), {}),
    "sum": (kernels.reduce_kernel(kernels.SUM, BF16, 1, F32, 4096), {}),
    "argmax": (kernels.argmax_kernel(BF16, 4096), {}),
    "topk": (kernels.topk_kernel(BF16, 8, 1024), {}),
    "cumsum": (kernels.cumsum_kernel(BF16, 4096), {}),
    "matmul": (kernels.matmul_kernel(F32, BF16, ((None, 1),) * 2, None, (), (128, 128, 16, 256)), UNUSED),
    "matmul of what is turned": (
        kernels.matmul_kernel(BF16, F32, ((1, None),) * 2, None, (), (64, 64, 16, 128)),
        UNUSED,
    ),
    "transpose": (kernels.transpose_kernel(BF16, 64), {}),
    "selective_scan": (kernels.selective_scan_kernel(BF16, 16, 1024), {"D": VECTOR, "z": SEQUENCES}),
    "selective_scan_backward": (
        kernels.selective_scan_backward_kernel(BF16, 16, 512),
        {"D": VECTOR, "D_gradient": VECTOR, "z": SEQUENCES, "z_gradient": SEQUENCES},
    ),
    "embedding_backward": (kernels.embedding_backward_kernel(BF16, sk.int64, F32, 4096), {}),
    "quantize": (kernels.quantize_kernel(BF16, sk.float8_e4m3fn, 128, 8), {}),
    "dequantize": (kernels.dequantize_kernel(sk.int8, BF16, 128, 8), {}),
    "adamw": (kernels.adamw_kernel(BF16, BF16, F32, 1, True, 1024), {}),
    "attention": (kernels.attention_kernel(*of_heads("forward")), {"lse": sk.Tensor((None,) * 3, F32)}),
    "attention by threads": (kernels.attention_kernel(*of_heads("forward", F32)), {"lse": None}),
    "attention, gradient of q": (kernels.attention_backward_q_kernel(*of_heads("q")), {}),
    "attention, gradients of k and v": (kernels.attention_backward_kv_kernel(*of_heads("k and v")), {}),
    "batched_matmul": (kernels.batched_matmul_kernel(BF16, PRODUCT), {}),
    "grouped_matmul": (kernels.grouped_matmul_kernel(BF16, 8, PRODUCT), {}),
    "quantized_linear": (
        kernels.quantized_linear_kernel(BF16, sk.uint8, 128, False, weights.GPU_BLOCKS[None]),
        {"zeros": None},
    ),
    "stencil": (kernels.stencil_kernel(laplacian, BF16, BF16, 0.0, (16, 64)), {}),
    "conv2d": (kernels.conv2d_kernel(BF16, (3, 3), (1, 1), (1, 1), (1, 1), (64, 64, 16, 64)), {"bias": None}),
}


SPILLED = {"attention": 40}
"""Bytes, at most: sums have 192 of 255 registers, and all that is spilled but one number stays as it is round the loop. With
blocks for which nothing is spilled it was 6 % slower, with strides that are multiplied anew, where 24 bytes were left, 2 %."""
SPILLED_BEFORE = {"attention": 24, "attention, gradient of q": 8}
"""The same on compute capability 8.0."""


@pytest.mark.parametrize("name", SPECIALISED)
def test_memory_is_moved_by_16_bytes_and_everything_else_stays_in_registers(name: str) -> None:
    kernel, types = SPECIALISED[name]
    specialised = force_entry(kernel.specialize(**types), "quick")
    resources = specialised.report().resources

    assert resources.stack_bytes <= SPILLED.get(name, 0)
    ptx = str(specialised.compile("cuda", capability=90).stages["ptx"])
    assert ".v4" in ptx or "cp.async.cg.shared.global" in ptx  # which is of 16 bytes
    if "mma.sync" in ptx:
        older = ptxas.assemble(str(specialised.compile("cuda", capability=80).stages["ptx"])).resources
        assert older.stack_bytes <= SPILLED_BEFORE.get(name, 0)


def test_arrays_of_torch_are_taken_and_made() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 40, dtype=torch.float32)

    y = kernels.softmax(x)

    assert isinstance(y, torch.Tensor)
    torch.testing.assert_close(y, torch.softmax(x, -1))
    q, scales = kernels.quantize(x, sk.int8, group=32)
    assert (q.dtype, scales.dtype) == (torch.int8, torch.float32)


def test_a_wrong_output_is_refused_by_its_name() -> None:
    x = np.zeros((3, 40), np.float32)

    with pytest.raises(ValueError, match=r"out has shape \(3, 41\)"):
        kernels.softmax(x, out=np.zeros((3, 41), np.float32))
    with pytest.raises(sk.ArgumentError, match="`out`"):
        kernels.softmax(x, out=np.zeros((3, 40), np.float16))
    with pytest.raises(sk.ArgumentError, match="`x`"):
        kernels.softmax(np.zeros((40, 3), np.float32).T)


ROWS = np.ones((3, 40), np.float32)
REFUSED = {  # what no kernel is launched for: part of the error, and the call
    "float64: convert it": lambda: kernels.softmax(ROWS.astype(np.float64)),
    "int32: convert it": lambda: kernels.rmsnorm(ROWS.astype(np.int32), ROWS[0]),
    "one axis or more is needed, got [1.0]": lambda: kernels.softmax([1.0]),
    "one axis or more is needed, got 1.0": lambda: kernels.sum(1.0),
    "one axis or more is needed, got array": lambda: kernels.softmax(np.array(1, np.float32)),
    "among the inputs, got (1.0,)": lambda: kernels.elementwise(abs, 1.0),
    "no row has a largest element": lambda: kernels.argmax(ROWS[:, :0]),
    "shape (3, 40) has several axes": lambda: kernels.cumsum(ROWS),
    "has gaps": lambda: kernels.cumsum(ROWS[0, ::2]),
    "axis is 0": lambda: kernels.sum(ROWS, axis=0),
    "probability is 1.0": lambda: kernels.dropout(ROWS, 1.0, 0),
    "probability is nan": lambda: kernels.dropout(ROWS, np.nan, 0),
    "a has shape (3, 40) and b (40,)": lambda: kernels.matmul(ROWS, ROWS[0]),
    "there is none": lambda: kernels.matmul(ROWS, ROWS.T, 2.0),
    "takes 4 at most": lambda: kernels.matmul(ROWS, ROWS.T, *[1.0] * 5, epilogue=max),
    "a matrix is needed": lambda: kernels.transpose(ROWS[0]),
    "x has shape (2, 1, 5)": lambda: kernels.rope(np.ones((2, 1, 5), np.float32), ROWS[:2, :2], ROWS[:2, :2]),
}


OF_HEADS = {
    "hopper_attention_kernel": (), "attention_kernel": (BLOCKS,), "attention_backward_q_kernel": (BLOCKS,),
    "attention_backward_kv_kernel": (BLOCKS,),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_HEADS)
@pytest.mark.parametrize(
    ("option", "wrong"),
    [("dtype", sk.int8), ("dtype", "float16"), ("dtype", None)]
    + [("DIM", each) for each in (0, -8, 257, "64", 32.0, None)]
    + [("CAUSAL", each) for each in ("x", None, 2)]
    + [("HEADS_AXIS", each) for each in (0, 3, -1, "1", None)],
)
def test_options_of_factories_of_attention_are_refused_in_words(name: str, option: str, wrong: object) -> None:
    options = {"dtype": sk.float16, "DIM": 64, "CAUSAL": False, "HEADS_AXIS": 1, option: wrong}

    with pytest.raises(ValueError, match=re.escape(f"{option} is {wrong!r}: it is ")):
        getattr(kernels, name)(*options.values(), *OF_HEADS[name])


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("dtype", sk.float32), ("dtype", "x"), ("out_dtype", sk.float32), ("out_dtype", None)]
    + [("TURNED", each) for each in (None, True, (True,), ("a", "b"), (False, False, False))]
    + [("TILE", each) for each in ("ab", None, (128,), (128, 64, 1, 1), (128.0, 64), (True, 64))]
    + [("TILE", each) for each in ((0, 64), (-64, 64), (96, 64), (320, 64), (192, 256))]
    + [("TILE", each) for each in ((64, 0), (64, 96), (64, 512), (64, 64, 0), (64, 64, 3))]
    + [("STAGES", each) for each in (0, -1, 1, True, "4", 2.0, None)],
)
def test_options_of_the_factory_of_hopper_matmul_are_refused_in_words(option: str, wrong: object) -> None:
    options = {"dtype": sk.float16, "out_dtype": sk.float16, "TURNED": (False, False), "TILE": (64, 64), "STAGES": 2}

    with pytest.raises(ValueError, match=re.escape(f"{option} is {wrong!r}: it is ")):
        kernels.hopper_matmul_kernel(*{**options, option: wrong}.values())


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, np.float32("nan")])
@pytest.mark.parametrize("name", ["attention", "hopper_attention", "attention_backward"])
def test_a_scale_that_is_not_finite_is_refused_in_words(name: str, scale: float) -> None:
    x = np.ones((1, 1, 8, 16), np.float16)
    arrays = (x, x, x, x, x, np.ones((1, 1, 8), np.float32)) if name == "attention_backward" else (x, x, x)

    with pytest.raises(ValueError, match="it is finite"):
        getattr(kernels, name)(*arrays, scale=scale)


def test_a_call_that_cannot_be_meant_is_refused_in_words() -> None:
    wrong = {}
    for part, call in REFUSED.items():
        with pytest.raises(ValueError) as refused:
            call()
        if part not in str(refused.value):
            wrong[part] = str(refused.value)

    assert wrong == {}


@pytest.mark.parametrize("number", [-1, 4, 2**31 - 1])
@pytest.mark.parametrize("sanitized", [False, True])
def test_a_number_that_is_no_row_or_class_is_an_error_and_touches_nothing_outside(
    number: int, sanitized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_TARGET", "")  # kernels for GPUs assert where they are made with debug=True
    guarded = np.full((6, 8), 7, np.float32)
    table, gradient = guarded[1:5], np.ones((2, 8), np.float32)
    numbers, out, slope = np.array([2, number], np.int32), gradient.copy(), np.zeros((2, 4), np.float32)

    with sk.sanitize() if sanitized else contextlib.nullcontext():
        with pytest.raises(sk.KernelAssertionError, match=rf"numbers\[1\] is {number}, and the table has 4 rows"):
            kernels.embedding(table, numbers, out=out)
        with pytest.raises(sk.KernelAssertionError, match=rf"numbers\[1\] is {number}"):
            kernels.embedding_backward(gradient, numbers, table)
        with pytest.raises(sk.KernelAssertionError, match=rf"targets\[1\] is {number}, and there are 4 classes"):
            kernels.cross_entropy(np.zeros((2, 4), np.float32), numbers, gradient=slope)

    assert out.tolist() == [[7] * 8, [0] * 8]
    assert guarded[[0, 1, 2, 4, 5]].tolist() == [[7] * 8] * 5
    assert guarded[3].tolist() == [8] * 8


def test_bools_have_a_largest_and_numbers_of_numpy_go_with_every_element() -> None:
    flags = np.array([[False, False], [False, True]])

    assert kernels.max(flags, axis=-1).tolist() == [False, True]
    assert kernels.max(flags).tolist() == [True]
    assert kernels.argmax(flags).tolist() == [0, 1]
    assert (kernels.elementwise(lambda x, scale: x * scale, ROWS, np.float32(3)) == 3).all()


def test_a_call_that_is_taken_makes_no_text_of_its_arrays() -> None:
    """It takes longer than a launch, and with arrays on a GPU waits for what is enqueued there."""

    def refuse(number: object) -> str:
        raise AssertionError("the text of an array was made")

    with np.printoptions(formatter={"all": refuse}):
        kernels.softmax(ROWS)
        kernels.layernorm(ROWS, ROWS[0], ROWS[0])
        kernels.cross_entropy(ROWS, np.zeros(3, np.int64))
        kernels.elementwise(abs, ROWS)
        kernels.cumsum(ROWS[0])
        kernels.topk(ROWS, 2)
        kernels.quantize(ROWS, sk.int8, group=8)
