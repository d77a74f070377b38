"""What a notebook shows of kernels, listings, reports and findings: small HTML, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Mapping

# `html.escape` would import the table of all entities, a hundredth of the time of `import stagekit`
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_TEXT = "text-align:left;white-space:pre-wrap"


class ShownAsText:
    """A notebook shows its text, as `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{str(self).translate(_ESCAPES)}</pre>"


class Listing(ShownAsText, str):
    """The text of a kernel at one stage, such as its IR or PTX."""

    __slots__ = ()


def table(title: str, rows: Mapping[str, str]) -> str:
    """Return a table of facts below a title; a fact without text is left out."""
    given = [(name.translate(_ESCAPES), text.translate(_ESCAPES)) for name, text in rows.items() if text]
    lines = "".join(f'<tr><th>{name}</th><td style="{_TEXT}">{text}</td></tr>' for name, text in given)
    return f'<table><caption style="{_TEXT}">{title.translate(_ESCAPES)}</caption>{lines}</table>'
