"""Every error, word for word: `name.py` is a small wrong program, `name.err` the text that its user sees.

`pytest --update-golden` rewrites the `.err` files; review the diff as a user would read it. The path of the program is
written `$FILE`, an address `$ADDRESS`. A program may end in a comment line `# gpu`, `# jax` or `# torch`: it then runs only
where there is that.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import runpy
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stagekit as sk
from stagekit.config import SWITCHES
from stagekit.diagnostics import OutsideKernel, all_diagnostics
from stagekit.extras import ExtraError

if TYPE_CHECKING:
    from conftest import Golden

HERE = Path(__file__).parent
ERROR_PAGE = HERE.parents[1] / "docs" / "errors.md"
PACKAGE = Path(sk.__file__).parent
for path in PACKAGE.rglob("*.py"):  # a room that nothing has asked for yet has not entered its diagnostics
    if "(Diagnostic):" in path.read_text(encoding="utf-8"):
        with contextlib.suppress(ExtraError):  # of a library that is not installed
            importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
OURS = sorted(all_diagnostics())  # now: other tests will define more
PROGRAMS = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


def _case(path: Path) -> object:
    last = path.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
    return pytest.param(path, id=path.stem, marks=_NEEDS.get(last, ()))


_NEEDS = {
    "# gpu": pytest.mark.gpu,
    "# jax": pytest.mark.skipif(importlib.util.find_spec("jax_tvm_ffi") is None, reason="jax-tvm-ffi is not installed"),
    "# torch": pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
}


CASES = [_case(path) for path in PROGRAMS]


@pytest.fixture(autouse=True)
def _own_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program writes, and which switches it sets, ends with it."""
    monkeypatch.chdir(tmp_path)
    for switch in SWITCHES:
        monkeypatch.setenv(switch.name, switch.get())  # notes the value to go back to


ADDRESS = re.compile(r"(?<=address )0x[0-9a-f]+|(?<=got )0x[0-9a-f]+|0x[0-9a-f]{9,}")  # a mask has eight digits


@pytest.mark.stagekit_unchecked(reason="faults are what it is about, as each target says them")
@pytest.mark.parametrize("program", CASES)
def test_the_text_of_the_error_and_its_traceback(program: Path, golden: Golden) -> None:
    """It says what, where, why and what to do, and changes only on purpose. The user's line is under no frame of ours."""
    error = _error_of(program)
    text = str(error).replace(str(program), "$FILE")
    frames = traceback.extract_tb(error.__traceback__)

    golden.check(program.with_suffix(".err"), ADDRESS.sub("$ADDRESS", text) + "\n")
    assert [] == [f"{f.filename}:{f.lineno}" for f in frames if f.filename.startswith(str(PACKAGE))]


def test_every_diagnostic_has_a_golden_and_a_page() -> None:
    """An error that nobody has seen is an error that nobody has read."""
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("*.err")]
    page = ERROR_PAGE.read_text(encoding="utf-8")

    for name in OURS:
        assert any(f"error[{name}]" in text for text in texts), f"no tests/errors/*.err holds error[{name}]"
        assert f"\n### {name}\n" in page, f"no entry {name} in docs/errors.md"


def test_each_diagnostic_is_made_with_all_its_values() -> None:
    """Their fields are what their templates name, which no type checker reads."""
    fields = {kind.__name__: kind.FIELDS for kind in all_diagnostics().values()}
    wrong, seen = [], set()
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or (kind := _last_name(call.func)) not in fields:
                continue
            names = [keyword.arg for keyword in call.keywords]
            if None in names or any(isinstance(arg, ast.Starred) for arg in call.args):
                continue
            wanted = fields[kind]
            seen.add(kind)
            if len(call.args) + len(names) != len(wanted) or not set(names) <= set(wanted[len(call.args) :]):
                wrong.append(f"{path.name}:{call.lineno} {kind}")

    assert not wrong
    assert len(seen) > 100


def test_the_values_of_a_diagnostic_stay() -> None:
    """Whoever catches an error finds what it was raised with."""
    diagnostic = OutsideKernel("name")

    for change in (lambda: setattr(diagnostic, "name", "other"), lambda: delattr(diagnostic, "name")):
        with pytest.raises(AttributeError, match="OutsideKernel is frozen"):
            change()
    assert diagnostic == OutsideKernel("name")


def _last_name(function: ast.expr) -> str:
    """`WrongRank` of `WrongRank(...)` and of `errors.WrongRank(...)`."""
    return ast.unparse(function).rpartition(".")[2] if isinstance(function, ast.Name | ast.Attribute) else ""


def test_every_golden_has_its_program() -> None:
    assert [] == [path.name for path in HERE.glob("*.err") if not path.with_suffix(".py").exists()]


def _error_of(program: Path) -> sk.StagekitError:
    with pytest.raises(sk.StagekitError) as caught:
        runpy.run_path(str(program), run_name=program.stem)
    return caught.value
