"""Launches that are written down instead of run, for another library that runs them later with arrays of its own.

    recorder = LaunchRecorder()
    x, out = recorder.array((1000,), float32), recorder.array((1000,), float32, is_writable=True)
    with recorder:
        kernel[4](x, out, 3.0)          reads and checks the arguments, compiles, and runs nothing
    recorder.steps()                    what to run, and which of its words are addresses in which array

A `Placeholder` has a shape and a dtype and an address that is nobody's. What depends on sizes, numbers and constexprs is computed
as for any launch, so it is fixed; what depends on addresses is checked again when the launches are run (`launcher/sequence.py`).
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Sequence
from contextvars import Token
from typing import Any, NoReturn, Self

import numpy as np

from stagekit import native_tables as tables
from stagekit.backends.launcher import OnCpu, OnGpu, RecordedAddress, RecordedStep
from stagekit.diagnostics import Diagnostic, StagekitError, hide_frames
from stagekit.dtypes import DType
from stagekit.runtime import native_process
from stagekit.runtime.checks import Target
from stagekit.runtime.cpu import CpuKernel
from stagekit.runtime.cuda import CudaKernel
from stagekit.runtime.kernel import Kernel, LaunchOther, WrittenLaunch
from stagekit.runtime.launch_config import NO_BRACKETS, LaunchRequest
from stagekit.runtime.native_process import PreparedLaunch
from stagekit.runtime.views import CPU, ArrayView, Device, c_strides
from stagekit.signature import ArraySpec, PointerSpec, slot_offsets

_FIRST_ADDRESS = 1 << 40
_PAGE, _LINE = 4096, 64  # an array begins a line after a page: code takes no more for granted than its owner keeps to


class NotRecorded(Diagnostic):
    title = "A launch that another library cannot run"
    label = "`{name}`: {why}"
    help = "{hint}"


class NoData(Diagnostic):
    title = "An array that has no data yet"
    label = "{asked} asks for the elements of an array of {dtype} (shape {shape}), of which only these are known now"
    help = "compute with elements in kernels, or before and after the operator; use `.shape`, `.dtype`, views and `.new_empty`"


class RecordingError(StagekitError, TypeError):
    """A function whose launches cannot be written down."""


class NoAttributeYet(RecordingError, AttributeError):
    """The same, as `hasattr` knows it."""


class Placeholder:
    """An array of which only shape, strides and dtype are known. Its attributes are NumPy's; strides are in bytes."""

    __iter__ = None
    __contains__ = None

    def __init__(
        self,
        recorder: LaunchRecorder,
        address: int,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        dtype: DType,
        is_writable: bool,
    ) -> None:
        self.shape = shape
        self._recorder, self._address, self._steps, self._dtype = recorder, address, steps, dtype
        self._is_writable = is_writable

    shape: tuple[int, ...]
    is_cpu = property(lambda self: self._recorder.device == CPU)
    dtype = property(lambda self: self._dtype.numpy)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self._dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    strides = property(lambda self: tuple(step * self.itemsize for step in self._steps))
    T = property(lambda self: self.transpose())

    def __repr__(self) -> str:
        return f"<Placeholder {self._dtype.name} {self.shape}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __stagekit_view__(self) -> ArrayView:
        return ArrayView(self._address, self.shape, self._steps, self._dtype, self._recorder.device, self._is_writable)

    def data_ptr(self) -> int:
        """Return the address, by which arrays are told apart."""
        return self._address

    def stride(self, axis: int | None = None) -> Any:
        """Return the strides in elements, or that of one axis."""
        return self._steps if axis is None else self._steps[axis]

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self._dtype.itemsize

    def is_contiguous(self) -> bool:
        return self.__stagekit_view__().is_contiguous

    def new_empty(self, shape: Sequence[int], dtype: Any = None) -> Placeholder:
        """Return a new array beside this one: memory of the call, with arbitrary contents."""
        return self._recorder.array(tuple(shape), self._dtype if dtype is None else dtype, is_writable=True)

    @hide_frames
    def reshape(self, *shape: Any) -> Placeholder:
        """Return the same elements, which must have no gaps, with other axes."""
        sizes = list(map(operator.index, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape))
        if -1 in sizes:
            sizes[sizes.index(-1)] = self.size // max(math.prod(n for n in sizes if n != -1), 1)
        if math.prod(sizes) != self.size or not self.is_contiguous():
            self._refuse(f"`.reshape({tuple(sizes)})`, which would be a copy,")
        return self._view(self._address, tuple(sizes), c_strides(tuple(sizes)))

    def transpose(self, *axes: int) -> Placeholder:
        """Return a view with the axes in another order; without numbers, in the opposite one."""
        order = axes or tuple(range(self.ndim))[::-1]
        return self._view(self._address, *(tuple(row[axis] for axis in order) for row in (self.shape, self._steps)))

    @hide_frames
    def __getitem__(self, key: Any) -> Placeholder:
        """Return a view: ints, slices, None and `...`, as NumPy takes them."""
        keys = key if isinstance(key, tuple) else (key,)
        if not all(each is None or each is ... or type(each) in (int, slice) for each in keys):
            self._refuse("`[...]` with arrays or bools")
        whole = keys if ... in keys else (*keys, ...)
        # NumPy knows the rules: views of one byte that is never read tell where elements lie
        probe = np.lib.stride_tricks.as_strided(np.zeros((), np.int8), self.shape, self._steps)
        view = probe[whole]
        offset = view.__array_interface__["data"][0] - probe.__array_interface__["data"][0] if self.size else 0
        return self._view(self._address + offset * self.itemsize, view.shape, view.strides)

    def _view(self, address: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Placeholder:
        return Placeholder(self._recorder, address, shape, steps, self._dtype, self._is_writable)

    def _refuse(self, asked: str) -> NoReturn:
        raise RecordingError(NoData(asked, self._dtype.name, self.shape))

    @hide_frames
    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("NumPy")

    @hide_frames
    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse("an assignment")

    @hide_frames
    def __getattr__(self, name: str) -> Any:
        raise NoAttributeYet(NoData(f"`.{name}`", self._dtype.name, self.shape))


def _refusing(name: str) -> Any:
    @hide_frames
    def refuse(self: Placeholder, *_: Any) -> NoReturn:
        self._refuse(f"`{name}`")

    return refuse


for _name in (
    *("bool", "int", "float", "complex", "index"),
    *("neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge"),
    *(
        side + each
        for each in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
        for side in ("", "r")
    ),
    *(side + each for each in ("and", "or", "xor", "lshift", "rshift") for side in ("", "r")),
):
    setattr(Placeholder, f"__{_name}__", _refusing(f"__{_name}__"))
Placeholder.__hash__ = object.__hash__  # type: ignore[method-assign]


class LaunchRecorder:
    """A session in which launches of this thread are written down. arrays: all, in the order in which they were made.

    devices: where the launches may run: none for the CPU, or the numbers of GPUs. The arrays are on the first of them.
    """

    def __init__(self, devices: Sequence[int] = ()) -> None:
        self.devices = devices
        self.device = Device("cuda", devices[0]) if devices else CPU
        self.target: Target = "cuda" if devices else "cpu"
        self.arrays: list[Placeholder] = []
        self.written: set[int] = set()  # places in `arrays` of what launches write
        self.launches: list[WrittenLaunch] = []
        self._starts: list[int] = []
        self._tokens: list[Token[Any]] = []

    def array(
        self, shape: tuple[int, ...], dtype: DType, *, is_writable: bool = False, at: Placeholder | None = None
    ) -> Placeholder:
        """Return a new placeholder in C order. at: another one whose memory it has."""
        if at is not None:
            return Placeholder(self, at._address, shape, c_strides(shape), dtype, is_writable)
        last = self.arrays[-1] if self.arrays else None
        end = _FIRST_ADDRESS if last is None else last._address + last.nbytes
        address = (end // _PAGE + 1) * _PAGE + _LINE
        self._starts.append(address)
        self.arrays.append(Placeholder(self, address, shape, c_strides(shape), dtype, is_writable))
        return self.arrays[-1]

    def __enter__(self) -> Self:
        native_process.divert_launches()
        self._tokens.append(native_process.session.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        native_process.session.reset(self._tokens.pop())

    def recording(self, kernel: Kernel) -> Kernel:
        """Return what a launch of a kernel runs in this session."""
        return _RecordingKernel(kernel, self)

    def place_of(self, address: int) -> int | None:
        """Return which array an address lies in."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0 or address > self._starts[place] + self.arrays[place].nbytes:
            return None
        return place

    def add(self, kernel: CpuKernel | CudaKernel, arguments: Sequence[Any], brackets: LaunchRequest) -> None:
        """Write a launch down."""
        artifact = kernel.artifact
        if self.devices and brackets.stream is not None:
            raise _refused(
                artifact.kernel_name, "its brackets name a stream, and the library has its own", "leave it out"
            )
        if artifact.has_records:
            raise _refused(artifact.kernel_name, "it prints or asserts, which only Python reads", "leave both out")
        if artifact.grid_state or brackets.attributes.cooperative:
            why = "its blocks wait for each other, which needs threads of Python"
            raise _refused(artifact.kernel_name, why, "split it into two kernels")
        launch = kernel.written_down(arguments, brackets, self.devices)
        for slot, word in zip(artifact.signature.slots, launch.words):
            spec = artifact.signature.specs[slot.argument]
            if slot.kind == "address" and isinstance(spec, ArraySpec | PointerSpec):
                place = self.place_of(word)
                if place is None:
                    why = f"`{spec.name}` is neither an input nor an output, nor made beside one"
                    raise _refused(
                        artifact.kernel_name, why, "pass it in; `x.new_empty(shape)` makes memory for the call"
                    )
                if spec.is_written:
                    self.written.add(place)
        if launch.size.blocks:
            self.launches.append(launch)

    def steps(self, order: Sequence[int]) -> tuple[list[RecordedStep], object]:
        """Return what to run, and what must live as long. order: for each array, which argument of the call it will be."""
        return [self._step(each, order) for each in self.launches], self.launches

    def _step(self, launch: WrittenLaunch, order: Sequence[int]) -> RecordedStep:
        signature, places, words = launch.kernel.artifact.signature, [], list(launch.words)
        for slot, offset in zip(signature.slots, slot_offsets(signature.slots)):
            spec, word = signature.specs[slot.argument], offset // tables.WORD
            if slot.kind == "address" and isinstance(spec, ArraySpec | PointerSpec):
                place = self.place_of(words[word])
                assert place is not None
                places.append(RecordedAddress(word, order[place], words[word] - self._starts[place], spec.align))
                words[word] = 0
        facts = tuple(fact.holds for fact in signature.facts)
        return RecordedStep(tuple(words), tuple(places), facts, launch.size.grid, _way_to_run(launch))


def _way_to_run(launch: WrittenLaunch) -> OnCpu | OnGpu:
    kernel, size = launch.kernel, launch.size
    if isinstance(kernel, CpuKernel):
        faults = (0, tables.WAITS, tables.NO_MEMORY, tables.FORKED)
        texts = {fault: str(kernel.error_of(fault, None)) for fault in faults}
        code, cost = launch.addresses
        return OnCpu(code, cost, size.blocks, launch.memory_bytes, texts)
    signature, name = kernel.artifact.signature, kernel.artifact.kernel_name
    offsets = tuple(slot_offsets(signature.slots)[:-1])
    number, rows, count, attributes = launch.addresses
    of_driver = name, number, rows, count, attributes
    return OnGpu(*of_driver, offsets, signature.maps, size.block, launch.memory_bytes)


class _RecordingKernel(Kernel):
    """A kernel whose launches a recorder writes down."""

    def __init__(self, kernel: Kernel, recorder: LaunchRecorder) -> None:
        self.artifact = kernel.artifact
        self._kernel = kernel
        self._recorder = recorder

    def request(self, key: Any) -> LaunchRequest:
        return self._kernel.request(key)

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        if isinstance(self._kernel, CpuKernel | CudaKernel):
            self._recorder.add(self._kernel, arguments, brackets)
        else:  # of blocks without threads: it checks the arguments
            self._kernel.launch(arguments, brackets)

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest, launch_other: LaunchOther) -> PreparedLaunch:
        raise _refused(self.artifact.kernel_name, "it is prepared, for arrays that are not there yet", "launch it")


def _refused(name: str, why: str, hint: str) -> RecordingError:
    return RecordingError(NotRecorded(name, why, hint))
