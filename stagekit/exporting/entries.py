"""From a specialisation to what a C launcher needs: for each of its entries the code of a target, and what a launch must know."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.exporting.errors import refuse
from stagekit.frontend.traced import OTHER_GPU, Traced
from stagekit.jit.compilation import lower_for
from stagekit.jit.specialization import Specialization
from stagekit.jit.variant import Variant
from stagekit.recursion import repeated_deeply
from stagekit.runtime.launch_config import Axes
from stagekit.signature import (
    PLAIN_LAUNCH,
    ArraySpec,
    KernelEntry,
    LaunchSpec,
    NoneSpec,
    PointerSpec,
    ScalarSpec,
    Signature,
)

C_TYPES = {d.name: f"{d.name}_t" if d.is_integer else f"uint{8 * d.itemsize}_t" for d in ALL_DTYPES}
C_TYPES |= {"float32": "float", "float64": "double"}
"""By dtype, what a number is in C; small floats are given by their bits."""


def form_of(dtype: DType) -> tuple[int, int, int, int]:
    """Return what makes the bits of a float of up to 16 bits: how many they are, the digits of the fraction, the exponent of the
    least normal number, and the bits of what is larger than all numbers.
    """
    layout = dtype.layout
    return dtype.bits, layout.fraction_bits, 1 - layout.bias, layout.overflow


_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return
short signed sizeof static struct switch typedef union unsigned void volatile while class new delete this template private public
protected namespace operator try catch throw bool true false grid block shared_bytes parallel stream
"""
_KEYWORDS = frozenset(_WORDS.split())  # of C and C++, and what a launcher calls its own arguments

LEVELS = {
    "x86-64-v2": "+cx16,+sahf,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3",
    "x86-64-v3": "+cx16,+sahf,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave",
}
LEVELS["x86-64-v4"] = f"{LEVELS['x86-64-v3']},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
"""What the psABI's levels of x86-64 processors have, as LLVM spells it."""


@dataclasses.dataclass(frozen=True)
class Image:
    """Code for a GPU. capability: ten times the version. kind: a cubin runs on its major version, PTX on all that follow.

    is_exact: it uses what one version alone has (`sm_90a`).
    """

    kind: Literal["cubin", "ptx"]
    capability: int
    is_exact: bool
    code: bytes
    entry: str


@dataclasses.dataclass(frozen=True)
class EntryCode:
    """One of the bodies of a kernel, for one target. object_code: cpu. images: cuda. scratch_bytes: cpu, of a worker.

    added_shared_bytes: cuda, dynamic ones that every launch adds; own_shared_bytes: these and the static ones.
    """

    kind: KernelEntry
    symbol: str
    object_code: bytes = b""
    images: tuple[Image, ...] = ()
    scratch_bytes: int = 0
    added_shared_bytes: int = 0
    own_shared_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class CParameter:
    """An argument of the C function. name: in C. type: in C, of a number."""

    name: str
    spec: ArraySpec | PointerSpec | ScalarSpec
    type: str


@dataclasses.dataclass(frozen=True)
class ExportedKernel:
    """A kernel for one target. block: threads along the axes where that is fixed, on cpu always. requires: of the cpu."""

    target: Literal["cpu", "cuda"]
    name: str
    signature: Signature
    parameters: tuple[CParameter, ...]
    style: str
    launch: LaunchSpec | None
    block: Axes | None
    grid_axes: tuple[int, ...]
    entries: tuple[EntryCode, ...]
    requires: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """What of grid and block its function takes."""
        return () if self.launch is not None else ("grid", "block") if self.style == "thread" else ("grid",)

    @property
    def takes_shared_bytes(self) -> bool:
        return self.launch is None and bool(self.signature.shared_needs)


def exported(
    kernel: Specialization,
    target: Literal["cpu", "cuda"],
    name: str,
    prefix: str,
    capabilities: Sequence[int],
    block: Axes | None,
    processor: str,
) -> ExportedKernel:
    """Compile all entries of a kernel for a target. name: in C. prefix: of its symbols.

    Raises ExportError for what C cannot launch.
    """
    variants = kernel.every_entry(OTHER_GPU if target == "cuda" else target)  # which every GPU runs, and C can launch
    traced = variants[0].traced
    for each in variants:
        _require_plain(kernel.name, each.traced)
    parameters = _parameters(kernel.name, traced.signature)
    requires: tuple[str, ...] = ()
    if target == "cuda":
        codes = [_for_cuda(each, f"{prefix}_{each.entry}", capabilities) for each in variants]
        fixed = traced.block
    else:
        fixed = traced.block or block
        if fixed is None:
            why = "its blocks have no fixed number of threads, which code for the CPU needs"
            raise refuse(kernel.name, why, "give `block=`")
        made_for, requires = _processor(kernel.name, processor)
        codes = [_for_cpu(each, f"{prefix}_{each.entry}", fixed, made_for) for each in variants]
    facts = traced.signature, parameters, traced.style, traced.launch, fixed, traced.grid_axes
    return ExportedKernel(target, name, *facts, tuple(codes), requires)


def _require_plain(name: str, traced: Traced) -> None:
    """Refuse what a launch needs Python for."""
    fn = traced.function
    if traced.launch is not None and traced.launch.attributes != PLAIN_LAUNCH:
        hint = "launch it from Python, or leave `cluster`, `cooperative` and `programmatic` out of its LaunchConfig"
        raise refuse(name, "its launch has attributes", hint)
    if traced.signature.maps:
        raise refuse(name, "it has tensor maps, which only the launcher of Python builds", "launch it from Python")
    if fn.attribute("grid_state", ()):
        hint = "launch it from Python, or split it into two kernels"
        raise refuse(name, "its blocks wait for each other (`grid_sync`)", hint)
    _require_silent(name, fn.attribute("record_sites", ()) or fn.attribute("debug"))


def _require_silent(name: str, has_records: Any) -> None:
    if has_records:
        hint = "leave `print`, `assert` and `debug=True` out"
        raise refuse(name, "it prints or asserts, which only Python reads", hint)


def _parameters(kernel: str, signature: Signature) -> tuple[CParameter, ...]:
    found: dict[str, CParameter] = {}
    for spec in signature.specs:
        if isinstance(spec, NoneSpec):
            continue
        name = re.sub(r"\W+", "_", spec.name, flags=re.ASCII).strip("_") or "argument"
        if name.startswith("sk_") or name[0].isdigit():  # `sk_` begins the launcher's own names
            name = f"p_{name}"
        while name in _KEYWORDS or name in found:
            name += "_"
        kind = _c_type(kernel, spec.name, spec.dtype) if isinstance(spec, ScalarSpec) else ""
        found[name] = CParameter(name, spec, kind)
    return tuple(found.values())


def _c_type(kernel: str, name: str, dtype: DType) -> str:
    if dtype.name not in C_TYPES:
        raise refuse(kernel, f"`{name}` is a number of {dtype.name}", "pass it in an array")
    return C_TYPES[dtype.name]


# -- code -----------------------------------------------------------------------------------------------------------------


@repeated_deeply
def _for_cpu(variant: Variant, symbol: str, block: Axes, processor: object) -> EntryCode:
    from stagekit.backends.host import compiler, target

    assert isinstance(processor, target.Processor)
    fn = lower_for(variant.traced, "cpu", 0)
    _require_silent(variant.name, fn.attribute("record_sites", ()))
    code = compiler.compile_for(dataclasses.replace(fn, name=symbol), block, processor)
    scratch, own = code.scratch_bytes, code.shared_bytes
    return EntryCode(variant.entry, code.entry, code.object_code, scratch_bytes=scratch, own_shared_bytes=own)


def _for_cuda(variant: Variant, symbol: str, capabilities: Sequence[int]) -> EntryCode:
    from stagekit.backends import ptxas

    images, artifacts = [], [variant.artifact("cuda", each, None) for each in capabilities]
    for capability, artifact in zip(capabilities, artifacts):
        _require_silent(variant.name, artifact.has_records)
        ptx = artifact.code.decode()
        target = re.search(r"^\.target (sm_\d+)(a?)", ptx, re.MULTILINE)
        is_exact = target is not None and target.group(2) == "a"
        images.append(Image("cubin", capability, is_exact, ptxas.assemble(ptx).cubin, artifact.entry))
        images.append(Image("ptx", capability, is_exact, artifact.code + b"\0", artifact.entry))
    added, own = artifacts[-1].added_shared_bytes, max(each.own_shared_bytes for each in artifacts)
    return EntryCode(variant.entry, symbol, images=tuple(images), added_shared_bytes=added, own_shared_bytes=own)


# what gcc and clang can ask for
_ASKED = ("avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl")


def _processor(kernel: str, name: str) -> tuple[object, tuple[str, ...]]:
    """Return the processor of a name, and which of its features a launcher asks for."""
    from stagekit.backends.host import target

    if name == "native":
        found = target.this_processor().without_matrix_unit()
    elif name in LEVELS:
        found = target.Processor(name, LEVELS[name])
    else:
        known = ", ".join(map(repr, ("native", *LEVELS)))
        raise refuse(kernel, f"`processor` is {name!r}, which is not known", f"give one of {known}")
    return found, tuple(each for each in _ASKED if found.has(each))
