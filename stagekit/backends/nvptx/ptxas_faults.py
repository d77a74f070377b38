"""Other ways to write the instructions that ptxas translates wrongly.

ptxas takes the result of `abs` for a number that is not negative, also that of the smallest integer: `abs.s32` and a division
after it become a division of unsigned numbers. A maximum of the number and its negative is translated as it stands.
ptxas before CUDA 13.3, also the one in drivers, takes `neg.s16` of -32768 for 32768 where the result is next widened or shifted
to the right: it leaves out the sign extension. It translates a product correctly.
ptxas converts the bits of a float16 that `selp.b16` chose to be 1 or 0 as if they were the numbers 1.0 and 0.0. It does not
look through a shift.
ptxas 13.0, and drivers of that time, compare the result of a 16-bit minimum or maximum with an operand of it in both halves
of a register at once, and take the answer of the unused half. With 32 bits there is one answer.
ptxas 13.0, and drivers of that time, store part of a register that holds a float, where `st` is narrower than the register, as
the float converted to an integer: its low byte is `st.b8` of 3 for 3.0. Bits that were taken out before are stored as they are.

Measured: ptxas 13.0.88, 13.1.115, 13.2.86 and 13.5.37 for sm_90, by disassembly; driver 580 on an H200, by results.
"""

from __future__ import annotations

import re

_NEGATIVE_OF_16_BITS = re.compile(r"^\tneg\.s16 \t(%\w+), (%\w+);$", re.M)
_BITS_FROM_BOOL = re.compile(r"^\tselp\.b16 \t(%\w+), ([01]), ([01]), (%\w+);$", re.M)
_MAGNITUDE = re.compile(r"^\tabs\.s(16|32|64) \t(%\w+), (%\w+);$", re.M)
_EXTREMUM_OF_16_BITS = re.compile(r"\t(min|max)\.([us])16 \t(%\w+), (%\w+), (%\w+|-?\d+);")
_STORE = re.compile(r"^\t(st\.[\w.:]*b(8|16|32)) \t(\[.+\]), (\{?)(%(rs|rd|r)\d[^};]*)(\}?);$", re.M)
_BITS = {"rs": 16, "r": 32, "rd": 64}  # of registers, by their names


def avoid(ptx: str) -> str:
    """Return the same program without the instructions that ptxas translates wrongly."""
    if "\tabs.s" in ptx:
        ptx = _MAGNITUDE.sub(_maximum, ptx)
    if "s16 " in ptx or "u16 " in ptx:
        ptx = _NEGATIVE_OF_16_BITS.sub(r"\tmul.lo.s16 \t\1, \2, -1;", ptx)
        ptx = _EXTREMUM_OF_16_BITS.sub(_widened, ptx)
    ptx = _STORE.sub(_narrowed, ptx)
    return _BITS_FROM_BOOL.sub(_shifted, ptx) if ".f16" in ptx else ptx


def _shifted(choice: re.Match[str]) -> str:
    result, if_true, if_false, condition = choice.groups()
    twice = f"selp.b16 \t%twice, {2 * int(if_true)}, {2 * int(if_false)}, {condition};"
    return f"\t{{ .reg .b16 \t%twice;\n\t{twice}\n\tshr.u16 \t{result}, %twice, 1; }}"


def _maximum(magnitude: re.Match[str]) -> str:
    bits, result, x = magnitude.groups()
    negate = f"mul.lo.s16 \t%negative, {x}, -1;" if bits == "16" else f"neg.s{bits} \t%negative, {x};"
    return f"\t{{ .reg .b{bits} \t%negative;\n\t{negate}\n\tmax.s{bits} \t{result}, {x}, %negative; }}"


def _widened(extremum: re.Match[str]) -> str:
    which, sign, result, left, right = extremum.groups()
    other, widen = "%right", f"\n\tcvt.{sign}32.{sign}16 \t%right, {right};"
    if not right.startswith("%"):
        other, widen = str(int(right) & 0xFFFF if sign == "u" else int(right)), ""
    lines = f"\tcvt.{sign}32.{sign}16 \t%left, {left};{widen}\n\t{which}.{sign}32 \t%left, %left, {other};"
    return f"\t{{ .reg .b32 \t%left, %right;\n{lines}\n\tcvt.u16.u32 \t{result}, %left; }}"


def _narrowed(store: re.Match[str]) -> str:
    instruction, stored, address, begin, registers, kind, end = store.groups()
    bits = _BITS[kind]
    if int(stored) == bits:
        return store.group()
    to = 32 if stored == "32" else 16
    names = registers.split(", ")
    parts = [f"%part{place}" for place in range(len(names))]
    take = "and.b16 \t{}, {}, 255;" if bits == 16 else f"cvt.u{to}.u{bits} \t{{}}, {{}};"
    lines = "\n\t".join([take.format(part, name) for part, name in zip(parts, names)])
    return f"\t{{ .reg .b{to} \t{', '.join(parts)};\n\t{lines}\n\t{instruction} \t{address}, {begin}{', '.join(parts)}{end}; }}"
