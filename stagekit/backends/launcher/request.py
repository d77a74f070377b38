"""What a launcher is made from: a kernel's signature and launch, reduced to what its machine code depends on.

Two kernels with equal requests share one launcher: names, defaults, brackets and code addresses are in the STATE that each
call is given. What the launcher asks of each argument are constants in its code, which `support/` reads: those functions are
compiled once, so that making a launcher, for which somebody waits, is a matter of a few calls.

    @array0 = internal constant [14 x i64] [...]      a WANTED_ARRAY and the sizes that are fixed, -1 for free ones
    @number1 = internal constant [4 x i64] [...]      a WANTED_NUMBER
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from stagekit import dtypes
from stagekit import native_tables as tables
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.hostexpr import HostExpr
from stagekit.signature import ArgSpec, ArraySpec, LaunchSpec, ParamSlot, PointerSpec, Signature

Target = Literal["cpu", "cuda"]

DEVICE_TYPES: dict[Target, int] = {"cpu": 1, "cuda": 2}  # DLPack's

WANTS = (None, dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
"""What numbers are made to: an integer of some range, or one of these. Floats of 8 bits go the general way."""

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CallParameter:
    """One parameter of the call. argument: which run-time argument it is, or None for a constexpr.

    is_declared: its annotation fixes the dtype. Else the argument's own type chose the specialisation, and another type of
    number must choose again. constant: of a constexpr that is an int, its value; other constexprs are known by identity.
    """

    argument: int | None
    is_declared: bool = True
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class LauncherRequest:
    """parameters: in the order of the call, the last `keyword_only` of them not by position.

    launch: what the kernel computes itself, None where the brackets say it. shared_needs: dynamic shared bytes, each of which
    either must give. block: threads that a computed launch must have, where they are fixed. scratch_bytes: cpu only.
    added_shared_bytes: cuda only.
    """

    target: Target
    specs: tuple[ArgSpec, ...]
    slots: tuple[ParamSlot, ...]
    parameters: tuple[CallParameter, ...]
    keyword_only: int
    launch: LaunchSpec | None
    shared_needs: tuple[HostExpr, ...]
    block: tuple[int, int, int] | None
    scratch_bytes: int
    added_shared_bytes: int
    has_guards: bool

    @classmethod
    def of(cls, signature: Signature, **fields: Any) -> LauncherRequest:
        """Without the names."""
        specs = tuple(replace(spec, name="") for spec in signature.specs)
        return cls(specs=specs, slots=signature.slots, shared_needs=signature.shared_needs, **fields)


def array_words(spec: ArraySpec | PointerSpec, target: Target) -> list[int]:
    """A WANTED_ARRAY and its sizes.

    An array without gaps has a specialisation of its own, unless strides were declared, which hold for both layouts.
    """
    rank, sizes = (spec.rank, spec.shape) if isinstance(spec, ArraySpec) else (-1, ())
    is_packed = isinstance(spec, ArraySpec) and spec.is_contiguous
    is_strided = isinstance(spec, ArraySpec) and not spec.is_contiguous
    is_loose = isinstance(spec, ArraySpec) and is_strided and spec.strides is None
    needed_flags = tables.WRITEABLE * spec.is_written
    words: dict[str, int] = {
        "dtype": tables.PROCESS[f"dtype_{spec.dtype.name}"],
        "dlpack_dtype": tables.dlpack_dtype(spec.dtype),
        "device_type": DEVICE_TYPES[target],
        "rank": rank,
        "needed_flags": needed_flags | tables.C_CONTIGUOUS * is_packed,
        "checked_flags": needed_flags | tables.C_CONTIGUOUS * (is_packed or is_loose),
        "unit_shift": spec.dtype.itemsize.bit_length() - 1,
        "is_written": spec.is_written,
        "is_packed": is_packed,
        "is_loose": is_loose,
        "is_strided": is_strided,
        "align": spec.align,
    }
    return [*(int(words[name]) for name in tables.WANTED_ARRAY), *(s if isinstance(s, int) else -1 for s in sizes)]


def can_read(dtype: DType) -> bool:
    """Are numbers of this dtype read natively?"""
    return not dtype.is_float or dtype in WANTS


def number_words(dtype: DType, *, is_declared: bool) -> list[int]:
    """A WANTED_NUMBER. An undeclared number must be of the type that chose the specialisation."""
    words = {
        "kind": WANTS.index(dtype if dtype.is_float else None),
        "low": 0 if dtype.is_float else dtype.min,
        "high": 0 if dtype.is_float else min(dtype.max, _INT64_MAX),
        "own": -1 if is_declared else ALL_DTYPES.index(dtype),
    }
    return [words[name] for name in tables.WANTED_NUMBER]
