"""A cache folder for each test, and programs that run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cache.places import Run

_BEFORE = """
import json
import numpy as np
import stagekit as sk
from stagekit.jit import history

def run(kernel, *args, n=4, dtype=np.float32):
    out = np.zeros(n, dtype)
    sk.compile(kernel, "cpu")[(1,)](out, *args)
    return out.tolist()
"""
_AFTER = """
print(json.dumps({"result": RESULT, **{"traced": 0, "compiled": 0, "read": 0}, **history.counts()}))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is during the test; new processes use it too."""
    place = tmp_path / "cache"
    monkeypatch.setenv("STAGEKIT_CACHE", str(place))
    return place


@pytest.fixture
def new_process(tmp_path: Path) -> Run:
    """`new_process(text, **files)`: run a program that sets RESULT; gives it, and what was traced, compiled and read.

    files: modules that it may import.
    """

    def run(text: str, seed: int = 0, environment: Mapping[str, str] | None = None, **files: str) -> dict[str, Any]:
        for name, content in {**files, "program": f"{_BEFORE}\n{text}\n{_AFTER}"}.items():
            (tmp_path / f"{name}.py").write_text(content)
        around = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        done = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=around, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
