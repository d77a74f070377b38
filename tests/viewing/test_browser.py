"""The page of `kernel.view()` in a real browser: the line under the pointer is marked in every pane, and a click shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.viewing.browser import CHROMIUM, Browser
from tests.viewing.test_pages import norm

if CHROMIUM is None:
    pytest.skip("there is no Chromium (Debian's package `chromium`)", allow_module_level=True)

MARKED = """
[...document.querySelectorAll("section")].map(pane => {
  const all = [...pane.querySelectorAll("div")].filter(e => getComputedStyle(e).backgroundColor === "rgb(255, 229, 138)");
  const seen = all.filter(line => {
    const box = line.getBoundingClientRect(), around = pane.getBoundingClientRect();
    return box.top >= around.top && box.bottom <= around.bottom;
  });
  return [pane.getAttribute("aria-label"), all.map(line => line.textContent.trim()), seen.length > 0];
})
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("page") / "norm.html"
    with Browser(norm.specialize(BLOCK=256).view(path)) as opened:
        yield opened


def marked(page: Browser) -> tuple[dict[str, list[str]], dict[str, bool]]:
    """The marked lines of each pane, and whether one of them is in view."""
    found = page.value(MARKED)
    return {pane: lines for pane, lines, _ in found}, {pane: is_seen for pane, _, is_seen in found}


def source_line(page: Browser, text: str) -> str:
    """The selector of the line of the source that ends so."""
    number = page.value(
        f'[...document.querySelectorAll("section div[data-p]")].find(e => e.textContent.endsWith("{text}")).dataset.p'
    )
    return f'section[aria-label="Source"] [data-p="{number}"]'


def test_the_line_under_the_pointer_is_marked_with_its_counterparts(page: Browser) -> None:
    assert not any(marked(page)[0].values())

    page.hover(source_line(page, "return v * v"), click=True)
    lines, is_seen = marked(page)

    for pane, product in {"IR": "binary.mul", "LLVM IR": "fmul", "PTX": "mul.rn.f32", "SASS": "FMUL"}.items():
        assert lines[pane], pane
        assert all(product in line for line in lines[pane]), pane
    assert [line.lstrip("0123456789").strip() for line in lines["Source"]] == ["return v * v"]
    assert all(is_seen.values())


def test_a_line_of_an_unrolled_loop_has_counterparts_of_every_iteration(page: Browser) -> None:
    page.hover(source_line(page, "v = v * total + k"))
    lines, _ = marked(page)

    assert sum("binary.mul" in line for line in lines["IR"]) == 2
    page.hover('section[aria-label="IR"] .mark')  # from another pane it marks the same
    assert marked(page)[0] == lines
    page.hover("h1")
    assert marked(page)[0] == lines  # until the pointer is on another line


def test_the_page_has_what_stands_on_top_and_keeps_within_the_window(page: Browser) -> None:
    top = page.value('document.querySelector("dl").innerText')

    assert all(word in top for word in ("BLOCK=256", "registers per thread", "spills", "barriers"))
    assert page.value("document.documentElement.scrollWidth <= window.innerWidth")
    lefts = page.value('[...document.querySelectorAll("dt, dd")].map(e => e.getBoundingClientRect().left)')
    assert min(lefts) >= page.value('document.querySelector("h1").getBoundingClientRect().left')
