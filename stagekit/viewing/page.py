"""The page itself: HTML with its style and its script inside. Every text of a kernel is escaped.

A line holds the numbers of its places, the innermost first: `<div data-p="4 7">`. The script marks what has the first number of
the line under the pointer; a click brings the counterparts into view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from stagekit.viewing.places import Line, Place, numbered


@dataclass(frozen=True)
class Pane:
    """One stage. lines: from top to bottom."""

    title: str
    lines: Sequence[Line]


def page(name: str, facts: Mapping[str, str], panes: Sequence[Pane]) -> str:
    """Return the text of the page. facts: what stands on top; one without text is left out."""
    numbers = numbered([pane.lines for pane in panes])
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(text)}</dd></div>" for key, text in facts.items() if text)
    shown = "\n".join(_pane(pane, numbers) for pane in panes)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(name)}</title>'
    body = f"<header><h1>{escape(name)}</h1><dl>{rows}</dl></header>\n<main>\n{shown}\n</main>"
    return f"<!doctype html>\n<html lang=en>{head}<style>{_STYLE}</style>\n{body}\n<script>{_SCRIPT}</script></html>\n"


def _pane(pane: Pane, numbers: Mapping[Place, int]) -> str:
    lines = "".join(_line(line, numbers) for line in pane.lines)
    return f'<section aria-label="{escape(pane.title)}"><h2>{escape(pane.title)}</h2><pre>{lines}</pre></section>'


def _line(line: Line, numbers: Mapping[Place, int]) -> str:
    places = " ".join(str(numbers[place]) for place in line.places)
    opened = f'<div data-p="{places}">' if places else "<div>"
    number = f"<i>{line.number or ''}</i>" if line.number else ""
    return f"{opened}{number}{escape(line.text) or ' '}</div>"


_STYLE = """
:root { color-scheme: light dark; --mark: light-dark(#ffe58a, #5a4a00); --call: light-dark(#fff6d6, #33301c); }
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; font: 13px/1.45 system-ui, sans-serif; }
header { padding: .6rem 1rem; border-bottom: 1px solid #8886; }
h1 { margin: 0 0 .3rem; font-size: 1.1rem; }
h2 { margin: 0; padding: .3rem .6rem; font-size: .85rem; border-bottom: 1px solid #8886; }
dl { margin: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
dl div { display: flex; gap: .4rem; } dt { font-weight: 600; } dd { margin: 0; white-space: pre-wrap; }
main { flex: 1; display: flex; min-height: 0; }
section { flex: 1 1 0; min-width: 0; display: flex; flex-direction: column;
  border-right: 1px solid #8886; resize: horizontal; overflow: hidden; }
pre { margin: 0; flex: 1; overflow: auto; font: 12px/1.4 ui-monospace, monospace; tab-size: 4; }
pre div { padding: 0 .6rem; width: max-content; min-width: 100%; }
i { display: inline-block; width: 2.6rem; opacity: .55; font-style: normal; }
[data-p] { cursor: pointer; } .call { background: var(--call); } .mark { background: var(--mark); }
"""

_SCRIPT = """
const lines = [...document.querySelectorAll("[data-p]")].map(e => [e, e.dataset.p.split(" ")]);
function mark(line) {
  const first = line && line.dataset.p.split(" ")[0];
  for (const [e, places] of lines) {
    e.classList.toggle("mark", first !== null && places[0] === first);
    e.classList.toggle("call", first !== null && places.indexOf(first) > 0);
  }
}
const at = event => event.target.closest("[data-p]");
document.addEventListener("mouseover", event => { if (at(event)) mark(at(event)); });
document.addEventListener("click", event => {
  const line = at(event);
  if (!line) return;
  mark(line);
  for (const pane of document.querySelectorAll("section")) {
    const other = pane.querySelector(".mark") || pane.querySelector(".call");
    if (other && !pane.contains(line)) other.scrollIntoView({block: "center"});
  }
});
"""
