"""Artifacts and signatures made by hand, as a backend would make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stagekit.artifact import Artifact
from stagekit.dtypes import DType, float32, int64
from stagekit.hostexpr import HostExpr, HostOp, Slot
from stagekit.runtime.args import Binder
from stagekit.runtime.cpu import CpuKernel
from stagekit.signature import ArgSpec, ArraySpec, LaunchSpec, ParamSlot, ScalarSpec, Signature

MakeKernel = Callable[..., CpuKernel]


def artifact(name: str, signature: Signature, **changes: Any) -> Artifact:
    """A block-level CPU artifact of 256 threads, with `changes`."""
    fields: dict[str, Any] = {
        "target": "cpu",
        "kernel_name": name,
        "entry": name,
        "code": b"",
        "signature": signature,
        "style": "block",
        "launch": None,
        "block": (256, 1, 1),
        "shared_bytes": 0,
    }
    return Artifact(**(fields | changes))


def array(
    name: str,
    dtype: DType = float32,
    shape: tuple[int | HostExpr | None, ...] = (None,),
    *,
    contiguous: bool = True,
    written: bool = False,
    align: int = 1,
) -> ArraySpec:
    return ArraySpec(name, dtype, shape, contiguous, written, align)


def binder(kernel: str, signature: Signature, keyword_only: int = 0) -> Binder:
    """What binds calls of a kernel with this signature."""
    texts = [str(s) if d is ... else f"{s} = {d}" for s, d in zip(signature.specs, signature.defaults or (...,) * 9)]
    return Binder(kernel, signature.names, signature.defaults or (...,) * len(texts), keyword_only, texts)


def signature_of(*specs: ArgSpec, **fields: Any) -> Signature:
    """With every slot there can be, in order: address, sizes, strides; value."""
    slots: list[ParamSlot] = []
    for index, spec in enumerate(specs):
        if isinstance(spec, ScalarSpec):
            slots.append(ParamSlot("value", index, spec.dtype))
        elif isinstance(spec, ArraySpec):
            slots.append(ParamSlot("address", index, spec.dtype))
            slots += [ParamSlot("size", index, int64, axis) for axis in range(spec.rank)]
            slots += (
                [] if spec.is_contiguous else [ParamSlot("stride", index, int64, axis) for axis in range(spec.rank)]
            )
        elif hasattr(spec, "dtype"):
            slots.append(ParamSlot("address", index, spec.dtype))
    return Signature(specs, tuple(slots), **fields)


SAXPY = Signature(
    (array("x"), array("y", shape=(Slot(1),), written=True), ScalarSpec("k", float32)),
    (
        ParamSlot("address", 0, float32),
        ParamSlot("size", 0, int64),
        ParamSlot("address", 1, float32),
        ParamSlot("value", 2, float32),
    ),
)
SAXPY_LAUNCH = LaunchSpec(
    (HostOp("floordiv", (HostOp("add", (Slot(1), 255)), 256)), 1, 1),
    (256, 1, 1),
    0,
)
OUT = Signature((array("out", int64, written=True),), (ParamSlot("address", 0, int64),))
VISIT = Signature(
    (array("out", int64, written=True), ScalarSpec("work", int64)),
    (ParamSlot("address", 0, int64), ParamSlot("value", 1, int64)),
)
NO_ARGUMENTS = Signature((), ())
