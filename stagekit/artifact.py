"""The frozen result of compiling one specialisation for one target: all that the runtime ever sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.signature import LaunchSpec, Signature

Style = Literal["block", "thread", "entry"]
"""What stands in a launch's brackets: a grid ("block"), a grid and a block ("thread"), or nothing ("entry")."""


@frozen()
class RecordSite:
    """One `print` or `assert` of a kernel. Its records hold one 8-byte value per dtype, floats as float64 bits."""

    kind: Literal["print", "assert"]
    format: str  # a `str.format` template
    dtypes: tuple[DType, ...]
    loc: Loc


@frozen(held=True, repr=False)
class Artifact:
    """Machine code (cpu: an object file) or PTX text (cuda: utf-8), and what a launch must know.

    entry: symbol of the kernel. block: threads per axis where fixed at compile time, else None.
    shared_bytes: static shared memory per block. scratch_bytes: cpu only, memory per worker for shared memory and values
    that cross barriers, without the dynamic shared bytes, which follow it. capability: cuda only, ten times the version.
    is_debug: each launch on a GPU is waited for. has_safepoints, waits: cpu only, are there loops that may run for long, and some
    that wait for other threads? grid_state: where blocks wait for the whole grid, which must run at once then, the parameter that
    points to what they count in. grid_axes: along which the programs of a block-level kernel differ. record_sites: where there
    are some, the last native parameter is the address of a record buffer (`runtime/records.py`). stages: text by stage name,
    `llvm` and `ptx`, for people; the IR is the trace's, and printed when somebody asks for it.

    Native parameters: cuda takes one kernel parameter per slot of its own type. cpu: `entry(args, grid, first, last,
    scratch, safepoint)`: args is an array of 8-byte slots, grid of three int64, first/last a range of linear block numbers (x
    fastest). It gives an int32: 0, or if only some threads of a block reached a barrier, at which the range was left, the number
    of the op at which they parted, or what a safepoint gave (`backends/host/entry.py`).
    """

    target: Literal["cuda", "cpu"]
    kernel_name: str
    entry: str
    code: bytes
    signature: Signature
    style: Style
    launch: LaunchSpec | None
    block: tuple[int, int, int] | None
    shared_bytes: int
    scratch_bytes: int = 0
    capability: int = 0
    is_debug: bool = False
    has_safepoints: bool = False
    waits: bool = False
    grid_state: tuple[int, ...] = ()
    grid_axes: tuple[int, ...] = (0, 1, 2)
    added_shared_bytes: int = 0  # cuda: dynamic shared bytes that every launch adds to what its caller asks for
    record_sites: tuple[RecordSite, ...] = ()
    constexprs: tuple[tuple[str, str], ...] = ()
    stages: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        fixed = ", ".join(f"{name}={value}" for name, value in self.constexprs)
        capability = f" of compute capability {self.capability / 10}" if self.capability else ""
        kernel = f"{self.kernel_name}{self.signature}{' with ' if fixed else ''}{fixed}"
        return f"<stagekit artifact {kernel} for {self.target}{capability}, {len(self.code)} bytes>"

    @property
    def own_shared_bytes(self) -> int:
        """The shared memory of the kernel itself, beside what the caller of a launch asks for."""
        return self.shared_bytes + self.added_shared_bytes

    @property
    def has_records(self) -> bool:
        return bool(self.record_sites)
