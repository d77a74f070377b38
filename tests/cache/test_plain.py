"""Descriptions of kernels survive the way to a file and back, exactly; nothing else is ever made from a file."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.artifact import Artifact, RecordSite
from stagekit.cache import NotPlain, from_bytes, from_plain, to_bytes, to_plain
from stagekit.diagnostics import Loc
from stagekit.dtypes import ALL_DTYPES
from stagekit.hostexpr import KINDS, HostOp, Slot
from stagekit.signature import ArraySpec, LaunchSpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, Signature

dtypes = st.sampled_from(ALL_DTYPES)
names = st.text(min_size=1, max_size=8)
expressions = st.recursive(
    st.integers() | st.builds(Slot, st.integers(0, 99)),
    lambda inner: st.builds(HostOp, st.sampled_from(sorted(KINDS)), st.tuples(inner, inner)),
    max_leaves=8,
)
sizes = st.none() | st.integers() | expressions
shapes = st.lists(sizes, max_size=3).map(tuple)
specs = (
    st.builds(ArraySpec, names, dtypes, shapes, st.booleans(), st.booleans(), st.integers(1, 64), st.none() | shapes)
    | st.builds(PointerSpec, names, dtypes, st.booleans(), st.integers(1, 64))
    | st.builds(ScalarSpec, names, dtypes)
    | st.builds(NoneSpec, names)
)
slots = st.builds(ParamSlot, st.sampled_from(["address", "size", "stride", "value"]), st.integers(0, 9), dtypes)
defaults = st.just(...) | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
signatures = st.builds(
    Signature,
    st.lists(specs, max_size=4).map(tuple),
    st.lists(slots, max_size=4).map(tuple),
    st.lists(defaults, max_size=4).map(tuple),
)
triples = st.tuples(expressions, expressions, expressions)
launches = st.none() | st.builds(LaunchSpec, triples, triples, expressions)
places = st.builds(Loc, names, *[st.integers(0, 99)] * 4, names, st.none(), st.lists(names, max_size=2).map(tuple))
sites = st.builds(
    RecordSite, st.sampled_from(["print", "assert"]), st.text(), st.lists(dtypes, max_size=3).map(tuple), places
)
artifacts = st.builds(
    Artifact,
    target=st.sampled_from(["cpu", "cuda"]),
    kernel_name=names,
    entry=names,
    code=st.binary(max_size=99),
    signature=signatures,
    style=st.sampled_from(["block", "thread", "entry"]),
    launch=launches,
    block=st.none() | st.tuples(*[st.integers(1, 1024)] * 3),
    shared_bytes=st.integers(0, 2**40),
    record_sites=st.lists(sites, max_size=2).map(tuple),
    constexprs=st.lists(st.tuples(names, names), max_size=2).map(tuple),
    stages=st.dictionaries(names.filter("code".__ne__), st.text(max_size=50), max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(artifact=artifacts)
def test_an_artifact_survives_the_way_to_bytes_and_back(artifact: Artifact) -> None:
    read, notes = from_bytes(to_bytes(artifact, {"library": "x"}))

    assert artifact == read
    assert {"library": "x"} == notes
    assert repr(vars(artifact)) == repr(vars(read)), "types are exact: True is not 1, -0.0 is not 0.0"


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, 2**80, True])
def test_numbers_are_exact(value: Any) -> None:
    read = from_plain(json.loads(json.dumps(to_plain(value))))

    assert repr(value) == repr(read)


@pytest.mark.parametrize("value", [np.float32(1), object(), [1], {1: 2}, b"x"])
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(NotPlain):
        to_plain(value)


@pytest.mark.parametrize(
    "plain",
    [{"os.system": ["x"]}, {"Slot": []}, {"Slot": 3}, {"DType": "float3"}, {"Slot": [1], "DType": "int8"}, {}],
)
def test_a_text_that_names_anything_else_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError):
        from_plain(plain)


@settings(max_examples=100, deadline=None)
@given(payload=st.binary(max_size=50) | st.from_regex(rb"\{.*\}\n.*", fullmatch=True))
def test_bytes_that_are_no_artifact_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        from_bytes(payload)
