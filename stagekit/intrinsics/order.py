"""How an access of memory, or a fence, orders others: compile-time parameters that atomics, ordered accesses and fences share.

Names are those of C++ and LLVM for orders, which Triton's `sem=` has too. Scopes say who takes part: the threads of the block,
of the GPU, or of the whole system.

Source: PTX ISA, "Memory Consistency Model"; for `seq_cst`, a fence in front of the access: Lustig et al., "A Formal Analysis of
the NVIDIA PTX Memory Consistency Model", ASPLOS 2019.
"""

from __future__ import annotations

from stagekit.ir import Param, Space

ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
SCOPES = ("block", "gpu", "sys")
PTX_SCOPES = {"block": "cta", "gpu": "gpu", "sys": "sys"}
PTX_SPACES = {Space.GLOBAL: "global", Space.SHARED: "shared", Space.CLUSTER: "shared::cluster"}

_ELSEWHERE = {
    "sem": "order",
    "memory_order": "order",
    "acquire_release": "acq_rel",
    "sc": "seq_cst",
    "monotonic": "relaxed",
    "volatile": "relaxed",
}
SCOPE = Param("scope", SCOPES, "gpu", {"thread_scope": "scope", "cta": "block", "device": "gpu", "system": "sys"})


def order_param(*choices: str, default: str = "relaxed") -> Param:
    return Param("order", choices, default, _ELSEWHERE)


def acquires(order: str) -> bool:
    """Return whether what comes later stays behind an access of this order."""
    return order in ("acquire", "acq_rel", "seq_cst")


def releases(order: str) -> bool:
    """Return whether what came earlier stays in front of an access of this order."""
    return order in ("release", "acq_rel", "seq_cst")
