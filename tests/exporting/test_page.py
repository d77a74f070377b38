"""What `docs/export.md` shows, as it stands there: the kernel, the C program, the commands of gcc, and what calls the results."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
BLOCKS = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
CALLED = """
import sys, numpy as np
sys.path.insert(0, "build")
x = np.arange(1000, dtype=np.float32); out = np.zeros_like(x)
{}
assert np.array_equal(out, 3 * x)
"""


def block(kind: str, word: str) -> str:
    """The one block of this kind that has this word."""
    (found,) = (text for each, text in BLOCKS if each == kind and word in text)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's kernel is exported, with all that the page builds of it."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    made = tmp_path_factory.mktemp("page")
    kernel = block("python", "sk.export").replace("python=True", "python=True, tvm_ffi=True")
    (made / "kernel.py").write_text(kernel.replace("x86-64-v3", "native"))  # whatever this machine is
    (made / "main.c").write_text(block("c", "main"))
    root = {"PYTHONPATH": str(PAGE.parents[1])}
    subprocess.run([sys.executable, "kernel.py"], cwd=made, check=True, env=root)
    commands = [text for kind, text in BLOCKS if kind == "text" and text.startswith("gcc")]
    assert len(commands) == 3
    subprocess.run(["bash", "-ec", "".join(commands)], cwd=made, check=True, env={"PATH": "/usr/bin:/bin"})
    return made


def test_the_program_in_c_runs(folder: Path) -> None:
    assert 0 == subprocess.run([folder / "main"], check=False).returncode


@pytest.mark.parametrize("word", ["import demo", "load_module"])
def test_what_python_calls_runs(folder: Path, word: str) -> None:
    if word == "load_module" and importlib.util.find_spec("tvm_ffi") is None:
        pytest.skip("needs tvm-ffi, the extra `jax`")
    subprocess.run([sys.executable, "-c", CALLED.format(block("text", word))], cwd=folder, check=True)
