"""Arguments find their parameters by Python's rules (cases P25, Y6)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.dtypes import int32
from stagekit.runtime.errors import ArgumentError
from stagekit.signature import ScalarSpec, Signature
from tests.runtime.handmade import binder

NAMES = "abcde"


def signature_with(*defaults: Any) -> Signature:
    specs = tuple(ScalarSpec(name, int32) for name in NAMES[: len(defaults)])
    return Signature(specs, (), defaults)


def python_signature(signature: Signature, keyword_only: int) -> inspect.Signature:
    """The same parameters as Python describes them."""
    first = len(signature.specs) - keyword_only
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[i >= first], default=inspect.Parameter.empty if d is ... else d)
            for i, (name, d) in enumerate(zip(signature.names, signature.defaults))
        ]
    )


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Signature, int]:
    """A signature, and how many of its last parameters are not given by position."""
    count = draw(st.integers(0, 5))
    keyword_only = draw(st.integers(0, count))
    required = draw(st.integers(0, count - keyword_only))
    positional = [... if i < required else 10 + i for i in range(count - keyword_only)]
    others = draw(st.lists(st.just(...) | st.integers(10, 20), min_size=keyword_only, max_size=keyword_only))
    return signature_with(*positional, *others), keyword_only


@given(
    signatures(), st.lists(st.integers(0, 9), max_size=6), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9))
)
@settings(max_examples=200, deadline=None)
def test_binding_accepts_what_python_accepts(
    given: tuple[Signature, int], args: list[int], kwargs: dict[str, int]
) -> None:
    bind = binder("k", *given)
    try:
        bound = python_signature(*given).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(ArgumentError):
            bind(tuple(args), kwargs)
        return
    bound.apply_defaults()
    assert list(bound.arguments.values()) == list(bind(tuple(args), kwargs))


KERNEL = binder("scale", signature_with(..., ..., 5), keyword_only=1)
SIGNATURE = r"the signature is scale\(a: int32, b: int32, \*, c: int32 = 5\)"


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1, 2, 3), {}, "`scale` takes 2 by position, 3 were given"),
        ((1,), {}, "`scale` needs `b`"),
        ((), {}, "`scale` needs `a`, `b`"),
        ((1, 2), {"a": 3}, "`a` of `scale` is given by position and by keyword"),
        ((1, 2), {"cc": 3}, "no parameter `cc`"),
        ((1, 2), {"cc": 3}, "did you mean `c`"),
        ((1, 2), {"zzz": 3}, "the parameters are `a`, `b`, `c`"),
    ],
)
def test_a_wrong_call_says_what_and_shows_the_signature(args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as caught:
        KERNEL(args, kwargs)

    caught.match(SIGNATURE)
    assert isinstance(caught.value, TypeError)
