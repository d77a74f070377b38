"""`python -m stagekit`: what the commands print, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

import stagekit as sk
from stagekit.__main__ import main
from stagekit.commands.kernels import value_of

KERNELS = """
import stagekit as sk

@sk.jit
def scale(x, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(x + i, sk.load(x + i, mask=i < n) * 2, mask=i < n)

def make(width, dtype=sk.float32):
    if width < 0:
        raise ValueError("a negative width")
    @sk.jit
    def kernel(x: sk.Pointer(dtype)):
        sk.store(x + sk.arange(0, width), 1)
    return kernel

def no_kernel():
    return 3
"""
TYPED = ["BLOCK=64", "x=float32[?]", "n=int32"]


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    return str(tmp_path / "some_kernels.py")


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["compile", "FILE:scale", *TYPED], "scale(x: Tensor((?,), float32), n: int32) with BLOCK=64 for cuda"),
        (["compile", "FILE:scale", *TYPED, "--target", "cpu"], "for cpu"),
        (["compile", "FILE:scale", *TYPED, "--show", "ptx", "--capability", "80"], ".target sm_80"),
        (["compile", "FILE:make", "width=64", "dtype=int8", "--show", "ir"], "i8"),
        (["report", "FILE:make", "width=64"], "registers per thread"),
        (["view", "FILE:make", "width=64", "--out", "FILE.html"], "some_kernels.py.html"),
        (["explain", "FILE:make", "width=32"], "compiled for cuda: first use"),
        (["bench", "FILE:no_kernel", "--seconds", "0.001", "--bytes", "8"], "B/s on cpu"),
        (["doctor"], "runs         cpu"),
    ],
)
def test_a_command_prints_what_was_asked_for(
    command: list[str], printed: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([word.replace("FILE", place) for word in command])
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "command", "told"),
    [
        (2, ["compile", "FILE"], "no FILE.py:NAME"),
        (2, ["compile", "FILE:nothing"], "it has sk, scale, make, no_kernel"),
        (2, ["compile", "absent.py:scale"], "there is no file absent.py"),
        (2, ["compile", "absent_module:scale"], "ModuleNotFoundError"),
        (2, ["report", "FILE:scale", "BLOCK"], "`BLOCK` is no NAME=VALUE"),
        (2, ["report", "FILE:no_kernel"], "gave int, not a kernel"),
        (2, ["report", "FILE:make", "width=-1"], "ValueError: a negative width"),
        (2, ["report", "FILE:sk.__version__"], "no kernel, and no factory"),
        (2, ["compile", "FILE:make", "width=32", "--target", "cpu", "--show", "ptx"], "no stage ptx"),
        (2, ["compile", "FILE:make", "width=32", "--target", "cpu", "--show", "sass"], "no stage sass"),
        (2, ["compile", "FILE:make", "width=32", "width=64"], "`width` is given twice"),
        (2, ["compile", "FILE:scale", "x=float32[?,1?]"], "`1?` in `float32[?,1?]` is no size"),
        (2, ["view", "FILE:make", "width=32", "--out", "FILE/absent.html"], "the page cannot be written"),
        (1, ["report", "FILE:scale"], "error[MISSING_CONSTEXPR]"),
        (1, ["report", "FILE:scale", "BLOK=3"], "did you mean `BLOCK`"),
        (1, ["compile", "FILE:scale", "BLOCK=64"], "error[TYPES_UNKNOWN]"),
        (1, ["compile", "FILE:scale", *TYPED, "--capability", "9"], "error[BAD_OPTION]"),
    ],
)
def test_a_mistake_is_told_in_words(
    status: int, command: list[str], told: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status == main([word.replace("FILE", place) for word in command])
    text = capsys.readouterr().err
    assert told in text
    assert "Traceback" not in text


def test_values_are_types_literals_or_texts() -> None:
    assert (64, 0.5, None, (1, 2), "sum") == tuple(map(value_of, ("64", "0.5", "None", "(1, 2)", "sum")))
    assert value_of("{[]: 1}") == "{[]: 1}"
    assert sk.bfloat16 is value_of("bfloat16")
    assert sk.Tensor((None, 16), sk.float32) == value_of("float32[?,16]")
    assert sk.Pointer(sk.int8) == value_of("int8*")
