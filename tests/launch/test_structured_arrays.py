"""Structured arrays: fields and elements as NumPy has them, in any layout, on every target; races and ends seen by field."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES
from stagekit.runtime.device_array import DeviceField, StructuredDeviceArray

TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))
POINT = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
FIELDS = [("place", POINT), ("mass", "f8"), ("rgb", "u1", (3,)), ("number", "i4")]
BODY, PACKED = np.dtype(FIELDS, align=True), np.dtype(FIELDS)
LAYOUTS = pytest.mark.parametrize("layout", [BODY, PACKED], ids=["aligned", "packed"])


def bodies(shape: Any = 6, layout: Any = BODY) -> Any:
    made = np.zeros(shape, layout)
    count = np.arange(made.size).reshape(made.shape)
    made["place"]["x"], made["place"]["y"], made["mass"], made["number"] = count, count * 2, count / 2, count
    made["rgb"] = count[..., None] * 3 + np.arange(3)
    return made


def run_on(target: str, kernel: Any, key: Any, *args: Any) -> list[Any]:
    moved = [sk.cuda.to_device(a) if target == "cuda" and isinstance(a, np.ndarray) else a for a in args]
    sk.compile(kernel, target)[key](*moved)
    return [a.to_host() if hasattr(a, "to_host") else a for a in moved]


@sk.jit
def move(A, B, step):
    i = sk.cuda.thread_idx("x")
    if i < len(A):
        A[i].place.x += step
        A.place.y[i] = A["mass"][i] * 2
        A[i].mass = A.rgb[i, 1] + A[i].rgb[2] + A[i]["number"]
        B[i] = A[i]
        B.number[i] += 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [0, 1, 6])
@LAYOUTS
def test_elements_and_fields(layout: Any, count: int, target: str) -> None:
    given = bodies(count, layout)
    kernel = move.specialize()
    a, b = given.copy(), np.zeros(count, layout)
    for _ in range(3):
        a, b, _ = run_on(target, kernel, (1, 8), a, b, 0.5)

    expected = given.copy()
    for _ in range(3):
        expected["place"]["x"] += np.float32(0.5)
        expected["place"]["y"] = expected["mass"] * 2
        expected["mass"] = expected["rgb"][:, 1] + expected["rgb"][:, 2] + expected["number"]
    assert (expected == a).all()
    expected["number"] += 1
    assert (expected == b).all()


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("view", [lambda a: a[::2], lambda a: a[::-1], lambda a: a[1:4], lambda a: a[3:3]])
@LAYOUTS
def test_views_with_steps(layout: Any, view: Callable[[Any], Any], target: str) -> None:
    memory = bodies(12, layout)
    given, out = view(memory), np.zeros(len(view(memory)), layout)

    @sk.jit
    def copy(A, B):
        i = sk.cuda.thread_idx("x")
        if i < len(A):
            B[i] = A[i]

    run_on(target, copy.specialize(), (1, 16), given, out)
    assert (given == out).all()


@pytest.mark.parametrize("target", TARGETS)
@LAYOUTS
def test_several_axes_slices_and_tuples(layout: Any, target: str) -> None:
    @sk.jit
    def kernel(A, out):
        i, j = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
        row = A[i]
        out[i, j] = row[j].mass + A[:, j][i].place.y + A.shape[1] + A.ndim + row.ndim
        A[i, j].place = (1, 2.5, i)

    found, out = run_on(target, kernel.specialize(), (1, (2, 3)), bodies((2, 3), layout), np.zeros((2, 3)))

    given = bodies((2, 3))
    assert (given["mass"] + given["place"]["y"] + 3 + 2 + 1 == out).all()
    assert (found["place"]["y"] == 2.5).all()
    assert ([[0] * 3, [1] * 3] == found["place"]["z"]).all()


@pytest.mark.parametrize("fields", [[("a", "f4"), ("b", "f2"), ("c", "i2")], [("a", "u1"), ("b", "i1")], [("a", "i8")]])
def test_layouts_whose_steps_are_whole_elements(fields: Any) -> None:
    given = np.zeros(5, np.dtype(fields))
    for name, *_ in fields:
        given[name] = np.arange(5)

    @sk.jit
    def double(A):
        i = sk.cuda.thread_idx("x")
        for name, *_ in fields:
            A[name][i] = A[name][i] * 2

    double[1, 5](given)

    assert all((given[name] == np.arange(5) * 2).all() for name, *_ in fields)


def test_a_tile_of_a_field() -> None:
    @sk.jit
    def total(A, out, BLOCK: sk.constexpr):
        at = sk.arange(0, BLOCK)
        part = sk.load(A.mass.tile(0, BLOCK))
        sk.store(out + at, part + sk.reduce_sum(part))

    given, out = bodies(6), np.zeros(8)
    total[(1,)](given, out, 8)

    assert (given["mass"] + given["mass"].sum() == out[:6]).all()


def test_specialised_by_example() -> None:
    kernel = move.specialize(A=bodies(1), B=bodies(2), step=sk.float32)

    assert "A.place.x: Tensor((?,), float32)" in str(kernel.signature)
    assert ".entry move" in kernel.ptx


def test_inside_of_other_arguments() -> None:
    out = np.zeros(1)

    @sk.jit
    def read(pair, out):
        out[0] = pair[0][2].mass + pair[1]

    read[1, 1]((bodies(), 5), out)

    assert 6 == out[0]


def test_races_and_ends_are_seen_by_field() -> None:
    @sk.jit
    def apart(A):
        i = sk.cuda.thread_idx("x")
        if i < 2:
            A[0].place.x = i
        else:
            A[i].place.y = 2.0

    with pytest.raises(sk.StagekitError, match=r"(?s)RACE.*`A\.place\.x`"):
        sk.sanitize(apart)[1, 64](bodies(64))

    @sk.jit
    def each_its_own(A, n):
        i = sk.cuda.thread_idx("x")
        if i < n:
            if i == 0:
                A[0].place.x = 1.0
            else:
                A[i - 1].place.y = 2.0

    sk.sanitize(each_its_own)[1, 64](bodies(64), 64)
    with pytest.raises(
        sk.StagekitError, match=r"`A\.place\.y`, which has|`A\.place\.y\[3\]`|element 3 of `A\.place\.y`"
    ):
        sk.sanitize(each_its_own)[1, 64](bodies(3), 64)


def test_fields_on_a_gpu_lie_where_numpy_has_them() -> None:
    """Without a GPU: their addresses, shapes and steps."""
    given = bodies((2, 3))
    memory: Any = SimpleNamespace(_address=4096, device=0)
    there = StructuredDeviceArray(memory, given.dtype, given.shape, given.strides)

    for path in (("place", "x"), ("place", "z"), ("mass",), ("rgb",), ("number",)):
        host, field = given, there
        for name in path:
            host, field = host[name], field[name]
        assert isinstance(field, DeviceField)
        assert field.is_aligned
        assert (*host.shape, host.itemsize) == field.as_bytes().__stagekit_view__().shape
        view = field.__stagekit_view__()
        assert host.ctypes.data - given.ctypes.data == view.address - 4096
        assert (host.shape, tuple(s // host.itemsize for s in host.strides)) == (view.shape, view.strides)


# -- refusals -------------------------------------------------------------------------------------------------------------


def _no_field(A, i):
    A[i].plce = 1


def _no_field_read(A, i):
    A.mass[i] = A.weight[i]


def _whole_field(A, i):
    A.mass = 1.0


def _slice(A, i):
    A[0:2] = (1, 2)


def _too_few(A, i):
    A[i] = (1, 2)


def _axes(A, i):
    A[i, i].mass = 1.0


def _arithmetic(A, i):
    A.mass[i] = A[i] + 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_no_field, "no field 'plce': the fields are place, mass"),
        (_no_field_read, "no field 'weight': the fields are place, mass"),
        (_whole_field, "ARGUMENT_MUTATION"),
        (_slice, "assign elements in a loop"),
        (_too_few, "takes a tuple of 4 values, for place, mass"),
        (_axes, "1 axis, got 2 indices"),
        (_arithmetic, "BAD_OPERANDS|unsupported operand"),
    ],
)
def test_what_structured_arrays_are_not_for(wrong: Callable[[Any, Any], None], message: str) -> None:
    with pytest.raises(sk.StagekitError, match=message):
        sk.jit(wrong)[1, 1](bodies(), 1)


@pytest.mark.parametrize("name", [d.name for d in ALL_DTYPES])
def test_a_packed_field_of_any_dtype(name: str) -> None:
    dtype = next(d for d in ALL_DTYPES if d.name == name)
    values = (np.arange(5) % 2).astype(dtype.numpy)
    given, out = np.zeros(5, np.dtype([("flag", "u1"), ("value", dtype.numpy)])), np.zeros(5, dtype.numpy)
    given["value"], given["flag"] = values, 7

    @sk.jit
    def kernel(A, B, out):
        i = sk.cuda.thread_idx("x")
        out[i] = A[i].value
        B[4 - i].value = out[i]

    written = np.zeros_like(given)
    kernel[1, 1](given[:1], written, out)
    kernel[1, 5](given, written, out)

    assert values.tobytes() == out.tobytes() == written["value"][::-1].tobytes()
    assert not written["flag"].any()


def test_packed_fields_are_bytes_to_the_sanitizer() -> None:
    @sk.jit
    def kernel(A):
        A[sk.cuda.thread_idx("x")].number = 1

    with pytest.raises(sk.StagekitError, match=r"`A\.number"):
        sk.sanitize(kernel)[1, 4](bodies(3, PACKED))
