"""The public names called from ordinary Python: each works, or says what is wrong with no frame of ours."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend.language import Staged
from stagekit.ir import Intrinsic

PACKAGE = str(Path(sk.__file__).parent)

PUBLIC = {
    **{f"sk.{name}": getattr(sk, name) for name in sk.__all__ if not name.startswith("_")},
    **{f"sk.cuda.{name}": getattr(sk.cuda, name) for name in sk.cuda.__all__},
}
ANYWHERE = {"ceildiv", "cdiv"}
PURE = {
    name: value
    for name, value in PUBLIC.items()
    if (isinstance(value, Intrinsic) and value.is_elementwise)
    or value in (sk.where, sk.static_range, sk.static_assert, sk.static_print)
}
KERNEL_ONLY = {
    name: value
    for name, value in PUBLIC.items()
    if name not in PURE
    and (
        isinstance(value, Intrinsic | Staged)
        or (hasattr(value, "__stagekit_fragment__") and not isinstance(value, type) and value.__name__ not in ANYWHERE)
    )
}
DESCRIPTIONS = (sk.cuda.LaunchConfig, sk.Tensor, sk.Pointer, sk.constexpr, sk.dynamic)
HOST = {
    name: value
    for name, value in PUBLIC.items()
    if name not in PURE | KERNEL_ONLY
    and (isinstance(value, sk.DType) or value in DESCRIPTIONS or hasattr(value, "__stagekit_host__"))
}

ARRAY = np.zeros(4, np.float32)
ARGUMENTS = [
    (), (0,), (ARRAY,), (0, 4), (ARRAY, 1), (ARRAY, 0, 1.0), ("x",), (1.5, 2.5), (3, 4, 5), (True, "why"),
    (ARRAY, lambda a, b: a + b, 0, 32), ("x", "=r", [], sk.int32),
]  # fmt: skip


def outcome(call: Any, *arguments: Any) -> sk.StagekitError | None:
    """The error, without a frame of ours; None where the call is right."""
    try:
        call(*arguments)
    except sk.StagekitError as error:
        assert [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)] == []
        assert str(error)
        return error
    return None


@pytest.mark.parametrize("name", KERNEL_ONLY)
def test_what_means_something_only_in_a_kernel_says_so(name: str) -> None:
    for arguments in ARGUMENTS:
        error = outcome(KERNEL_ONLY[name], *arguments)

        assert error is not None
        assert error.id == "OUTSIDE_KERNEL"
        assert f"`{name.rpartition('.')[2]}`" in str(error)


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_computes_or_says_what_does_not_fit(name: str) -> None:
    """`test_outside_meaning` says what it computes."""
    errors = [outcome(PURE[name], *arguments) for arguments in ARGUMENTS]

    assert "OUTSIDE_KERNEL" not in [error.id for error in errors if error is not None]
    assert None in errors


@pytest.mark.parametrize("name", HOST)
def test_a_call_that_fits_no_parameters_is_an_entry_of_the_catalogue(name: str) -> None:
    error = outcome(HOST[name], *range(20))

    assert error is not None
    assert error.id == "WRONG_ARGUMENTS"
    assert isinstance(error, TypeError)


@pytest.mark.parametrize("dtype", [value for value in PUBLIC.values() if isinstance(value, sk.DType)], ids=repr)
def test_a_dtype_of_what_is_no_number(dtype: sk.DType) -> None:
    for value in ("one", object(), [1, "two"]):
        error = outcome(dtype, value)

        assert error is not None or dtype is sk.bool_  # whose every object is true or false
        assert error is None or error.id == "NOT_CONVERTIBLE"


@pytest.mark.parametrize(
    "call",
    [
        lambda: sk.cuda.LaunchConfig(grid=1),
        lambda: sk.cuda.LaunchConfig(1, 1, grid=3),
        lambda: sk.cuda.LaunchConfig(1, 1, extra=3),
        lambda: sk.Tensor(1.5, sk.float32),
        lambda: sk.Tensor((3,), sk.float32, strides=1.5),
        lambda: sk.dynamic(3),
        lambda: sk.ceildiv("a", 3),
        lambda: sk.cdiv(3, None),
        lambda: sk.jit(lambda x: x, blocks=3),
        lambda: sk.compile(),
    ],
)
def test_descriptions_that_cannot_be(call: Any) -> None:
    assert outcome(call) is not None


@pytest.mark.parametrize("rounded_up", [sk.ceildiv, sk.cdiv])
def test_a_division_by_zero_raises_what_python_raises(rounded_up: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        rounded_up(1, 0)

    assert not [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename.startswith(PACKAGE)]


@pytest.mark.parametrize("name", ["ceildiv", "cdiv"])
def test_a_second_name_is_the_name_in_errors(name: str) -> None:
    error = outcome(getattr(sk, name), 1)

    assert error is not None
    assert f"`{name}(a, b)`" in str(error)


def test_library_functions_stay_functions_to_python() -> None:
    """Their names, docs and parameters are those of the fragment."""
    assert sk.arange.__name__ == "arange"
    assert "tile" in str(sk.arange.__doc__)
    assert sk.ceildiv(7, 2) == 4
    assert sk.ceildiv(-7, 2) == -3


def nested_fragment_with_options(out):
    @sk.inline(per_thread=True)
    def fragment(x):
        return x

    out[0] = fragment(1)


def nested_kernel(out):
    @sk.jit
    def inner(x):
        return x

    out[0] = inner(1)


def launch_config_without_block(out):
    out[0] = sk.cuda.LaunchConfig(grid=1).grid[0]


def option_that_is_none(out):
    out[0] = sk.inline(blocks=3)


@pytest.mark.parametrize(
    "function", [nested_fragment_with_options, nested_kernel, launch_config_without_block, option_that_is_none]
)
def test_what_python_calls_in_a_kernel_is_refused_at_the_line_of_the_kernel(function: Any) -> None:
    with pytest.raises(sk.StagekitError) as caught:
        sk.jit(function)[1, 1](np.zeros(1, np.int32))

    code = function.__code__
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert code.co_firstlineno < caught.value.loc.line <= code.co_firstlineno + 6
