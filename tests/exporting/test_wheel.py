"""A wheel that ships compiled kernels runs in an environment without stagekit, as `docs/export.md` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stagekit as sk

N = sk.dynamic("n")
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "demo-kernels"
version = "1.0"
dependencies = ["numpy"]

[tool.setuptools]
packages = ["demo_kernels"]

[tool.setuptools.package-data]
demo_kernels = ["*.so"]
"""
PROGRAM = """
import importlib.util, numpy as np
from demo_kernels import demo
x = np.arange(100, dtype=np.float32); out = np.zeros_like(x)
demo.scale(x, out, 3.0, 2)
print(importlib.util.find_spec("stagekit"), np.array_equal(out, 3 * x))
"""


@sk.jit
def scale(x: sk.Tensor((N,), sk.float32), out: sk.Tensor((N,), sk.float32), b: sk.float32, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    n = x.shape[0]
    sk.store(out + i, sk.load(x + i, mask=i < n) * b, mask=i < n)


@pytest.mark.slow
def test_a_wheel_runs_where_stagekit_is_not(tmp_path: Path) -> None:
    package = tmp_path / "demo_kernels"
    library = sk.export(scale.specialize(BLOCK=64), package, name="demo", targets="cpu", python=True)
    command = ["gcc", "-O2", "-fPIC", "-shared", "-o", "libdemo.so", *library.sources, "-lm", "-ldl", "-lpthread"]
    subprocess.run(command, cwd=package, check=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    python = tmp_path / "fresh" / "bin" / "python"
    for arguments in (
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", "."],
        [sys.executable, "-m", "venv", "fresh"],
    ):
        subprocess.run(arguments, cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], cwd=tmp_path, check=True)
    (tmp_path / "elsewhere").mkdir()

    done = subprocess.run(
        [python, "-I", "-c", PROGRAM], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=True
    )

    assert "None True\n" == done.stdout
