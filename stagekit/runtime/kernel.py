"""What the kernels of both targets share: brackets, arguments, and the size of a launch.

A `CpuKernel` or `CudaKernel` is an `Artifact` that can be launched. `launch` binds, reads and checks the arguments,
works out grid and block, and leaves the rest to its target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stagekit.artifact import Artifact
from stagekit.runtime.binding import Binder
from stagekit.runtime.checks import ArgumentReader, Native
from stagekit.runtime.errors import BlockMismatch, LaunchError
from stagekit.runtime.host_code import compile_expressions
from stagekit.runtime.launch_config import (
    NO_BRACKETS,
    Axes,
    LaunchRequest,
    check_launch,
    grid_axes,
    missing_brackets,
    read_brackets,
)
from stagekit.signature import LaunchSpec


class Geometry(NamedTuple):
    """The size of one launch. A grid with a zero in any axis launches nothing."""

    grid: Axes
    block: Axes
    shared_bytes: int

    @property
    def blocks(self) -> int:
        x, y, z = self.grid
        return x * y * z


class Kernel:
    """The part of a launch that is alike for all targets. constexprs: what a grid function may read by name."""

    def __init__(self, artifact: Artifact, constexprs: Mapping[str, Any] | None = None) -> None:
        self.artifact = artifact
        self._name = artifact.kernel_name
        self._constexprs = dict(constexprs or {})
        self._bind = Binder(self._name, artifact.signature)
        self._read = ArgumentReader(artifact.signature, artifact.target)
        self._own_launch = None if artifact.launch is None else _compile_launch(artifact.launch)

    def request(self, key: Any) -> LaunchRequest:
        """What `kernel[key]` asks for."""
        return read_brackets(key, self.artifact.style, self._name)

    def launch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Run the kernel once, or raise before anything has run."""
        raise NotImplementedError

    def _geometry(self, values: Native, arguments: Sequence[Any], brackets: LaunchRequest) -> Geometry:
        if self._own_launch is not None:
            size = self._own_launch(values)
            check_launch(*size)
        else:
            size = self._requested(arguments, brackets)
        fixed = self.artifact.block
        if fixed is not None and size.block != fixed:
            raise LaunchError(BlockMismatch(self._name, fixed, size.block))
        return size

    def _requested(self, arguments: Sequence[Any], brackets: LaunchRequest) -> Geometry:
        grid, block = brackets.grid, brackets.block or self.artifact.block
        if grid is None or block is None:
            raise missing_brackets(self.artifact.style, self._name)
        if callable(grid):
            by_name = dict(zip(self.artifact.signature.names, arguments))
            grid = grid_axes(grid(self._constexprs | by_name))
        return Geometry(grid, block, brackets.shared_bytes)


def _compile_launch(launch: LaunchSpec) -> Callable[[Native], Geometry]:
    evaluate = compile_expressions((*launch.grid, *launch.block, launch.shared_bytes))

    def size(values: Native) -> Geometry:
        gx, gy, gz, bx, by, bz, shared_bytes = evaluate(values)  # type: ignore[arg-type]
        return Geometry((gx, gy, gz), (bx, by, bz), shared_bytes)

    return size
