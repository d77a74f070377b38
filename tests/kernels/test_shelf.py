"""What is on the shelf is documented, each factory gives the same kernel twice, and arrays of other libraries are taken."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels

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
SPECIALISED = {
    "softmax": (kernels.softmax_kernel(BF16, 4096, True), {}),
    "softmax of tiles": (kernels.softmax_kernel(BF16, 4096, False), {}),
    "rmsnorm": (kernels.rmsnorm_kernel(BF16, BF16, 8192, True), {"residual": ROWS}),
    "layernorm": (kernels.layernorm_kernel(BF16, BF16, 8192, True), {"residual": ROWS, "bias": WEIGHT}),
    "backward": (kernels.norm_backward_kernel(BF16, BF16, 4096, True, True), {"bias_parts": PARTS}),
    "backward of tiles": (kernels.norm_backward_kernel(BF16, BF16, 4096, False, True), {"bias_parts": PARTS}),
    "cross_entropy": (kernels.cross_entropy_kernel(BF16, sk.int64, 4096, True), {"gradient": ROWS}),
    "swiglu_backward": (kernels.swiglu_backward_kernel(BF16, 1024), {}),
    "rope": (kernels.rope_kernel(BF16, F32, 64, False, 1024), {}),
    "dropout": (kernels.dropout_kernel(BF16, 1, 1024), {}),
    "sum": (kernels.reduce_kernel(kernels.SUM, BF16, 1, F32, 4096), {}),
    "argmax": (kernels.argmax_kernel(BF16, 4096), {}),
    "topk": (kernels.topk_kernel(BF16, 8, 1024), {}),
    "cumsum": (kernels.cumsum_kernel(BF16, 4096), {}),
    "selective_scan": (kernels.selective_scan_kernel(BF16, 16, 512), {"D": VECTOR, "z": SEQUENCES}),
    "embedding_backward": (kernels.embedding_backward_kernel(BF16, sk.int64, F32, 4096), {}),
    "quantize": (kernels.quantize_kernel(BF16, sk.float8_e4m3fn, 128), {}),
    "adamw": (kernels.adamw_kernel(BF16, BF16, F32, 1, True, 1024), {}),
}


@pytest.mark.parametrize("name", SPECIALISED)
def test_ptxas_puts_everything_into_registers(name: str) -> None:
    kernel, types = SPECIALISED[name]
    resources = kernel.specialize(**types).report().resources

    assert (resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes) == (0, 0, 0)


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

    with pytest.raises(sk.ArgumentError, match="`out`"):
        kernels.softmax(x, out=np.zeros((3, 41), np.float32))
    with pytest.raises(sk.ArgumentError, match="`out`"):
        kernels.softmax(x, out=np.zeros((3, 40), np.float16))
    with pytest.raises(sk.ArgumentError, match="`x`"):
        kernels.softmax(np.zeros((40, 3), np.float32).T)
