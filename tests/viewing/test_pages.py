"""`kernel.view()`: which lines of each stage come from a line of the source, and the page that shows them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.backends.errors import ToolMissing
from stagekit.diagnostics import StagekitError
from stagekit.viewing import places


@sk.inline
def square(v):
    return v * v


@sk.jit
def norm(x: sk.Pointer(sk.float32), out: sk.Pointer(sk.float32), n: sk.int32, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    v = sk.load(x + i, mask=i < n, other=0.0)
    total = sk.reduce_sum(square(v))
    for k in sk.static_range(2):
        v = v * total + k
    sk.store(out + i, v, mask=i < n)


class Panes(HTMLParser):
    """Reads the page: the lines of each pane, as (places, text)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.panes: dict[str, list[tuple[list[str], str]]] = {}
        self.asked: list[str] = []  # of other files
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.asked += [given[key] for key in ("src", "href") if key in given]
        if tag == "section":
            self.lines = self.panes[given["aria-label"]] = []
        elif tag == "div" and self.panes:
            self.lines.append(([*(given.get("data-p") or "").split()], ""))

    def handle_data(self, data):
        if self.panes and self.lines:
            found, text = self.lines[-1]
            self.lines[-1] = found, text + data


def test_each_stage_knows_the_line_of_a_fragment_and_of_its_call(tmp_path):
    path = norm.specialize(BLOCK=256).view(tmp_path / "norm.html")
    text = path.read_text(encoding="utf-8")
    page = Panes(text)
    by_text = {line.lstrip("0123456789").strip(): found for found, line in page.panes["Source"] if found}
    (of_square,) = by_text["return v * v"]
    (of_call,) = by_text["total = sk.reduce_sum(square(v))"]

    assert [*page.panes] == ["Source", "IR", "LLVM IR", "PTX", "SASS"]
    for stage, product in {"IR": "binary.mul", "LLVM IR": "fmul", "PTX": "mul.rn.f32", "SASS": "FMUL"}.items():
        inlined = [line for found, line in page.panes[stage] if found[:1] == [of_square]]
        assert inlined, stage
        assert all(product in line for line in inlined), stage
        assert any(of_call == found[0] for found, _ in page.panes[stage] if found), stage
    for stage in ("IR", "LLVM IR"):  # the driver's PTX names the fragment alone
        assert any(found[:2] == [of_square, of_call] for found, _ in page.panes[stage])
    assert [] == page.asked
    assert "BLOCK=256" in text
    assert "registers per thread" in text
    assert not re.search(r"\.loc\b|!dbg|## File", text)


def test_it_shows_a_kernel_of_the_shelf_and_one_that_computes_its_grid(tmp_path, monkeypatch):
    from stagekit import kernels

    monkeypatch.chdir(tmp_path)

    @sk.function
    def add(A: sk.Tensor((4,), sk.float32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        A[sk.cuda.thread_idx("x")] += 1

    assert add.view() == Path("add.html")
    assert "A[sk.cuda.thread_idx" in Path("add.html").read_text(encoding="utf-8")
    shelf = kernels.softmax_kernel(sk.float32, 64, True).view().read_text(encoding="utf-8")
    assert "sk.reduce_max(x)" in shelf


def test_a_place_that_cannot_be_written_is_told_at_the_call(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        norm.specialize(BLOCK=256).view(tmp_path / "absent" / "page.html")

    assert [Path(frame.path).name for frame in caught.traceback] == ["test_pages.py"]


def test_texts_are_escaped(tmp_path):
    @sk.jit
    def f(x: sk.Pointer(sk.float32), mark: sk.constexpr):
        sk.store(x, 1.0)  # </pre><script>alert(1)</script>

    text = f.specialize(mark="<b>&").view(tmp_path / "f.html").read_text(encoding="utf-8")

    assert "alert(1)&lt;/script&gt;" in text
    assert text.count("<script>") == 1
    assert "<b>" not in text


def test_without_ptxas_the_page_says_what_is_missing(tmp_path, monkeypatch):
    def missing(*_):
        raise StagekitError(ToolMissing("ptxas", "nvidia-cuda-nvcc"))

    monkeypatch.setattr(ptxas, "assemble", missing)
    page = Panes(norm.specialize(BLOCK=32).view(tmp_path / "f.html").read_text(encoding="utf-8"))

    assert any("TOOL_MISSING" in line for _, line in page.panes["SASS"])
    assert page.panes["PTX"]


PTX = """
.file 1 "/a b/x.py"
.loc 1 7 3
add.s32 %r1, %r2, %r3;
.loc 1 2 1, function_name $L__info_string0, inlined_at 1 9 5
$L__tmp0:
mul.lo.s32 %r1, %r2, %r3;
.loc 1 0 5
ret;
"""
SASS = """.text.f:
    //## File "/x.py", line 2 inlined at "/x.py", line 9
    //## File "/x.py", line 9
        /*0000*/ FADD R0, R1, R2 ;
    //## File "/x.py", line 3
        /*0010*/ EXIT ;
        .section .debug_line
        /*0020*/ nothing
"""
LLVM = r"""
  %a = add i32 1, 2, !dbg !3
  ret void
!0 = !DIFile(filename: "x\22.py", directory: "/d")
!1 = distinct !DISubprogram(name: "f", file: !0, line: 1)
!2 = !DILocation(line: 9, column: 1, scope: !1)
!3 = !DILocation(line: 2, column: 5, scope: !1, inlinedAt: !2)
"""


@pytest.mark.parametrize(
    ("read", "text", "wanted"),
    [
        (places.of_ptx, PTX, {"add": [7], "mul": [2, 9], "ret": [], "$L__": []}),
        (places.of_sass, SASS, {"FADD": [2, 9], "EXIT": [3], ".text.f": []}),
        (places.of_llvm, LLVM, {"%a": [2, 9], "ret": []}),
    ],
)
def test_the_places_of_a_line_are_read_as_the_tools_write_them(read, text, wanted):
    lines = read(text)
    found = {start: [n for _, n in line.places] for line in lines for start in wanted if start in line.text}

    assert found == wanted
    assert not any("nothing" in line.text for line in lines)
    if read is places.of_llvm:
        assert lines[1].places[0] == ('/d/x".py', 2)
