"""What other systems call a thing leads to what it is called here."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend import familiar


def refusal(function):
    with pytest.raises(sk.StagekitError) as caught:
        sk.jit(function)[1, 1](np.zeros(8, np.float32))
    return str(caught.value)


@pytest.mark.parametrize("hint", familiar._ELSEWHERE.values(), ids=list(familiar._ELSEWHERE))
def test_every_name_that_is_led_to_exists(hint):
    for path in re.findall(r"\bsk\.([\w.]+)", hint):
        found = sk
        for name in path.split("."):
            found = getattr(found, name)


@pytest.mark.parametrize("name", familiar._ELSEWHERE)
def test_names_of_other_systems_are_not_names_here(name):
    """A hint for a name that exists could never be shown."""
    assert not hasattr(sk, name) or not hasattr(sk.cuda, name)


def test_the_namespace_of_a_function_is_told():
    def kernel(x):
        x[sk.thread_idx("x")] = 1

    assert "here it is `sk.cuda.thread_idx`" in refusal(kernel)


def test_a_function_used_as_an_object_is_told_to_be_one():
    def kernel(x):
        x[sk.cuda.thread_idx.x] = 1

    assert "it is a function, to be called: `thread_idx(axis='x')`" in refusal(kernel)


def test_a_slice_on_the_left_is_refused_as_a_slice():
    def kernel(x):
        x[2:] = 1

    assert "a slice of `x` names many elements" in refusal(kernel)


NAMESAKES = {"sort": np.sort, "sinc": np.sinc, "cumsum": np.cumsum, "nan_to_num": np.nan_to_num}


@pytest.mark.parametrize("name", NAMESAKES)
def test_a_function_without_counterpart_is_not_led_to_a_name_that_looks_alike(name):
    def kernel(x):
        x[0] = NAMESAKES[name](x[0])

    assert "help: it runs at compile time only\n" in refusal(kernel)


@pytest.mark.parametrize("name", ["sort", "argsort", "softmax"])
def test_a_name_that_only_looks_alike_is_not_suggested(name):
    def kernel(x):
        x[0] = getattr(sk, name)(x[0])

    assert "did you mean" not in refusal(kernel)


@pytest.mark.parametrize(("written", "meant"), [("expp", "exp"), ("where_", "where"), ("arrange", "arange")])
def test_a_name_that_is_misspelt_is_told(written, meant):
    def kernel(x):
        x[0] = getattr(sk, written)(x[0])

    assert f"did you mean `{meant}`?" in refusal(kernel)


def test_a_function_of_another_library_leads_to_its_counterpart():
    def kernel(x):
        x[0] = np.max(x[0])

    assert "it runs at compile time only; here it is `sk.maximum(a, b)`" in refusal(kernel)
