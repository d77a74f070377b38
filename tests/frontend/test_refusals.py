"""Calls and operands that make no sense: an entry of the catalogue at the user's place, never a fault of ours."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend.evaluation import EVALUATORS
from stagekit.frontend.source import _SINCE_312, _UNSUPPORTED
from stagekit.frontend.statements import _PATTERNS, RUNNERS
from tests.frontend.agreement import refuse

A_LIST = [1, 2]
NOTHING = None

REFUSED = {
    # a run-time index into what has no items
    "NUMBER_INDEX": (lambda n: n[n], "BAD_INDEX"),
    "NUMBER_INDEX_STATIC": (lambda n: n[0], "BAD_INDEX"),
    "NONE_INDEX": (lambda n: NOTHING[n], "BAD_INDEX"),
    "POINTER_INDEX": (lambda n: sk.dynamic_shared(sk.int32)[n], "BAD_INDEX"),
    "LIST_INDEX": (lambda n: A_LIST[n], "RUN_TIME_VALUE"),
    # Python's functions
    "MIN_OF_NOTHING": (lambda n: min(), "BAD_CALL"),
    "GETATTR_NAME": (lambda n: getattr(n, n), "BAD_CALL"),
    "PRINT_KEYWORD": (lambda n: print(n, file=3), "BAD_CALL"),
    "PRINT_SEP": (lambda n: print(n, n, sep=n), "BAD_CALL"),
    "PRINT_END": (lambda n: print(n, end=3), "BAD_CALL"),
    "PRINT_TUPLE": (lambda n: print((n, 1)), "BAD_CALL"),
    # formats of run-time numbers
    "FORMAT_UNKNOWN": (lambda n: print(f"{n:zz}"), "STATIC_FAILURE"),
    "FORMAT_OF_FLOAT": (lambda n: print(f"{n * 1.5:d}"), "STATIC_FAILURE"),
    "FORMAT_AT_RUN_TIME": (lambda n: print(f"{n:{n}}"), "RUN_TIME_VALUE"),
    # the language's functions
    "MATHS_OF_TEXT": (lambda n: sk.exp("a"), "NO_OVERLOAD"),
    "MATHS_OF_NONE": (lambda n: sk.atan2(1.0, None), "NO_OVERLOAD"),
    "ASM_TEXT": (lambda n: sk.inline_asm(n, "=r", [], sk.int32), "BAD_CALL"),
    "ASM_CONSTRAINTS": (lambda n: sk.inline_asm("", n, [], sk.int32), "BAD_CALL"),
    "LOCAL_TOO_LARGE": (lambda n: len(sk.alloc_local((1 << 20,), sk.int32)), "BAD_CALL"),
}


@pytest.mark.parametrize(("program", "name"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_at_its_place(program, name):
    error = refuse(program, 1)

    assert error.id == name
    assert error.loc.file == __file__


def test_the_message_of_an_assert_is_shown_or_refused():
    def program(n):
        assert n > 1, ("n is", n)
        return n

    assert refuse(program, 1).id == "BAD_CALL"


def test_a_static_message_says_what_is_not_known_yet():
    def program(n):
        sk.static_assert(False, f"{n:5d} of {{{A_LIST[1]}}}")
        return n

    assert "(run-time) of {2}" in str(refuse(program, 1))


@sk.jit
def compared(a, b, COMPARE: sk.constexpr):
    a[0] = 1 if COMPARE(a, b) else 2


@pytest.mark.parametrize("compare", [lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b])
def test_arrays_are_not_compared_by_their_addresses(compare):
    with pytest.raises(sk.StagingError, match="BAD_OPERANDS"):
        compared[1, 1](np.zeros(2), np.zeros(2), compare)


def test_pointers_are():
    a = np.zeros(2)

    compared[1, 1](a, a, lambda a, b: a.ptr + 1 == b + 1)

    assert a[0] == 1


@sk.jit
def indexed(a, INDEX: sk.constexpr):
    a[0] = INDEX(a)


@pytest.mark.parametrize(
    "index",
    [
        lambda a: a[a[0] > 1], lambda a: a[True], lambda a: sk.load(a + (a[0] > 1)), lambda a: a[0 : a[0] > 1].shape[0],
        lambda a: sk.load(a + True), lambda a: a[: a[0] == 0][0], lambda a: a[np.bool_(True)],
    ],
)  # fmt: skip
def test_a_bool_is_no_index_and_the_way_out_is_told(index):
    """NumPy would select by it, Python would count it as 0 or 1."""
    with pytest.raises(sk.StagingError, match=r"BAD_INDEX(.|\n)*int\(c\)"):
        indexed[1, 1](np.zeros(4, np.int32), index)


@sk.jit
def entered(a, n, BEFORE: sk.constexpr):
    BEFORE(a, n)
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=n))
    a[0] = 1


def stored_in_one_arm(a, n):
    if n > 3:
        a[0] = 1


EFFECTS = [
    lambda a, n: sk.store(a, n), lambda a, n: print(n), lambda a, n: sk.syncthreads(), stored_in_one_arm,
    lambda a, n: sk.atomic_add(a, 1), lambda a, n: sk.any_sync(0xFFFFFFFF, n > 1),
]  # fmt: skip


@pytest.mark.parametrize("effect", EFFECTS)
def test_device_entry_stands_before_anything_that_is_seen_from_outside(effect):
    with pytest.raises(sk.StagingError, match="ENTRY_MISPLACED"):
        entered(np.zeros(4, np.int32), 2, effect)


@pytest.mark.parametrize("nothing", [lambda a, n: a[1] + n, lambda a, n: sk.alloc_shared((4,), sk.int32)])
def test_device_entry_may_follow_what_nobody_sees(nothing):
    a = np.zeros(4, np.int32)

    entered(a, 2, nothing)

    assert a[0] == 1


MATRIX = np.zeros((2, 2), np.float32)

WAYS_OUT = {
    "astype": (lambda a: a[0].astype(sk.int32), "x.to(dtype)"),
    "bitcast": (lambda a: a[0].to(sk.float32, bitcast=True), "x.view(dtype)"),
    "bits of another size": (lambda a: a[0].view(sk.int64), "dtypes of the same size: int32, uint32, float32"),
    "bits of a bool": (lambda a: (a[0] > 0).view(sk.int8), "convert it by `.to(dtype)`"),
    "bits as no dtype": (lambda a: a[0].view("int32"), "give a dtype"),
    "view of an array": (lambda a: a.view(sk.int32), "a pointer `.to(dtype)`"),
    "item": (lambda a: a[0].item(), "a number already"),
    "sum": (lambda a: a.sum(), "reduce_sum"),
    "reshape": (lambda a: a.reshape(2, 2), "in the shape"),
    "delete": (lambda a: a.__delitem__(0), "cannot be deleted"),
    "captured operand": (lambda a: MATRIX * a[0], "as an argument"),
    "NumPy's memory": (lambda a: np.zeros(3).__setitem__(0, a[0]), "compile time"),
    "list length": (lambda a: [0] * a[0], "array argument"),
    "text": (lambda a: len(f"{a[0]}"), "f-string"),
    "misspelt": (lambda a: sk.maximun(a[0], 1), "maximum"),
    "misspelt in cuda": (lambda a: sk.cuda.thread_id("x"), "thread_idx"),
    "elsewhere": (lambda a: sk.thread_idx("x"), "sk.cuda.thread_idx"),
    "internals": (lambda a: (lambda b: b).frame, "__name__"),
    "attribute of a function": (lambda a: setattr(lambda b: b, "k", 1), "use a variable"),
}


@pytest.mark.parametrize(("program", "way_out"), WAYS_OUT.values(), ids=WAYS_OUT)
def test_a_refusal_says_what_to_write(program, way_out):
    with pytest.raises(sk.StagingError) as caught:
        indexed[1, 1](np.zeros(4, np.int32), program)

    assert way_out in str(caught.value)
    assert caught.value.loc.file == __file__


COUNTS = {
    "axis": (lambda n: sk.alloc_local((2,), sk.int32)[n, n], "has 1 axis, got 2 indices"),
    "axes": (lambda n: sk.alloc_local((2, 2), sk.int32)[n, n, n], "has 2 axes, got 3 indices"),
    "index": (lambda n: sk.alloc_local((2, 2), sk.int32).ptr_to(n), "has 2 axes, got 1 index"),
    "argument": (lambda n: sk.exp(n, n), "takes 1 argument, got 2"),
    "arguments": (lambda n: sk.fma(n, n, n, n), "takes 3 arguments, got 4"),
    "value": (lambda n: [a for a, b in [(n,)]], "1 value for 2 targets"),
}


@pytest.mark.parametrize(("program", "text"), COUNTS.values(), ids=COUNTS)
def test_one_of_a_thing_is_singular(program, text):
    assert text in str(refuse(program, 1))


def test_the_bound_of_an_unrolled_loop_is_what_is_not_known():
    def program(n):
        return sum(i for i in sk.static_range(n))

    message = str(refuse(program, 1))

    assert "an argument of `static_range` is known only at run time" in message
    assert "use a constexpr, or `range(...)` for a loop at run time" in message


@pytest.mark.parametrize("flag", [False, True])
def test_the_opposite_of_a_bool_does_not_depend_on_when_it_is_known(flag):
    """`~` of a dtype's bool is logical. Python's own is not, so of a Python bool it is refused instead of meaning two things."""

    @sk.jit
    def kernel(out, given):
        out[0] = ~given[0]
        out[1] = ~np.bool_(flag)
        out[2] = ~sk.bool(flag)
        out[3] = ~(given[0] & flag)
        out[4] = not flag

    out = np.zeros(5, np.int32)
    kernel[1, 1](out, np.array([flag]))
    error = refuse(lambda n: ~flag, 1)

    assert out.tolist() == [not flag] * 5
    assert error.id == "BAD_OPERANDS"
    assert "write `not x`" in str(error)


PARTS_OF_OTHERS = {"FormattedValue", "Interpolation", "Starred"}  # read by what they stand in
TRACED = {ast.stmt: RUNNERS, ast.expr: EVALUATORS, ast.pattern: _PATTERNS}
CONSTRUCTS = [kind for base in TRACED for kind in base.__subclasses__() if kind.__name__ not in PARTS_OF_OTHERS]


@pytest.mark.parametrize("kind", CONSTRUCTS, ids=lambda kind: kind.__name__)
def test_every_construct_of_python_is_traced_or_refused(kind: type[ast.AST]) -> None:
    is_traced = any(kind in rows for rows in TRACED.values())

    assert is_traced != (kind in _UNSUPPORTED), (
        f"`ast.{kind.__name__}`: give it a row of `RUNNERS`, `EVALUATORS` or `_PATTERNS`, or of `_UNSUPPORTED` in source.py"
    )


def test_the_page_says_what_is_refused() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    sentence = page.partition("**Refused**, when the function is read, with a caret")[2].partition("A kernel")[0]
    refused = {
        what.removeprefix("a ").strip("`").split()[0] for what, _ in (*_UNSUPPORTED.values(), *_SINCE_312.values())
    }

    assert set(re.findall(r"(?:`|\ba )(\w+)", sentence)) == refused, (
        "docs/language.md, `Refused`, is not `_UNSUPPORTED`"
    )
