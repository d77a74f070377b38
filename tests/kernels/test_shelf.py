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
