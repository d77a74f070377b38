"""English to learn from that every Python has: its licence, where it is installed, and the docstrings of its own modules."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path

import numpy as np

MODULES = (
    "argparse", "ast", "asyncio", "bisect", "collections", "concurrent.futures", "configparser", "contextlib", "copy", "csv",
    "dataclasses", "datetime", "decimal", "difflib", "email.message", "enum", "fractions", "functools", "gettext", "glob",
    "heapq", "html.parser", "http.client", "inspect", "ipaddress", "itertools", "json", "logging", "math", "operator", "os",
    "pathlib", "pickle", "random", "re", "shutil", "socket", "statistics", "string", "subprocess", "tempfile",
    "textwrap", "threading", "time", "tokenize", "traceback", "types", "unittest.mock", "urllib.parse", "uuid",
    "warnings", "weakref", "xml.etree.ElementTree", "zipfile",
)  # fmt: skip
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


def english() -> str:
    """Return about half a million characters, all of them in CHARACTERS."""
    folder = Path(os.__file__).parent
    licences = [path for path in (folder / "LICENSE.txt", folder.parent / "LICENSE.txt") if path.exists()]
    parts = [path.read_text(encoding="utf-8") for path in licences[:1]]
    for name in MODULES:
        module = importlib.import_module(name)
        members = [member for _, member in inspect.getmembers(module, _has_words)]
        inner = [each for member in members if inspect.isclass(member) for each in vars(member).values()]
        parts += [inspect.getdoc(each) or "" for each in (module, *members, *filter(_has_words, inner))]
    lines = "\n\n".join(dict.fromkeys(part.strip() for part in parts if len(part) > 40)).expandtabs()
    return "".join(c for c in lines if c in CHARACTERS)


def _has_words(member: object) -> bool:
    return inspect.isclass(member) or inspect.isroutine(member)


def encoded(text: str) -> np.ndarray:
    """Return the numbers of characters, int32."""
    return np.array([CHARACTERS.index(c) for c in text], np.int32)


def decoded(numbers: np.ndarray) -> str:
    return "".join(CHARACTERS[number] for number in numbers)
