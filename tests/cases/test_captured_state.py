"""What a kernel read outside is part of its key, whatever kind of place it is: the next launch sees the change (R1, R3, R4)."""

from __future__ import annotations

import enum
import fractions
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from tests.cases.captured_state import ALL, HEAD, KERNEL


def module_of(text: str, place: Path) -> Any:
    file = place / "a_module.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("a_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launched(kernel: Any, *args: Any) -> float:
    out = np.zeros(1)
    kernel[1, 1](out, *args)
    return float(out[0])


@pytest.mark.parametrize("kind", ALL)
def test_a_change_of_what_was_read_is_seen(kind: str, tmp_path: Path) -> None:
    """Also by the machine code that launches from the second time on."""
    setup, read, change = ALL[kind]
    module = module_of(HEAD + setup + KERNEL.format(read=read), tmp_path)
    before = module.read()
    assert [before] * 4 == [launched(module.kernel) for _ in range(4)]
    variants = set(module.kernel._specializations.values())

    exec(change, vars(module))

    after = module.read()
    assert before != after
    assert [after] * 4 == [launched(module.kernel) for _ in range(4)]
    assert set(module.kernel._specializations.values()) != variants


EQUAL = {
    "a number": ("V = 1.5", "V", "V = 3.0 / 2"),
    "a list": ("V = [1, 2000]", "V[1]", "V = [1, 2 * 1000]"),
    "a dict": ("V = {'a': [1]}", "V['a'][0]", "V = {'a': [1]}"),
    "an array": ("V = np.arange(4)", "int(V[1])", "V = np.arange(4)"),
    "a dataclass": ("@dataclasses.dataclass\nclass C:\n    a: object\nV = C([1])", "V.a[0]", "V = C([1])"),
    "a named tuple": ("C = collections.namedtuple('C', 'a')\nV = C(1)", "V.a", "V = C(1)"),
}


@pytest.mark.parametrize("kind", EQUAL)
def test_an_equal_value_in_place_of_another_is_no_change_and_is_watched_itself(kind: str, tmp_path: Path) -> None:
    setup, read, change = EQUAL[kind]
    module = module_of(HEAD + setup + KERNEL.format(read=read), tmp_path)
    before = [launched(module.kernel) for _ in range(3)]
    made = list(module.kernel._specializations.values())

    exec(change, vars(module))

    assert before * 2 == [launched(module.kernel) for _ in range(6)]
    assert made == list(module.kernel._specializations.values())


CONSTEXPRS: dict[str, tuple[str, str, str, str]] = {
    "an attribute of a tuple": (
        "class Own(tuple): pass\ndef made(order):\n    made = Own((8,)); made.order = order; return made",
        "V.order", "made(2)", "made(3)",
    ),
    "state that is no field": (
        "@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int\n    y: dataclasses.InitVar[int] = 0\n"
        "    def __post_init__(self, y): object.__setattr__(self, 'hidden', y)",
        "V.hidden", "C(1, 2)", "C(1, 3)",
    ),
    "a class that answers itself": (
        "@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int\n    def __getattr__(self, name):\n"
        "        if name != 'y': raise AttributeError(name)\n        return OTHER[id(self)]\n"
        "OTHER = {}; KEPT = []\ndef made(v):\n    KEPT.append(C(1)); OTHER[id(KEPT[-1])] = v; return KEPT[-1]",
        "V.y", "made(2)", "made(3)",
    ),
    "a member without a name": (
        "import enum\nclass Perm(enum.IntFlag): READ = 1", "V.value", "Perm(4)", "Perm(8)"
    ),
    "no member at all": (
        "import enum\nclass Perm(enum.IntFlag): READ = 1", "V.value", "Perm(0)", "Perm(4)"
    ),
    "members of two classes": (
        "import enum\nclass A(enum.Enum): X = 1\nclass B(enum.Enum): X = 2", "V.value", "A.X", "B.X"
    ),
    "a zero's sign": ("import math", "int(math.copysign(1, V))", "0.0", "-0.0"),
    "a complex zero's sign": ("import math", "int(math.copysign(1, V.imag))", "complex(1, 0.0)", "complex(1, -0.0)"),
    "the type of a number": ("", "int(isinstance(V, bool))", "1", "True"),
    "the type of a NumPy number": ("", "V.dtype.itemsize", "np.int32(1)", "np.int64(1)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONSTEXPRS)
def test_constexprs_of_other_state_are_other_kernels(kind: str, tmp_path: Path) -> None:
    """R1, R2 and R3 as constexprs."""
    setup, read, one, other = CONSTEXPRS[kind]
    text = f"{HEAD}{setup}\n@sk.jit\ndef kernel(out: sk.Tensor((None,), sk.float64), V: sk.constexpr):\n    out[0] = {read}\n"
    module = module_of(text, tmp_path)
    values = [eval(v, vars(module)) for v in (one, other)]
    expected = [eval(read, {**vars(module), "V": value}) for value in values]
    assert expected[0] != expected[1]
    assert expected * 3 == [launched(module.kernel, value) for _ in range(3) for value in values]


class Perm(enum.IntFlag):
    READ = 1


@sk.jit
def masked(out: sk.Tensor((None,), sk.float64), mask: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
    out[0] = mask.value


@pytest.mark.parametrize("has_disk", [True, False])
def test_members_of_a_flag_are_told_apart_by_value(  # R2
    has_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path) if has_disk else "0")
    assert [0, 4, 8, 0] == [launched(masked, Perm(v)) for v in (0, 4, 8, 0)]
    assert masked.specialize(mask=Perm(4)) is masked.specialize(mask=Perm(4))
    assert masked.specialize(mask=Perm(4)) is not masked.specialize(mask=Perm(8))


NAN = float("nan")
SHARED: dict[str, Any] = {
    "a complex NaN": lambda: complex(NAN, 1),
    "a NaN": lambda: float("nan"),
    "a partial": lambda: __import__("functools").partial(max, 1),
    "a slice": lambda: slice(1, 2),
    "a dtype": lambda: np.dtype("int32"),
    "a flag": lambda: Perm(8),
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="slices have no hash before")
@pytest.mark.parametrize("kind", ["a slice"])
def test_newer_values_share_one_kernel(kind: str) -> None:
    test_equal_values_share_one_kernel(kind)


@pytest.mark.parametrize("kind", [kind for kind in SHARED if kind != "a slice"])
def test_equal_values_share_one_kernel(kind: str) -> None:
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        out[0] = 1

    assert kernel.specialize(V=SHARED[kind]()) is kernel.specialize(V=SHARED[kind]())


class Keyed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __stagekit_key__(self) -> Any:
        return self.value, 1 // len(self.value)


@sk.jit
def keyed(out: sk.Tensor((None,), sk.float64), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
    out[0] = len(V.value)


def test_a_class_says_its_state_by_a_key() -> None:
    assert keyed.specialize(V=Keyed("a")) is keyed.specialize(V=Keyed("a"))
    assert [1, 2, 1] == [launched(keyed, Keyed(value)) for value in ("a", "ab", "b")]
    with pytest.raises(sk.SpecializeError, match="its `__stagekit_key__` raised ZeroDivisionError"):
        keyed.specialize(V=Keyed(""))


def test_a_captured_object_is_asked_for_its_key_at_each_launch() -> None:
    captured = Keyed("a")

    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64)):  # type: ignore[no-untyped-def, valid-type]
        out[0] = len(captured.value)

    assert [1] * 3 == [launched(kernel) for _ in range(3)]
    captured.value = "ab"
    assert [2] * 3 == [launched(kernel) for _ in range(3)]


class Plain:
    x = 1


def test_fresh_objects_that_make_a_kernel_each_are_named_in_explain() -> None:
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64), V: sk.constexpr):  # type: ignore[no-untyped-def, valid-type]
        out[0] = V.x

    for _ in range(2):
        launched(kernel, Plain())
    assert "V is another `Plain`, which counts by identity" in kernel.explain()
    assert "__stagekit_key__" in kernel.explain()


def test_more_than_can_be_watched_is_traced_at_every_call() -> None:
    held = Plain()
    held.__dict__["many"] = [Plain() for _ in range(6_000)]

    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64)):  # type: ignore[no-untyped-def, valid-type]
        out[0] = len(str(held)) > 0

    assert [1, 1] == [launched(kernel) for _ in range(2)]
    assert "more objects at compile time than can be watched" in kernel.explain()


def test_the_parts_of_captured_objects_that_meet_behind_an_if_are_read() -> None:
    one, other = Plain(), Plain()
    one.x, other.x = 1, 2

    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64), which):  # type: ignore[no-untyped-def, valid-type]
        met = one if which > 0 else other
        out[0] = met.x

    assert [1, 2] * 3 == [launched(kernel, which) for _ in range(3) for which in (1, -1)]
    other.x = 7
    assert [1, 7] * 3 == [launched(kernel, which) for _ in range(3) for which in (1, -1)]


PAIRS = {(i, j): i * j for i in range(3) for j in range(3)}


def test_what_is_made_and_looked_up_many_times_while_specialising_is_not_too_much_to_watch() -> None:
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float64)):  # type: ignore[no-untyped-def, valid-type]
        total = fractions.Fraction(0)
        for i in sk.static_range(3_000):
            total = total + (PAIRS[i % 3, 2] if (i % 3, 2) in PAIRS else 0) * fractions.Fraction(1, 2)
        out[0] = float(total)

    assert [3_000.0] * 3 == [launched(kernel) for _ in range(3)]
    assert 1 == len(kernel._specializations)
    traced = [event for event in kernel.history.events if event.kind == "traced"]
    assert 1 == len(traced)
