"""What a launcher asks of each argument, as constants that `support/` reads.

    @array0 = internal constant [14 x i64] [...]      a WANTED_ARRAY and the sizes that are fixed, -1 for free ones
    @number1 = internal constant [4 x i64] [...]      a WANTED_NUMBER

The functions that read are compiled once, so that making a launcher, for which somebody waits, is a matter of a few calls.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit import native_tables as tables
from stagekit.backends.launcher.request import Target
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.signature import ArraySpec, PointerSpec

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400  # NumPy's flags
DEVICE_TYPES: dict[Target, int] = {"cpu": 1, "cuda": 2}  # DLPack's

WANTS = (None, dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
"""What numbers are made to: an integer of some range, or one of these. Floats of 8 bits go the general way."""

_INT64_MAX = (1 << 63) - 1


def array_words(spec: ArraySpec | PointerSpec, target: Target) -> list[int]:
    """A WANTED_ARRAY and its sizes."""
    needed, checked = _flags(spec)
    words: dict[str, int] = {
        "dtype": tables.PROCESS[f"dtype_{spec.dtype.name}"],
        "dlpack_dtype": tables.dlpack_dtype(spec.dtype),
        "device_type": DEVICE_TYPES[target],
        "needed_flags": needed,
        "checked_flags": checked,
        "unit_shift": spec.dtype.itemsize.bit_length() - 1,
        "is_written": spec.is_written,
        "align": spec.align,
        **_layout(spec),
    }
    sizes = spec.shape if isinstance(spec, ArraySpec) else ()
    return [*(int(words[name]) for name in tables.WANTED_ARRAY), *(s if isinstance(s, int) else -1 for s in sizes)]


def _layout(spec: ArraySpec | PointerSpec) -> dict[str, int]:
    """An array without gaps has a specialisation of its own, unless strides were declared, which hold for both layouts."""
    if isinstance(spec, PointerSpec):
        return {"rank": -1, "is_packed": False, "is_loose": False, "is_strided": False}
    is_loose = not spec.is_contiguous and spec.strides is None
    return {
        "rank": spec.rank,
        "is_packed": spec.is_contiguous,
        "is_loose": is_loose,
        "is_strided": not spec.is_contiguous,
    }


def _flags(spec: ArraySpec | PointerSpec) -> tuple[int, int]:
    """What NumPy's flags must be, and on which bits."""
    layout = _layout(spec)
    needed, tells_apart = WRITEABLE * spec.is_written, layout["is_packed"] or layout["is_loose"]
    return needed | C_CONTIGUOUS * layout["is_packed"], needed | C_CONTIGUOUS * tells_apart


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
