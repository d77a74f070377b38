"""Each kernel of the gallery over sizes and blocks, against NumPy: on the CPU, on the GPU, and once under the sanitizer."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, fetch, on_cpu

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def module_of(name):
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = {name: module_of(name) for name in NAMES}


def agree(name, size, block, place):
    found, wanted, tolerance = MODULES[name].example(size, block, place)

    for each, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(fetch(each), right, rtol=0, atol=tolerance)


@each_place
@pytest.mark.parametrize(("size", "block"), [(1, 32), (777, 96), (2500, 256)])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_of_the_gallery_computes_what_numpy_does(place, name, size, block):
    agree(name, size, block, place)


@pytest.mark.parametrize("name", NAMES)
def test_the_sanitizer_finds_nothing_in_the_gallery(name):
    with sk.sanitize():
        agree(name, 150, 64, on_cpu)


def test_there_are_twelve_with_their_sources():
    assert len(NAMES) >= 12
    assert [] == [name for name in NAMES if "Source" not in MODULES[name].__doc__]
