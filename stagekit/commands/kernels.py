"""`compile`, `report`, `view`, `explain` and `bench`: of a kernel, or a function, that a file or a module has.

    kernels.py:scale BLOCK=256 x=float32[?] out=float32[?,16] p=float32* n=int32

Values of constexprs are Python's literals, or names of dtypes; types of run-time parameters are dtypes, with sizes for an array,
or a star for a pointer. A function that is no kernel is taken for a factory, and called with the values.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from stagekit import dtypes
from stagekit.commands.terminal import say
from stagekit.diagnostics import StagekitError
from stagekit.frontend.markers import Pointer, Tensor
from stagekit.jit.launchable import Launchable

_TYPE = re.compile(r"(\w+)(\*|\[[\d?,\s]*\])?")
_SHOWN = ("ir", "llvm", "ptx", "sass")


class UsageError(Exception):
    """What was asked for is not there, or is written in another way."""


def add(commands: Any) -> None:
    """Add the commands to a parser."""
    compiling = _of_kernel(commands, "compile", "compile a kernel, and print a stage of it", _compile)
    compiling.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    compiling.add_argument("--capability", type=int, help="of a GPU, ten times the version, such as 90")
    compiling.add_argument(
        "--block", type=int, help="threads of a block on the CPU, where the kernel does not fix them"
    )
    compiling.add_argument("--show", choices=_SHOWN, help="left out: a line that says what was made")
    _of_kernel(commands, "report", "registers, spills, shared memory and instructions of a kernel, by ptxas", _report)
    viewing = _of_kernel(commands, "view", "write a page with a kernel's source, IR, LLVM IR, PTX and SASS", _view)
    viewing.add_argument("--out", type=Path, help="the page; left out, NAME.html in the current folder")
    _of_kernel(commands, "explain", "what compiling a kernel takes, step by step", _explain)
    bench = commands.add_parser("bench", help="time a function without parameters, such as one launch")
    bench.add_argument("function", help="FILE.py:NAME or MODULE:NAME")
    bench.add_argument("--bytes", type=float, help="that one call moves")
    bench.add_argument("--operations", type=float, help="of one call")
    bench.add_argument("--seconds", type=float, default=0.5)
    bench.set_defaults(run=_bench)


def _of_kernel(commands: Any, name: str, text: str, run: Any) -> Any:
    command = commands.add_parser(name, help=text)
    command.add_argument("kernel", help="FILE.py:NAME or MODULE:NAME")
    command.add_argument("values", nargs="*", metavar="NAME=VALUE", help="constexprs, and types of run-time parameters")
    command.set_defaults(run=run)
    return command


def _compile(given: argparse.Namespace) -> int:
    kernel = kernel_of(given.kernel, given.values)
    artifact = kernel.compile(given.target, capability=given.capability, block=given.block)
    if given.show == "sass" and given.target == "cuda":
        from stagekit.backends import ptxas

        say(ptxas.disassemble(ptxas.assemble(artifact.stages["ptx"]).cubin))
    elif given.show == "ir":
        say(kernel.ir)
    elif given.show is None:
        say(repr(artifact))
    elif given.show not in artifact.stages:
        raise UsageError(f"code for the {given.target} has no stage {given.show}")
    else:
        say(artifact.stages[given.show])
    return 0


def _report(given: argparse.Namespace) -> int:
    say(str(kernel_of(given.kernel, given.values).report()))
    return 0


def _view(given: argparse.Namespace) -> int:
    try:
        say(str(kernel_of(given.kernel, given.values).view(given.out)))
    except OSError as error:
        raise UsageError(f"the page cannot be written: {error}") from None
    return 0


def _explain(given: argparse.Namespace) -> int:
    kernel = kernel_of(given.kernel, given.values)
    kernel.compile("cuda")
    say(kernel.explain())
    return 0


def _bench(given: argparse.Namespace) -> int:
    from stagekit.tuning import bench

    call = object_of(given.function)
    say(str(bench(call, bytes_moved=given.bytes, operations=given.operations, seconds=given.seconds)))
    return 0


# -- finding a kernel -------------------------------------------------------------------------------------------------------


def kernel_of(place: str, values: list[str]) -> Any:
    """Return the kernel of a place, specialised with values. Raises UsageError and StagekitError."""
    found = object_of(place)
    pairs = [each.partition("=") for each in values]
    if wrong := [name + sign for name, sign, text in pairs if not (sign and name.isidentifier() and text)]:
        raise UsageError(f"`{wrong[0]}` is no NAME=VALUE")
    if twice := [name for at, (name, _, _) in enumerate(pairs) if any(name == other for other, _, _ in pairs[:at])]:
        raise UsageError(f"`{twice[0]}` is given twice")
    given = {name: value_of(text) for name, _, text in pairs}
    if isinstance(found, Launchable):
        return found.specialize(**given) if given else found  # type: ignore[attr-defined]
    if not callable(found):
        raise UsageError(f"{place} is no kernel, and no factory of kernels")
    try:
        kernel = found(**given)
    except StagekitError:
        raise
    except Exception as error:
        raise UsageError(f"the factory {place} raised {type(error).__name__}: {error}") from None
    if not isinstance(kernel, Launchable):
        raise UsageError(f"the factory {place} gave {type(kernel).__name__}, not a kernel")
    return kernel


def value_of(text: str) -> Any:
    """Return what a value means: a type, a literal of Python, or else the text itself."""
    match = _TYPE.fullmatch(text)
    dtype = getattr(dtypes, match.group(1), None) if match else None
    if match is None or not isinstance(dtype, dtypes.DType):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError):  # TypeError: a key that has no hash
            return text
    form = match.group(2)
    if form is None:
        return dtype
    if form == "*":
        return Pointer(dtype)
    sizes = [size.strip() for size in form[1:-1].split(",") if size.strip()]
    if wrong := [size for size in sizes if size != "?" and not size.isdecimal()]:
        raise UsageError(f"`{wrong[0]}` in `{text}` is no size: give a number, or ? for any")
    return Tensor(tuple(None if size == "?" else int(size) for size in sizes), dtype)


def object_of(place: str) -> Any:
    """Return what a place such as `kernels.py:scale` names. Raises UsageError where it is not there."""
    source, colon, name = place.rpartition(":")
    if not colon or not source or not name:
        raise UsageError(f"`{place}` is no FILE.py:NAME or MODULE:NAME")
    found: Any = _module(source)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in getattr(found, "__dict__", ()) if not each.startswith("_")]
            raise UsageError(f"{source} has no `{name}`; it has {', '.join(known) or 'nothing'}")
        found = getattr(found, part)
    return found


def _module(source: str) -> ModuleType:
    """Run a file, or import a module by its name."""
    path = Path(source)
    if path.suffix == ".py" and not path.is_file():
        raise UsageError(f"there is no file {source}")
    try:
        if path.suffix != ".py":
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(source)
        sys.path.insert(0, str(path.resolve().parent))  # as `python FILE.py` does
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{source} is no Python file")
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (StagekitError, UsageError):
        raise
    except Exception as error:
        raise UsageError(f"{source} raised {type(error).__name__}: {error}") from None
    return module
