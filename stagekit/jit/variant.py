"""A specialisation for certain argument types: the traced kernel, and what it was compiled to for each target."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from stagekit.artifact import Artifact
from stagekit.diagnostics import shown
from stagekit.dtypes import DType
from stagekit.forks import new_lock
from stagekit.frontend.kernel import Traced
from stagekit.jit import caching, compilation
from stagekit.jit.history import History, Stopwatch
from stagekit.jit.native_launchers import guards_of
from stagekit.runtime import driver
from stagekit.runtime.kernel import IdleKernel, Kernel, block_of
from stagekit.runtime.launch_config import Axes, check_block
from stagekit.runtime.native_process import CaptureGuards
from stagekit.runtime.views import Device

if TYPE_CHECKING:
    from stagekit.backends.interp import Options
    from stagekit.jit.interpreting import InterpKernel


def symbol_of(name: str, constexprs: Mapping[str, Any]) -> str:
    """The symbol of a kernel in machine code: `softmax__BLOCK_64`."""
    parts = [f"{k}_{_short(v)}" for k, v in constexprs.items()]
    return re.sub(r"\W", "_", "__".join([name, *parts]))[:200]


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


class Variant:
    """traced: as far as the targets so far need it. whole: traces what the others need too. explained: a context manager that
    tells errors which specialisation they belong to. why: it was made, in words.
    """

    def __init__(
        self,
        name: str,
        constexprs: Mapping[str, Any],
        traced: Traced,
        whole: Callable[[], Traced],
        explained: Callable[[], AbstractContextManager[None]],
        history: History,
        why: str,
    ) -> None:
        self.traced = traced
        self._whole = whole
        self._guards: tuple[int, CaptureGuards] | None = None
        self._name = name
        self._constexprs = dict(constexprs)
        self._explained = explained
        self._history = history
        self._why = why
        self._naming = compilation.Naming(name, tuple((k, shown(v)) for k, v in constexprs.items()))
        self._lock = new_lock()
        self._artifacts: dict[Any, Artifact] = {}
        self._kernels: dict[Any, Kernel] = {}

    @property
    def guards(self) -> CaptureGuards:
        """What native launchers look at before they trust that nothing has changed."""
        times = self.traced.captures.times_renewed
        if self._guards is None or self._guards[0] != times:
            self._guards = times, guards_of(self.traced.captures)
        return self._guards[1]

    def is_current(self) -> bool:
        """Is everything that the trace read outside the kernel as it was?"""
        return self.traced.captures.is_current()

    @property
    def ir(self) -> str:
        return self.whole().ir

    def whole(self) -> Traced:
        """The traced kernel with what inline assembly means on other targets than cuda, which may be traced only now."""
        with self._lock:
            if self.traced.lacks_hosts:
                self.traced, self._guards = self._whole(), None
            return self.traced

    # -- launching ----------------------------------------------------------------------------------------------

    def kernel(self, key: Any, args: tuple[Any, ...], target: str, device: Device) -> Kernel:
        """What `kernel[key](*args)` runs on `target`; without brackets, key is None."""
        if target == "interp":
            return self.checked(None)
        if target == "cuda":
            ordinal = device.ordinal if device.kind == "cuda" else driver.current_device()
            capability = driver.capability(ordinal)
            return self._loaded(
                ("cuda", capability),
                lambda: compilation.load_cuda(self.artifact("cuda", capability, None), self._constexprs),
            )
        block = self.whole().block or block_of(self._idle, key, args)
        if 0 in block:
            return self._idle
        return self._loaded(block, lambda: compilation.load_cpu(self.artifact("cpu", None, block), self._constexprs))

    def checked(self, options: Options | None) -> InterpKernel:
        """The kernel on the checking interpreter."""
        made = self._loaded(
            ("interp", options),
            lambda: compilation.load_interp(self.whole(), self._naming, self._constexprs, options),
        )
        return cast("InterpKernel", made)

    @functools.cached_property
    def _idle(self) -> IdleKernel:
        """The launch side on the CPU without code: it tells the block that code is needed for, and runs blocks of no threads."""
        traced = self.traced
        artifact = Artifact("cpu", self._name, "", b"", traced.signature, traced.style, traced.launch, None, 0)
        return IdleKernel(artifact, self._constexprs)

    def _loaded(self, key: Any, load: Callable[[], Kernel]) -> Kernel:
        """One compile per key; other threads wait. A failure leaves nothing behind."""
        found = self._kernels.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._kernels.get(key)
            if found is None:
                with self._explained():
                    found = self._kernels[key] = load()
            return found

    # -- artifacts ----------------------------------------------------------------------------------------------

    def artifact(self, target: str, capability: int | None, block: Axes | None) -> Artifact:
        """The compiled form for a target. block: cpu only, where the kernel does not fix it."""
        if target == "cuda":
            chosen = capability or driver.capability_if_present() or compilation.DEFAULT_CAPABILITY
            return self._artifact_for(
                "cuda", (chosen,), lambda: compilation.cuda_artifact(self.traced, self._naming, chosen)
            )
        traced = self.whole()
        if block is not None:
            check_block(self._name, traced.block, block)
        x, y, z = traced.block or block or (1, 1, 1)
        return self._artifact_for("cpu", (x, y, z), lambda: compilation.cpu_artifact(traced, self._naming, (x, y, z)))

    def _artifact_for(self, target: str, key: tuple[int, ...], make: Callable[[], Artifact]) -> Artifact:
        with self._lock:
            found = self._artifacts.get((target, *key))
            if found is None:
                with self._explained():
                    found = self._artifacts[target, *key] = self._read_or_compile(target, key, make)
            return found

    def _read_or_compile(self, target: str, key: tuple[int, ...], make: Callable[[], Artifact]) -> Artifact:
        """From disk where it is there, else compiled now."""
        watch = Stopwatch()
        artifact, was_there = caching.read_or_make(self.traced, target, key, make)
        self._history.note("read" if was_there else "compiled", target, self._why_now(target, key), watch.elapsed_s)
        return dataclasses.replace(
            artifact, kernel_name=self._naming.kernel_name, constexprs=self._naming.constexprs
        )  # names for people are not part of a key

    def _why_now(self, target: str, key: tuple[int, ...]) -> str:
        """Why this artifact is needed: the variant is new, or it was compiled for something else before."""
        if not self._artifacts:
            return self._why
        last_target, *last = next(reversed(self._artifacts))
        if last_target != target:
            return f"target {last_target} -> {target}"
        word = "compute capability" if target == "cuda" else "block"
        return f"{word} {_sizes(last)} -> {_sizes(key)}"


def _sizes(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers)).removesuffix(" x 1").removesuffix(" x 1")
