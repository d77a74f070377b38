"""From which lines of the source each line of a stage comes.

    .loc 1 5 12                      ->  Line("mul.rn.f32 %r8, %r51, %r51;", (("k.py", 5), ("k.py", 12)))
    mul.rn.f32 %r8, %r51, %r51;

The innermost place is first, then the calls that it was inlined at, in the IR and LLVM IR; PTX and SASS name the innermost alone.
What a stage writes of places itself, such as `.loc`, is left out.
"""

from __future__ import annotations

import json
import linecache
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stagekit.diagnostics import Loc, place_of_user
from stagekit.ir import Function
from stagekit.ir.printer import print_function

Place = tuple[str, int]
"""A file and a line in it, from 1."""

_NEAR = 2  # lines of the source that are shown around those from which something comes


class Line(NamedTuple):
    """A line of a pane. number: in the source, 0 elsewhere."""

    text: str
    places: tuple[Place, ...]
    number: int = 0


# -- the source ---------------------------------------------------------------------------------------------------------


def of_source(known: Iterable[Place], whole: Iterable[Place]) -> list[Line]:
    """Return the lines of every file that places name, and those near them. whole: lines to show in any case."""
    wanted: dict[str, set[int]] = {}
    for file, line in (*whole, *((file, line + i) for file, line in known for i in range(-_NEAR, _NEAR + 1))):
        wanted.setdefault(file, set()).add(line)
    found: list[Line] = []
    for file, numbers in wanted.items():
        text = linecache.getlines(file)
        shown = [number for number in sorted(numbers) if 0 < number <= len(text)]
        found.append(Line(_short(file), ()))
        for before, number in zip((0, *shown), shown):
            if number != before + 1 and before:
                found.append(Line("⋮", ()))
            found.append(Line(text[number - 1].rstrip("\n"), ((file, number),), number))
    return found


def _short(file: str) -> str:
    """Return a path as it is from the working directory, where that is above it."""
    return os.path.relpath(file) if file.startswith(os.path.join(os.getcwd(), "")) else file


# -- stages -------------------------------------------------------------------------------------------------------------


def of_ir(function: Function) -> list[Line]:
    """Return the lines of the IR. What the library does has the line of the user's call."""
    plain = print_function(function).splitlines()
    placed = print_function(function, locations=True).splitlines()
    return [Line(text, _of_loc(with_loc[len(text) :])) for text, with_loc in zip(plain, placed)]


_LOC = re.compile(r'loc\(("(?:[^"\\]|\\.)*"), (\d+)')


def _of_loc(text: str) -> tuple[Place, ...]:
    """Return the user's places in a chain as the printer writes it, innermost first."""
    outer: Loc | None = None
    for file, line in reversed(_LOC.findall(text)):
        outer = Loc(json.loads(file), int(line), 0, int(line), 0, "", call_site=outer)
    shown = place_of_user(outer)
    return tuple(dict.fromkeys((loc.file, loc.line) for loc in shown.chain())) if shown else ()


_NODE = re.compile(r"^(!\d+) = (?:distinct )?!DI\w+\((.*)\)$")
_FIELD = re.compile(r'(\w+): (?:"((?:[^"\\]|\\.)*)"|([^,]+))')
_DEBUG = re.compile(r",? !dbg (!\d+)")


def of_llvm(text: str) -> list[Line]:
    """Return the lines of LLVM IR without its metadata."""
    found = [m for m in map(_NODE.match, text.splitlines()) if m]
    nodes = {m[1]: {f[1]: f[2] or f[3] for f in _FIELD.finditer(m[2])} for m in found}

    def chain(node: str) -> Iterator[Place]:
        while node in nodes:
            place = nodes[node]
            file = nodes.get(nodes.get(place.get("scope", ""), {}).get("file", ""), {})
            folder, name = (_unescaped(file.get(key, "")) for key in ("directory", "filename"))
            yield f"{folder}/{name}", int(place.get("line", 0))
            node = place.get("inlinedAt", "")

    lines = []
    for line in text.splitlines():
        if not line.startswith("!"):
            debug = None if line.startswith("define") else _DEBUG.search(line)
            lines.append(Line(_DEBUG.sub("", line), tuple(dict.fromkeys(chain(debug[1]))) if debug else ()))
    return lines


def _unescaped(text: str) -> str:
    """Return the text of LLVM's string, in which a byte may be written as two hexadecimal digits."""
    plain = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return plain.decode(errors="replace")


_FILE = re.compile(r'^\s*\.file\s+(\d+) "((?:[^"\\]|\\.)*)"')
_AT = re.compile(r"(\d+) (\d+) \d+")


def of_ptx(text: str) -> list[Line]:
    """Return the lines of PTX. A `.loc` holds for what follows it; line 0 is no place."""
    files = {m[1]: m[2].replace("\\\\", "\\") for m in map(_FILE.match, text.splitlines()) if m}
    lines: list[Line] = []
    here: tuple[Place, ...] = ()
    for line in text.splitlines():
        words = line.split(None, 1)
        if words[:1] == [".loc"]:
            found = [(files.get(file, ""), int(number)) for file, number in _AT.findall(words[1])]
            here = tuple(dict.fromkeys(place for place in found if place[1])) if found and found[0][1] else ()
        elif words[:1] not in ([".file"], [".section"]):
            lines.append(Line(line, () if line.startswith("$L") or line in ("{", "}") else here))
    return lines


_SASS = re.compile(r'//## File "((?:[^"\\]|\\.)*)", line (\d+)(?: inlined at "((?:[^"\\]|\\.)*)", line (\d+))?')


_INSTRUCTION = re.compile(r"\s*(/\*[0-9a-f]+\*/)\s*(.*)")


def of_sass(text: str) -> list[Line]:
    """Return the lines of machine code, up to its tables of debug information. Comments of nvdisasm say places."""
    lines: list[Line] = []
    here: list[Place] = []
    is_new = True
    code = text[text.find(".text.") :] if ".text." in text else text
    for line in code.splitlines():
        place = _SASS.search(line)
        if place:
            here = [*(() if is_new else here), (place[1], int(place[2]))]
            here += [(place[3], int(place[4]))] if place[3] else []
            is_new = False
        elif line.lstrip().startswith(".section") and ".text" not in line:
            break
        else:
            found = _INSTRUCTION.match(line)
            text = f"  {found[1]} {found[2]}" if found else line.strip()
            lines.append(Line(text, tuple(dict.fromkeys(here)) if found else ()))
            is_new = is_new or found is not None
    return lines


def numbered(panes: Iterable[Sequence[Line]]) -> dict[Place, int]:
    """Return a number for each place, in the order in which panes name them."""
    every = dict.fromkeys(place for lines in panes for line in lines for place in line.places)
    return {place: number for number, place in enumerate(every)}
