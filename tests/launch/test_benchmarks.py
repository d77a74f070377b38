"""The benchmarks look inside kernels and call with all spellings: they run, whatever their figures are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "launch": ("--target", "cpu", "--rounds", "1"),
    "litmus": ("--target", "cpu", "--seconds", "0", "message"),
    "memory": ("--target", "cpu", "--many", "2", "--kept", "2"),
    "scaling": ("--threads", "1", "2", "--only", "saxpy", "--small", "--seconds", "0", "--rounds", "2"),
    "specialise": ("--child", "stagekit", "--target", "cpu", "--rounds", "1"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *COMMANDS[name]]
    found = tmp_path / "found.json"
    more = [] if name == "specialise" else ["--json", str(found)]
    environment = {**os.environ, "STAGEKIT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False, env=environment, cwd=ROOT)

    assert 0 == done.returncode, done.stderr
    assert json.loads(found.read_text() if more else done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_kernels_in_cuda_c_compile_beside_ours() -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not there")
    command = [sys.executable, str(ROOT / "benchmarks" / "nvcc.py"), "--static", "--modes", "plain"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert 0 == done.returncode, done.stderr
    rows = {line.split(" | ")[0].removeprefix("| ") for line in done.stdout.splitlines()[2:]}
    assert rows == {path.stem for path in (ROOT / "examples" / "gallery").glob("[!_]*.py")}


def test_every_figure_of_the_readme_has_a_command_that_measures_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, *rows = re.search(r"\n((?:\|.*\n)+)", text[text.index("## Measured") :])[1].splitlines()  # type: ignore[index]
    commands = {re.search(r"`([^`]+)` \|$", row)[1] for row in rows}  # type: ignore[index]

    allowed = {f"{part} --target {target}" for part in ("launch", "specialise", "memory") for target in ("cpu", "cuda")}
    assert commands
    assert commands <= allowed | {"cpu", "cpu --avx2", "blocks", "blocks_cpu", "products"}
