"""The rooms of the package import downwards only, and third-party libraries stay in their room.

Imports inside functions and under `TYPE_CHECKING` count: that is where cycles hide. The table is the one of
`docs/architecture.md`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "stagekit"
EXAMPLES = PACKAGE.parent / "examples"

GROUND = (
    "diagnostics",
    "display",
    "config",
    "dtypes",
    "frozen",
    "hostexpr",
    "signature",
    "artifact",
    "records",
    "native_tables",
    "forks",
    "extras",
    "ranges",
    "recursion",
    "limits",
)
ROOMS = (
    "ir",
    "intrinsics",
    "frontend",
    "passes",
    "cache",
    "backends",
    "runtime",
    "viewing",
    "jit",
)  # each sees those before it
SEES_GROUND_ONLY = {"cache", "runtime"}  # an Artifact is all they know of a kernel
SEES_EVERYTHING = {
    "__init__",
    "__main__",
    "cuda",
    "layouts",
    "testing",
    "torch",
    "jax",
    "operators",
    "commands",
    "exporting",
    "tuning",
}
SEES_PUBLIC_NAMES = {"lib", "kernels"}

LIBRARY_ROOMS = {  # third party: where it may be imported
    "llvmlite": {"backends"},
    "cuda": {"runtime"},
    "cuda.pathfinder": {"backends"},  # finds libdevice and ptxas; loads no driver
    "numpy": {
        "dtypes",
        "ir",
        "lib",
        "intrinsics",
        "frontend",
        "cache",
        "backends",
        "runtime",
        "testing",
        "jit",
        "tuning",
        "layouts",
        "kernels",
        "commands",
        "operators",
        "jax",
    },
    "ml_dtypes": {"dtypes", "ir", "intrinsics", "cache", "backends", "runtime", "testing"},
    "hypothesis": {"testing"},
    "torch": {"torch"},
    "jax": {"jax"},
    "jax_tvm_ffi": {"jax"},
    "tvm_ffi": {"jax"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """The room that a file of the package belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_of(path: Path) -> list[str]:
    """Every module that the file imports, with its full name."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from _from_import(node)


def _from_import(node: ast.ImportFrom) -> Iterator[str]:
    """`from stagekit import config` imports the room `config`; `from stagekit.ir import Op` the room `ir`."""
    if node.module in ("stagekit", "cuda"):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    else:
        yield str(node.module)


def visible_from(room: str) -> set[str]:
    """The rooms that `room` may import, itself included."""
    if room in GROUND:
        return set(GROUND)
    if room in SEES_GROUND_ONLY:
        return {*GROUND, room}
    return {*GROUND, *ROOMS[: ROOMS.index(room) + 1]}


def test_a_room_imports_only_the_rooms_before_it() -> None:
    for path in MODULES:
        room = room_of(path)
        if room in SEES_EVERYTHING | SEES_PUBLIC_NAMES:
            continue
        names = filter(_is_ours, imports_of(path))
        ours = {name.split(".")[1] if "." in name else "the public names" for name in names}
        assert set() == ours - visible_from(room), path


def test_a_library_stays_in_its_rooms() -> None:
    for path in MODULES:
        libraries = {_library_of(name) for name in imports_of(path)} & LIBRARY_ROOMS.keys()
        assert set() == {library for library in libraries if room_of(path) not in LIBRARY_ROOMS[library]}, path


USERS = sorted(
    [*EXAMPLES.glob("*.py"), *(path for room in SEES_PUBLIC_NAMES for path in (PACKAGE / room).glob("*.py"))]
)


def test_lib_kernels_and_examples_use_the_public_names_only() -> None:
    """What is written with them proves that the language is enough."""
    for path in USERS:
        own = (
            f"stagekit.{room_of(path)}"
            if path.is_relative_to(PACKAGE)
            else ("stagekit.kernels", "stagekit.torch", "stagekit.jax")
        )
        ours = set(filter(_is_ours, imports_of(path)))
        assert set() == {name for name in ours if name != "stagekit" and not name.startswith(own)}, path


def test_kernels_use_nothing_of_the_library_that_users_lack() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (PACKAGE / "kernels").glob("*.py")}

    assert set() == {name for name, text in texts.items() if re.search(r"\bsk\._\w", text)}


def test_importing_the_package_imports_no_kernels_and_no_operators() -> None:
    later = tuple(f"stagekit.{room}" for room in ("kernels", "operators", "torch", "jax"))
    code = f"import stagekit, sys; sys.exit(any(name.startswith({later}) for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_modules_import_each_other_in_a_circle() -> None:
    """A package's `__init__` shows what is in it, so it counts as none; the library imports `stagekit` itself."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in MODULES}
    ahead = {name: {each for each in _modules_imported(path) if each in names} for name, path in names.items()}
    while leaves := {name for name, imported in ahead.items() if not imported & ahead.keys()}:
        ahead = {name: imported for name, imported in ahead.items() if name not in leaves}

    assert {} == ahead, "these modules import each other, or one that does"


def _modules_imported(path: Path) -> set[str]:
    """The modules that a file imports, also as `from stagekit.ir import ops`."""
    froms = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    named = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
    return {*imports_of(path), *named}


def test_every_module_has_a_room() -> None:
    known = {*GROUND, *ROOMS, *SEES_EVERYTHING, *SEES_PUBLIC_NAMES}

    assert set() == {room_of(path) for path in MODULES} - known


def _library_of(name: str) -> str:
    """The row of `LIBRARY_ROOMS` that a module belongs to: its package, or a part of it that has a row of its own."""
    part = ".".join(name.split(".")[:2])
    return part if part in LIBRARY_ROOMS else name.split(".")[0]


def test_the_architecture_page_has_every_room() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {*GROUND, *ROOMS, *SEES_PUBLIC_NAMES}

    assert [] == [room for room in rooms if f"`{room}/`" not in page and f"`{room}.py`" not in page]


def _is_ours(name: str) -> bool:
    return name == "stagekit" or name.startswith("stagekit.")
