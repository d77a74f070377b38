"""Source text that was drawn becomes a module, without a file: its functions must be able to show their source."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import linecache
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import stagekit as sk
from tools.fuzz.harness import NotACase

_NAME = "stagekit_fuzz_program"
_PATH = os.path.join(tempfile.gettempdir(), f"{_NAME}.py")  # nothing is written there


@contextlib.contextmanager
def module_of(text: str) -> Iterator[Any]:
    """The module, as long as it is needed, with stagekit as `sk`. One at a time: all have one name, so that nothing grows.

    Raises NotACase where the text is no program.
    """
    _load_preludes()
    module = ModuleType(_NAME)
    module.sk = sk  # type: ignore[attr-defined]
    module.__file__ = _PATH
    linecache.cache[_PATH] = (len(text), None, text.splitlines(keepends=True), _PATH)
    sys.modules[_NAME] = module
    try:
        exec(_compiled(text), module.__dict__)
        yield module
    finally:
        del sys.modules[_NAME], linecache.cache[_PATH]


@functools.cache
def _load_preludes() -> None:
    """Make the files beside this one that programs import a user's modules, once, since their functions are read once then."""
    for name, file in (("stagekit_fuzz_prelude", "staging_prelude.py"), ("stagekit_fuzz_blocks", "blocks_prelude.py")):
        path = Path(__file__).with_name(file)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot import {path}")
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])


def _compiled(text: str) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # a shrunk program may be odd
            return compile(text, _PATH, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise NotACase(str(error)) from error
