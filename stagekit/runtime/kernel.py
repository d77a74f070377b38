"""What the kernels of all targets share: brackets, arguments, the size of a launch, and native parameters in memory.

A `CpuKernel` or `CudaKernel` is an `Artifact` that can be launched. `launch` reads and checks the arguments,
works out grid and block, and leaves the rest to its target.

    packer = Packer(signature.slots, extra="3q")       for each launch a buffer: slots, then three int64 of eight bytes
    buffer = packer.pack((address, n, 3.0), grid)
    buffer.address                                     of slot 0, what a CPU entry takes
    buffer.pointers                                    of an array of pointers to each, what cuLaunchKernel takes
"""

from __future__ import annotations

import ctypes
import functools
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stagekit.artifact import Artifact
from stagekit.diagnostics import InternalError, hide_frames
from stagekit.hostexpr import compile_expressions
from stagekit.limits import MAX_SHARED_BYTES, TENSOR_MAP_ALIGN
from stagekit.native_tables import WORD
from stagekit.runtime.args import Leaves
from stagekit.runtime.checks import Native, Reading, compile_reader
from stagekit.runtime.errors import ArgumentError, LaunchError, SharedMemoryLimit, SharedMemoryTooSmall
from stagekit.runtime.launch_config import (
    NO_BRACKETS,
    LaunchRequest,
    LaunchSize,
    check_block,
    check_cluster,
    is_constant,
    launch_size,
    missing_brackets,
    read_brackets,
)
from stagekit.runtime.native_process import PreparedLaunch, State
from stagekit.runtime.tensor_maps import TensorMaps
from stagekit.signature import Choice, LaunchAttributes, LaunchSpec, ParamSlot, choose, map_offsets, slot_offsets

LaunchOther = Callable[[Choice], None]
"""Launches another entry of a kernel, with the same arguments."""


class WrittenLaunch(NamedTuple):
    """A launch that was written down. kernel: must live as long. words: one for each slot. memory_bytes: of scratch memory for a
    thread on the CPU, or of dynamic shared memory on a GPU.

    addresses: on the CPU of the code and of its cost; on a GPU the kernel's number, the address of its DEVICE rows, how many
    attributes the launch has, and their address.
    """

    kernel: Kernel
    addresses: tuple[int, ...]
    words: tuple[int, ...]
    size: LaunchSize
    memory_bytes: int


class Kernel(ABC):
    """The part of a launch that all targets share. constexprs: what a grid function may read by name."""

    def __init__(self, artifact: Artifact, constexprs: Mapping[str, Any] | None = None) -> None:
        self.artifact = artifact
        self._name = artifact.kernel_name
        self._constexprs = dict(constexprs or {})
        self._read_plainly = compile_reader(artifact.signature, artifact.target)
        self._last_request: tuple[Any, LaunchRequest] = None, NO_BRACKETS
        self._own_size = None if artifact.launch is None else _compile_size(artifact, artifact.launch)
        needs = artifact.signature.shared_needs
        self._shared_needs = compile_expressions(needs) if needs else None
        maps = artifact.signature.maps
        self._maps = TensorMaps(self._name, maps) if maps else None
        facts = artifact.signature.facts
        self._facts = compile_expressions([fact.holds for fact in facts]) if facts else None

    def request(self, key: Any) -> LaunchRequest:
        """Return what `kernel[key]` asks for. key: None without brackets; mostly the same object as at the last launch."""
        known, request = self._last_request
        if known is key:
            return request
        if key is None:
            return NO_BRACKETS
        request = read_brackets(key, self.artifact.style, self._name, self.artifact.block, self.artifact.grid_axes)
        if is_constant(key):
            self._last_request = key, request
        return request

    @abstractmethod
    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Run the kernel once, or raise before anything has run. arguments: one per parameter."""

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest, launch_other: LaunchOther) -> PreparedLaunch:
        """Return a function that launches with these arguments, one per parameter, which it keeps alive.

        launch_other: called where the arguments have changed since, so that another entry has to run them.
        """

        def run() -> None:
            try:
                self.launch(args, brackets)
            except OtherEntry as other:
                launch_other(other.choice)

        run.__name__ = run.__qualname__ = self._name
        return hide_frames(run)

    def native_state(self, request: LaunchRequest) -> State | None:
        """Return what a native launcher of this kernel works with; None if launches must go the general way.

        request: the brackets, whose size is in numbers, or None for a kernel that computes its own.
        """
        return None

    def written_down(self, arguments: Sequence[Any], brackets: LaunchRequest, devices: Sequence[int]) -> WrittenLaunch:
        """Return a launch in numbers, without running it. Raises what `launch` would. devices: GPUs on which it may run."""
        raise InternalError(f"{self._name}: launches on {self.artifact.target} are not written down")

    def _slot_words(self, values: Native) -> tuple[int, ...]:
        """Return the native parameters of a launch that are no tensor maps."""
        slots = self.artifact.signature.slots
        return tuple(Packer(slots).pack(values).memory)[: slot_offsets(slots)[-1] // WORD]

    def _read(self, arguments: Sequence[Any], reading: Reading) -> Native:
        """Return one value per slot, which hold while `reading` lives. An error says what was launched."""
        try:
            return self._read_plainly(arguments, reading)
        except ArgumentError as error:
            error.context = (*error.context, f"while launching `{self._name}`")
            raise

    def _size(self, values: Native, arguments: Sequence[Any], brackets: LaunchRequest) -> LaunchSize:
        """Return the size of a launch: from the brackets, from the kernel itself, or from a grid function.

        Raises OtherEntry where other code has to run these arguments.
        """
        if self._facts is not None and not all(hold := self._facts(values)):  # type: ignore[arg-type]
            raise OtherEntry(choose(self.artifact.signature.facts, hold))
        asked = brackets.size
        if isinstance(asked, LaunchSize):
            size = asked
        elif self._own_size is not None:
            size = self._own_size(values)
        elif asked is None:
            raise missing_brackets(self.artifact.style, self._name)
        else:
            whole = arguments.whole if isinstance(arguments, Leaves) else {}
            size = asked({**self._constexprs, **dict(zip(self.artifact.signature.names, arguments)), **whole})
        if self._shared_needs is not None and size.blocks:
            needed = max(self._shared_needs(values))  # type: ignore[arg-type]
            if size.shared_bytes < needed:
                raise LaunchError(SharedMemoryTooSmall(self._name, needed, size.shared_bytes))
        if self._maps is not None and size.blocks:
            self._maps.check(values)
        if self._is_too_much(size.shared_bytes):
            asked_for = self.artifact.own_shared_bytes, size.shared_bytes
            raise LaunchError(SharedMemoryLimit(self._name, *asked_for, "the largest GPU", MAX_SHARED_BYTES))
        return size

    def _attributes(self, brackets: LaunchRequest) -> LaunchAttributes:
        """Return the attributes of a launch: those of the brackets or of the kernel, and what a barrier of the grid needs."""
        own = self.artifact.launch
        given = brackets.attributes if own is None else own.attributes
        return replace(given, cooperative=True) if self.artifact.grid_state and not given.cooperative else given

    def _is_too_much(self, shared_bytes: int) -> bool:
        """Return whether no GPU has the shared memory that a launch asks for, beside the kernel's own."""
        return self.artifact.own_shared_bytes + shared_bytes > MAX_SHARED_BYTES


class OtherEntry(Exception):
    """Raised before anything has run, where something does not hold that the code of a kernel takes for granted.

    choice: the entry that runs such a launch.
    """

    def __init__(self, choice: Choice) -> None:
        super().__init__(choice)
        self.choice = choice


class IdleKernel(Kernel):
    """The kernel of launches without threads: it checks the arguments as always, and has no code."""

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        size = self._size(self._read(arguments, Reading()), arguments, brackets)
        if size.blocks:
            raise InternalError(f"{self._name}: no code for blocks of {size.block}")

    def native_state(self, request: LaunchRequest) -> State | None:
        """Return a state for brackets that launch nothing; None for others."""
        is_idle = isinstance(request.size, LaunchSize) and not request.size.blocks
        return State(size_words(request), {}, (self,)) if is_idle else None


def size_words(request: LaunchRequest) -> dict[str, int]:
    """Return the size of a launch in words of a native launcher's STATE; none for a kernel that computes its own."""
    size = request.size
    if not isinstance(size, LaunchSize):
        return {}
    axes = {"grid": size.grid, "block": size.block}
    words = {f"{what}_{axis}": n for what, three in axes.items() for axis, n in zip("xyz", three)}
    return {**words, "shared_bytes": size.shared_bytes, "blocks": size.blocks}


def _compile_size(artifact: Artifact, launch: LaunchSpec) -> Callable[[Native], LaunchSize]:
    """Return a function from native values to the size that a kernel computes itself."""
    evaluate = compile_expressions((*launch.grid, *launch.block, launch.shared_bytes))

    def size(values: Native) -> LaunchSize:
        numbers = evaluate(values)  # type: ignore[arg-type]
        checked = launch_size(numbers[:3], numbers[3:6], numbers[6])
        check_block(artifact.kernel_name, artifact.block, checked.block)
        check_cluster(artifact.kernel_name, checked.grid, launch.attributes)
        return checked

    return size


def block_of(kernel: Kernel, key: Any, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Return the threads per block of a launch `kernel[key](*args)`, for compiling a kernel that fixes none."""
    brackets = kernel.request(key)
    if isinstance(brackets.size, LaunchSize):
        return brackets.size.block
    if brackets.block is not None:
        return brackets.block
    return kernel._size(kernel._read(args, Reading()), args, brackets).block


# Native parameters in memory ------------------------------------------------------------------------------------------


class Buffer:
    """Memory for the parameters of one launch. offsets: of each parameter, and of the end. align: of the first, in bytes."""

    __slots__ = ("_offsets", "_pointers", "address", "memory", "start")

    def __init__(self, offsets: Sequence[int], align: int = WORD) -> None:
        self._offsets = offsets
        self.memory = _array_type(ctypes.c_uint64, (offsets[-1] + align - WORD) // WORD or 1)()
        memory = ctypes.addressof(self.memory)
        self.start = -memory % align
        self.address = memory + self.start

    @property
    def pointers(self) -> int:
        """The address of an array of pointers to each parameter."""
        places = self._offsets[:-1]
        self._pointers = _array_type(ctypes.c_void_p, len(places) or 1)(*[self.address + place for place in places])
        return ctypes.addressof(self._pointers)


@functools.cache
def _array_type(kind: Any, length: int) -> Any:
    """Return an array type. Without the cache each buffer would make a new type, and leave it as garbage."""
    return kind * length


class Packer:
    """Writes native values into buffers. extra: `struct` codes of eight bytes each that follow the slots. maps: behind those.

    A slot holds its value in its own width at the low end. Each launch has its own buffer, as threads may launch one kernel at
    the same time.
    """

    def __init__(self, slots: Sequence[ParamSlot], extra: str = "", maps: TensorMaps | None = None) -> None:
        self._struct = struct.Struct("<" + "".join(map(_slot_format, slots)) + extra)
        end = slot_offsets(slots)
        self._offsets = [*end[:-1], *range(end[-1], self._struct.size + 1, WORD)]
        self._maps = maps
        if maps is not None:
            self._map_offsets = map_offsets(slots, self._struct.size - end[-1], maps.specs)
            self._offsets = [*self._offsets[:-1], *self._map_offsets]

    def pack(self, values: Sequence[int | float], extra: Sequence[int] = ()) -> Buffer:
        buffer = Buffer(self._offsets) if self._maps is None else Buffer(self._offsets, TENSOR_MAP_ALIGN)
        self._struct.pack_into(buffer.memory, buffer.start, *values, *extra)
        if self._maps is not None:
            self._maps.encode(values, [buffer.address + offset for offset in self._map_offsets[:-1]])
        return buffer


def _slot_format(slot: ParamSlot) -> str:
    """Return the `struct` code of a slot, padded to its size. Floats of less than 32 bits come as their bits."""
    dtype, place = slot.dtype, slot.dtype.itemsize.bit_length() - 1
    if slot.kind != "value":
        code = "Q" if slot.kind == "address" else "q"
    elif dtype.is_float and dtype.bits >= 32:
        code = "fd"[place - 2]
    else:
        code = ("bhiq" if dtype.kind == "int" else "BHIQ")[place]
    return f"{code}{slot.size_bytes - struct.calcsize('<' + code)}x"
