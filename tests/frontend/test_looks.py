"""What Python's own tools see of kernels: signatures, names, docs, and what `functools.wraps` promises."""

from __future__ import annotations

import functools
import inspect
import pydoc
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk

PACKAGE = str(Path(sk.__file__).parent)


def scale(x, y, n: sk.int32, factor=2.0, *, BLOCK: sk.constexpr, MODE: sk.constexpr[str] = "fast") -> None:
    """Multiply x by a factor."""
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(y + i, sk.load(x + i, mask=i < n) * factor, mask=i < n)


scaling = sk.jit(scale)
partial = scaling.specialize(MODE="slow")
complete = scaling.specialize(BLOCK=64)
KERNELS = {
    "jit": scaling,
    "partial": partial,
    "complete": complete,
    "bound": sk.compile(complete, "cpu"),
    "sanitized": sk.sanitize(complete),
    "inline": sk.inline(scale),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@each_kernel
def test_a_kernel_is_its_function_to_functools_and_help(kernel: Any) -> None:
    for attribute in functools.WRAPPER_ASSIGNMENTS:
        assert getattr(kernel, attribute) == getattr(scale, attribute)
    assert inspect.unwrap(kernel) is scale
    assert "Multiply x by a factor." in pydoc.render_doc(kernel)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_signature_of_a_kernel_is_what_a_call_takes() -> None:
    assert inspect.signature(scaling) == inspect.signature(scale)
    assert parameters(partial) == ["x", "y", "n", "factor", "BLOCK"]
    for kernel in ("complete", "bound", "sanitized"):
        assert parameters(KERNELS[kernel]) == ["x", "y", "n", "factor"]
    for launch in (complete[4], complete.prepare, complete.prepare[4]):
        assert inspect.signature(launch) == inspect.signature(complete)


def test_the_signature_of_specialize_is_of_constexprs_and_types() -> None:
    assert parameters(scaling.specialize) == parameters(complete.specialize) == ["BLOCK", "MODE", "types"]
    shown = inspect.signature(scaling.specialize).parameters
    assert shown["BLOCK"].default is inspect.Parameter.empty
    assert shown["MODE"].default == "fast"
    assert shown["BLOCK"].kind is inspect.Parameter.KEYWORD_ONLY
    assert inspect.signature(partial.specialize).parameters["MODE"].default == "slow"
    assert inspect.signature(complete.specialize).parameters["BLOCK"].default == 64


def test_specialize_is_a_method_like_others() -> None:
    assert scaling.specialize.__name__ == "specialize"
    assert "Fix constexprs by name" in pydoc.render_doc(scaling.specialize)
    assert repr(scaling.specialize) == f"{scaling!r}.specialize"
    assert callable(type(scaling).specialize)
    assert functools.partial(scaling.specialize, BLOCK=64)() is complete


@pytest.mark.parametrize("attempt", [lambda: scaling.specialize(64), lambda: scaling.specialize(BLOK=64)])
def test_a_call_of_specialize_that_does_not_fit_shows_no_frame_of_ours(attempt: Any) -> None:
    with pytest.raises(sk.StagekitError, match="specialize|BLOK") as caught:
        attempt()

    assert [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.startswith(PACKAGE)] == []


def test_a_signature_is_shown_without_parsing_the_kernel() -> None:
    """A mistake in an annotation shows when the kernel is specialised."""

    @sk.jit
    def wrong(x: sk.Tensor("no shape", "no dtype")): ...  # noqa: F722

    assert parameters(wrong) == ["x"]


# -- reprs ----------------------------------------------------------------------------------------------------------------


def test_a_launch_shows_its_kernel_and_its_brackets() -> None:
    shown = "<stagekit kernel scale(x, y, n, factor) with BLOCK=64, MODE='fast'>"

    assert repr(complete) == shown
    assert repr(complete[4]) == f"{shown}[4]"
    assert repr(complete[4, 64]) == f"{shown}[4, 64]"
    assert repr(complete[(4,)]) == f"{shown}[(4,)]"
    assert repr(complete.prepare) == f"{shown}.prepare"
    assert repr(complete.prepare[4]) == f"{shown}.prepare[4]"


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
def test_native_launches_show_it_too() -> None:
    x, y = np.ones(100, np.float32), np.ones(100, np.float32)
    for _ in range(3):
        complete[2](x, y, 100)

    assert "scale[2]" in repr(complete[2])
    assert "scale of stagekit prepared launch" in repr(complete.prepare[2](x, y, 100))


def test_a_kernel_with_something_fixed_shows_what_is_open() -> None:
    assert repr(partial).endswith("BLOCK: sk.constexpr) with MODE='slow'>")
    assert repr(KERNELS["bound"]) == f"{complete!r} on cpu"
    assert repr(KERNELS["inline"]).startswith("<stagekit inline scale(x, y, n")


def test_what_is_compiled_and_found_is_shown_in_a_line() -> None:
    x, y = np.ones(100, np.float32), np.ones(100, np.float32)
    with sk.sanitize(collect=True) as session:
        complete[3](x, y, 150)
    kernel = complete.specialize(x=sk.Tensor((None,), sk.float32), y=sk.Tensor((None,), sk.float32), factor=sk.float32)

    artifact = kernel.compile("cuda", capability=90)

    assert repr(artifact).startswith("<stagekit artifact scale(x: Tensor((?,), float32), ")
    assert f"with BLOCK=64, MODE='fast' for cuda of compute capability 9.0, {len(artifact.code)} bytes>" in repr(
        artifact
    )
    assert repr(session) == "<stagekit sanitizer: 1 launch, 2 findings>"
    assert repr(session.report) == "<stagekit report: 2 findings>"
    assert repr(session.findings[0]).startswith(f"<stagekit finding OUT_OF_BOUNDS at {__file__}:")
    assert "reads element 100 of `x`" in repr(session.findings[0])


# -- notebooks ------------------------------------------------------------------------------------------------------------

HOSTILE = """<script>alert("x")</script>&'"""


def hostile(x, N: sk.constexpr) -> None:
    x[100] = 1


hostile.__doc__ = HOSTILE
hostile.__qualname__ = HOSTILE
hostile_kernel = sk.jit(hostile, name=HOSTILE)


def test_a_notebook_escapes_every_text() -> None:
    kernel = hostile_kernel.specialize(N=HOSTILE)
    with sk.sanitize(collect=True) as session:
        kernel[1, 1](np.zeros(3))

    shown = [each._repr_html_() for each in (hostile_kernel, kernel, session.report, *session.findings, kernel.ir)]

    for text in shown:
        assert "<script" not in text
        assert '"x"' not in text
        assert text.startswith(("<table>", "<pre>"))
    assert all("&lt;script&gt;" in text for text in shown[:3])


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
def test_a_notebook_shows_what_there_is_of_a_kernel_without_compiling_it() -> None:
    kernel = sk.jit(scale).specialize(BLOCK=32)
    before = kernel._repr_html_()
    kernel[1](np.ones(9, np.float32), np.ones(9, np.float32), 9)

    assert "compiled" not in before
    assert "Multiply x by a factor." in before
    assert "cpu, block 32" in kernel._repr_html_()
    assert "with BLOCK=64" in scaling._repr_html_()
    assert kernel.ir._repr_html_().startswith("<pre>func @scale")
