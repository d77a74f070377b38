"""Instructions that ptxas translates wrongly, written in another way.

ptxas before CUDA 13.3, also the one in drivers, takes `neg.s16` and `abs.s16` of -32768 for 32768 where the result is next
widened or shifted to the right: it leaves out the sign extension. A product and a maximum are translated rightly.

Measured: ptxas 13.0.88, 13.1.115 and 13.2.86 for sm_90, by disassembly; driver 580 on an H200, by results.
"""

from __future__ import annotations

import re

_REWRITES = (
    (re.compile(r"^\tneg\.s16 \t(%\w+), (%\w+);$", re.M), r"\tmul.lo.s16 \t\1, \2, -1;"),
    (
        re.compile(r"^\tabs\.s16 \t(%\w+), (%\w+);$", re.M),
        r"\t{ .reg .b16 \t%negated;\n\tmul.lo.s16 \t%negated, \2, -1;\n\tmax.s16 \t\1, \2, %negated; }",
    ),
)


def avoid(ptx: str) -> str:
    """The same program without what ptxas gets wrong."""
    for pattern, replacement in _REWRITES:
        ptx = pattern.sub(replacement, ptx)
    return ptx
