"""Cases about staging, in other places and other spellings than where they were first seen."""

from __future__ import annotations

import importlib
import textwrap
import typing

import numpy as np
import pytest

import stagekit as sk


def _out(count=4, dtype=np.int64):
    return np.full(count, -7, dtype)


def _refusal(kernel, *args, **kwargs):
    with pytest.raises(sk.StagekitError) as error:
        kernel[1, 1](*args, **kwargs)
    return error.value


@sk.jit
def _with_constexprs(out, n, SIZE: sk.constexpr, STEP: sk.constexpr = 2):
    out[0] = n * SIZE * STEP


@pytest.mark.parametrize(
    ("args", "named", "id_", "parts"),
    [
        ((1, 2, 3, 4), {}, "TOO_MANY_ARGUMENTS", ("takes 4 by position, 5 were given",)),
        ((1, 2), {"SIZE": 3}, "DUPLICATE_ARGUMENT", ("`SIZE`",)),
        ((1, 2, 3), {"STEP": 3}, "DUPLICATE_ARGUMENT", ("`STEP`",)),
        ((1, 2), {"n": 3}, "DUPLICATE_ARGUMENT", ("`n`",)),
        ((1, 2), {"STEPP": 3}, "UNKNOWN_ARGUMENT", ("did you mean `STEP`?",)),
    ],
)
def test_what_does_not_bind_shows_the_whole_signature(args, named, id_, parts):  # Y6, P25
    error = _refusal(_with_constexprs, _out(), *args, **named)
    assert error.id == id_
    for part in (*parts, "_with_constexprs(out, n, SIZE: constexpr, STEP: constexpr = 2)"):
        assert part in str(error)


BAD_CALLS = ["fragment(1, b=2, **{'b': 3})", "fragment(1, **None)", "fragment(1, **[2])", "fragment(1, **{2: 3})"]


@pytest.mark.parametrize("call", BAD_CALLS)
def test_keywords_of_a_call_are_given_once_and_are_strings(tmp_path, monkeypatch, call):  # P25
    text = f"""
        import stagekit as sk
        def fragment(a, b=0):
            return a + b
        @sk.jit
        def kernel(out):
            out[0] = {call}
    """
    error = _refusal(_module(tmp_path, monkeypatch, f"calls_{BAD_CALLS.index(call)}", text).kernel, _out())
    assert error.id == "BAD_CALL"
    assert call in str(error)


def _module(tmp_path, monkeypatch, name, text):
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name)


ANNOTATIONS = [
    "sk.constexpr[typing.Any]",
    "Annotated['sk.constexpr', 'documentation']",
    "Annotated['sk.constexpr[int]', 1]",
    "'Annotated[int, sk.constexpr]'",
]


@pytest.mark.parametrize("future", [True, False])
@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_the_marker_counts_in_any_spelling(tmp_path, monkeypatch, future, annotation):  # P24, Q10
    text = f"""
        import typing
        from typing import Annotated
        import stagekit as sk
        @sk.jit
        def kernel(out, n: {annotation}):
            out[0] = (10, 20, 30)[n]
    """
    head = "from __future__ import annotations\n" if future else ""
    name = f"marked_{future}_{ANNOTATIONS.index(annotation)}"
    kernel = _module(tmp_path, monkeypatch, name, head + textwrap.dedent(text)).kernel
    out = _out()
    kernel[1, 1](out, 2)
    assert out[0] == 30


def test_a_type_that_answers_no_isinstance_is_refused():  # P24
    class Shape(typing.Protocol):
        size: int

    @sk.jit
    def kernel(out, n: sk.constexpr[Shape]):
        out[0] = n

    assert _refusal(kernel, _out(), 2).id == "BAD_ANNOTATION"


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), sk.float32])
def test_a_dtype_may_be_named(run, dtype):  # T8
    @sk.jit
    def kernel(A: sk.Tensor((4,), dtype), B: sk.Pointer(dtype)):
        A[0] = sk.load(B + 1)

    A = np.zeros(4, np.float32)
    run(kernel, A, np.array([1, 2], np.float32))
    assert A[0] == 2


@pytest.mark.parametrize("name", ["float17", "int33", "flaot32"])
def test_what_is_no_dtype_is_refused_wherever_it_is_given(name):  # T8
    @sk.jit
    def kernel(A):
        A[0] = 1

    with pytest.raises(sk.SpecializeError, match="is not a dtype; did you mean `"):
        _ = kernel.specialize(A=sk.Tensor((4,), name)).ir


def test_a_loop_that_changes_a_type_quotes_the_loop_and_the_assignment():  # P8
    @sk.jit
    def kernel(out, n: sk.int32):
        for j in range(3):
            out[j] = n
            n = n + j * 0.5
        out[3] = n

    error = _refusal(kernel, _out(), 2)
    assert error.id == "LOOP_TYPE_CHANGE"
    assert error.notes[0].loc.line == error.loc.line + 2
    for part in ("`n`", "int32", "float64", "n = sk.float64(n)"):
        assert part in str(error)


def test_functions_that_differ_are_named_and_no_dtype_is_proposed():  # P8
    @sk.jit
    def kernel(out, n):
        def first(a):
            return a

        def second(a):
            return a + 1

        chosen = first
        if n > 0:
            chosen = second
        out[0] = chosen(n)

    text = str(_refusal(kernel, _out(), 2))
    for part in ("the function `first`", "the function `second`", "compile-time condition"):
        assert part in text
    assert "float32" not in text


def test_dicts_that_differ_show_their_keys():  # Q5
    @sk.jit
    def kernel(out, n):
        d = {"a": 1, "b": 2}
        if n > 0:
            d = {"b": 1, "a": 2}
        out[0] = d["a"]

    text = str(_refusal(kernel, _out(), 2))
    assert "['b', 'a']" in text
    assert "['a', 'b']" in text


def test_a_file_that_is_no_longer_python_is_a_refusal(tmp_path, monkeypatch):  # Q11
    text = """
        import stagekit as sk
        def helper(a):
            return a + 1
        @sk.jit
        def kernel(out):
            out[0] = helper(out[0])
    """
    kernel = _module(tmp_path, monkeypatch, "broken_later", text).kernel
    (tmp_path / "broken_later.py").write_text("text (that is no Python\n" * 8)
    assert _refusal(kernel, _out()).id in ("SOURCE_UNAVAILABLE", "SOURCE_STALE")


def _twice_itself(v, depth):
    return v if depth == 0 else _twice_itself(v, depth - 1) + _twice_itself(v, depth - 1)


@pytest.mark.parametrize("start", ["run time", "compile time"])
def test_a_recursion_that_branches_has_a_budget(start):  # P28, Q30
    @sk.jit(unroll_budget=500)
    def kernel(out):
        out[0] = _twice_itself(out[1] if start == "run time" else 1, 60)

    error = _refusal(kernel, _out())
    assert error.id == "RECURSION_BUDGET"
    assert "_twice_itself" in str(error)


@pytest.mark.parametrize("count", [300, 700])
def test_a_long_chain_of_elif_works_everywhere(tmp_path, monkeypatch, run, count):  # T12
    arms = "".join(f"    elif n == {k}:\n        out[0] = {2 * k}\n" for k in range(1, count))
    text = f"import stagekit as sk\n@sk.jit\ndef kernel(out, n):\n    if n == 0:\n        out[0] = 0\n{arms}"
    kernel = _module(tmp_path, monkeypatch, f"chain_{count}", text).kernel
    for n in (1, count - 1):
        out = _out()
        run(kernel, out, n)
        assert out[0] == 2 * n
    assert "st.global" in kernel.specialize(out=sk.Tensor((None,), sk.int64), n=sk.int32).ptx
