"""Every public name is documented, typed, and found in the docs; importing the package is cheap and needs no driver."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stagekit as sk
from stagekit.frontend.attributes import ATTRIBUTES
from stagekit.frontend.language import Staged
from stagekit.frontend.tracer import TraceOptions
from stagekit.ir import Intrinsic
from stagekit.jit.options import KernelOptions
from tools.stubs import stubs

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = "\n".join(
    (DOCS / name).read_text(encoding="utf-8")
    for name in ("language.md", "intrinsics.md", "testing.md", "debugging.md", "tuning.md", "export.md")
)


def public_names() -> list[tuple[str, Any]]:
    """Every public name with its value: those of `stagekit`, and those of its public modules."""
    top = [(f"sk.{name}", getattr(sk, name)) for name in sk.__all__ if not name.startswith("_")]
    modules = [(name, value) for name, value in top if isinstance(value, ModuleType)]
    inner = [(f"{name}.{each}", getattr(value, each)) for name, value in modules for each in value.__all__]
    return [*(pair for pair in top if pair not in modules), *inner]


NAMES = public_names()


def test_a_public_name_says_what_it_is() -> None:
    """`help` shows the text of the name itself, not that of its class."""
    for name, value in NAMES:
        text = inspect.getdoc(value)

        assert text, f"{name} has no docstring"
        assert isinstance(value, type) or text != inspect.getdoc(type(value)), f"{name} has the docstring of its class"
        assert text.splitlines()[0] in pydoc.render_doc(value, renderer=pydoc.plaintext)


def test_a_docstring_names_errors_of_the_catalogue() -> None:
    catalogue = set(re.findall(r"^### (\w+)$", (DOCS / "errors.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name: re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", inspect.getdoc(value) or "") for name, value in NAMES}

    assert {} == {name: found for name, found in named.items() if not set(found) <= catalogue}


ANY_NUMBER = {
    "sk.switch",
    "sk.vector",
    "sk.static_range",
    "sk.static_print",
    "sk.target_for",
    "sk.warp_roles",
}  # of arguments, as `range` and `print` take them


def test_a_public_name_shows_what_it_takes() -> None:
    for name, value in NAMES:
        parameters = inspect.signature(value).parameters.values() if callable(value) else ()
        kinds = {p.kind for p in parameters}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name
        assert (inspect.Parameter.VAR_POSITIONAL in kinds) == (name in ANY_NUMBER), name


def test_a_public_function_is_shown_by_its_name() -> None:
    for name, value in NAMES:
        if callable(value) and name != "sk.bool_":  # another name of `bool`
            assert value.__name__ == name.rpartition(".")[2]
            assert value.__name__ in repr(value)


def test_the_parameters_of_an_intrinsic_are_those_of_its_record() -> None:
    assert str(inspect.signature(sk.fma)) == "(x, y, z)"
    assert str(inspect.signature(sk.syncwarp)) == "(mask=4294967295)"
    assert str(inspect.signature(sk.cuda.thread_idx)) == "(axis='x')"
    assert (
        repr(sk.atomic_cas)
        == "<stagekit intrinsic atomic_cas(pointer, expected, desired, order='relaxed', scope='gpu')>"
    )
    assert "cube root" in pydoc.render_doc(sk.cbrt)


def test_options_are_shown_with_their_defaults() -> None:
    options = inspect.signature(sk.jit).parameters

    assert options.keys() == {"fn", *KernelOptions.__annotations__}
    assert options["fastmath"].default is False
    assert options["op_budget"].default == TraceOptions().op_budget
    assert inspect.signature(sk.sanitize).parameters["races"].default is True


def test_a_public_name_is_in_the_reference() -> None:
    """A function of kernels has a row of its own in intrinsics.md, everything else is named in one of the pages."""
    assert [] == [name for name, value in NAMES if not re.search(_row_of(name, value), REFERENCE, re.MULTILINE)]


def _row_of(name: str, value: object) -> str:
    short = re.escape(name.rpartition(".")[2])
    of_kernels = isinstance(value, Intrinsic | Staged) or (
        inspect.isfunction(value) and hasattr(value, "__stagekit_fragment__")
    )
    return rf"^\| `{short}\(" if of_kernels else rf"`[^`\n]*(?<!\w){short}\b[^`\n]*`"


def test_what_values_know_of_themselves_is_in_the_reference() -> None:
    rows = set(re.findall(r"^\| `\.(\w+)", REFERENCE, re.MULTILINE))

    assert {name for table in ATTRIBUTES.values() for name in table} <= rows
    assert {"align=", "mask="} <= set(re.findall(r"`?(\w+=)`?", REFERENCE))


def test_a_public_function_is_typed() -> None:
    for name, function in NAMES:
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
            assert [] == bare, f"{name}: parameters without a type"
            assert signature.return_annotation is not signature.empty, f"{name}: no return type"


def test_all_is_complete() -> None:
    """A name without underscore that is not a module is public on purpose, or not there."""
    names = {name for name, value in vars(sk).items() if not name.startswith("_") and not isinstance(value, ModuleType)}

    assert set() == names - set(sk.__all__) - {"annotations", "TYPE_CHECKING"}


@pytest.mark.parametrize(
    ("path", "text"), stubs().items(), ids=lambda each: each.name if isinstance(each, Path) else ""
)
def test_a_stub_shows_what_is_public(path: Path, text: str) -> None:
    """What editors and type checkers read. `python -m tools.stubs` writes it."""
    module = sk if path.stem == "__init__" else sk.cuda
    shown = {name for node in ast.parse(text).body for name in names_bound_by(node)}

    assert text == path.read_text(encoding="utf-8"), f"run `python -m tools.stubs`: {path.name} is old"
    assert set(module.__all__) == shown - {"Annotated", "Any", "TypeVar", "_T", "_Value", "__all__", "__version__"}


def names_bound_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.AnnAssign):
        return [ast.unparse(node.target)]
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []


def test_no_room_hides_a_public_name() -> None:
    """`stagekit.jit` is a room, `sk.jit` the decorator, whichever is asked for first."""
    program = "import stagekit.jit.native_launchers, stagekit as sk; print(sk.jit.__name__, sk.cuda.__name__)"

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "jit stagekit.cuda" == printed.strip()


def test_a_name_that_is_not_there_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="module 'stagekit' has no attribute 'progam_id'"):
        sk.progam_id


@pytest.mark.parametrize("module", [sk, sk.cuda])
def test_dir_shows_the_language(module: ModuleType) -> None:
    """And no rooms of the package, nor what the library alone uses."""
    shown = [name for name in dir(module) if not name.startswith("__")]

    assert sorted(shown) == [name for name in module.__all__ if not name.startswith("_")]
    assert {"__doc__", "__all__"} <= set(dir(module))


LATER = {
    "torch",
    "cupy",
    "jax",
    "hypothesis",
    "ml_dtypes",  # a second
    "llvmlite",
    "cuda",
    "importlib.metadata",
    "stagekit.passes.pipeline",
    "stagekit.backends.nvptx",
    "stagekit.backends.host.compiler",
    "stagekit.backends.interp",
}


def test_import_loads_no_optional_library_no_driver_and_no_compiler() -> None:
    program = "import sys, stagekit; print(*sys.modules)"

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert set() == LATER & set(printed.split())


def test_modules_of_the_library_that_are_loaded_later_add_nothing_to_those_that_are_there() -> None:
    """A kernel that names none of them means the same with them and without: `sqrt` of complex numbers was such an entry."""
    program = """
import importlib, sys, stagekit
there = [name for name in sys.modules if name.startswith("stagekit")]
def sizes():
    tables = {(m, n): v for m in there for n, v in vars(sys.modules[m]).items() if isinstance(v, (dict, list, set))}
    return {place: len(table) for place, table in tables.items() if table is not vars(stagekit)}
before = sizes()
homes = sorted({home for home in stagekit._LATER.values() if home.startswith("stagekit.lib.")})
assert homes and not {*homes} & {*there}, homes
for home in homes:
    importlib.import_module(home)
print([place for place, size in sizes().items() if before[place] != size])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_kernel_of_bfloat16_is_compiled_without_ml_dtypes() -> None:
    program = """
import sys
import stagekit as sk
from stagekit import kernels
kernels.softmax_kernel(sk.bfloat16, 1024, True).specialize().compile("cuda", capability=90)
print("ml_dtypes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
