"""Modules written to a file of their own and imported, so that tests can say exactly what their text is."""

from __future__ import annotations

import importlib.util
import itertools
import linecache
import textwrap
from pathlib import Path
from types import ModuleType

_serial = itertools.count()


def write_module(folder: Path, text: str, name: str | None = None) -> Path:
    """A file with this text."""
    path = folder / f"{name or f'written{next(_serial)}'}.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def import_file(path: Path) -> ModuleType:
    """Import a file under its own name, anew each time."""
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def module_of(folder: Path, text: str) -> ModuleType:
    return import_file(write_module(folder, text))
