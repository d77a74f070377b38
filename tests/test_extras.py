"""What is an extra may be absent: whoever asks for it is told which package brings it, and everything else works."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import extras, ranges
from stagekit.backends import libdevice, ptxas
from stagekit.tuning import Measurement, roofline

NEVER_ASKED_FOR = {"cupy", "docs", "test"}  # arrays that a user has, and what the repository needs


@sk.jit
def add_one(x, BLOCK: sk.constexpr = 32):
    sk.store(x + sk.arange(0, BLOCK), sk.load(x + sk.arange(0, BLOCK)) + 1)


@sk.jit
def gamma(x: sk.Pointer(sk.float64), plus: sk.constexpr):
    sk.store(x, sk.lgamma(sk.load(x)) + plus)


def tuner() -> Any:
    return sk.autotune(add_one, {"BLOCK": (32,)}).tune


def made_with_ranges() -> None:
    ranges._domain.cache_clear()
    sk.jit(lambda x: sk.store(x, 1))


def module(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(name)


X = np.zeros(32, np.float32)
ASKED: list[tuple[str, str, Callable[[], Any], str]] = [
    ("bench", "matplotlib.figure", lambda: roofline({"k": Measurement((1e-6,), "cpu", 1.0, 1.0)}, bandwidth=1, operation_rate=1),
     "a roofline needs `matplotlib`"),
    ("bench", "matplotlib.figure", lambda: tuner().using(rounds=1)[1](X).plot("search.svg"), "needs `matplotlib`"),
    ("jax", "jax", module("stagekit.jax"), "`stagekit.jax` needs `jax`"),
    ("jax", "tvm_ffi", module("stagekit.jax"), "`stagekit.jax` needs `"),  # or `jax`, which is missing here too
    ("jax", "jax_tvm_ffi", module("stagekit.jax"), "`stagekit.jax` needs `"),
    ("nvtx", "nvtx", made_with_ranges, "STAGEKIT_NVTX=1 needs `nvtx`"),
    ("torch", "torch", module("stagekit.torch"), "`stagekit.torch` needs `torch`"),
    ("tune", "optuna", lambda: tuner().using(method="optuna")[1](X), '`method="optuna"` needs `optuna`'),
    ("tune", "tqdm", lambda: tuner().using(progress=True), "a progress bar needs `tqdm`"),
]  # fmt: skip


@pytest.mark.parametrize(("extra", "library", "ask", "words"), ASKED, ids=[f"{each[0]}-{each[1]}" for each in ASKED])
def test_a_missing_library_is_named_with_its_extra(
    extra: str, library: str, ask: Callable[[], Any], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (f"stagekit.{extra}", library):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv("STAGEKIT_NVTX", "1" if extra == "nvtx" else "0")

    with pytest.raises(ImportError) as error:
        ask()

    assert "EXTRA_MISSING" in str(error.value)
    assert words in str(error.value)
    assert re.search(rf"= help: pip install .*{extras.EXTRAS[extra][library.partition('.')[0]]}", str(error.value))
    assert f"which the extra `{extra}` brings" in str(error.value)


@pytest.mark.parametrize("extra", ["jax", "torch"])
def test_a_library_that_is_too_old_is_told_with_a_command_that_brings_a_newer(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the number pip would say that what is there is enough; without quotes a shell would write to a file."""
    for library in extras.EXTRAS[extra]:
        monkeypatch.setitem(sys.modules, library, ModuleType(library))
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.1.1+cpu")

    with pytest.raises(ImportError) as error:
        extras.require_all("it", extra)

    name, least = extras.EXTRAS[extra][extra].split(">=")
    assert f"it needs `{extra}`: version 0.1.1+cpu of `{name}` is installed, and {least} or later" in str(error.value)
    assert f"pip install '{name}>={least}'" in str(error.value)


def test_a_folder_that_is_named_as_a_library_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvtx").mkdir()
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(ImportError, match=f"`nvtx`: all that is there is a folder of that name, {tmp_path}"):
        extras.require_extra("it", "nvtx", "nvtx")
    monkeypatch.delitem(sys.modules, "nvtx")


def test_a_library_without_metadata_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(sys, "path", [])

    extras.require_all("it", "torch")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda: add_one.specialize(x=sk.Pointer(sk.float32)).report(),
            "TOOL_MISSING.*\n.*`ptxas`.*\n.*nvidia-cuda-nvcc",
        ),
        (lambda: ptxas.disassemble(b""), "TOOL_MISSING.*\n.*`nvdisasm`.*\n.*nvidia-cuda-nvdisasm"),
        (lambda: gamma.specialize(plus=2).ptx, "LIBDEVICE_MISSING(.*\n)*.*nvidia-nvvm"),
    ],
)
def test_a_missing_tool_of_the_extra_cuda_is_named_with_its_package(
    ask: Callable[[], Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    monkeypatch.setattr(ptxas, "find_tool", lambda name: None)
    if "LIBDEVICE" in words:
        monkeypatch.setattr(libdevice, "library_path", lambda: None)
    with pytest.raises(sk.StagekitError, match=words):
        ask()


def test_every_extra_that_is_asked_for_is_in_the_table() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    told = project["optional-dependencies"]
    assert {extra for extra, *_ in ASKED} | {"cuda"} | NEVER_ASKED_FOR == {*told}
    assert {extra: sorted(packages.values()) for extra, packages in extras.EXTRAS.items()} == {
        extra: sorted(told[extra]) for extra in extras.EXTRAS
    }
