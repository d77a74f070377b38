"""A specialisation for certain argument types: the traced kernel, and what it was compiled to for each target."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from stagekit import ranges
from stagekit.artifact import Artifact
from stagekit.diagnostics import LIBRARY, shown
from stagekit.dtypes import DType, float64
from stagekit.forks import Once, cached_property, importing
from stagekit.frontend.parameters import ArgType, StructureArg
from stagekit.frontend.traced import Traced
from stagekit.frozen import record
from stagekit.hostexpr import Evaluator, compile_expressions
from stagekit.ir import Scalar, Vector, ops, walk
from stagekit.jit import compilation
from stagekit.jit.argtypes import leaves_of, slot_values
from stagekit.jit.debugging import warn_of_breakpoints
from stagekit.jit.history import History
from stagekit.jit.native_launchers import Member, guards_of
from stagekit.recursion import repeated_deeply
from stagekit.runtime import driver
from stagekit.runtime.args import Leaves
from stagekit.runtime.kernel import IdleKernel, Kernel, block_of
from stagekit.runtime.launch_config import Axes, check_block
from stagekit.runtime.native_process import CaptureGuards
from stagekit.runtime.views import Device
from stagekit.signature import QUICK, Choice, KernelEntry, choose

if TYPE_CHECKING:
    from stagekit.backends.interp import Options
    from stagekit.jit.interpreting import InterpKernel


def symbol_of(name: str, constexprs: Mapping[str, Any], entry: KernelEntry) -> str:
    """Return the symbol of a kernel in machine code: `softmax__BLOCK_64`, of another entry `softmax__BLOCK_64__general`."""
    parts = [f"{k}_{_short(v)}" for k, v in constexprs.items()]
    ending = "" if entry is KernelEntry.QUICK else f"__{entry}"
    return re.sub(r"\W", "_", "__".join([name, *parts]))[:200] + ending


def _short(value: Any) -> str:
    if isinstance(value, DType):
        return value.name
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    try:
        text = str(value)[:40]
    except Exception:  # a `__str__` of the user's may raise anything
        return type(value).__name__
    has_order = not isinstance(value, set | frozenset)
    return text if has_order and " at 0x" not in text else type(value).__name__  # the same name in every process


@record()
class Variant:
    """A specialisation for certain argument types, and one of its entries, for the targets that its trace serves.

    quick: the variant of the quick entry, if this is another. arg_types: by parameter. why: the reason it was made, in words.
    explained: makes the context in which an error says which specialisation it is of.
    """

    name: str
    entry: KernelEntry
    quick: Variant | None
    constexprs: Mapping[str, Any]
    arg_types: Mapping[str, ArgType]
    history: History
    traced: Traced
    why: str
    explained: Callable[[], contextlib.ContextDecorator]

    def __post_init__(self) -> None:
        self._guards: tuple[int, CaptureGuards] | None = None
        self._artifacts: Once[tuple[Any, ...], Artifact] = Once()
        self._kernels: Once[Any, Kernel] = Once()

    @property
    def guards(self) -> CaptureGuards:
        """What native launchers compare to see that nothing captured has changed."""
        times = self.traced.captures.times_renewed
        if self._guards is None or self._guards[0] != times:
            self._guards = times, guards_of(self.traced.captures)
        return self._guards[1]

    # -- launching ----------------------------------------------------------------------------------------------

    def leaves(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what a kernel is launched with: the arguments, with the leaves of those that hold others in their place."""
        holders = self._holders
        if not holders:
            return args
        whole = dict(zip(self.arg_types, args))
        return Leaves(leaves_of(whole, self.arg_types), {name: whole[name] for name in holders})

    @cached_property
    def _holders(self) -> list[str]:
        return [name for name, kind in self.arg_types.items() if isinstance(kind, StructureArg)]

    def choose(self, args: tuple[Any, ...]) -> Choice:
        """Choose the entry for a launch, of the variant of the quick one, so that no other is compiled for nothing."""
        facts = self.traced.signature.facts
        values = slot_values(self.traced.signature, args) if facts else None
        return QUICK if values is None else choose(facts, self._facts(values))

    @cached_property
    def _facts(self) -> Evaluator:
        return compile_expressions([fact.holds for fact in self.traced.signature.facts])

    def launches_text(self) -> list[str]:
        """Return for which launches this entry is, in words; nothing of the only one."""
        facts = (self.quick or self).traced.signature.facts
        if self.quick is None:
            return [f"the quick entry, for launches where {fact.text}" for fact in facts]
        texts = [fact.text for fact in facts if fact.otherwise is self.entry]
        return [f"the {self.entry} entry, for launches where this is not known: {'; '.join(texts)}"]

    def float64_text(self) -> list[str]:
        """Return which lines compute in float64, in words, and which of them make it of integers, as few mean to."""
        found: dict[int, bool] = {}
        for op in walk(self.traced.function.body):
            types = [value.type for value in (*op.operands(), *op.results)]
            computes = isinstance(op, ops.Binary | ops.Unary | ops.IntrinsicOp) and not op.BODY_FIELDS
            makes = isinstance(op, ops.Cast) and op.operand.type.dtype.is_integer
            if (computes or makes) and any(isinstance(t, Scalar | Vector) and t.dtype is float64 for t in types):
                line = next((loc.line for loc in op.loc.chain() if not loc.file.startswith(LIBRARY)), op.loc.line)
                found[line] = found.get(line, False) or makes
        texts = {True: "float64 arithmetic, of integers", False: "float64 arithmetic"}
        return [f"line {line}: {texts[makes]}" for line, makes in sorted(found.items())]

    def notes(self) -> tuple[str, ...]:
        """Return what a report says besides the numbers: of dtypes, barriers, entries and placement, in words."""
        placed = [f"{name}: {place}" for name, place in self.traced.placed]
        return (*self.traced.widened, *self.float64_text(), *self.traced.waits, *self.launches_text(), *placed)

    def member(self, kernel: Kernel) -> Member | None:
        """Return which entry of several a kernel of this variant is, for native launchers; None for the only one."""
        signature, artifact = (self.quick or self).traced.signature, kernel.artifact
        block = None if self.traced.block else artifact.block
        group = self.quick or self, artifact.target, artifact.capability, block
        return Member(group, signature, self.entry) if signature.facts else None

    def kernel(self, key: Any, args: tuple[Any, ...], target: str, device: Device) -> Kernel:
        """Return what `kernel[key](*args)` runs on `target`; without brackets, key is None."""
        if target == "interp":
            return self.checked(None)
        if target == "cuda":
            ordinal = device.ordinal if device.kind == "cuda" else driver.current_device()
            capability = driver.capability(ordinal)
            artifact = functools.partial(self.artifact, "cuda", capability, None)
            return self._started(("cuda", capability), lambda: compilation.load_cuda(artifact(), self.constexprs))
        block = self.traced.block or block_of(self._idle, key, args)
        if 0 in block:
            return self._idle
        artifact = functools.partial(self.artifact, "cpu", None, block)
        return self._started(block, lambda: compilation.load_cpu(artifact(), self.constexprs, self.traced))

    def _started(self, key: Any, load: Callable[[], Kernel]) -> Kernel:
        """Return the compiled kernel for `key`; tell who begins it that its breakpoints do nothing."""
        if self.traced.scenes and key not in self._kernels:
            warn_of_breakpoints(self.name, "cuda" if key[0] == "cuda" else "cpu")
        return self._loaded(key, load)

    def checked(self, options: Options | None) -> InterpKernel:
        """Return the kernel on the checking interpreter. options: what it checks, None for nothing that costs time."""
        with importing:
            from stagekit.backends.interp import UNCHECKED
            from stagekit.jit.interpreting import InterpKernel

        given = self._named(self._idle.artifact), self.traced, options or UNCHECKED, self.constexprs
        load = functools.partial(repeated_deeply(InterpKernel), *given)
        return cast("InterpKernel", self._loaded(("interp", options), load))

    @cached_property
    def _idle(self) -> IdleKernel:
        """The kernel on the CPU without code: it tells which block code is needed for, and launches blocks of no threads."""
        traced = self.traced
        facts = (traced.signature, traced.style, traced.launch, traced.block)
        return IdleKernel(Artifact("cpu", self.name, "", b"", *facts, 0, grid_axes=traced.grid_axes), self.constexprs)

    def _loaded(self, key: Any, load: Callable[[], Kernel]) -> Kernel:
        return self._kernels.get(key) or self._kernels.of(key, self.explained()(load))

    # -- artifacts ----------------------------------------------------------------------------------------------

    def artifact(self, target: str, capability: int | None, block: Axes | None) -> Artifact:
        """Return the compiled form for a target. block: cpu only, where the kernel does not fix it."""
        if target == "cuda":
            chosen = capability or compilation.capability_at_hand()
            return self._artifact_for("cuda", (chosen,), lambda: compilation.cuda_artifact(self.traced, chosen))
        if block is not None:
            check_block(self.name, self.traced.block, block)
        axes = self.traced.block or block or (1, 1, 1)
        return self._artifact_for("cpu", axes, lambda: compilation.cpu_artifact(self.traced, axes))

    def with_lines(self) -> Artifact:
        """Compile for cuda with the lines of the source, as `lineinfo=True` does, for whoever looks at it."""
        function = self.traced.function
        attributes = tuple({**dict(function.attributes), "lineinfo": True}.items())
        traced = dataclasses.replace(self.traced, function=dataclasses.replace(function, attributes=attributes))
        return self._named(self.explained()(compilation.cuda_artifact)(traced, compilation.capability_at_hand()))

    def _artifact_for(self, target: str, made_for: tuple[int, ...], make: Callable[[], Artifact]) -> Artifact:
        def make_noted() -> Artifact:
            began_s = time.perf_counter()
            with ranges.span(f"compile {self.name} for {target}"):
                found, is_from_disk = compilation.read_or_compile(
                    self.traced, target, made_for, lambda: self._named(make())
                )
            why = self._why_now(target, made_for)
            self.history.note("read" if is_from_disk else "compiled", target, why, began_s)
            return self._named(found)  # names for people are not part of a key

        return self._artifacts.of((target, *made_for), self.explained()(make_noted))

    def _named(self, artifact: Artifact) -> Artifact:
        fixed = tuple((name, shown(value)) for name, value in self.constexprs.items())
        return dataclasses.replace(artifact, kernel_name=self.name, constexprs=fixed)

    @property
    def compiled_for(self) -> list[str]:
        """The targets that there are artifacts for, each with its compute capability or block, as text."""
        return [f"{target}, {_made_for(target, numbers)}" for target, *numbers in list(self._artifacts)]

    def _why_now(self, target: str, made_for: tuple[int, ...]) -> str:
        """Say why this artifact is needed: the variant is new, or it was compiled for something else before."""
        if not self._artifacts:
            return self.why
        last_target, *last = next(reversed(self._artifacts))
        if last_target != target:
            return f"target {last_target} -> {target}"
        return f"{_made_for(target, last)} -> {_sizes(made_for)}"


def _made_for(target: str, numbers: Sequence[int]) -> str:
    return f"{'compute capability' if target == 'cuda' else 'block'} {_sizes(numbers)}"


def _sizes(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers)).removesuffix(" x 1").removesuffix(" x 1")
