"""What an intrinsic is: one record with its signatures, effects, meaning, and lowering per target. Descriptions only.

The records themselves are in `stagekit/intrinsics/`, one file per family. From one record derive: the public function,
overload errors, constant folding, the interpreter, emission on every target, the docs row and the conformance tests.
A lowering is *data*, or an expansion into other IR; it never calls into LLVM.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple

from stagekit.diagnostics import called, hide_frames
from stagekit.dtypes import DType
from stagekit.ir.core import PURE, Effects
from stagekit.ir.types import Pointer, Scalar, Type

TARGETS = ("cuda", "cpu", "interp")


class Sig(NamedTuple):
    """One overload: exact argument types to result types."""

    args: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.args))}) -> {', '.join(map(str, self.results)) or 'nothing'}"


class Param(NamedTuple):
    """A compile-time parameter, such as `axis`: its name, what it may be, and its default (`...`: none)."""

    name: str
    choices: tuple[Any, ...] | type
    default: Any = ...

    def allows(self, value: Any) -> bool:
        if isinstance(self.choices, tuple):
            return any(type(value) is type(c) and value == c for c in self.choices)
        return type(value) is self.choices


class Native(Enum):
    """What only the target itself can do; each backend has one table row per member that it supports."""

    THREAD_IDX = "thread_idx"  # params: axis
    BLOCK_IDX = "block_idx"
    BLOCK_DIM = "block_dim"
    GRID_DIM = "grid_dim"
    LANE_ID = "lane_id"
    WARP_ID = "warp_id"
    BARRIER = "barrier"  # whole block
    BARRIER_COUNT = "barrier_count"  # barrier that also counts, ands or ors a bool over the block
    BARRIER_AND = "barrier_and"
    BARRIER_OR = "barrier_or"
    WARP_BARRIER = "warp_barrier"
    SHUFFLE_IDX = "shuffle_idx"  # 32-bit payload; args: mask, value, source lane
    SHUFFLE_UP = "shuffle_up"
    SHUFFLE_DOWN = "shuffle_down"
    SHUFFLE_XOR = "shuffle_xor"
    BALLOT = "ballot"
    VOTE_ANY = "vote_any"
    VOTE_ALL = "vote_all"
    MATCH_ANY = "match_any"
    ACTIVE_MASK = "active_mask"
    ATOMIC_ADD = "atomic_add"  # args: pointer, value -> old value
    ATOMIC_SUB = "atomic_sub"
    ATOMIC_MIN = "atomic_min"
    ATOMIC_MAX = "atomic_max"
    ATOMIC_AND = "atomic_and"
    ATOMIC_OR = "atomic_or"
    ATOMIC_XOR = "atomic_xor"
    ATOMIC_EXCHANGE = "atomic_exchange"
    ATOMIC_CAS = "atomic_cas"  # args: pointer, expected, desired -> old value
    FENCE = "fence"  # params: scope


class Llvm(NamedTuple):
    """An LLVM intrinsic that exists for scalars and vectors alike. `{T}` in `name` becomes the type suffix (`f32`, `v32f32`).

    immediates: constants appended to the arguments, as (LLVM type, text).
    """

    name: str
    immediates: tuple[tuple[str, str], ...] = ()


class Extern(NamedTuple):
    """A C function called per thread: libdevice on cuda (`__nv_expf`), libm on cpu (`expf`)."""

    symbol: str


class Expand(NamedTuple):
    """A function `(builder, args, params) -> results` that builds the meaning from other ops. Run by `passes/expand.py`.

    is_formula: it builds constants and elementwise ops of its arguments' types, so that it does vectors too, unless it branches.
    """

    build: Callable[..., Any]
    is_formula: bool = False


class Unsupported(NamedTuple):
    """This target cannot do it; `reason` is shown to the user."""

    reason: str


Lowering = Llvm | Extern | Expand | Native | Unsupported


Lowerings = Mapping[str, Lowering | Mapping[DType, Lowering]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Intrinsic:
    """One record. Compared by identity; `registry.by_name` finds it again.

    args: names of the run-time arguments. params: compile-time ones. defaults: Python literals for trailing args.
    lower, lower_fast: target -> lowering, or target -> (dtype of the first scalar argument -> lowering);
    `lower_fast` replaces it under `fastmath=True` where it has an entry.
    tolerance, fast_tolerance: how far a target, and cuda under `fastmath=True`, may be from the correctly rounded result, in
    units in the last place of its dtype; 0 where nothing is said.
    evaluate: the meaning of a PURE intrinsic on NumPy arrays of the argument dtypes, lane by lane, any shape.
    integers_as_float: integer arguments are first converted as `/` does (`exp(3)`).
    bounds: the least and the greatest result of an index, on any target. level: whether a kernel that asks for it is written
    thread by thread or block by block. extreme: whether it gives the smaller or the larger of its two arguments.
    min_capability: compute capability times ten.
    public_in: the modules in which users find it; none for a record of which others are built.
    """

    name: str
    args: tuple[str, ...]
    sigs: tuple[Sig, ...]
    effects: Effects = PURE
    lower: Lowerings
    doc: str
    source: str
    params: tuple[Param, ...] = ()
    defaults: tuple[Any, ...] = ()
    lower_fast: Lowerings = field(default_factory=dict)
    evaluate: Callable[..., Any] | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
    fast_tolerance: float = 0.0
    integers_as_float: bool = False
    bounds: tuple[int, int] | None = None
    level: Literal["thread", "block"] | None = None
    extreme: Literal["min", "max"] | None = None
    min_capability: int = 75
    public_in: tuple[str, ...] = ("stagekit",)

    def __repr__(self) -> str:
        return f"<stagekit intrinsic {self.name}>"

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the intrinsic in a kernel. The front end calls this only where CPython runs the library."""
        return called(self, self.name, args, kwargs)

    def overload(self, arg_types: tuple[Type, ...]) -> Sig | None:
        """Return the signature with exactly these argument types, or None."""
        return self._by_args.get(arg_types)

    @functools.cached_property
    def is_elementwise(self) -> bool:
        """Whether it can be done lane by lane, as any pure function from scalars to scalars can."""
        types = [t for sig in self.sigs for t in (*sig.args, *sig.results)]
        takes_scalars = bool(self.args) and all(isinstance(t, Scalar) for t in types)
        return self.effects == PURE and takes_scalars

    @functools.cached_property
    def _by_args(self) -> dict[tuple[Type, ...], Sig]:
        return {sig.args: sig for sig in self.sigs}

    def lowering(self, target: str, arg_types: tuple[Type, ...], *, fastmath: bool) -> Lowering:
        """Return how `target` does this for these argument types."""
        fast = self.lower_fast.get(target) if fastmath else None
        dtype: Any = _key_dtype(arg_types)  # None is in no table
        for table in (fast, self.lower[target]):
            found = table if table is None or isinstance(table, Lowering) else table.get(dtype)
            if found is not None:
                return found
        return Unsupported(f"`{self.name}` has no form for ({', '.join(map(str, arg_types))})")


@functools.cache
def _key_dtype(arg_types: tuple[Type, ...]) -> DType | None:
    """Return the dtype that selects among lowerings: that of the first pointer, else of the first scalar."""
    pointers = [t for t in arg_types if isinstance(t, Pointer)]
    return next((t.dtype for t in (*pointers, *arg_types)), None)
