"""What a launcher is made from: a kernel's signature and launch, reduced to what its machine code depends on.

Two kernels with equal requests share one launcher: names, defaults, brackets and code addresses are in the STATE that each
call is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from stagekit.hostexpr import HostExpr
from stagekit.signature import ArgSpec, LaunchSpec, ParamSlot, Signature

Target = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class CallParameter:
    """One parameter of the call. argument: which run-time argument it is, or None for a constexpr.

    is_declared: its annotation fixes the dtype. Else the argument's own type chose the specialisation, and another type of
    number must choose again. constant: of a constexpr that is an int, its value; other constexprs are known by identity.
    """

    argument: int | None
    is_declared: bool = True
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class LauncherRequest:
    """parameters: in the order of the call, the last `keyword_only` of them not by position.

    launch: what the kernel computes itself, None where the brackets say it. shared_needs: dynamic shared bytes, each of which
    either must give. block: threads that a computed launch must have, where they are fixed. scratch_bytes: cpu only.
    added_shared_bytes: cuda only.
    """

    target: Target
    specs: tuple[ArgSpec, ...]
    slots: tuple[ParamSlot, ...]
    parameters: tuple[CallParameter, ...]
    keyword_only: int
    launch: LaunchSpec | None
    shared_needs: tuple[HostExpr, ...]
    block: tuple[int, int, int] | None
    scratch_bytes: int
    added_shared_bytes: int
    has_guards: bool

    @classmethod
    def of(cls, signature: Signature, **fields: Any) -> LauncherRequest:
        """Without the names."""
        specs = tuple(replace(spec, name="") for spec in signature.specs)
        return cls(specs=specs, slots=signature.slots, shared_needs=signature.shared_needs, **fields)
