"""What an intrinsic is: one record with its signatures, effects, meaning, and lowering per target. Descriptions only.

The records themselves are in `stagekit/intrinsics/`, one file per family. From one record derive: the public function,
overload errors, constant folding, the interpreter, emission on every target, the docs row and the conformance tests.
A lowering is *data*, or an expansion into other IR; it never calls into LLVM.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Literal, NamedTuple

from stagekit.diagnostics import OfEach, call_in_language
from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, DType
from stagekit.forks import cached_property
from stagekit.frozen import frozen
from stagekit.ir.core import PURE, Effects
from stagekit.ir.types import Pointer, Scalar, Type

TARGETS = ("cuda", "cpu", "interp")

FASTMATH = ("contract", "reassociate", "division", "root", "functions", "flush")
"""What a kernel's floats may give up, each by itself: two roundings of `a * b + c`; the order of operations; correct rounding of
`/` and of roots; the accuracy of other functions; subnormal numbers of float32, on a GPU."""

FLUSHING = "$ftz"
"""What the text of an approximate instruction has for `.ftz`, which it gets where `fastmath` says `flush`."""

Fastmath = bool | tuple[str, ...]
"""All of these, none, or some."""


def allows(fastmath: Fastmath, what: str) -> bool:
    """Return whether floats may give up one of `FASTMATH`."""
    return fastmath if isinstance(fastmath, bool) else what in fastmath


class Sig(NamedTuple):
    """One overload: exact argument types to result types."""

    args: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.args))}) -> {', '.join(map(str, self.results)) or 'nothing'}"


class Param(NamedTuple):
    """A compile-time parameter, such as `axis`: its name, what it may be, and its default (`...`: none).

    elsewhere: what other systems call it, or a choice of it, with the name here; for error texts.
    """

    name: str
    choices: tuple[Any, ...] | type
    default: Any = ...
    elsewhere: Mapping[str, str] = {}

    def allows(self, value: Any) -> bool:
        if isinstance(self.choices, tuple):
            return any(type(value) is type(c) and value == c for c in self.choices)
        return type(value) is self.choices


class Limits(NamedTuple):
    """What a run-time argument may be. A number that is known while specialising is checked then, any other by the sanitizer."""

    low: int
    high: int
    multiple: int = 1

    def allow(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high and value % self.multiple == 0)

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + (f", a multiple of {self.multiple}" if self.multiple > 1 else "")


class Native(Enum):
    """What only the target itself can do; each backend has one table row per member that it supports."""

    __hash__ = object.__hash__  # `Enum` hashes the name anew each time

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
    ATOMIC_LOAD = "atomic_load"  # args: pointer -> value; params of all atomics: order, scope
    ATOMIC_STORE = "atomic_store"  # args: pointer, value
    ATOMIC_ADD = "atomic_add"  # args: pointer, value -> old value
    ATOMIC_MIN = "atomic_min"
    ATOMIC_MAX = "atomic_max"
    ATOMIC_AND = "atomic_and"
    ATOMIC_OR = "atomic_or"
    ATOMIC_XOR = "atomic_xor"
    ATOMIC_EXCHANGE = "atomic_exchange"
    ATOMIC_INC = "atomic_inc"  # args: pointer, limit -> old value
    ATOMIC_DEC = "atomic_dec"
    ATOMIC_CAS = "atomic_cas"  # args: pointer, expected, desired -> old value
    ATOMIC_EXCHANGE_PAIR = "atomic_exchange_pair"  # args: pointer, two values -> the two old ones; of 128 bits together
    ATOMIC_CAS_PAIR = "atomic_cas_pair"  # args: pointer, two expected, two desired -> the two old values
    FENCE = "fence"  # params: order, scope
    WARP_PRODUCT = (
        "warp_product"  # of fragments; the record's name says which. The interpreter's own, as are those below
    )
    FRAGMENTS = "fragments"  # args: pointer, and those that are stored; params: trans
    COPY_ASYNC = "copy_async"  # of one element; args: target, source, mask; params: align, covers
    COPY_COMMIT = "copy_commit"
    COPY_WAIT = "copy_wait"  # params: how many groups may be under way
    MBARRIER = "mbarrier"  # an operation on one; the record's name says which
    BULK_COPY = "bulk_copy"  # args: target, source, bytes, and the mbarrier, if it signals one
    BULK_COMMIT = "bulk_commit"
    BULK_WAIT = "bulk_wait"  # params: how many groups may be under way, and whether reading their source is enough
    PROXY_FENCE = "proxy_fence"
    TENSOR_MAP = "tensor_map"  # args: array, sizes, strides -> handle; params: number, box, swizzle, fill
    TILE_COPY = "tile_copy"  # by a tensor map; the record's name says which way
    WARPGROUP_PRODUCT = "warpgroup_product"  # or what goes with it, as the record's name says
    GIVE_WAY = "give_way"  # to another thread of the machine
    CLUSTER_RANK = "cluster_rank"
    CLUSTER_BLOCKS = "cluster_blocks"
    CLUSTER_DIM = "cluster_dim"  # params: axis
    BLOCK_IDX_IN_CLUSTER = "block_idx_in_cluster"
    CLUSTER_IDX = "cluster_idx"
    CLUSTER_BARRIER = "cluster_barrier"  # arrival or wait, as the record's name says
    NAMED_BARRIER = "named_barrier"  # arrival, or arrival and wait, as the record's name says; args: number, threads
    REGISTERS = "registers"  # of a warpgroup, more or fewer, as the record's name says; params: how many
    PEER = "peer"  # args: pointer, rank -> the pointer there


BARRIERS = (Native.BARRIER, Native.BARRIER_COUNT, Native.BARRIER_AND, Native.BARRIER_OR)
SHUFFLES = (Native.SHUFFLE_IDX, Native.SHUFFLE_UP, Native.SHUFFLE_DOWN, Native.SHUFFLE_XOR)


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


@frozen(eq=False, held=True, kw_only=True)
class Intrinsic:
    """One record. Compared by identity; `registry.by_name` finds it again.

    args: names of the run-time arguments. sigs: one for each overload; left out, it takes and gives nothing. params:
    compile-time arguments. defaults: Python literals for trailing args.
    lower, lower_fast: target -> lowering, or target -> (dtype of the first scalar argument -> lowering);
    `lower_fast` replaces it where it has an entry and `fastmath` allows what is named by `relaxed_by`.
    tolerance, fast_tolerance: how far a target, and cuda under `fastmath=True`, may be from the correctly rounded result, in
    units in the last place of its dtype; 0 where nothing is said. flushes: 0 may stand for a float32 result below the least
    normal number.
    evaluate: the meaning of a PURE intrinsic on NumPy arrays of the argument dtypes, lane by lane, any shape.
    integers_as_float: integer arguments are first converted as `/` does (`exp(3)`).
    bounds: the least and the greatest result of an index, on any target. level: whether a kernel that asks for it is written
    thread by thread or block by block. extreme: whether it gives the smaller or the larger of its two arguments.
    only_reads: the pointers through which it does not write, of those that it takes. is_asynchronous: it goes on with what it
    writes until the thread waits for it; who calls it keeps others away from that memory.
    min_capability: compute capability times ten. max_capability: the last one that has it, 0 where there is no last one. older:
    how cuda does it below `min_capability`; None where it refuses.
    limits: what arguments may be, by name, of those that must not be just any number of their dtype. misfit: why a call with
    arguments of these types and these parameters means nothing, "" where it does mean something.
    public_in: the modules in which users find it; none for a record of which others are built.
    """

    __doc__ = OfEach(lambda record: record.text, __doc__)
    __signature__ = OfEach(lambda record: record.signature)

    name: str
    args: tuple[str, ...] = ()
    sigs: tuple[Sig, ...] = (Sig((), ()),)
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
    relaxed_by: str = "functions"
    flushes: bool = False
    integers_as_float: bool = False
    bounds: tuple[int, int] | None = None
    level: Literal["thread", "block"] | None = None
    only_reads: tuple[str, ...] = ()
    is_asynchronous: bool = False
    extreme: Literal["min", "max"] | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)
    misfit: Callable[[tuple[Type, ...], tuple[Any, ...]], str] = lambda types, params: ""
    min_capability: int = 75
    max_capability: int = 0
    older: Lowering | None = None
    public_in: tuple[str, ...] = ("stagekit",)

    def __post_init__(self) -> None:
        vars(self).update(__name__=self.name, __qualname__=self.name, __module__=(*self.public_in, __name__)[0])

    def __repr__(self) -> str:
        return f"<stagekit intrinsic {self.call}>"

    __call__ = call_in_language  # in a kernel the front end does so only where CPython runs the library

    def overload(self, arg_types: tuple[Type, ...]) -> Sig | None:
        """Return the signature with exactly these argument types, or None."""
        return self._by_args.get(arg_types)

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether it can be done lane by lane, as any pure function from scalars to scalars can."""
        types = [t for sig in self.sigs for t in (*sig.args, *sig.results)]
        takes_scalars = bool(self.args) and all(isinstance(t, Scalar) for t in types)
        return self.effects == PURE and takes_scalars

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters of a call: run-time arguments, then compile-time ones."""
        plain, empty = len(self.args) - len(self.defaults), inspect.Parameter.empty
        given = dict.fromkeys(self.args, empty) | dict(zip(self.args[plain:], self.defaults, strict=True))
        given |= {param.name: empty if param.default is ... else param.default for param in self.params}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind, default=default) for name, default in given.items()])

    @cached_property
    def default_params(self) -> tuple[Any, ...]:
        """The compile-time parameters of a call that gives none."""
        return tuple([param.default for param in self.params])

    @cached_property
    def call(self) -> str:
        """How it is called, as error texts and the reference show it: `syncwarp(mask=4294967295)`."""
        taken = _in_short(map(str, self.signature.parameters.values()), lambda each: each.rstrip("0123456789"))
        return f"{self.name}({', '.join(taken)})"

    @property
    def meaning(self) -> str:
        """What it does, and where it can."""
        if self.min_capability == 75:
            return self.doc
        below = "; below that by other instructions" if self.older else ""
        last = self.max_capability
        above = " or above" if not last else " alone" if last == self.min_capability else f" to {last / 10}"
        return f"{self.doc} On cuda: compute capability {self.min_capability / 10}{above}{below}."

    @property
    def text(self) -> str:
        """What `help` shows."""
        types, error = "; ".join(overloads(self.sigs)).replace("`", ""), accuracy(self)
        where = (
            "Outside kernels it computes too, of arrays element by element." if self.is_elementwise else _INSIDE_ALONE
        )
        about_error = f"Error: {error}{'' if error == 'exact' else ' units in the last place'}." if error else ""
        facts = (f"Types: {types}; others are refused as NO_OVERLOAD.", about_error, where, f"Source: {self.source}.")
        return "\n".join([self.call, "", self.meaning, "", *filter(None, facts)])

    @cached_property
    def _by_args(self) -> dict[tuple[Type, ...], Sig]:
        return {sig.args: sig for sig in self.sigs}

    @functools.cache  # noqa: B019  a record is there as long as the process
    def lowering(self, target: str, arg_types: tuple[Type, ...], *, fastmath: Fastmath) -> Lowering:
        """Return how `target` does this for these argument types."""
        fast = self.lower_fast.get(target) if allows(fastmath, self.relaxed_by) else None
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


_INSIDE_ALONE = "It means something only inside a kernel; elsewhere it is refused as OUTSIDE_KERNEL."
MOST_SHOWN = 6  # texts that are alike


# -- as text ----------------------------------------------------------------------------------------------------------


def overloads(sigs: Sequence[Sig]) -> list[str]:
    """Return the signatures as text, those of one shape as one: T is the dtype that varies most, wherever it always stands."""
    columns = list(zip(*((*s.args, *s.results) for s in sigs), strict=True))
    dtypes = [tuple(t.dtype for t in column) for column in columns]
    subject = max(dtypes, key=lambda column: len(set(column)), default=())
    is_varying = [len(set(subject)) > 1 and column == subject for column in dtypes]
    by_shape: dict[str, list[DType]] = {}
    for sig, dtype in zip(sigs, subject or [None] * len(sigs), strict=True):
        by_shape.setdefault(_shape(sig, is_varying), []).extend([dtype] if dtype and any(is_varying) else [])
    return [f"`{shape}`{_dtypes_named(found)}" for shape, found in by_shape.items()]


def _shape(sig: Sig, is_varying: Sequence[bool]) -> str:
    spelt = [_spelt(t, v) for t, v in zip((*sig.args, *sig.results), is_varying, strict=True)]
    taken, given = (", ".join(_in_short(part, str)) for part in (spelt[: len(sig.args)], spelt[len(sig.args) :]))
    return f"({taken}) -> {given or 'nothing'}"


def _in_short(texts: Iterable[str], alike: Callable[[str], str]) -> Iterator[str]:
    """Yield texts; of many that follow one another and are alike the first and the last."""
    for _, same in itertools.groupby(texts, alike):
        run = list(same)
        yield from run if len(run) <= MOST_SHOWN else (run[0], "...", run[-1])


def _spelt(type_: Type, is_varying: bool) -> str:
    name = "T" if is_varying else type_.dtype.short
    return f"ptr<{name}, {type_.space.value}>" if isinstance(type_, Pointer) else name


_CLASSES = {
    frozenset(FLOAT_DTYPES): "floats",
    frozenset(INTEGER_DTYPES): "integers",
    frozenset((*FLOAT_DTYPES, *INTEGER_DTYPES)): "numbers",
    frozenset(ARITHMETIC_DTYPES): "numbers, bool",
    frozenset(ALL_DTYPES): "every dtype",
}


def _dtypes_named(dtypes: Sequence[DType]) -> str:
    if not dtypes:
        return ""
    return f" {_CLASSES.get(frozenset(dtypes)) or ' '.join(dict.fromkeys(d.short for d in dtypes))}"


def accuracy(record: Intrinsic) -> str:
    """Return how far a result may be from the correctly rounded one, in units in the last place; "" where there is none."""
    if not record.tolerance:
        return "exact" if not record.effects else ""
    strict = " / ".join(f"{target} {_ulp(record.tolerance[target])}" for target in ("cuda", "cpu"))
    return f"{strict} / fast {_ulp(record.fast_tolerance)}" if record.lower_fast else strict


def _ulp(tolerance: float) -> str:
    return "∞" if math.isinf(tolerance) else f"{tolerance:g}"
