"""What `inline_asm` means elsewhere (`host=`) is traced for the targets that need it, and for those alone (R18)."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk


def sum_of(a, b):
    sk.static_print("traced")
    return a + b


@sk.jit
def added(out, x):
    out[0] = sk.inline_asm("add.s32 $0, $1, $2;", "=r,r,r", [x, sk.int32(1)], sk.int32, pure=True, host=sum_of)


KINDS = {"out": sk.Tensor((None,), sk.int32), "x": sk.int32}


def test_ptx_does_not_trace_the_host_function_and_the_kernel_runs_on_the_cpu_afterwards(capsys):
    made = added.specialize(**KINDS)

    assert "add.s32" in made.ptx
    assert "traced" not in capsys.readouterr().out
    for target in ("cpu", "interp"):
        out = np.zeros(1, np.int32)
        sk.compile(made, target)[1, 1](out, 41)
        assert out[0] == 42
    assert "host" in made.ir or "yield" in made.ir
    assert "add.s32" in made.ptx


def test_a_first_launch_on_the_cpu_traces_once():
    @sk.jit
    def kernel(out, x):
        out[0] = sk.inline_asm("neg.s32 $0, $1;", "=r,r", [x], sk.int32, pure=True, host=lambda a: -a)

    out = np.zeros(1, np.int32)
    kernel[1, 1](out, 3)
    kernel[1, 1](out, 4)

    assert out[0] == -4
    assert kernel.explain().count("traced") == 1


@sk.jit
def only_on_a_gpu(out, x):
    out[0] = sk.inline_asm("neg.s32 $0, $1;", "=r,r", [x], sk.int32, host=lambda a: undefined_name)  # noqa: F821


def test_an_invalid_host_function_is_refused_where_it_is_needed():
    made = only_on_a_gpu.specialize(**KINDS)

    assert "neg.s32" in made.ptx
    for _ in range(2):
        with pytest.raises(sk.StagingError, match="undefined_name"):
            made[1, 1](np.zeros(1, np.int32), 3)
    assert "neg.s32" in made.ptx


def test_the_sanitizer_traces_the_host_function():
    made = added.specialize(**KINDS)
    assert "add.s32" in made.ptx

    out = np.zeros(1, np.int32)
    sk.sanitize(made)[1, 1](out, 1)

    assert out[0] == 2


FACTOR = 2


@sk.jit
def scaled(out, x):
    out[0] = sk.inline_asm("shl.b32 $0, $1, 1;", "=r,r", [x], sk.int32, pure=True, host=lambda a: a * FACTOR)


def test_what_the_host_function_reads_is_looked_at_once_it_is_traced(monkeypatch):
    out = np.zeros(1, np.int32)
    assert "shl" in scaled.specialize(**KINDS).ptx
    scaled[1, 1](out, np.int32(5))
    assert out[0] == 10

    monkeypatch.setitem(globals(), "FACTOR", 7)
    scaled[1, 1](out, np.int32(5))

    assert out[0] == 35


def tripled(a):
    return a * FACTOR


class Scaling:
    def __init__(self):
        self.by = 2

    def apply(self, a):
        return a * self.by


SCALING = Scaling()


@sk.jit
def by_function(out, x):
    out[0] = sk.inline_asm("shl.b32 $0, $1, 1;", "=r,r", [x], sk.int32, pure=True, host=tripled)


@sk.jit
def by_method(out, x):
    out[0] = sk.inline_asm("shl.b32 $0, $1, 1;", "=r,r", [x], sk.int32, pure=True, host=SCALING.apply)


@sk.jit
def by_its_own(out, x):
    out[0] = sk.inline_asm("neg.s32 $0, $1;", "=r,r", [x], sk.int32, pure=True, host=lambda a: -a) * FACTOR


def factor_changes(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 7)


def attribute_changes(monkeypatch):
    monkeypatch.setattr(SCALING, "by", 7)


LOOKS = {
    "a launch": lambda held: held[1, 1](np.zeros(1, np.int32), np.int32(5)),
    "its IR": lambda held: held.ir,
    "a bound kernel": lambda held: sk.compile(held, "cpu")[1, 1](np.zeros(1, np.int32), np.int32(5)),
    "the sanitizer": lambda held: sk.sanitize(held)[1, 1](np.zeros(1, np.int32), np.int32(5)),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("kernel", "change"),
    [
        (scaled, factor_changes),
        (by_function, factor_changes),
        (by_method, attribute_changes),
        (by_its_own, factor_changes),
    ],
    ids=lambda each: getattr(each, "name", each.__name__),
)
def test_a_held_specialisation_is_not_traced_anew_when_what_it_read_has_changed(kernel, change, look, monkeypatch):
    held = kernel.specialize(**KINDS)
    assert held.ptx
    change(monkeypatch)

    for _ in range(2):
        with pytest.raises(sk.SpecializeError, match="HELD_CHANGED"):
            LOOKS[look](held)
    assert held.ptx
    out = np.zeros(1, np.int32)
    kernel[1, 1](out, np.int32(5))
    assert abs(out[0]) == 35


@pytest.mark.parametrize("kernel", [scaled, by_function, by_its_own], ids=lambda kernel: kernel.name)
def test_a_specialisation_that_was_traced_for_all_targets_keeps_what_it_was_made_from(kernel, monkeypatch):
    held = kernel.specialize(**KINDS)
    assert held.ptx
    assert held.ir
    factor_changes(monkeypatch)

    out = np.zeros(1, np.int32)
    held[1, 1](out, np.int32(5))

    assert abs(out[0]) == 10
