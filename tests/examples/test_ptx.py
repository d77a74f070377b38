"""The PTX of every kernel of every example, assembled by the real ptxas for three GPUs: no spills, no local memory."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest

from stagekit.backends import nvptx, ptxas
from stagekit.ir import ops, walk
from stagekit.jit import compilation
from stagekit.jit.variant import Variant

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("[!_]*.py"))
GPUS = (75, 90, 120)  # every op and intrinsic is assembled for those between, too


def kernels_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Variant]:
    """Every variant that the example makes, by running it."""
    made: list[Variant] = []
    original = Variant.__init__

    def remember(self: Variant, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Variant, "__init__", remember)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", [name])  # not the arguments of pytest
    monkeypatch.setenv("STAGEKIT_TARGET", "")
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    return made


def least_capability(variant: Variant) -> int:
    """From which compute capability on, times ten, a GPU has what a kernel asks for."""
    asked = [op.spec for op in walk(variant.traced.function.body) if isinstance(op, ops.IntrinsicOp)]
    return max([spec.min_capability for spec in asked if spec.older is None], default=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_ptxas_accepts_every_kernel_and_spills_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("torch", "jax"):
        if name.startswith(f"{library}_"):
            pytest.importorskip(library)
    found = kernels_of(name, tmp_path, monkeypatch)

    assert found
    for variant in found:
        for capability in (each for each in GPUS if each >= least_capability(variant)):
            fn = compilation.lower_for(variant.traced, "cuda", capability)
            code = nvptx.compile(fn, capability)
            resources = ptxas.assemble(code.ptx).resources
            # ptxas itself takes 8 bytes for each kernel with a TMA load, from compute capability 12.0 on
            stack = resources.stack_bytes if capability < 120 or not variant.traced.signature.maps else 0
            spilled = (resources.spill_store_bytes, resources.spill_load_bytes, stack)
            assert spilled == (0, 0, 0), f"{fn.name} for {capability}: {resources}"


def test_ptxas_accepts_the_gallery_and_spills_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one GPU. A stack is what the ray caster asks for."""
    found = kernels_of("gallery/__main__.py", tmp_path, monkeypatch)

    assert found
    for variant in found:
        resources = ptxas.assemble(nvptx.compile(compilation.lower_for(variant.traced, "cuda", 90), 90).ptx).resources
        assert (resources.spill_store_bytes, resources.spill_load_bytes) == (0, 0), f"{variant.traced}: {resources}"
        assert not resources.stack_bytes or variant.traced.function.name == "cast"
