"""What can be wrong with a launch: the exceptions, and the catalogue of their texts.

Every text names the parameter or the axis, what was expected and what was received.
"""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError


class ArgumentError(StagekitError, TypeError):
    """An argument that the kernel's signature refuses. Nothing was launched."""


class LaunchError(StagekitError, ValueError):
    """A grid, block or amount of memory that cannot be launched. Nothing was launched."""


class BarrierError(StagekitError, RuntimeError):
    """Some threads of a block waited at a barrier that others never reached, or all blocks waited in loops. The launch stopped
    there.
    """


class CudaError(StagekitError, RuntimeError):
    """The CUDA driver is missing, or one of its calls failed."""


class KernelAssertionError(StagekitError, AssertionError):
    """An `assert` of a kernel failed in some thread. `message`, `block` and `thread` tell which one came first."""

    diagnostic: AssertionFailed

    @property
    def message(self) -> str:
        return self.diagnostic.message

    @property
    def block(self) -> tuple[int, int, int]:
        return self.diagnostic.block

    @property
    def thread(self) -> tuple[int, int, int]:
        return self.diagnostic.thread


# Binding ----------------------------------------------------------------------------------------------------------


class TooManyArguments(Diagnostic):
    title = "Too many arguments"
    label = "`{kernel}` takes {accepted} by position, {received} were given"


class MissingArgument(Diagnostic):
    title = "An argument is missing"
    label = "`{kernel}` needs {names}"


class DuplicateArgument(Diagnostic):
    title = "An argument is given twice"
    label = "`{name}` of `{kernel}` is given by position and by keyword"


class UnknownArgument(Diagnostic):
    title = "No parameter has this name"
    label = "`{kernel}` has no parameter `{name}`"
    help = "{advice}"


# Arrays -----------------------------------------------------------------------------------------------------------


class NotAnArray(Diagnostic):
    title = "An array is needed"
    label = "`{name}`: expected an array of {dtype}, got {received}"
    help = "NumPy arrays, DLPack and __cuda_array_interface__ objects are arrays; numpy.asarray makes one of a list"


class WrongDtype(Diagnostic):
    title = "Wrong dtype"
    label = "`{name}`: expected {dtype}, got {received}"
    help = "{conversion}"


class UnsupportedDtype(Diagnostic):
    title = "Kernels have no such dtype"
    label = "{dtype} has no counterpart in stagekit"


class WrongRank(Diagnostic):
    title = "Wrong number of dimensions"
    label = "`{name}`: expected {expected}, got {received}"


class WrongSize(Diagnostic):
    title = "Wrong size"
    label = "`{name}`: expected {expected} element(s) along axis {axis}{bound_by}, got {size} (shape {shape})"


class NotContiguous(Diagnostic):
    title = "A contiguous array is needed"
    label = "`{name}`: expected C order without gaps, got shape {shape} with element strides {strides}"
    help = "numpy.ascontiguousarray({name}), or .contiguous() of a torch tensor"


class WrongStride(Diagnostic):
    title = "Wrong stride"
    label = "`{name}`: expected steps of {expected} element(s) along axis {axis}, got {stride} (shape {shape})"
    help = "pass an array with the layout that the parameter declares, or leave its `strides` out"


class UnevenStrides(Diagnostic):
    title = "Strides are not whole elements"
    label = "`{name}`: expected steps of whole elements of {dtype}, got {received} with gaps of part of an element"
    help = "a field of a structured array may be one: make its dtype by `np.dtype(..., align=True)`, or copy the field"


class Misaligned(Diagnostic):
    title = "The array is not aligned"
    label = "`{name}`: expected an address that is a multiple of {align} bytes, got {address:#x} ({excess} too many)"
    help = "a copy of the array is aligned; a view that starts inside another array need not be"


class ReadOnlyOutput(Diagnostic):
    title = "The array is read-only"
    label = "`{name}`: the kernel writes it, got {received}, which is read-only"


class WrongDevice(Diagnostic):
    title = "The array lives elsewhere"
    label = "`{name}`: expected an array that the {target} target can reach, got {received} on {device}"
    help = "{advice}"


class CopyInCapture(Diagnostic):
    title = "A captured launch copies no arrays of the host"
    label = "`{kernel}`: `{name}` lies on the CPU, and the stream is being captured into a graph"
    help = "copy what the graph works on before: stagekit.cuda.to_device({name})"


class DeviceMismatch(Diagnostic):
    title = "Arrays of two devices"
    label = "`{name}` is on cuda:{device}, `{other}` is on cuda:{other_device}"
    help = "one launch runs on one device: move one of them"


class UnreadableArray(Diagnostic):
    title = "The array could not be read"
    label = "`{name}`: {received} refused: {reason}"


class MaskedArray(Diagnostic):
    title = "A masked array"
    label = "`{name}`: kernels know nothing of the mask of {received}"
    help = "pass {name}.filled(value), or {name}.data to ignore the mask"


# Numbers ----------------------------------------------------------------------------------------------------------


class NotANumber(Diagnostic):
    title = "A number is needed"
    label = "`{name}`: expected {dtype}, got {received}"
    help = "{hint}"


class FloatForInteger(Diagnostic):
    title = "A float where an integer is needed"
    label = "`{name}`: expected {dtype}, got {received}"
    help = "int({name}) drops the fraction, round({name}) rounds"


class IntegerOutOfRange(Diagnostic):
    title = "The integer does not fit"
    label = "`{name}`: {value} is outside {dtype} ({low} to {high})"
    help = "give the parameter a wider dtype"


class NotNone(Diagnostic):
    title = "This specialisation has no such argument"
    label = "`{name}`: this kernel was specialised for None, got {received}"


# Launch geometry --------------------------------------------------------------------------------------------------


class BracketsMisfit(Diagnostic):
    title = "These brackets do not fit the kernel"
    label = "`{written}`: `{kernel}` {takes}"
    help = "{readings}"


class SameProgram(Diagnostic):
    title = "Programs that would all do the same"
    label = "`{kernel}` on a grid of {grid}: {count} programs along axis {axis}, which it does not look at"
    help = (
        "the brackets of a block-level kernel hold its grid, not its threads: give 1 there, or use `program_id({axis})`, "
        "which also says that the same is to be done {count} times"
    )


class GridFunctionFailed(Diagnostic):
    title = "A grid function raised"
    label = "{reason}"
    help = "it is called with one mapping, from names to constexprs and arguments: {names}"


class GridTooLarge(Diagnostic):
    title = "Not all blocks can run at once"
    label = "`{kernel}` waits for the whole grid, {blocks} blocks, of which {device} runs {most} at the same time"
    help = "launch at most so many, and let each do more, in a loop with the grid as its stride"


class LaunchSizeType(Diagnostic):
    title = "A launch size must be an integer"
    label = "{what}: expected {expected}, got {received}"
    help = "{hint}"


class LaunchLimit(Diagnostic):
    title = "A launch size is out of range"
    label = "{what} is {value}, it must lie between 0 and {high}"


class BadCluster(Diagnostic):
    title = "A cluster of too many blocks"
    label = "`cluster` is {cluster}: {blocks} blocks, it must be 1 to {most} in all"
    help = "give fewer along some axis; every GPU that has clusters runs those of up to {most} blocks"


class ClusterMisfit(Diagnostic):
    title = "Clusters that do not divide the grid"
    label = (
        "`{kernel}` in clusters of {cluster} on a grid of {grid}: {together} does not divide {blocks} along axis {axis}"
    )
    help = "round the grid up to whole clusters, and let blocks without work come to every cluster barrier"


class LaunchTooNew(Diagnostic):
    title = "This launch needs a newer GPU"
    label = "`{kernel}` with {attribute} needs compute capability 9.0, {device} has {capability}"
    help = "leave it out there: `LaunchConfig({attribute})` is for compute capability 9.0 and above"


class NotAStream(Diagnostic):
    title = "This is no CUDA stream"
    label = "`stream`: expected {expected}, got {received}"
    help = "give a stream of torch, CuPy, Numba or cuda.core, an object with `__cuda_stream__`, or the handle as an int"


class EntryUnfit(Diagnostic):
    title = "An entry that does not fit the arguments"
    label = "`{kernel}`: the {entry} entry was asked for, but a launch would choose {why}"
    help = "give it arguments of which that holds, or force another entry: the overlapping one runs any"


class SharedMemoryTooSmall(Diagnostic):
    title = "Too little dynamic shared memory"
    label = "`{kernel}` uses {needed} bytes of dynamic shared memory at least, the launch gives {given}"
    help = "give them in the launch: `{kernel}[grid, block, {needed}]`, or LaunchConfig(grid=, block=, shared_bytes={needed})"


class TensorMapRefused(Diagnostic):
    title = "An array without a tensor map"
    label = "`{array}` of `{kernel}`: {why}"
    help = "{advice}"


class BlockMismatch(Diagnostic):
    title = "The block is fixed"
    label = "`{kernel}` was compiled for blocks of {fixed} threads, the launch asks for {given}"


# CUDA -------------------------------------------------------------------------------------------------------------


def _statuses(words: str) -> frozenset[str]:
    return frozenset(f"CUDA_ERROR_{word}" for word in words.split())


KERNEL_FAULTS = _statuses(
    "ILLEGAL_ADDRESS MISALIGNED_ADDRESS INVALID_ADDRESS_SPACE ILLEGAL_INSTRUCTION INVALID_PC HARDWARE_STACK_ERROR ASSERT"
    " LAUNCH_FAILED LAUNCH_TIMEOUT TENSOR_MEMORY_LEAK CONTEXT_IS_DESTROYED"
)
HARDWARE_FAULTS = _statuses("ECC_UNCORRECTABLE NVLINK_UNCORRECTABLE CONTAINED EXTERNAL_DEVICE MPS_CLIENT_TERMINATED")
"""Errors that stay with a context: by `cuda.h`, every later call returns the same. All others are those of one call."""

MODULE_FAULTS = _statuses(
    "INVALID_IMAGE INVALID_PTX INVALID_SOURCE NO_BINARY_FOR_GPU UNSUPPORTED_PTX_VERSION UNSUPPORTED_DEVSIDE_SYNC NOT_FOUND"
    " JIT_COMPILER_NOT_FOUND JIT_COMPILATION_DISABLED SHARED_OBJECT_SYMBOL_NOT_FOUND SHARED_OBJECT_INIT_FAILED"
)
"""Errors that are about the module to be loaded."""


class NoCudaDriver(Diagnostic):
    title = "No CUDA driver"
    label = "{reason}"
    help = "kernels run on the CPU with NumPy arrays; .ptx and .ir need no GPU"


class DriverCallFailed(Diagnostic):
    title = "A CUDA call failed"
    label = "{call}: {name} ({text})"


class ContextLost(Diagnostic):
    title = "A fault on the GPU has ended the CUDA context"
    label = "{device}: {blamed}; {call} reports {name} ({text})"
    help = "start the process anew, since every CUDA call in it fails from now on. {advice}"


class ForkedProcess(Diagnostic):
    title = "CUDA does not survive a fork"
    label = "this process was forked from one that had used CUDA"
    help = (
        'start processes by multiprocessing.get_context("spawn"), or fork before CUDA is first used; '
        "kernels for the CPU run here too"
    )


class ModuleRefused(Diagnostic):
    title = "The driver refused the kernel's PTX"
    label = "`{kernel}` on {device}: {name}"
    help = "{log}"


class CapabilityTooLow(Diagnostic):
    title = "The GPU is older than the kernel"
    label = "`{kernel}` was compiled for compute capability {needed}, {device} has {capability}"


class SharedMemoryLimit(Diagnostic):
    title = "Too much shared memory"
    label = "`{kernel}` has {own} bytes per block of its own and the launch adds {given}; {device} has {limit}"


# Records ----------------------------------------------------------------------------------------------------------


class AssertionFailed(Diagnostic):
    title = "An assert in the kernel failed"
    label = "{message} (block {block}, thread {thread}{others})"

    message: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    others: str


class ForkedLaunch(Diagnostic):
    title = "A launch was split by a fork"
    label = "`{kernel}` was running in several threads when the handler of a signal forked; in the child it cannot end"
    help = "let the handler note the signal, and fork after the launch"


class WaitsForEver(Diagnostic):
    title = "Blocks that wait for each other"
    label = "`{kernel}`: all blocks that have not ended wait in loops such as this one, and no other is left that could end it"
    help = (
        "on the CPU the lanes of a warp stay together, and one warp of a block runs after the other: within a block wait at a "
        "barrier (`sk.syncthreads()`), and release a lock inside the loop that takes it"
    )


class MissedBarrier(Diagnostic):
    title = "A barrier that not every thread reached"
    label = "`{kernel}`: threads of one block took different ways around a barrier"
    help = (
        "a barrier must be reached by all threads of a block: move it out of the condition; "
        "`sk.sanitize({kernel})` shows where"
    )
