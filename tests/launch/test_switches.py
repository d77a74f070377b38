"""Environment variables: what a switch does not take is refused by name, whoever would have read it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import config

NO_SIZES = ("big", "-1", "nan", "inf", "1e308", "1e3", "10000001", "0x10", "1_000", "٥", ".", "9" * 5000)  # R24
BAD = [
    (
        "STAGEKIT_DUMP",
        "nosuch",
        "trace, prefetch, records, expand, join, scalarize, legalize, fold, cse, dce, sink, llvm, ptx",
    ),
    ("STAGEKIT_DUMP", "trace,nosuch", "all, or some of"),
    ("STAGEKIT_DUMP", "All", "all, or some of"),
    ("STAGEKIT_VERIFY", "foo", "one of: end, each"),
    ("STAGEKIT_VERIFY", "1", "one of: end, each"),
    ("STAGEKIT_TARGET", "gpu", "one of: cpu, cuda, interp"),
    ("STAGEKIT_TARGET", "CPU", "one of: cpu, cuda, interp"),
    ("STAGEKIT_THREADS", "many", "a positive integer"),
    ("STAGEKIT_THREADS", "0", "a positive integer"),
    ("STAGEKIT_THREADS", "²", "a positive integer"),
    ("STAGEKIT_CACHE", "off", "a folder, or 0 for no disk cache"),
    ("STAGEKIT_CACHE", "False", "a folder, or 0 for no disk cache"),
    *(("STAGEKIT_CACHE_MB", value, "a number of megabytes from 0 to") for value in NO_SIZES),
    *(("STAGEKIT_THREADS", value, "a positive integer up to") for value in ("-1", "2.5", "1e3", "4097", "9" * 5000)),
]
GOOD = [
    ("STAGEKIT_DUMP", " trace , ptx,"),
    ("STAGEKIT_VERIFY", "each"),
    ("STAGEKIT_TARGET", "interp"),
    ("STAGEKIT_THREADS", "3"),
    *(("STAGEKIT_CACHE_MB", value) for value in ("0", "0.5", ".5", "512.", "10000000")),
    *((switch.name, "") for switch in config.SWITCHES),
]


def new_kernel() -> Any:
    @sk.jit
    def kernel(out):
        out[0] = 1

    return kernel


@pytest.mark.parametrize(("name", "value", "wanted"), BAD)
def test_what_a_switch_does_not_take_is_refused(
    name: str, value: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    out = np.zeros(1, np.float32)
    typed = new_kernel().specialize(out=sk.Tensor((None,), sk.float32))
    for use in (lambda: new_kernel()[1, 1](out), lambda: typed.ir, lambda: typed.compile("cpu", block=1)):
        with pytest.raises(sk.StagekitError, match="BAD_SWITCH") as caught:
            use()
        assert f"{name}={value!r}" in str(caught.value)
        assert wanted in str(caught.value)
    assert not out.any()


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_a_switch_takes_is_taken(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    config.check_switches()


def test_the_trace_is_a_stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STAGEKIT_DUMP", "trace")
    new_kernel()[1, 1](np.zeros(1, np.float32))
    text = capsys.readouterr().err
    assert text.startswith("// ---- trace ----")
    assert text.count("----\n") == 1
    assert "store" in text


def test_a_variable_that_is_no_switch_gives_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_SANITISE", "1")
    monkeypatch.setattr(config, "_told", set())
    with pytest.warns(UserWarning, match=r"STAGEKIT_SANITISE is no switch .* did you mean STAGEKIT_SANITIZE\?") as told:
        new_kernel()[1, 1](np.zeros(1, np.float32))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new_kernel()[1, 1](np.zeros(1, np.float32))


def test_the_command_line_tells_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("STAGEKIT_CACHE_MB", "big")
    done = subprocess.run([sys.executable, "-m", "stagekit", "cache", "list"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "STAGEKIT_CACHE_MB='big'" in done.stderr
    assert "Traceback" not in done.stderr
