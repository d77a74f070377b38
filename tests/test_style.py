"""How the source reads, as far as a test can tell: short functions, modules that say what they are, no private places."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from stagekit import limits
from stagekit.config import SWITCHES, Switch
from stagekit.lib import layout

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "stagekit"
MODULES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tools").rglob("*.py")])
TEXTS = sorted(
    path
    for folder in ("stagekit", "tools", "tests", "examples", "benchmarks", "docs", ".ci", ".")
    for path in (ROOT / folder).glob("*" if folder == "." else "**/*")
    if path.suffix in (".py", ".md", ".toml", ".err", ".ir", ".ptx") or path.parent.name == ".ci"
)

MEDIAN_LINES = 10  # of a function, docstring included
PRIVATE_PLACES = re.compile(r"(?<![\w/])/(?:home|root|work|Users|tmp)/\w")
OWN_NAME = re.compile(r"\bpip install [^`\n]*\bstagekit\b")  # whoever holds the name on an index
INDEX_HOSTS = re.compile(r"\b(?:[\w-]+\.)*(?:pypi|pythonhosted|npmjs|crates|debian|anaconda)\.(?:org|com|io)\b")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(path: Path) -> list[tuple[str, int]]:
    """Name and length in lines of every function in the file."""
    tree = tree_of(path)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in found]


def test_half_of_all_functions_are_shorter_than_ten_lines() -> None:
    lengths = {path: functions_of(path) for path in MODULES}
    longest = sorted(((n, f"{p.name}: {name}") for p, fs in lengths.items() for name, n in fs), reverse=True)

    assert median(n for n, _ in longest) < MEDIAN_LINES, f"the longest: {longest[:10]}"


def test_a_module_says_what_it_is() -> None:
    for path in MODULES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring is not None, path
        assert docstring.strip().endswith((".", ":", ")", "`")) or "\n" in docstring, f"{path}: a sentence, not a title"


@pytest.mark.parametrize(
    "pattern", [PRIVATE_PLACES, INDEX_HOSTS, OWN_NAME], ids=["a private place", "a package index", "our name there"]
)
def test_no_file_names(pattern: re.Pattern[str]) -> None:
    """What is published must work elsewhere: no folder of one machine, no host that installs are taken from."""
    found = {path: pattern.findall(path.read_text(encoding="utf-8")) for path in TEXTS}

    assert {} == {str(path.relative_to(ROOT)): names for path, names in found.items() if names}


def test_limits_of_the_machine_stand_in_one_module() -> None:
    """The library is written in public names and says them once more; tests of reductions hold them against the compiler's."""
    names, values = r"_*(?:[A-Z]+_)*(?:WARP|LANES|THREADS|GRID|BLOCK)(?:_[A-Z]+)*", r"[^\d(]*\b(?:31|32|1024|65535)\b"
    literal = re.compile(rf"^{names}(?:: [^=]+)? ={values}.*", re.MULTILINE)
    allowed = {PACKAGE / "limits.py", PACKAGE / "lib" / "layout.py"}
    found = {path: literal.findall(path.read_text(encoding="utf-8")) for path in MODULES if path not in allowed}

    assert {} == {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines}
    assert (layout.WARP, layout.MAX_THREADS, layout.REGISTERS) == (limits.WARP, limits.MAX_THREADS, limits.REGISTERS)


# what users call it in an annotation, beside a type of the IR or a value of a trace
SHARED_NAMES = frozenset({"Array", "Pointer"})


def test_the_name_of_a_class_means_one_thing() -> None:
    """In the package, private classes included: a tool of the repository has words of its own."""
    rooms = [path for path in MODULES if "tools" not in path.relative_to(ROOT).parts]
    defined = {path: tree_of(path).body for path in rooms}
    classes = [node for body in defined.values() for node in body if isinstance(node, ast.ClassDef)]
    names = Counter(node.name.lstrip("_") for node in classes)

    assert set() == {name for name, count in names.items() if count > 1} - SHARED_NAMES


def test_no_intrinsic_is_known_by_its_name() -> None:
    """What is special about one is a field of its record, so that another may be the same."""
    compared = re.compile(r"\b(?:spec\.name (?:in|not in|==|!=) [({\"']|(?:op|user)\.spec\.name (?:in|not in|==|!=)).*")
    found = {path: compared.findall(path.read_text(encoding="utf-8")) for path in MODULES}

    assert {} == {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines}


def test_work_left_over_has_no_marks() -> None:
    """An open end belongs in an issue, not in the source."""
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")

    assert [] == [str(path.relative_to(ROOT)) for path in TEXTS if marks.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_every_switch_is_in_the_docs_with_its_own_words(switch: Switch) -> None:
    table = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")

    assert f"| `{switch.name}` |" in table
    assert switch.help in table


def test_the_environment_is_read_through_the_switches_only() -> None:
    """A switch that is read elsewhere is one that nobody finds. Native launchers look the same variables up in machine code."""
    allowed = {PACKAGE / "config.py", PACKAGE / "runtime" / "native_process.py"}
    readers = {p for p in MODULES if re.search(r"\bos\.(environ|getenv)\b", p.read_text(encoding="utf-8"))}

    assert set() == readers - allowed
