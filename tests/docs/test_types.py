"""Type checkers accept the programs that users read: the README, the pages of the docs, the examples.

Calls in annotations (`A: sk.Tensor((n,), dtype)`) are an error to every type checker, so the one diagnostic that forbids them is
off, as docs/language.md tells users to do.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_pages import ERROR_PAGE, PAGES, ROOT, Block, blocks_of

ON_PURPOSE = ("factro", "undefined_name")  # misspelt to show an error; never read by a trace
EXTRAS = ("torch", "jax")  # an example of a package that is not installed is not checked: its types are not known
NO_TYPES = "--disable-error-code=import-untyped"  # what other packages lack

CHECKERS = {
    "basedpyright": ["basedpyright", "--pythonpath", sys.executable, "."],
    "mypy": ["mypy", "--config-file=", "--disable-error-code=valid-type", NO_TYPES, "."],
    # our own settings, for what `mypy --strict` in the root has kept of the package: a third of the time
    "mypy strict": [
        "mypy",
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--cache-dir={ROOT / '.mypy_cache'}",
        "annotated.py",
    ],
}

ANNOTATED = """
from typing import Annotated, Any

import numpy as np
import stagekit as sk

n = sk.dynamic("n")
Vector = Annotated[sk.Array, sk.Tensor((n,), sk.float32)]


@sk.inline
def clamp(x: sk.float32, low: sk.float32, high: sk.float32) -> Any:
    return sk.minimum(sk.maximum(x, low), high)


@sk.jit
def scale(x: Vector, out: Vector, factor: sk.float32, BLOCK: sk.constexpr[int] = 64) -> None:
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, BLOCK), block=BLOCK))
    i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
    if i < len(x):
        out[i] = clamp(x[i] * factor, sk.float32(0), sk.float32(8))


x = np.arange(5, dtype=np.float32)
out = np.empty_like(x)
scale(x, out, 3.0)
assert out.tolist() == [0, 3, 6, 8, 8]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program as a module, the blocks of a page at its line numbers."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in programs():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    settings = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT)], "reportInvalidTypeForm": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def programs() -> Iterator[tuple[str, str]]:
    yield "annotated", ANNOTATED
    for page in PAGES:
        blocks = [b for b in blocks_of(page) if b.is_program and b.raises is None and b.can_run]
        if blocks and page != ERROR_PAGE:
            yield "page_" + page.stem.replace("-", "_").lower(), "\n".join(_lines(blocks)) + "\n"
    for example in (ROOT / "examples").glob("*.py"):
        text = example.read_text(encoding="utf-8")
        if all(importlib.util.find_spec(name) for name in EXTRAS if f"import {name}" in text):
            yield example.stem, text


def _lines(blocks: list[Block]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return lines


@pytest.mark.slow  # `.ci/run` has a step for them
@pytest.mark.parametrize("name", CHECKERS)
def test_type_checkers_accept_what_users_read(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, *arguments = CHECKERS[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("MYPYPATH", str(ROOT))

    found = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True)

    wrong = [
        line
        for line in (found.stdout + found.stderr).splitlines()
        if "error:" in line and str(ROOT / "stagekit") not in line
    ]
    assert [] == [line for line in wrong if not any(known in line for known in ON_PURPOSE)]
    assert found.returncode in (0, 1), f"it did not come to an end: {found.stderr}"


def test_the_annotated_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "annotated.py"
    path.write_text(ANNOTATED, encoding="utf-8")

    subprocess.run([sys.executable, str(path)], check=True, cwd=ROOT)
