"""The sanitizer finds nothing in what is right: every example, and the kernels of the other tests."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import stagekit as sk

ROOT = Path(__file__).parents[2]
OF_XLA = "jax_swiglu.py"  # XLA launches its kernels: the sanitizer sees none of them
CHECKED_ANYHOW = "tensor_maps.py"  # where there is no GPU it runs in a session of its own, which raises what it finds
EXAMPLES = sorted({path.name for path in (ROOT / "examples").glob("[!_]*.py")} - {OF_XLA, CHECKED_ANYHOW})

# Division by zero, wide shifts and NaN have one result everywhere, and tests that say which ask for them.
OPTIONS = "nan=no,division=no,shifts=no"


@pytest.mark.stagekit_unchecked(reason="it has a session of its own")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_no_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "torch_block.py":
        pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    monkeypatch.setattr(sys, "argv", [name])  # not the arguments of pytest
    monkeypatch.chdir(tmp_path)

    with sk.sanitize(collect=True) as watch, contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")

    assert watch.reports
    assert [] == [str(finding) for finding in watch.findings]


def checked(*chosen: str) -> str:
    """Run tests with every launch checked; the last line of what pytest says."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    finished = subprocess.run(
        [*command, "--stagekit-sanitize", OPTIONS, *chosen], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout[-8000:]
    return finished.stdout.strip().splitlines()[-1]


# Of the tests of the library, those that are not run on the sanitizer as they are; -m slow takes the others too.
IN_EVERY_RUN = ("test_weak.py",)
SLOW = pytest.mark.slow
OF_THE_LIBRARY = sorted(path.name for path in (ROOT / "tests" / "lib").glob("test_*.py"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EVERY_RUN else SLOW) for name in OF_THE_LIBRARY]
)
def test_kernels_of_the_library_give_no_finding(name: str) -> None:
    """What these tests run on the sanitizer themselves is left out."""
    assert re.search(r"^\d+ passed", checked(f"tests/lib/{name}", "-k", "not sanitizer"))


@SLOW
@pytest.mark.parametrize("folder", ["cases", "conformance", "frontend", "launch", "numerics", "runtime"])
def test_kernels_of_the_tests_give_no_finding(folder: str) -> None:
    assert re.search(r"^\d+ passed", checked(f"tests/{folder}"))
