"""`force_entry`: run one entry of a kernel, whatever a launch would choose.

force_entry(scale, "general")[4](x, out, n)
sk.sanitize(force_entry(scale, "overlapping"))[4](x, out, n)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.jit.launchable import ForwardingKernel, Launchable, Resolved, Specialized, specializes
from stagekit.jit.sanitizing import SanitizedKernel
from stagekit.jit.variant import Variant
from stagekit.runtime.errors import EntryUnfit, LaunchError
from stagekit.runtime.kernel import Kernel
from stagekit.runtime.native_process import CallShape
from stagekit.signature import Choice, KernelEntry


@hide_frames
def force_entry(kernel: Any, entry: str) -> Any:
    """Return a kernel whose launches all run one entry of `kernel`: "quick", "general" or "overlapping".

    What they compute is the same. "overlapping" runs any arguments, "general" those that do not overlap, "quick" those that a
    launch would choose it for; others are refused as ENTRY_UNFIT. Its properties show that entry. No machine code launches it:
    each launch goes the general way.
    """
    if not issubclass(type(kernel), Launchable) or issubclass(type(kernel), SanitizedKernel):
        raise wrong_arguments(force_entry, "takes a kernel; to check it, `sk.sanitize(force_entry(kernel, ...))`")
    if entry not in list(KernelEntry):
        names = ", ".join(repr(str(each)) for each in KernelEntry)
        raise wrong_arguments(force_entry, f"takes {names}, got {shown(entry)}")
    return ForcedKernel(kernel, KernelEntry(entry))


class ForcedKernel(ForwardingKernel):
    """A kernel of which one entry runs."""

    def __init__(self, kernel: Launchable, entry: KernelEntry) -> None:
        super().__init__(kernel)
        self.entry = entry

    @specializes
    def specialize(self, /, **values: Any) -> ForcedKernel:
        """Return the specialised kernel, of which the same entry runs."""
        return ForcedKernel(self._kernel.specialize(**values), self.entry)  # type: ignore[attr-defined]

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        specialization, values, target = super()._resolve(args, kwargs)
        return _OneEntry(specialization, self.name, self.entry), values, target

    def _shown(self, target: str = "cuda", choice: Choice | None = None) -> Variant:
        return super()._shown(target, choice or _choice(self.entry))

    def _offer(self, key: Any, specialization: Specialized, variant: Variant, kernel: Kernel) -> None:
        """Leave launches to the general way: native code chooses the entry itself."""

    def __repr__(self) -> str:
        return f"{self._kernel!r}, its {self.entry} entry"


def _choice(entry: KernelEntry) -> Choice:
    return Choice(entry, f"the {entry} entry, as `force_entry` asks for")


class _OneEntry:
    """A specialisation of which one entry runs."""

    def __init__(self, specialization: Specialized, name: str, entry: KernelEntry) -> None:
        self._specialization = specialization
        self._name = name
        self._choice = _choice(entry)

    @property
    def constexprs(self) -> Mapping[str, Any]:
        return self._specialization.constexprs

    def call_shape(self, variant: Variant) -> CallShape:
        return self._specialization.call_shape(variant)

    def kernel_for(
        self, key: Any, values: tuple[Any, ...], target: str | None, choice: Choice | None = None
    ) -> tuple[Variant, Kernel]:
        """Return what runs these arguments. choice: another entry, where this one does not fit them."""
        if choice is not None:
            raise LaunchError(EntryUnfit(self._name, str(self._choice.entry), choice.why))
        return self._specialization.kernel_for(key, values, target, self._choice)
