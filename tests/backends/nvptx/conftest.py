"""What the tests of PTX need: ptxas, and the GPUs to assemble for."""

from __future__ import annotations

import pytest

from stagekit.backends import ptxas


@pytest.fixture(scope="session", autouse=True)
def _needs_ptxas() -> None:
    if ptxas.find_tool("ptxas") is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
