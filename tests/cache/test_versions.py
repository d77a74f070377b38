"""Code of one copy of the package is never taken for another's, wherever and in whatever form the package lies (R7)."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stagekit
from stagekit import cache

_PACKAGE = Path(stagekit.__file__).parent


def as_folder(copy: Path) -> Path:
    return copy.parent


def as_archive(copy: Path) -> Path:
    return Path(shutil.make_archive(str(copy.parent / "archive"), "zip", copy.parent))


def as_bytecode(copy: Path) -> Path:
    compileall.compile_dir(copy, quiet=2, legacy=True)
    for file in copy.rglob("*.py"):
        file.unlink()
    return copy.parent


def copied(place: Path, form: Callable[[Path], Path], word: str, time_s: float) -> Path:
    """A copy of the package in which one module differs by a word of the same length, all files of the same time."""
    copy = place / word / "stagekit"
    shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with open(copy / "cache.py", "a") as file:
        file.write(f"\nWORD = {word!r}\n")
    for path in copy.rglob("*"):
        os.utime(path, (time_s, time_s))
    return form(copy)


def versions_of(path: Path, text: str = "print(versions())") -> str:
    program = f"import sys; sys.path.insert(0, {str(path)!r})\nfrom stagekit.cache import versions\n{text}"
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False, cwd=path.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("form", [as_folder, as_archive, as_bytecode])
def test_copies_of_equal_sizes_and_times_are_told_apart(form: Callable[[Path], Path], tmp_path: Path) -> None:  # R7
    one, other = (copied(tmp_path, form, word, 1e9) for word in ("one", "two"))
    found = [versions_of(path) for path in (one, other)]

    assert found[0] != found[1]
    assert "None" not in found


def test_the_same_contents_elsewhere_and_later_are_the_same(tmp_path: Path) -> None:
    places = [copied(tmp_path / str(place), as_folder, "one", 1e9 + place) for place in (1, 2)]

    assert 1 == len({versions_of(path) for path in places})


def test_what_cannot_be_read_or_was_edited_since_has_no_version(tmp_path: Path) -> None:
    """What runs is then not what lies there: nothing is kept on disk."""
    place = copied(tmp_path, as_folder, "one", 1e9)
    edited = "import pathlib, os; path = pathlib.Path(sys.path[0], 'stagekit', 'dtypes.py'); path.write_text(path.read_text())"
    later = "import os, time; os.utime(path, (time.time() + 9, time.time() + 9)); print(versions())"

    assert "None" == versions_of(place, f"{edited}\n{later}")


def test_without_files_there_is_no_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "frozen" / "cache.py"))

    assert cache.versions.__wrapped__() is None
