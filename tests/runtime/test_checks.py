"""Arguments become native values, or are refused with name, expectation and what was received (T11, Y4, Y8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagekit.dtypes import bfloat16, bool_, float32, float64, int32, int64
from stagekit.hostexpr import HostOp, Slot
from stagekit.runtime import checks
from stagekit.runtime.checks import GpuReading, Reading, compile_reader
from stagekit.runtime.errors import ArgumentError
from stagekit.runtime.views import ArrayView, Device
from stagekit.signature import ArraySpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, Signature
from tests.runtime.handmade import array, signature_of

Array = np.ndarray[Any, Any]


def read(signature: Signature, *arguments: Any) -> checks.Native:
    return compile_reader(signature, "cpu")(arguments, Reading())


def address_of(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def refused(words: str, spec: ArraySpec | PointerSpec | ScalarSpec | NoneSpec, value: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        read(signature_of(spec), value)
    text = str(caught.value)
    assert words in text
    return text


def test_values_come_in_slot_order() -> None:
    x = np.zeros((4, 6), np.float32)[:, ::2]
    signature = signature_of(
        array("x", shape=(None, None), contiguous=False), ScalarSpec("n", int32), PointerSpec("p", float32, False, 1)
    )

    assert read(signature, x, 7, x) == (address_of(x), 4, 3, 6, 2, 7, address_of(x))


def test_any_subset_and_order_of_slots_works() -> None:
    specs = signature_of(array("x", shape=(None, 3)), ScalarSpec("n", int32)).specs
    slots = (ParamSlot("value", 1, int32), ParamSlot("size", 0, int64, 0), ParamSlot("address", 0, float32))
    x = np.zeros((4, 3), np.float32)

    assert read(Signature(specs, slots), x, 7) == (7, 4, address_of(x))
    assert read(Signature(specs, slots[:1]), x, 7) == (7,)
    assert read(Signature(specs, ()), x, 7) == ()


def test_sizes_that_depend_on_other_arguments_must_hold() -> None:
    """B has one row more than A, C has n elements."""
    a, b = array("A", shape=(None, None)), array("B", shape=(HostOp("add", (Slot(1), 1)), Slot(2)))
    signature = signature_of(a, b, ScalarSpec("n", int32), array("C", shape=(Slot(6),)))
    A, B, C = (np.zeros(s, np.float32) for s in [(4, 3), (5, 3), (7,)])

    read(signature, A, B, 7, C)

    with pytest.raises(ArgumentError, match=r"`B`: expected 5 element\(s\) along axis 0 \(from `A`, axis 0\), got 4 "):
        read(signature, A, A, 7, C)
    with pytest.raises(
        ArgumentError, match=r"`B`: expected 3 element\(s\) along axis 1 \(as `A`, axis 1\), got 5 \(shape \(5, 5\)\)"
    ):
        read(signature, A, np.zeros((5, 5), np.float32), 7, C)
    with pytest.raises(ArgumentError, match=r"`C`: expected 8 element\(s\) along axis 0 \(as `n`\), got 7"):
        read(signature, A, B, 8, C)


def test_a_wrong_dtype_is_told_with_the_conversion() -> None:
    text = refused("`B`: expected float32, got an array of float64 (shape (10,))", array("B"), np.zeros(10))
    assert "help: B.astype(np.float32)" in text

    assert "B.astype(np.bool_)" in refused("expected bool", array("B", bool_), np.zeros(10))
    assert "B.astype(ml_dtypes.bfloat16)" in refused("expected bfloat16", array("B", bfloat16), np.zeros(10))
    refused("got an array of int64", array("B"), np.zeros(10, int))
    refused("got an array of >f4", array("B"), np.zeros(10, ">f4"))


def test_rank_size_and_layout_are_told() -> None:
    x = np.zeros((4, 6), np.float32)

    refused("`A`: expected 1 dimension, got 2 (shape (4, 6))", array("A"), x)
    refused("`A`: expected 5 element(s) along axis 1, got 6 (shape (4, 6))", array("A", shape=(None, 5)), x)
    refused("got shape (4, 3) with element strides (6, 2)", array("A", shape=(None, None)), x[:, ::2])
    refused("got shape (6, 4) with element strides (1, 6)", array("A", shape=(None, None)), x.T)


def test_steps_of_part_of_an_element_are_refused() -> None:
    field = np.zeros(4, [("a", "f8"), ("b", "i1")])["a"]

    refused("expected steps of whole elements of float64", array("A", float64, contiguous=False), field)
    assert read(signature_of(PointerSpec("A", float64, False, 1)), field) == (address_of(field),)


def test_a_read_only_array_is_an_input_but_no_output() -> None:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False

    read(signature_of(array("A")), x)
    refused("`A`: the kernel writes it, got an array of float32", array("A", written=True), x)
    refused("`A`: the kernel writes it", PointerSpec("A", float32, True, 1), x)


def test_alignment_is_required_only_where_asked_for() -> None:
    base = np.zeros(4 * 64 + 4, np.int8)
    start = -address_of(base) % 64
    x = base[start + 4 : start + 12].view(np.float32)

    read(signature_of(array("A", align=4)), x)
    refused("expected an address that is a multiple of 16 bytes", array("A", align=16), x)
    refused("(4 too many)", PointerSpec("A", float32, False, 64), x)


@pytest.mark.parametrize("value", [None, [1.0], 3.0, "x"])
def test_what_is_no_array_is_told(value: Any) -> None:
    refused("`A`: expected an array of float32, got", array("A"), value)


def test_a_masked_array_is_refused() -> None:
    refused("know nothing of the mask", array("A"), np.ma.masked_array(np.zeros(3, np.float32), mask=[0, 1, 0]))


def test_a_subclass_of_ndarray_is_an_array() -> None:
    x = np.zeros(3, np.float32).view(np.recarray)

    assert read(signature_of(array("A")), x) == (address_of(np.asarray(x)), 3)


def test_an_optional_argument_that_was_none_stays_none() -> None:
    assert read(signature_of(NoneSpec("bias"), ScalarSpec("n", int32)), None, 3) == (3,)
    refused("`bias`: this kernel was specialised for None, got 3 (int)", NoneSpec("bias"), 3)


def test_an_owner_that_refuses_is_quoted() -> None:
    class Stubborn:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("tensors that require grad stay here")

    refused("`A`: an array of type Stubborn refused: tensors that require grad stay here", array("A"), Stubborn())


class OnGpu:
    """Something in GPU memory, as `stagekit.cuda.to_device` makes it."""

    def __init__(self, device: int = 0, kind: Any = "cuda") -> None:
        self.device = Device(kind, device)

    def __stagekit_view__(self) -> ArrayView:
        return ArrayView(4096, (3,), (1,), float32, self.device, True)


def test_arrays_of_the_other_target_are_refused_with_the_way_out() -> None:
    assert "A.to_host()" in refused("that the cpu target can reach, got", array("A"), OnGpu())

    read_gpu, host = compile_reader(signature_of(array("A"), array("B")), "cuda"), np.zeros(3, np.float32)
    for name, arguments in {"A": [host, OnGpu()], "B": [OnGpu(), host]}.items():
        with pytest.raises(ArgumentError, match=rf"stagekit\.cuda\.to_device\({name}\)"):
            read_gpu(arguments, GpuReading(lambda _: 0))


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_memory_that_both_targets_reach_suits_both(kind: str) -> None:
    assert read(signature_of(array("A")), OnGpu(kind=kind)) == (4096, 3)
    assert compile_reader(signature_of(array("A")), "cuda")([OnGpu(kind=kind)], GpuReading(lambda _: 0)) == (4096, 3)


def test_a_gpu_launch_takes_its_device_from_the_arguments() -> None:
    read_gpu = compile_reader(signature_of(array("A"), array("B")), "cuda")
    gpu = GpuReading(lambda _: 0)

    read_gpu([OnGpu(2), OnGpu(2)], gpu)

    assert gpu.device == 2
    with pytest.raises(ArgumentError, match="`B` is on cuda:1, `A` is on cuda:0"):
        read_gpu([OnGpu(0), OnGpu(1)], GpuReading(lambda _: 0))
