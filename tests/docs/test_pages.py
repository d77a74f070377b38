"""The README and every page of `docs/` run: their Python blocks are programs, their output blocks are what they print.

The word after the three backquotes decides:

    python                       runs
    python raises=UNROLL_BUDGET  runs and must raise the diagnostic with this id
    python needs=torch,gpu       runs where these packages are, and a GPU
    text output                  what the blocks above print, in the order of the page, if the last of them has run
    anything else                is only shown

A page is one program in one namespace, block after block. In `docs/errors.md` every entry is a program of its own, which
begins with the blocks above the first entry.
The blocks are written to a file at the line numbers of the page, so that errors and tracebacks point into the page.
"""

from __future__ import annotations
import __future__

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

import stagekit as sk
from tools import placement

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ERROR_PAGE = ROOT / "docs" / "errors.md"

FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its first line of text, from 0. section: the `###` heading it stands under."""

    info: tuple[str, ...]
    text: str
    line: int
    section: str

    @property
    def is_program(self) -> bool:
        return self.info[:1] == ("python",)

    @property
    def can_run(self) -> bool:
        """Is everything there that this block needs?"""
        needs = [word.removeprefix("needs=").split(",") for word in self.info if word.startswith("needs=")]
        return all(_is_there(name) for names in needs for name in names)

    @property
    def is_output(self) -> bool:
        return self.info == ("text", "output")

    @property
    def raises(self) -> str | None:
        """The id of the diagnostic that this block must raise."""
        found = [word.removeprefix("raises=") for word in self.info[1:] if word.startswith("raises=")]
        return found[0] if found else None


def _is_there(name: str) -> bool:
    return sk.cuda.is_available() if name == "gpu" else importlib.util.find_spec(name) is not None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [_block(text, match) for match in FENCE.finditer(text)]


def _block(text: str, match: re.Match[str]) -> Block:
    before = text[: match.start("text")]
    headings = re.findall(r"^### (.*)$", before, re.MULTILINE)
    return Block(tuple(match["info"].split()), match["text"], before.count("\n"), headings[-1] if headings else "")


def programs_of(page: Path) -> Iterator[tuple[str, list[Block]]]:
    """The page's programs as (section, blocks): one, or on the error page one for each entry."""
    blocks = [b for b in blocks_of(page) if b.is_program or b.is_output]
    if page != ERROR_PAGE:
        yield "", blocks
        return
    prelude = [b for b in blocks if not b.section]
    for section, group in groupby(blocks[len(prelude) :], key=lambda b: b.section):
        yield section, [*prelude, *group]


PROGRAMS = [
    pytest.param(page, blocks, id="#".join(filter(None, [str(page.relative_to(ROOT)), section])))
    for page in PAGES
    for section, blocks in programs_of(page)
    if blocks
]


def test_a_decision_has_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    by_number = {page.name[:4]: page.name for page in pages}

    assert [page.name for page in pages] == list(by_number.values())
    assert [
        page.name for page in pages if not page.read_text(encoding="utf-8").startswith(f"# {page.name[:4]}: ")
    ] == []


@pytest.mark.parametrize(("page", "blocks"), PROGRAMS)
def test_the_page_runs_and_prints_what_it_says(
    page: Path,
    blocks: list[Block],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reader who copies the page gets what the page shows."""
    monkeypatch.chdir(tmp_path)
    module = _module_for(page, blocks, tmp_path, monkeypatch)
    flags, has_run = 0, True

    for block in blocks:
        if block.is_output and not has_run:
            continue
        if block.is_output:
            expected, actual = block.text.strip(), capsys.readouterr().out.strip()
            assert expected == actual, f"{page.name}:{block.line + 1}"
            continue
        if "from __future__ import annotations" in block.text:
            flags = __future__.annotations.compiler_flag
        has_run = block.can_run
        if has_run:
            _run(block, module, flags)


def _module_for(page: Path, blocks: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty module whose source file holds the blocks at the line numbers of the page."""
    module = ModuleType(f"page_{page.stem.replace('-', '_').lower()}")
    lines: list[str] = []
    for block in filter(lambda b: b.is_program, blocks):
        lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    path = folder / f"{module.__name__}.py"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def _run(block: Block, module: ModuleType, flags: int) -> None:
    padded = "\n" * block.line + block.text
    code = compile(padded, str(module.__file__), "exec", flags=flags, dont_inherit=True)
    if block.raises is None:
        exec(code, module.__dict__)
        return
    with pytest.raises(sk.StagekitError) as caught:
        exec(code, module.__dict__)
    assert block.raises == caught.value.id


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A link inside the repository names a file, and a heading that is there."""
    broken = [target for target in _links_of(page) if not _leads_somewhere(page, target)]

    assert [] == broken


def _links_of(page: Path) -> list[str]:
    prose = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = [match["target"] for match in LINK.finditer(prose)]
    return [target for target in targets if not target.startswith(("http://", "https://"))]


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return False
    return not anchor or anchor in _anchors_of(file)


def _anchors_of(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pictures_of_placement_are_as_kernels_tell() -> None:
    """`python -m tools.placement` draws them."""
    assert [] == [path.name for path, text in placement.pictures().items() if path.read_text(encoding="utf-8") != text]
