"""From an operator and the shapes of its inputs to a target of XLA: the function is run once, and its launches are written down.

    plan = planned(...)             launches, as machine code that XLA calls by tvm-ffi
    plan.key, plan.scratch          by which it is found, and shapes of memory that the function asks for beside its outputs

The key is made of all that runs, so that programs that XLA keeps on disk never find other code under it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax_tvm_ffi
import tvm_ffi

from stagekit.backends.launcher import SEQUENCES, Functions, load_dispatcher, load_sequence
from stagekit.diagnostics import calls_user
from stagekit.dtypes import element_dtype
from stagekit.forks import Once
from stagekit.jax.errors import NeverWritten
from stagekit.jit.native_launchers import provide_support
from stagekit.operators.errors import BadOperand, OperatorError, OutputDiffers, refused
from stagekit.operators.recording import LaunchRecorder, Placeholder
from stagekit.runtime import driver, native_process
from stagekit.runtime.pool import keep_for_ever

Aval = Any  # what has a shape and a dtype: jax.ShapeDtypeStruct, or JAX's own


class CallPlan(NamedTuple):
    """What XLA calls. key: by which the dispatcher finds it. scratch: further results of the call, which nobody reads.

    aliases: by the place of an input that of the output which has its memory.
    """

    key: int
    scratch: tuple[jax.ShapeDtypeStruct, ...]
    aliases: Mapping[int, int]


@calls_user
def planned(
    name: str,
    function: Any,
    inputs: Mapping[str, Aval],
    outputs: Mapping[str, Aval],
    others: Mapping[str, Any],
    aliases: Mapping[str, str],
    parameters: Sequence[str],
    platform: str,
) -> CallPlan:
    """Run a function with arrays without data, and register what it launches. others: arguments that are no arrays.

    aliases: outputs that have the memory of an input. parameters: of the function; other outputs are what it returns.
    platform: "cpu" or "cuda"; there the code is loaded on each GPU that JAX uses.
    """
    recorder = LaunchRecorder(gpus() if platform == "cuda" else ())
    taken = {each: _placeholder(recorder, name, each, aval, each in aliases.values()) for each, aval in inputs.items()}
    given = {
        each: _placeholder(recorder, name, each, aval, True, taken.get(aliases.get(each, "")))
        for each, aval in outputs.items()
        if each in parameters
    }
    with recorder:
        returned = function(**taken, **others, **given)
    made = {**given, **_returned(name, recorder, returned, [each for each in outputs if each not in given])}
    for each, array in made.items():
        _check(name, each, array, outputs[each], recorder)
    return _registered_plan(
        name, recorder, list(taken.values()), [made[each] for each in outputs], aliases_of(inputs, outputs, aliases)
    )


def aliases_of(inputs: Mapping[str, Any], outputs: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[int, int]:
    """Return by the place of an input the place of the output that has its memory."""
    return {[*inputs].index(given): [*outputs].index(output) for output, given in aliases.items() if given in inputs}


def gpus() -> tuple[int, ...]:
    """Return the numbers of this process's GPUs that JAX uses, none where it has none."""
    try:
        return tuple(device.local_hardware_id for device in jax.local_devices(backend="cuda"))
    except RuntimeError:  # JAX knows no such platform, or finds no GPU
        return ()


def _placeholder(
    recorder: LaunchRecorder, name: str, argument: str, aval: Aval, is_writable: bool, at: Placeholder | None = None
) -> Placeholder:
    dtype = element_dtype(aval.dtype)
    if dtype is None or dtype.part is not None:
        advice = "convert it; complex arrays as their real and imaginary parts"
        raise OperatorError(BadOperand(name, argument, f"is of {aval.dtype}, which no kernel takes here", advice))
    if not all(isinstance(size, int) for size in aval.shape):
        advice = "export and trace it with numbers for sizes"
        raise OperatorError(
            BadOperand(name, argument, f"has the sizes {aval.shape}, of which some are symbols", advice)
        )
    return recorder.array(tuple(aval.shape), dtype, is_writable=is_writable, at=at)


def _returned(name: str, recorder: LaunchRecorder, returned: Any, wanted: Sequence[str]) -> dict[str, Placeholder]:
    """Return what the function made, by the names of outputs that are no parameters."""
    found = returned if isinstance(returned, tuple | list) else () if returned is None else (returned,)
    own = {id(array) for array in recorder.arrays}
    if len(found) != len(wanted) or not all(id(each) in own for each in found):
        problem = f"it returned {', '.join(map(repr, found)) or 'nothing'} for {', '.join(wanted) or 'no output'}"
        raise refused(name, problem, "return new arrays (x.new_empty), one for each output that is no parameter")
    return dict(zip(wanted, found))


def _check(name: str, output: str, array: Placeholder, aval: Aval, recorder: LaunchRecorder) -> None:
    if array.shape != tuple(aval.shape) or array.dtype != aval.dtype:
        said, received = (f"{x.dtype} of shape {tuple(x.shape)}" for x in (aval, array))
        raise OperatorError(OutputDiffers(name, output, said, received))
    if array.size and recorder.place_of(array.data_ptr()) not in recorder.written:
        raise OperatorError(NeverWritten(name, output))


def _registered_plan(
    name: str,
    recorder: LaunchRecorder,
    inputs: Sequence[Placeholder],
    outputs: Sequence[Placeholder],
    aliases: dict[int, int],
) -> CallPlan:
    """Make a plan of launches. XLA calls them with inputs, outputs and scratch memory, in this order."""
    scratch = [each for each in recorder.arrays if not any(each is other for other in (*inputs, *outputs))]
    order = [0] * len(recorder.arrays)
    call = [*inputs, *outputs, *scratch]
    for argument, array in reversed([*enumerate(call)]):  # an output with the memory of an input counts as the input
        place = recorder.place_of(array.data_ptr())
        assert place is not None
        order[place] = argument
    provide_support()
    if not native_process.has_functions():
        raise refused(name, "this interpreter has no native launchers, which XLA would call", "use CPython on Linux")
    native_process.process().pool.count_threads()
    steps, kept = recorder.steps(order)
    artifacts = [launch.kernel.artifact for launch in recorder.launches]
    codes = [(artifact.target, artifact.code, artifact.entry) for artifact in artifacts]
    sizes = [(launch.size, launch.memory_bytes) for launch in recorder.launches]
    numbers = [(step.words, step.places) for step in steps]
    digest = hashlib.sha256(repr((len(call), codes, sizes, numbers)).encode()).digest()

    def make() -> tuple[int, object]:
        code, texts = load_sequence(steps, len(call), _functions(on_gpu=bool(recorder.devices)))
        return code.address, (code, texts, kept)

    key = _sequences.key_of(digest, make)
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in scratch]
    return CallPlan(key, tuple(shapes), aliases)


class _Sequences:
    """What XLA may call, by keys that are made of all that runs: the table of one dispatcher, which is registered with XLA.

    XLA keeps what is registered for as long as the process lives, and jax-tvm-ffi registers 1,024 functions at most.
    """

    def __init__(self) -> None:
        self._table = (ctypes.c_int64 * (2 * SEQUENCES))()
        self._kept: Once[int, tuple[int, object]] = Once()
        keep_for_ever(self._table)

    @functools.cached_property
    def _dispatcher(self) -> object:
        code, texts = load_dispatcher(ctypes.addressof(self._table), _functions())
        function = tvm_ffi.Function.__from_extern_c__(code.address)
        taken = ["attrs.key", "args", "rets"]
        jax_tvm_ffi.register_ffi_target(TARGET, function, taken, platform="cpu")
        if gpus():
            jax_tvm_ffi.register_ffi_target(TARGET, function, taken, platform="gpu", allow_cuda_graph=True)
        return code, texts, function

    def key_of(self, digest: bytes, make: Callable[[], tuple[int, object]]) -> int:
        """Return the key of a sequence, which `make` makes if it is not there."""
        key = int.from_bytes(digest[:8], "little") >> 1 or 1

        def add() -> tuple[int, object]:
            if len(self._kept) > SEQUENCES // 2:
                advice = "give arrays of fewer shapes, and fewer values"
                raise refused("stagekit.jax", f"a process has room for {SEQUENCES // 2} different calls", advice)
            found, row, _ = make(), key % SEQUENCES, self._dispatcher
            while self._table[2 * row]:
                row = (row + 1) % SEQUENCES
            self._table[2 * row + 1] = found[0]
            self._table[2 * row] = key  # last, as XLA may be reading
            return found

        self._kept.of(key, add)
        return key


TARGET = "stagekit"  # the name by which XLA calls
_sequences = _Sequences()


def _functions(*, on_gpu: bool = False) -> Functions:
    """Return what machine code calls: functions of tvm-ffi, which is loaded, of the pool, and of the driver."""

    def own(name: str) -> int:
        return ctypes.cast(getattr(ctypes.CDLL(None), f"TVMFFI{name}"), ctypes.c_void_p).value or 0

    process = native_process.process()
    error_name = driver.function_address("cuGetErrorName") if on_gpu else 0
    errors = own("ErrorSetRaisedFromCStr"), own("ErrorSetRaisedFromCStrParts")
    return Functions(*errors, own("EnvGetStream"), process.address, process.functions["run_apart"], error_name)
