"""Write the tutorial as a notebook: each page a chapter, its Python blocks cells.

    python -m tools.notebook tutorial.ipynb [--run]

--run: execute it first, so that it holds what it prints. Wants the extras `test` and `docs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from tests.docs.test_pages import FENCE, ROOT

PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))


def notebook() -> Any:
    """The cells of all pages. What a block prints is left out: the notebook shows what it prints itself."""
    cells = [cell for page in PAGES for cell in _cells(page.read_text(encoding="utf-8"))]
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    return v4.new_notebook(cells=cells)


def _cells(text: str) -> Iterator[Any]:
    after = 0
    for match in FENCE.finditer(text):
        kind, *words = match["info"].split()
        if kind == "python" or words == ["output"]:
            yield from _prose(text[after : match.start()])
            after = match.end()
        if kind == "python":
            tags = ["raises-exception"] if any(word.startswith("raises=") for word in words) else []
            yield v4.new_code_cell(match["text"].rstrip("\n"), metadata={"tags": tags})
    yield from _prose(text[after:])


def _prose(text: str) -> Iterator[Any]:
    if text.strip():
        yield v4.new_markdown_cell(text.strip())


def run(made: Any) -> Any:
    """Execute the cells in order. Raises nbclient's CellExecutionError where one fails that should not."""
    from nbclient import NotebookClient  # only for --run

    return NotebookClient(made, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()


def main() -> None:
    parser = argparse.ArgumentParser(description="The tutorial as a notebook.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--run", action="store_true", help="execute it first")
    options = parser.parse_args()
    made = notebook()
    nbformat.write(run(made) if options.run else made, options.path)


if __name__ == "__main__":
    main()
