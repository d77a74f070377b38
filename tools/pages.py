"""Write the two generated pages: `docs/intrinsics.md` from the records, `docs/arithmetic.md` from `ir/semantics.py`.

    python -m tools.pages docs

A test fails when a page is not what `pages()` gives.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, DType, float32, int8, int32, uint8
from stagekit.frontend.attributes import ATTRIBUTES
from stagekit.frontend.values import Address, Array, Number
from stagekit.intrinsics import FAMILIES, by_name
from stagekit.ir import semantics
from stagekit.ir.intrinsic import Intrinsic, accuracy, overloads
from stagekit.ir.ops import BinaryKind, CompareKind

_OF_NUMBERS = (
    "Functions of numbers, one thread at a time: Python's `math`, and what NumPy and CUDA users expect beside it."
)

Row = Sequence[str]


def pages() -> dict[str, str]:
    """The text of each generated page by its file name."""
    return {"intrinsics.md": _joined(_intrinsics_page()), "arithmetic.md": _joined(_arithmetic_page())}


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _table(header: Row, rows: Iterable[Row]) -> Iterator[str]:
    yield _line(header)
    yield _line(["---"] * len(header))
    yield from map(_line, rows)
    yield ""


def _line(cells: Row) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# -- intrinsics.md ----------------------------------------------------------------------------------------------------

_INTRINSICS_INTRO = """\
# Operations

Every operation beside Python's own operators, generated from the records in `stagekit/intrinsics/` and the texts of functions
(`python -m tools.pages docs` refreshes the page; `help(sk.exp)` shows the same). `T` is any of the dtypes named after it.

Error: the largest distance from the correctly rounded result, in units in the last place of the result, on cuda, on cpu, and
on cuda under `fastmath=True` where that takes another instruction (∞: bounded absolutely, not in ulp). Exact: the same
bits everywhere. A 16-bit float is computed as float32 and rounded once more, which can add 1.
"""

# Sections of functions that have no record: what a section is about, and its names in `stagekit`.
_SECTIONS = {
    "memory": (
        "Reading and writing arrays, and memory of the block and of the thread. Atomics are [below](#atomics).",
        (
            "load",
            "store",
            "alloc_shared",
            "alloc_local",
            "dynamic_shared",
            "peer",
            "window",
            "table",
            "vector",
            "switch",
        ),
    ),
    "tiles": (
        "Values of a whole block, for block-level kernels, reductions and scans. Elementwise operations take tiles like numbers.",
        (
            *("arange", "full", "zeros", "reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin", "any", "all"),
            *(
                "count_nonzero",
                "cumsum",
                "cumprod",
                "reduce",
                "scan",
                "sort",
                "argsort",
                "topk",
                "dot",
                "shared",
                "staged",
                "flip",
                "join",
                "split",
                "gather",
                "histogram",
            ),
        ),
    ),
    "complex numbers": (
        "Numbers of two floats, which many of the functions above take: see the [language](language.md#complex-numbers).",
        ("complex", "polar", "angle"),
    ),
    "among threads": (
        "What each thread has of its own, combined or handed on: over a warp, a block, or a group of lanes.",
        (
            "warp_reduce",
            "block_reduce",
            "block_scan",
            "tiled_partition",
            "coalesced_threads",
            "labeled_partition",
            "grid_sync",
            "persistent",
            "pipeline",
            "warp_roles",
        ),
    ),
    "random numbers": (
        "Numbers that a seed and an offset determine, one at a time or for a tile of offsets, with the same bits everywhere.",
        ("rand", "randn", "randint", "philox"),
    ),
    "choosing and staging": (
        "Choosing by value, what is decided while specialising, and launches.",
        (
            "where",
            "static_range",
            "static_assert",
            "static_print",
            "constexpr",
            "speculate",
            "device_entry",
            "ceildiv",
            "cdiv",
        ),
    ),
    "inline PTX": ("An instruction that nothing else gives.", ("inline_asm",)),
}


def _intrinsics_page() -> Iterator[str]:
    yield _INTRINSICS_INTRO
    for name, (summary, functions) in _SECTIONS.items():
        yield f"## {name}\n\n{summary}\n"
        yield from _table(("Operation", "Meaning"), map(_function_row, functions))
    yield "## attributes\n\nWhat numbers, pointers, arrays and tiles know of themselves.\n"
    yield from _table(("Attribute", "Of", "Meaning"), _attribute_rows())
    for name, family in FAMILIES.items():
        summary = _OF_NUMBERS if name == "math" else str(family[0].__doc__).strip().splitlines()[0]
        yield f"## {name}\n\n{summary}{_OF_TILES.get(name, '')}\n"
        yield from _table(
            ("Operation", "Types", "Meaning", "Error", "Source"), map(_intrinsic_row, records_of(*family))
        )


_OF_TILES = {
    "atomics": " Of a tile of pointers each element is changed,\nby a number or by the elements of a tile, "
    "where `mask=` holds; the result is the tile of the old values, 0 where `mask` is false."
}


def _function_row(name: str) -> Row:
    function = getattr(sk, name)
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(inspect.getdoc(function)).removeprefix(f"{name}(value)\n\n")
    return f"`{name}{inspect.Signature(plain)}`", " ".join(text.split())


def _attribute_rows() -> Iterator[Row]:
    for kind, owner in (("number", Number), ("pointer", Address), ("array", Array)):
        for attribute in ATTRIBUTES[owner].values():
            yield f"`.{attribute.written}`", kind, attribute.doc
    for written in ("dtype", "shape", "ndim", "extent", "T", "trans(*order)", "reshape(*shape)", "to(dtype)"):
        yield f"`.{written}`", "tile", str(inspect.getdoc(getattr(sk.Tile, written.partition("(")[0])))


def records_of(*family: ModuleType) -> list[Intrinsic]:
    """The records that the modules of a family define, by name."""
    bound = (value for module in family for value in vars(module).values())
    return sorted({value for value in bound if isinstance(value, Intrinsic)}, key=lambda r: r.name)


def _intrinsic_row(record: Intrinsic) -> Row:
    return f"`{record.call}`", "; ".join(overloads(record.sigs)), record.meaning, accuracy(record), record.source


# -- arithmetic.md ----------------------------------------------------------------------------------------------------

_ARITHMETIC_INTRO = """\
# Arithmetic on every edge

What an operator gives, on every target and when it is folded at specialise time: one table of meaning, `ir/semantics.py`,
computed this page (`python -m tools.pages docs` refreshes it). Which dtype two operands meet in is in
[language.md](language.md).

- **Integers** wrap in two's complement. `//` rounds towards minus infinity, `%` has the sign of the divisor, and both give 0
  where the divisor is 0. A shift amount counts as unsigned; by the width or more nothing is left but the sign.
- **Floats** follow IEEE 754: `+ - * /` and `sqrt` are correctly rounded, subnormal numbers are kept, nothing is contracted.
  `//` and `%` are NumPy's. The sign and payload of a NaN are unspecified.
- **float16 and bfloat16** compute each operation in float32 and round back; for `+ - * /` and `sqrt` that is correct rounding.
- **Conversions** round once, to nearest even. Float to integer drops the fraction and saturates, NaN gives 0; integer
  to integer keeps the low bits; to bool is `!= 0`, so NaN is true. float8_e4m3fn has no infinity: too large gives NaN.
- **`int`, `float` and `round`** of a number known at compile time are Python's own. At run time `int(x)` and `round(x)` are int32
  where that holds every value of the dtype, else int64, and 64-bit integers stay; `float(x)` is float32, float64 of a float64.
- **Comparisons** with NaN are false, but `!=` is true. `minimum` and `maximum` propagate NaN, `fmin` and `fmax` ignore it.

`fastmath=True` gives up these promises for one kernel; `fastmath="contract"`, or several names, gives up some. All together are
what nvcc's `-use_fast_math` does, and reassociation.

| name | allows | float32 on a GPU |
|---|---|---|
| `contract` | `a * b + c` rounded once | `fma` |
| `reassociate` | another order of operations; a zero of the other sign | |
| `division` | `/` off by 2 units in the last place, and products with a reciprocal | `div.approx`, `rcp.approx` |
| `root` | `sqrt` and `rsqrt` off by 2 units | `sqrt.approx`, `rsqrt.approx` |
| `functions` | `exp`, `log`, `sin` and others approximated, as [intrinsics.md](intrinsics.md) says | `ex2.approx`, `lg2.approx` |
| `flush` | subnormal operands and results count as 0 | `.ftz` |

On the CPU `contract`, `reassociate` and `division` have an effect.
"""

_OPERATORS: dict[str, BinaryKind | CompareKind] = {
    "+": BinaryKind.ADD,
    "-": BinaryKind.SUB,
    "*": BinaryKind.MUL,
    "/": BinaryKind.DIV,
    "//": BinaryKind.FLOORDIV,
    "%": BinaryKind.MOD,
    "<<": BinaryKind.SHL,
    ">>": BinaryKind.SHR,
    "==": CompareKind.EQ,
    "!=": CompareKind.NE,
    "<": CompareKind.LT,
    "<=": CompareKind.LE,
}
_INF, _NAN = math.inf, math.nan


def _arithmetic_page() -> Iterator[str]:
    yield _ARITHMETIC_INTRO
    yield "## Integers (int32)\n"
    pairs = [(7, 2), (-7, 2), (7, -2), (-7, -2), (7, 0), (-7, 0), (int32.min, -1), (int32.max, 1), (int32.min, 1)]
    yield from _operator_table(int32, pairs, ("+", "-", "*", "//", "%"))
    yield "## Shifts (int8 and uint8)\n"
    amounts = (0, 1, 7, 8, 100)
    yield from _operator_table(int8, [(x, n) for x in (100, -100) for n in (*amounts, -1)], ("<<", ">>"))
    yield from _operator_table(uint8, [(200, n) for n in amounts], ("<<", ">>"))
    yield "## Floats (float32)\n"
    floats = [
        (7.5, 2.0),
        (-7.5, 2.0),
        (7.5, -2.0),
        (1.0, 0.0),
        (-1.0, 0.0),
        (0.0, 0.0),
        (-0.0, 5.0),
        (1.0, _INF),
        (-1.0, _INF),
    ]
    yield from _operator_table(
        float32, [*floats, (_INF, 2.0), (_INF, _INF), (_NAN, 1.0)], ("+", "-", "*", "/", "//", "%")
    )
    yield "## Comparisons (float32)\n"
    yield from _operator_table(float32, [(0.0, -0.0), (_NAN, _NAN), (_NAN, 1.0), (_INF, _INF)], ("==", "!=", "<", "<="))
    yield "## The smaller and the larger (float32)\n"
    yield from _extremum_table(
        [(1.0, 2.0), (-0.0, 0.0), (0.0, -0.0), (_NAN, 1.0), (1.0, _NAN), (_NAN, _NAN), (-_INF, _NAN)]
    )
    yield "## Conversions of a float32\n"
    numbers = (0.0, -0.0, 0.5, -1.5, 2.5, 300.7, -300.7, 3e9, 1e20, 65520.0, 1e-8, _INF, -_INF, _NAN)
    yield from _cast_table(float32, numbers, ("bool", "i8", "u8", "i32", "u64", "f16", "bf16", "f8e4m3", "f8e5m2"))
    yield "## Conversions of an int32\n"
    integers = (0, 1, -1, 127, 128, 255, 256, -129, 2049, 65520, 16777217, int32.max, int32.min)
    yield from _cast_table(int32, integers, ("bool", "i8", "u8", "i64", "u32", "f16", "bf16", "f32", "f8e4m3"))


def _operator_table(dtype: DType, pairs: Sequence[tuple[Any, Any]], operators: Row) -> Iterator[str]:
    rows = [(_shown(a), _shown(b), *(_shown(_result(o, dtype, a, b)) for o in operators)) for a, b in pairs]
    yield from _table(("a", "b", *(f"a {o} b" for o in operators)), rows)


def _result(operator: str, dtype: DType, a: Any, b: Any) -> Any:
    kind = _OPERATORS[operator]
    x, y = semantics.typed(a, dtype), semantics.typed(b, dtype)
    if isinstance(kind, CompareKind):
        return bool(semantics.compare(kind, dtype, x, y))
    return semantics.to_python(semantics.binary(kind, dtype, x, y), dtype)


def _extremum_table(pairs: Sequence[tuple[float, float]]) -> Iterator[str]:
    names = ("minimum", "maximum", "fmin", "fmax")
    rows = [(_shown(a), _shown(b), *(_shown(_called(n, a, b)) for n in names)) for a, b in pairs]
    yield from _table(("a", "b", *(f"{n}(a, b)" for n in names)), rows)


def _called(name: str, *args: float) -> float:
    evaluate = by_name(name).evaluate
    return float(evaluate(*(semantics.typed(a, float32) for a in args))) if evaluate else _NAN


def _cast_table(source: DType, values: Sequence[Any], targets: Row) -> Iterator[str]:
    dtypes = [next(d for d in ALL_DTYPES if d.short == name) for name in targets]

    def row(value: Any) -> Row:
        typed = semantics.typed(value, source)
        return (_shown(value), *(_shown(semantics.to_python(semantics.cast(typed, source, d), d)) for d in dtypes))

    yield from _table(("x", *(d.name for d in dtypes)), map(row, values))


def _shown(value: Any) -> str:
    """A number as Python prints it, a long float with nine digits."""
    text = str(value)
    return text if not isinstance(value, float) or len(text) <= _LONGEST else f"{value:.9g}"


_LONGEST = 12


def write_pages(folder: Path) -> None:
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
