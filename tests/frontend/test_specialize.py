"""Constexprs, `.specialize`, annotations in every spelling, and the binding of arguments."""

from __future__ import annotations

import enum
import math
import re
import sys
import types
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.sources import module_of


def run(kernel, *arguments, size: int = 4, dtype=np.int64, **named) -> list:
    out = np.full(size, -1, dtype)
    kernel[1, 1](out, *arguments, **named)
    return out.tolist()


def refused(attempt) -> sk.StagekitError:
    with pytest.raises(sk.StagekitError) as caught:
        attempt()
    return caught.value


@sk.jit
def three(out, x, A: sk.constexpr, B: sk.constexpr = 2, *, C: sk.constexpr = 3):
    out[0] = x * 1000 + A * 100 + B * 10 + C


OUT = sk.Tensor((None,), sk.int64)


# -- identity -------------------------------------------------------------------------------------------------------------


def test_the_same_values_give_the_same_object():  # P18
    k = three.specialize(A=1)

    assert three.specialize(A=1) is k
    assert three.specialize(A=1, B=2, C=3) is k
    assert three.specialize(C=3, A=1) is k
    assert three.specialize(B=2).specialize(A=1) is k
    assert three.specialize(B=2).specialize(C=3) is three.specialize(C=3, B=2)
    assert three.specialize(A=2) is not k


def test_a_call_uses_the_specialisation_made_explicitly():  # P18
    @sk.jit
    def kernel(out, A: sk.constexpr):
        out[0] = A

    kernel.specialize(A=5)
    before = kernel.cache_size
    assert run(kernel, 5)[0] == 5
    assert run(kernel.specialize(A=5))[0] == 5
    assert kernel.cache_size == before


def test_partial_specialisation_waits_for_the_rest():
    waiting = three.specialize(C=7)

    assert run(waiting, 1, 4)[0] == 1427
    assert run(waiting, 1, 4, 5)[0] == 1457
    assert run(waiting.specialize(A=6), 1)[0] == 1627
    assert run(three.specialize(A=9), 1)[0] == 1923


def test_constexprs_by_position_keyword_and_default_in_any_order():  # Y6
    assert run(three, 1, 4)[0] == 1423
    assert run(three, 1, 4, 5)[0] == 1453
    assert run(three, 1, A=4, C=9)[0] == 1429
    assert run(three, A=4, x=2)[0] == 2423

    @sk.jit
    def first(N: sk.constexpr, out, x, M: sk.constexpr, y=5):
        out[0] = N * 1000 + M * 100 + x * 10 + y

    out = np.zeros(1, np.int64)
    for args, named, wanted in (
        ((1, out, 2, 3), {}, 1325),
        ((1, out, 2, 3, 4), {}, 1324),
        ((1, out), {"x": 2, "M": 3, "y": 9}, 1329),
    ):
        first[1, 1](*args, **named)
        assert out[0] == wanted


def test_values_of_equal_hash_are_different_specialisations():  # P15
    @sk.jit
    def kernel(out, V: sk.constexpr):
        out[0] = {"bool": 1, "int": 2, "float": 3, "int32": 4}[type(V).__name__]
        out[1] = 1 / V if V else 0 if str(V) == "0.0" else -7

    kinds = [run(kernel, v, dtype=np.float64)[0] for v in (1, True, 1.0, np.int32(1), 1, True)]
    assert kinds == [2, 1, 3, 4, 2, 1]
    assert [run(kernel, v, dtype=np.float64)[1] for v in (0.0, -0.0, 0.0)] == [0, -7, 0]
    assert kernel.specialize(V=np.int64(5)) is kernel.specialize(V=np.int64(5))


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


@dataclass(frozen=True)
class Config:
    block: int
    mode: Mode = Mode.ADD


def helper_one(x):
    return x + 1


def test_any_hashable_value_may_be_a_constexpr():
    @sk.jit
    def kernel(out, V: sk.constexpr, F: sk.constexpr):
        value = V.block if hasattr(V, "block") else len(V) if type(V) is tuple or type(V) is str else V is None
        out[0] = F(value) * 2 if V is not Mode.MUL and V is not sk.float32 else -5

    for value, wanted in ((Config(7), 16), ((1, 2, 3), 8), ("abc", 8), (None, 4), (Mode.MUL, -5), (sk.float32, -5)):
        assert run(kernel, value, helper_one)[0] == wanted
    assert kernel.specialize(V=Config(7), F=helper_one) is kernel.specialize(V=Config(7), F=helper_one)


# -- refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), ("N",)], ids=["fixed shape", "a size that arrays would tell"])
def test_a_function_has_no_open_constexpr(shape):
    """It is traced where it is defined, when no value has been given."""

    def define():
        @sk.function
        def kernel(out: sk.Tensor(shape, sk.int64), N: sk.constexpr, M: sk.constexpr = 2):
            out[0] = N * M

    assert refused(define).id == "MISSING_CONSTEXPR"
    assert "`kernel` needs a value for `N`" in str(refused(define))
    assert "use `@jit`" in str(refused(define))


def test_a_function_may_have_constexprs_with_defaults():
    @sk.function
    def kernel(out: sk.Tensor((4,), sk.int64), N: sk.constexpr = 7):
        out[0] = N

    assert run(kernel)[0] == 7


def test_unknown_misspelt_and_missing_names():  # P25
    error = refused(lambda: three.specialize(A=1, BB=2))
    assert error.id == "UNKNOWN_PARAMETER"
    assert "`BB`" in str(error)
    assert "did you mean `B`" in str(error)

    @sk.jit
    def blocks(out, BLOCK: sk.constexpr):
        out[0] = BLOCK

    assert "did you mean `BLOCK`" in str(refused(lambda: blocks.specialize(BLOK=64)))
    assert "`A`" in str(refused(lambda: run(three, 1)))
    assert refused(lambda: run(three, 1)).id == "MISSING_CONSTEXPR"
    assert refused(lambda: three.specialize(x=3)).id == "NOT_CONSTEXPR"
    for attempt in (
        lambda: run(three, 1, 4, 5, 6),
        lambda: run(three, 1, 4, A=4),
        lambda: run(three, 1, 4, nope=4),
        lambda: run(three, A=4),
        lambda: run(three, 1, 4, out=np.zeros(1)),
    ):
        assert isinstance(refused(attempt), TypeError)


def test_a_typed_constexpr_checks_its_type():
    @sk.jit
    def kernel(out, N: sk.constexpr[int], F: sk.constexpr[float] = 0.5, S: sk.constexpr[str] = "s"):
        out[0] = N

    assert run(kernel, 3)[0] == 3
    for wrong in ({"N": 16.7}, {"N": True}, {"N": "3"}, {"N": None}, {"N": 3, "F": 1}, {"N": 3, "S": 1}):
        error = refused(lambda: kernel.specialize(**wrong))
        assert error.id == "BAD_CONSTEXPR"
        assert f"`{list(wrong)[-1]}`" in str(error)


def test_unhashable_values_and_arrays_are_refused():
    for value in (np.zeros(3), {1: []}.values()):
        try:
            three.specialize(A=value)
        except sk.StagekitError as error:
            assert error.id == "BAD_CONSTEXPR"
    assert refused(lambda: three.specialize(A=np.zeros(3))).id == "BAD_CONSTEXPR"


@pytest.mark.parametrize("parameters", ["out, *rest", "out, **rest", "out, /"])
def test_parameters_that_cannot_be_given_by_name_are_refused(tmp_path, parameters):
    kernel = module_of(tmp_path, f"import stagekit as sk\n@sk.jit\ndef kernel({parameters}):\n    out[0] = 1\n").kernel

    assert refused(lambda: run(kernel)).id == "BAD_PARAMETER"


# -- annotations ----------------------------------------------------------------------------------------------------------

SPELLINGS = """
    {future}
    import stagekit as sk
    import stagekit
    from stagekit import constexpr, constexpr as static, Tensor
    from typing import Annotated, Any, NamedTuple

    Marker = sk.constexpr
    Alias = "sk.constexpr"

    class Namespace:
        marker = sk.constexpr

        @sk.jit
        def method(out, N: marker, M: sk.constexpr[int] = 3):
            out[0] = N * 10 + M

    @sk.jit
    def kernel(out: "OutLater", x: int, y: "int", z: "sk.int64", N: {marker}, M: {other} = 3):
        out[0] = x * 1000 + y * 100 + z * 50 + N * 10 + M

    OutLater = sk.Tensor((None,), sk.int64)
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"], ids=["plain", "postponed"])
@pytest.mark.parametrize(
    ("marker", "other"),
    [
        ("sk.constexpr", "sk.constexpr[int]"),
        ("constexpr", "static"),
        ("'sk.constexpr'", "'constexpr[int]'"),
        ("Marker", "Namespace.marker"),
        ("Annotated[int, sk.constexpr]", "Annotated[int, 'a note', sk.constexpr[int]]"),
        ("stagekit.constexpr", "'Annotated[int, sk.constexpr]'"),
    ],
)
def test_only_the_marker_makes_a_constexpr_in_every_spelling(future, marker, other, tmp_path):  # P24, Q10
    module = module_of(tmp_path, SPELLINGS.format(future=future, marker=marker, other=other))

    parameters = module.kernel.parameters
    assert [p.name for p in parameters.constexprs] == ["N", "M"]
    assert run(module.kernel, 1, 2, 3, 4)[0] == 1000 + 200 + 150 + 40 + 3
    assert run(module.kernel.specialize(N=4, M=9), 1, 2, 3)[0] == 1000 + 200 + 150 + 40 + 9
    assert run(module.Namespace.method, 4)[0] == 43


def test_annotations_over_names_of_the_function_around():  # P24
    def make(dtype, size):
        n = sk.dynamic("n")

        @sk.jit
        def kernel(out: sk.Tensor((None,), dtype), A: sk.Tensor((n, size), dtype)):
            out[0] = A[n - 1, size - 1]

        return kernel

    A = np.arange(6, dtype=np.int64).reshape(3, 2)
    assert run(make(sk.int64, 2), A)[0] == 5
    assert refused(lambda: run(make(sk.int64, 3), A)).id == "WRONG_SIZE"


def test_an_annotated_array_may_be_absent():
    columns = sk.dynamic("columns")
    Vector = Annotated[sk.Array, sk.Tensor((columns,), sk.int64)]

    @sk.jit
    def kernel(out: Vector, A: Vector | None, b: Annotated[int, sk.int32] | None):
        out[0] = 7 if A is None else A[columns - 1]
        out[1] = 8 if b is None else b

    assert run(kernel, None, None, size=2) == [7, 8]
    assert run(kernel, np.arange(2), 3, size=2) == [1, 3]
    assert refused(lambda: run(kernel, np.arange(3), 3, size=2)).id == "WRONG_SIZE"
    assert refused(lambda: run(kernel, np.arange(2.0), 3, size=2)).id == "WRONG_DTYPE"


def test_misspelt_dtypes_and_sizes_in_annotations_name_the_nearest():  # T8
    @sk.jit
    def wrong_dtype(A: sk.Tensor((None,), "float17")):
        A[0] = 1

    @sk.jit
    def wrong_size(A: sk.Tensor((1.5,), sk.float32)):
        A[0] = 1

    @sk.jit
    def wrong_strides(A: sk.Tensor((4, 4), sk.float32, strides=(4,))):
        A[0, 0] = 1

    @sk.jit
    def wrong_name(A: sk.Tensr((4, 4), sk.float32)):
        A[0, 0] = 1

    a = np.zeros((4, 4), np.float32)
    for kernel, word in (
        (wrong_dtype, "float16"),
        (wrong_size, "1.5"),
        (wrong_strides, "strides"),
        (wrong_name, "Tensr"),
    ):
        error = refused(lambda: kernel[1, 1](a))
        assert error.id == "BAD_ANNOTATION"
        assert word in str(error)


def test_sizes_named_by_constexprs_are_inferred_from_the_arrays():
    @sk.jit
    def kernel(out, A: sk.Tensor((N, M), sk.int64), N: sk.constexpr, M: sk.constexpr):  # noqa: F821
        out[0] = N * 10 + M
        for i in sk.static_range(N):
            out[1] = A[i, M - 1]

    A = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert run(kernel, A)[:2] == [23, 5]
    assert run(kernel, A, 2, 3)[:2] == [23, 5]
    assert run(kernel.specialize(N=2), A)[:2] == [23, 5]
    assert refused(lambda: run(kernel.specialize(N=4), A)).id == "WRONG_SIZE"


def test_types_of_unannotated_parameters_can_be_said_by_name():
    k = three.specialize(A=1, out=OUT, x=sk.int16)

    assert "i16" in k.ir
    assert run(k, 3)[0] == 3123
    assert refused(lambda: three.specialize(A=1).ir).id == "TYPES_UNKNOWN"


def test_an_optional_parameter_is_none_or_its_type():
    n = sk.dynamic("n")

    @sk.jit
    def kernel(out, bias: sk.Tensor((n,), sk.int64) | None = None, scale: sk.int64 | None = None):
        total = 0
        if bias is not None:
            total += bias[0] + n
        if scale is not None:
            total += scale * 100
        out[0] = total

    bias = np.array([7, 8], np.int64)
    assert run(kernel)[0] == 0
    assert run(kernel, bias)[0] == 9
    assert run(kernel, None, 3)[0] == 300
    assert run(kernel, bias, scale=2)[0] == 209
    assert run(kernel.specialize(bias=None), scale=2)[0] == 200


# -- captures -------------------------------------------------------------------------------------------------------------

C = 17
names = [1, 2]


def test_a_changed_global_gives_a_new_kernel(monkeypatch):  # P12
    @sk.jit
    def kernel(out):
        out[0] = C + names[0]

    assert run(kernel)[0] == 18
    monkeypatch.setitem(globals(), "C", 42)
    assert run(kernel)[0] == 43
    names[0] = 9
    try:
        assert run(kernel)[0] == 51
    finally:
        names[0] = 1


class Place(NamedTuple):
    first: int
    step: Any

    def doubled(self):
        return self.first * 2


place = Place(1, 2)


def test_tuples_that_a_kernel_makes_are_not_watched_and_those_from_outside_are(monkeypatch):
    @sk.jit
    def kernel(out, x):
        own = Place(3, x)
        for _ in sk.static_range(20):
            own = Place(own.first + sk.cdiv(1, 1), own.step + 1)
        out[0] = own.doubled() * 1000 + own.step * 10 + place.first

    def watched():
        return [(kind, key) for kind, holder, key, _ in kernel.trace().captures.rows() if type(holder) is Place]

    assert run(kernel, 5)[0] == 46000 + 250 + 1
    assert sorted(map(str, watched())) == ["('attribute', 'first')", "('type', None)"]
    monkeypatch.setattr(Place, "doubled", lambda self: self.first)
    assert run(kernel, 5)[0] == 23000 + 250 + 1
    monkeypatch.setitem(globals(), "place", Place(7, 2))
    assert run(kernel, 5)[0] == 23000 + 250 + 7


def test_attributes_of_modules_of_pythons_and_ours_that_a_users_kernel_reads_are_watched(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "7"])
    monkeypatch.setattr(sk, "of_a_user", 1, raising=False)
    hidden: Any = types.ModuleType("colorsys")  # a user's, by the name of one of Python's
    exec("SIZE = 3\ndef twice(): return 6", vars(hidden))

    @sk.jit
    def kernel(out):
        out[0], out[1] = int(sys.argv[1]), len(sys.argv) + (100 if hasattr(sys, "of_a_user") else 0)
        out[2], out[3] = sk.of_a_user + int(math.pi), hidden.SIZE * 100 + hidden.twice()

    assert run(kernel) == [7, 2, 4, 306]
    sys.argv[1] = "8"
    assert run(kernel) == [8, 2, 4, 306]
    monkeypatch.setattr(sys, "argv", ["program", "9", "more"])
    monkeypatch.setattr(sys, "of_a_user", 1, raising=False)
    assert run(kernel) == [9, 103, 4, 306]
    monkeypatch.setattr(sk, "of_a_user", 2)
    monkeypatch.setattr(math, "pi", 10.0)
    monkeypatch.setattr(hidden, "SIZE", 4)
    monkeypatch.setattr(hidden, "twice", lambda: 8)
    assert run(kernel) == [9, 103, 12, 408]


def test_attributes_of_modules_of_pythons_are_watched_that_a_function_reads_which_python_runs(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "7"])

    def replacement(match):
        return sys.argv[1] + str(int(math.pi))

    @sk.jit
    def kernel(out):
        out[0] = int(re.sub("a", replacement, "a"))

    assert run(kernel)[0] == 73
    sys.argv[1] = "8"
    assert run(kernel)[0] == 83
    monkeypatch.setattr(sys, "argv", ["program", "9"])
    monkeypatch.setattr(math, "pi", 10.0)
    assert run(kernel)[0] == 910
    held = kernel.trace().captures
    assert run(kernel)[0] == 910
    assert kernel.trace().captures is held


def test_numbers_of_a_run_are_not_watched_wherever_they_lie():
    @sk.jit
    def kernel(out, x):
        values = [x + i for i in range(4)]
        held = {"all": (values, slice(x)), "one": Place(2, values)}
        out[0] = sorted([(3, "b"), (held["one"].first, "a")])[0][0] + held["all"][0][3] + max(values, key=lambda v: 0)

    assert run(kernel, 5)[0] == 2 + 8 + 5
    held = [type(holder).__name__ for _, holder, _, _ in kernel.trace().captures.rows()]
    assert "Number" not in held


def test_a_held_specialisation_stays_what_it_is_or_says_so(monkeypatch):  # P12
    @sk.jit
    def kernel(out):
        out[0] = C

    held = kernel.specialize()
    assert run(held)[0] == 17
    monkeypatch.setitem(globals(), "C", 42)
    assert run(held)[0] in (17, 42)
    assert run(kernel.specialize())[0] == 42
    assert run(kernel)[0] == 42


def test_factories_make_different_kernels():  # P14, Q17
    def make(k, fs=(), default=5):
        def scaled(x, by=default):
            return x * by

        class Holder:
            value = k

        @sk.jit
        def kernel(out, x):
            total = 0
            for f in fs:
                total += f(x)
            out[0] = x * len(k) + Holder.value[0] + scaled(x) + total

        return kernel

    def with_own(n):
        return sk.inline(lambda x: x + n)

    one, two = make([100, 200]), make([7, 8, 9], (with_own(1), with_own(2)), default=6)
    for _ in range(2):
        assert run(one, 2)[0] == 4 + 100 + 10
        assert run(two, 2)[0] == 6 + 7 + 12 + 3 + 4


def test_a_redefined_helper_is_seen():  # Q24, P10
    def f(x):
        return x + 1

    table = {"add": f}

    @sk.jit
    def kernel(out, x, OP: sk.constexpr):
        out[0] = table[OP](x)

    assert run(kernel, 3, "add")[0] == 4

    def f(x):
        return x * 10

    table["add"] = f
    assert run(kernel, 3, "add")[0] == 30


i = 99
shadowed = 98


def test_the_innermost_scope_wins():  # P6
    @sk.inline
    def helper(shadowed):
        return shadowed + 1

    @sk.jit
    def kernel(out, shadowed):
        for i in sk.static_range(3):
            out[i] = helper(i) if i else shadowed

    assert run(kernel, 50)[:3] == [50, 2, 3]


@sk.jit
def add_one_fixed(A: "sk.Tensor((N,), DTYPE)", B: "sk.Tensor((N, 2 * M), sk.float32) | None", N: sk.constexpr,
                  DTYPE: sk.constexpr = sk.float32, M: sk.constexpr = 1):  # fmt: skip
    i = sk.cuda.thread_idx("x")
    if i < N:
        A[i] = A[i] + 1


@pytest.mark.parametrize("wrong", ["x", -1, 2.5, (4,), True, sk.float32, 1j], ids=repr)
@pytest.mark.parametrize("specialize", [
    lambda N: add_one_fixed.specialize(N=N),
    lambda N: add_one_fixed.specialize(DTYPE=sk.float64, N=N),
    lambda N: add_one_fixed.specialize(DTYPE=sk.float64).specialize(N=N),
    lambda N: sk.compile(add_one_fixed.specialize(N=4), "cpu").specialize(N=N),
    lambda N: sk.sanitize(add_one_fixed).specialize(N=N),
    lambda N: add_one_fixed.specialize(N=4, M=-1 if N is True else N),
    lambda N: _two_open.specialize(N=N),
    lambda N: _two_open.specialize(A=sk.Tensor(("N",), sk.float32), M=1, N=N),
])  # fmt: skip
def test_a_constexpr_with_which_an_annotation_means_nothing_does_not_leave_specialize(specialize, wrong):
    """R19"""
    with pytest.raises(sk.StagekitError) as caught:
        specialize(wrong)
    assert caught.value.id in ("BAD_ANNOTATION", "BAD_CONSTEXPR")


@sk.jit
def _two_open(A: "sk.Tensor((N,), sk.float32)", N: sk.constexpr, M: sk.constexpr):
    A[0] = N + M


def test_what_specialize_refuses_names_the_constexpr_and_the_value():
    with pytest.raises(sk.StagekitError, match=r"-1 is not a size .with N=-1, DTYPE="):
        add_one_fixed.specialize(N=-1)
    with pytest.raises(sk.StagekitError, match="not a dtype"):
        add_one_fixed.specialize(N=4, DTYPE=float)


SHAPES = {1: (4,), 2: (2, 2)}


def test_an_annotation_that_needs_a_missing_constexpr_waits_for_it():
    @sk.jit
    def kernel(A: "sk.Tensor(SHAPES[R], D)", R: sk.constexpr, D: sk.constexpr):
        A[(0,) * R] = 1

    partial = kernel.specialize(R=1)
    assert "f64" in partial.specialize(D=sk.float64).ir
    with pytest.raises(sk.StagekitError, match="KeyError"):
        kernel.specialize(R=3).specialize(D=sk.float64)
