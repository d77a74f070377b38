"""What the kernels of both targets share: brackets, arguments, and the size of a launch.

A `CpuKernel` or `CudaKernel` is an `Artifact` that can be launched. `launch` reads and checks the arguments,
works out grid and block, and leaves the rest to its target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stagekit.artifact import Artifact
from stagekit.diagnostics import InternalError, hide_frames
from stagekit.hostexpr import compile_expressions
from stagekit.runtime.checks import GpuReading, Native, compile_reader
from stagekit.runtime.errors import ArgumentError, LaunchError, SharedMemoryTooSmall
from stagekit.runtime.launch_config import (
    NO_BRACKETS,
    LaunchRequest,
    LaunchSize,
    check_block,
    is_constant,
    launch_size,
    missing_brackets,
    read_brackets,
)
from stagekit.runtime.native_process import State
from stagekit.signature import LaunchSpec


class Kernel:
    """The part of a launch that is alike for all targets. constexprs: what a grid function may read by name."""

    def __init__(self, artifact: Artifact, constexprs: Mapping[str, Any] | None = None) -> None:
        self.artifact = artifact
        self._name = artifact.kernel_name
        self._constexprs = dict(constexprs or {})
        self._read_plainly = compile_reader(artifact.signature, artifact.target)
        self._last_request: tuple[Any, LaunchRequest] = None, NO_BRACKETS
        self._own_size = None if artifact.launch is None else _compile_size(artifact, artifact.launch)
        needs = artifact.signature.shared_needs
        self._shared_needs = compile_expressions(needs) if needs else None

    def request(self, key: Any) -> LaunchRequest:
        """What `kernel[key]` asks for; None: a call without brackets. A program mostly gives the same object again."""
        known, request = self._last_request
        if known is key:
            return request
        if key is None:
            return NO_BRACKETS
        request = read_brackets(key, self.artifact.style, self._name, self.artifact.block)
        if is_constant(key):
            self._last_request = key, request
        return request

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Run the kernel once, or raise before anything has run. arguments: one per parameter."""
        raise NotImplementedError

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest) -> Callable[[], None]:
        """A function that launches with these arguments, one per parameter, which it keeps alive."""

        def run() -> None:
            self.launch(args, brackets)

        run.__name__ = run.__qualname__ = self._name
        return hide_frames(run)

    def native_state(self, request: LaunchRequest) -> State | None:
        """What a native launcher of this kernel works with; None where launches must go the general way.

        request: the brackets; their size is one in numbers, or None for a kernel that computes its own.
        """
        return None

    def _read(self, arguments: Sequence[Any], gpu: GpuReading | None) -> Native:
        """One value per slot. An error says what was launched."""
        try:
            return self._read_plainly(arguments, gpu)
        except ArgumentError as error:
            error.context = (*error.context, f"while launching `{self._name}`")
            raise

    def _size(self, values: Native, arguments: Sequence[Any], brackets: LaunchRequest) -> LaunchSize:
        """The launch in numbers: what stands in the brackets, what the kernel computes itself, or what a grid function gives."""
        asked = brackets.size
        if isinstance(asked, LaunchSize):
            size = asked
        elif self._own_size is not None:
            size = self._own_size(values)
        elif asked is None:
            raise missing_brackets(self.artifact.style, self._name)
        else:
            size = asked(self._constexprs | dict(zip(self.artifact.signature.names, arguments)))
        if self._shared_needs is not None and size.blocks:
            needed = max(self._shared_needs(values))  # type: ignore[arg-type]
            if size.shared_bytes < needed:
                raise LaunchError(SharedMemoryTooSmall(self._name, needed, size.shared_bytes))
        return size


class IdleKernel(Kernel):
    """What a launch without threads runs: the arguments are checked as always, and no code is made."""

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        size = self._size(self._read(arguments, None), arguments, brackets)
        if size.blocks:
            raise InternalError(f"{self._name}: no code for blocks of {size.block}")

    def native_state(self, request: LaunchRequest) -> State | None:
        """For brackets that launch nothing."""
        is_idle = isinstance(request.size, LaunchSize) and not request.size.blocks
        return State(size_words(request), {}, (self,)) if is_idle else None


def size_words(request: LaunchRequest) -> dict[str, int]:
    """The size of a launch in words of a native launcher's STATE; none for a kernel that computes its own."""
    size = request.size
    if not isinstance(size, LaunchSize):
        return {}
    axes = {"grid": size.grid, "block": size.block}
    words = {f"{what}_{axis}": n for what, three in axes.items() for axis, n in zip("xyz", three)}
    return {**words, "shared_bytes": size.shared_bytes, "blocks": size.blocks}


def _compile_size(artifact: Artifact, launch: LaunchSpec) -> Callable[[Native], LaunchSize]:
    """The launch that a kernel computes itself."""
    evaluate = compile_expressions((*launch.grid, *launch.block, launch.shared_bytes))

    def size(values: Native) -> LaunchSize:
        numbers = evaluate(values)  # type: ignore[arg-type]
        checked = launch_size(numbers[:3], numbers[3:6], numbers[6])
        check_block(artifact.kernel_name, artifact.block, checked.block)
        return checked

    return size


def block_of(kernel: Kernel, key: Any, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Threads per block of a launch `kernel[key](*args)`, for compiling a kernel that fixes none."""
    brackets = kernel.request(key)
    if isinstance(brackets.size, LaunchSize):
        return brackets.size.block
    if brackets.block is not None:
        return brackets.block
    return kernel._size(kernel._read(args, None), args, brackets).block
