"""Compiled kernels for programs without Python: objects for the CPU, code for GPUs, and a launcher in C.

    sk.export({"scale": scale.specialize(BLOCK=64)}, "build", name="demo", targets=("cpu", "cuda"), capabilities=(80, 90))
    cc -O2 -c build/demo.c && cc main.c demo.o build/*.o -lm -ldl -lpthread

entries          from a specialisation to its code and what a launch must know
expressions      host expressions in C
c_source         header and source of one library
runtime_source   their fixed parts
python_source    a module that calls the library from Python by ctypes, without stagekit
tvm_source       functions of tvm-ffi, which other libraries and languages call

`import stagekit` imports none of it; `sk.export` is here when it is first asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stagekit
from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.exporting.c_source import header, source
from stagekit.exporting.entries import LEVELS, ExportedKernel, exported
from stagekit.exporting.errors import ExportError, refuse
from stagekit.exporting.python_source import python_module
from stagekit.exporting.tvm_source import tvm_source
from stagekit.jit.ahead_of_time import specialization_of
from stagekit.jit.options import check_compile
from stagekit.jit.specialization import Specialization

__all__ = ["LEVELS", "ExportError", "ExportedLibrary", "export"]


@dataclass(frozen=True, repr=False)
class ExportedLibrary:
    """What `export` wrote. objects: to be linked, beside the source. tvm_ffi: a source more, for a module of tvm-ffi."""

    name: str
    header: Path
    source: Path
    objects: tuple[Path, ...]
    images: tuple[Path, ...]
    module: Path | None
    tvm_ffi: Path | None

    def __repr__(self) -> str:
        return f"<stagekit export {self.name} in {self.header.parent}: {len(self.objects)} objects, {len(self.images)} images>"

    @property
    def sources(self) -> list[str]:
        """What a compiler of C takes: the source and the objects."""
        return [str(self.source), *map(str, self.objects)]


def export(
    kernels: Any,
    folder: str | Path,
    *,
    name: str = "kernels",
    targets: Sequence[str] = ("cpu", "cuda"),
    capabilities: Sequence[int] = (90,),
    block: int | tuple[int, ...] | None = None,
    processor: str = "native",
    python: bool = False,
    tvm_ffi: bool = False,
) -> ExportedLibrary:
    """Write kernels as a library for C into a folder: `NAME.h`, `NAME.c`, an object per kernel for the CPU, cubins and PTX.

    kernels: one, several, or a mapping from the names that they have in C; each specialised, with the types of its arguments
    known from annotations, `.specialize(x=sk.Tensor(...))` or a call. name: of the files, and what all names in C begin with.
    targets: "cpu", "cuda" or both. capabilities: of GPUs, ten times the version: each gets a cubin and PTX, which newer GPUs run.
    block: of kernels that do not fix theirs, for the CPU. processor: "native", or a level of x86-64 such as "x86-64-v3".
    python: write `NAME.py` too, which calls the library by ctypes. tvm_ffi: write `NAME_tvm_ffi.c` too, which makes a module of
    tvm-ffi of the library, for `tvm_ffi.load_module`.

    Raises NOT_EXPORTED for kernels that print, assert or wait for the whole grid, and for names that C does not have.
    """
    if not isinstance(name, str) or re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is None:
        raise wrong_arguments(export, f"`name` is {shown(name)}, not a name in C")
    if not isinstance(folder, str | os.PathLike):
        raise wrong_arguments(export, f"`folder` is {shown(folder)}, not the path of a folder")
    if isinstance(capabilities, str) or not isinstance(capabilities, Iterable):
        raise wrong_arguments(export, f"`capabilities` is {shown(capabilities)}, not a list such as (80, 90)")
    wanted = _named(kernels)
    chosen = _targets(targets)
    numbers = sorted(set(capabilities)) if "cuda" in chosen else []
    for capability in numbers:
        check_compile("cuda", capability, None)
    axes = check_compile("cpu", None, block) if "cpu" in chosen else None
    made = [
        (short, exported(kernel, target, short, f"{name}_{short}", numbers, axes, processor))  # type: ignore[arg-type]
        for short, kernel in wanted.items()
        for target in chosen
    ]
    return _write(Path(folder), name, [kernel for _, kernel in made], python, tvm_ffi)


export = hide_frames(export, OSError)  # of a place that cannot be written


def _named(kernels: Any) -> dict[str, Specialization]:
    """Return the specialisations by their names in C. Raises ExportError for names that C does not have, or has twice."""
    several = kernels if isinstance(kernels, Iterable) and not isinstance(kernels, str) else [kernels]
    pairs = kernels.items() if isinstance(kernels, Mapping) else [(None, each) for each in several]
    found: dict[str, Specialization] = {}
    for given, kernel in pairs:
        specialization = specialization_of(kernel, "export")
        short = specialization.name if given is None else given
        hint = "give a mapping from names to kernels: `sk.export({'scale_64': kernel}, ...)`"
        if not isinstance(short, str) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", short) is None:
            raise refuse(specialization.name, f"{shown(short)} is not a name in C", hint)
        if short in found:
            raise refuse(specialization.name, f"two kernels have the name `{short}`", hint)
        found[short] = specialization
    if not found:
        raise wrong_arguments(export, "`kernels` holds none")
    return found


def _targets(targets: Any) -> list[str]:
    several = targets if isinstance(targets, Iterable) else ()
    chosen = [targets] if isinstance(targets, str) else [*several]
    if not chosen or not set(chosen) <= {"cpu", "cuda"}:
        raise wrong_arguments(export, f"`targets` is {shown(targets)}, not some of 'cpu' and 'cuda'")
    return [*dict.fromkeys(chosen)]


def _write(folder: Path, name: str, kernels: Sequence[ExportedKernel], python: bool, tvm_ffi: bool) -> ExportedLibrary:
    texts = {f"{name}.h": header(name, stagekit.__version__, kernels), f"{name}.c": source(name, kernels)}
    if python:
        texts[f"{name}.py"] = python_module(name, stagekit.__version__, kernels)
    if tvm_ffi:
        texts[f"{name}_tvm_ffi.c"] = tvm_source(name, kernels)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    objects, images = [], []
    for kernel in kernels:
        for entry in kernel.entries:
            stem = f"{name}_{kernel.name}_{entry.kind}"
            if kernel.target == "cpu":
                objects.append(folder / f"{stem}.o")
                objects[-1].write_bytes(entry.object_code)
            for image in entry.images:
                images.append(folder / f"{stem}_sm{image.capability}.{image.kind}")
                images[-1].write_bytes(image.code.rstrip(b"\0") if image.kind == "ptx" else image.code)
    module, functions = (folder / each if each in texts else None for each in (f"{name}.py", f"{name}_tvm_ffi.c"))
    paths = folder / f"{name}.h", folder / f"{name}.c"
    return ExportedLibrary(name, *paths, tuple(objects), tuple(images), module, functions)
