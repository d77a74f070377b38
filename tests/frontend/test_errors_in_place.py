"""Errors say where: file, line and caret in the user's file, the chain of fragments, the iteration, the constexprs.

No frame of ours stands in a user's traceback.
"""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.agreement import refuse

PACKAGE = str(Path(sk.__file__).parent)


def failing(launch, *arguments, **named) -> sk.StagekitError:
    with pytest.raises(sk.StagekitError) as caught:
        launch(*arguments, **named)
    return caught.value


def line_of(function, text: str) -> int:
    """The line of the file on which a function says `text`."""
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


def inner(x):
    return x.missing  # the fault


@sk.inline
def middle(x):
    for k in ("a", "b", "c"):
        if k == "c":
            x = inner(x)  # the inner call
    return x


@sk.jit
def nested(out, x, BLOCK: sk.constexpr, causal: sk.constexpr = True):
    for step in sk.static_range(4):
        if step == 2:
            out[0] = middle(x)  # the outer call


def test_two_fragments_deep_in_an_unrolled_copy():  # P27
    error = failing(nested[1, 1], np.zeros(1, np.int32), 3, 128)
    text = str(error)

    assert error.id == "NO_ATTRIBUTE"
    assert error.loc.file == __file__
    assert error.loc.line == line_of(inner, "# the fault")
    chain = [here.line for here in error.loc.chain()]
    assert chain[1:] == [line_of(middle.__wrapped__, "# the inner call"), line_of(nested.function, "# the outer call")]
    assert "k = 'c'" in text
    assert "step = 2" in text
    assert "BLOCK=128, causal=True" in text
    assert "while specialising `nested`" in text


def test_the_caret_is_under_the_expression():
    lines = str(failing(nested[1, 1], np.zeros(1, np.int32), 3, 128)).splitlines()

    at = next(i for i, line in enumerate(lines) if "# the fault" in line)
    code, carets = lines[at], lines[at + 1]
    start = carets.index("^")
    assert code[start : start + carets.count("^")] == "x.missing"


def test_carets_count_characters_not_bytes():
    def program(x):
        größe, café = "äöü", x; return café.missing  # fmt: skip

    error = refuse(program, 1)
    line = inspect.getsource(program).splitlines()[1]
    assert line[error.loc.col - 0 : error.loc.end_col] == "café.missing"


def test_tabs_and_continuation_lines():
    def program(x):
        return (
            1 + x.missing  # here
        )

    assert refuse(program, 1).loc.line == line_of(program, "# here")


def test_no_frame_of_ours_in_a_users_traceback():  # P27
    @sk.jit
    def kernel(out, N: sk.constexpr):
        out[0] = undefined + N  # noqa: F821

    out = np.zeros(1, np.int32)
    attempts = [
        lambda: kernel[1, 1](out, 3),
        lambda: kernel.specialize(N=3, out=sk.Tensor((None,), sk.int32)).ir,
        lambda: kernel.specialize(M=3),
        lambda: kernel[1, 1](out),
        lambda: kernel[1, 1](out, 3, 4, 5),
        lambda: sk.compile(kernel.specialize(N=3), "gpu"),
        lambda: kernel(out, 3),
        lambda: sk.jit(3),
        lambda: sk.load(out),
        lambda: sk.function(kernel.function),
    ]
    for attempt in attempts:
        error = failing(attempt)
        frames = traceback.extract_tb(error.__traceback__)
        assert [f for f in frames if f.filename.startswith(PACKAGE)] == []
        assert error.__cause__ is None
        assert error.__suppress_context__


def test_every_error_is_raised_again_on_every_attempt():  # P20
    @sk.jit
    def bad(out):
        out[0] = out.missing

    @sk.jit
    def good(out):
        out[0] = 7

    out = np.zeros(1, np.int32)
    texts = {str(failing(bad[1, 1], out)) for _ in range(3)}
    good[1, 1](out)

    assert len(texts) == 1
    assert out[0] == 7


def test_an_error_in_one_specialisation_leaves_the_others_alone():  # P20
    @sk.jit
    def kernel(out, mode: sk.constexpr):
        out[0] = 1 if mode == "good" else out.missing

    out = np.zeros(1, np.int32)
    for _ in range(2):
        assert failing(kernel[1, 1], out, "bad").id == "NO_ATTRIBUTE"
        kernel[1, 1](out, "good")
        assert out[0] == 1


def test_a_python_error_while_specialising_becomes_one_at_its_line():
    class Trouble(Exception):
        pass

    def raising(n):
        raise Trouble(f"no {n}")

    raising.__module__ = "json"  # as if it came with Python: run, not interpreted

    def program(x):
        table = {"a": 1}
        return x + table["b"]  # the key

    def calling(x):
        return x + raising(3)  # the call

    error = refuse(program, 1)
    assert (error.id, error.loc.line) == ("STATIC_FAILURE", line_of(program, "# the key"))
    assert "KeyError" in str(error)
    error = refuse(calling, 1)
    assert (error.id, error.loc.line) == ("STATIC_FAILURE", line_of(calling, "# the call"))
    assert "Trouble" in str(error)


def test_poison_names_the_line_that_reads_and_the_lines_that_made_it():
    def program(x):
        if x > 2:  # the condition
            value = sk.float32(1)  # the first
        else:
            value = sk.int16(2)  # the second
        y = x + 1
        return value + y  # the use

    error = refuse(program, 1)

    assert error.loc.line == line_of(program, "# the use")
    places = [line_of(program, text) for text in ("# the condition", "# the first", "# the second")]
    assert [note.loc.line for note in error.notes] == places
    assert "float32" in str(error)
    assert "int16" in str(error)


def assigned_before(x):
    value = sk.int16(2)  # the second
    if x > 2:  # the condition
        value = sk.float32(0)
        value = value + 1  # the first
    return value  # the use


def assigned_in_a_loop(x):
    total = sk.int16(0)  # before
    for i in range(x):
        other = sk.float32(i)
        total = total + other  # after
    return total


def carried_tuple(x):
    pair = (x, sk.int16(1))  # before
    while x < 9:
        x += 1
        pair = (x, x * sk.float32(2))  # after
    return pair[1]


def an_attribute(x):
    pair = [sk.int16(1)]
    if x > 2:  # the condition
        pair[0] = sk.float32(2)  # the first
    return pair[0]  # the use


@pytest.mark.parametrize(
    ("program", "texts"),
    [
        (assigned_before, ("# the condition", "# the first", "# the second")),
        (assigned_in_a_loop, ("# before", "# after")),
        (carried_tuple, ("# before", "# after")),
        (an_attribute, ("# the condition", "# the first")),
    ],
)
def test_both_assignments_are_quoted_where_two_types_meet(program, texts):
    error = refuse(program, 3)

    assert error.id in ("JOIN_MISMATCH", "LOOP_TYPE_CHANGE")
    assert [note.loc.line for note in error.notes] == [line_of(program, text) for text in texts]


@pytest.mark.parametrize("depth", [1, 3])
def test_wrong_calls_of_builtins_are_the_users_errors(depth):
    wrong = [
        lambda x: abs(), lambda x: abs(x, x), lambda x: min(), lambda x: len(x, x), lambda x: isinstance(x, 3),
        lambda x: print(x, nope=1), lambda x: sk.float32(x, 3), lambda x: sk.float32(x, other=1), lambda x: sk.exp(),
        lambda x: sk.exp(x, x, x), lambda x: sk.exp(nope=x), lambda x: sk.where(x), lambda x: getattr(x, 3),
        lambda x: x.to(), lambda x: x.to(3), lambda x: setattr(x, "a", 1), lambda x: sum(), lambda x: zip(3),
        lambda x: sk.cuda.LaunchConfig(nope=1), lambda x: sk.static_assert(), lambda x: sk.alloc_local(x, sk.int32),
        lambda x: sk.alloc_local(3, "float17"), lambda x: sk.cuda.thread_idx("w"), lambda x: sk.cuda.thread_idx(x),
        lambda x: range(1, 2, 3, 4), lambda x: round(x, 2, 3), lambda x: divmod(x), lambda x: pow(x, -1),
        lambda x: super().x, lambda x: sk.load(x), lambda x: sk.store(x, x), lambda x: sk.constexpr(x),
    ]  # fmt: skip

    def wrapped(program, x, levels):
        return program(x) if levels == 1 else wrapped(program, x, levels - 1)

    for program in wrong:
        error = refuse(lambda x: wrapped(program, x, depth), 3)  # never an internal error
        assert error.loc is not None
        assert error.loc.file == __file__, program


def last_of(*functions):
    return functions[-1]


def test_the_caret_under_a_lambda_in_the_middle_of_an_expression():
    """Its lines are no text of their own, so they are read from the whole file, where columns count from the margin."""
    wrong = last_of(len,
                    lambda x: x.missing)  # fmt: skip

    @sk.jit
    def kernel(out, x):
        out[0] = wrong(x)

    error = failing(kernel[1, 1], np.zeros(1, np.int32), 3)

    assert error.id == "NO_ATTRIBUTE"
    assert (
        Path(__file__)
        .read_text(encoding="utf-8")
        .splitlines()[error.loc.line - 1][error.loc.col :]
        .startswith("x.missing")
    )
