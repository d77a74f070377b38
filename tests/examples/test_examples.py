"""Every example runs as a user would run it, and checks its own result against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("[!_]*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_tells_what_it_did(name, tmp_path):
    finished = run_example(name, tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert "cpu" in finished.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_also_runs_on_the_gpu(name, tmp_path):
    finished = run_example(name, tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert "gpu" in finished.stdout


def run_example(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the example with warnings as errors, in a folder where it may write."""
    command = [sys.executable, "-W", "error", str(FOLDER / name)]
    return subprocess.run(
        command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False
    )
