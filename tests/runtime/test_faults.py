"""Faults of kernels on a GPU are told apart from errors of a call (R28), forked children hear why CUDA is gone (R29), and waits
see signals (R30). What a real GPU says is at the end.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import float32
from stagekit.runtime import driver
from stagekit.runtime.cuda import CudaKernel, synchronize
from stagekit.runtime.device_array import DeviceArray, empty, to_device
from stagekit.runtime.errors import HARDWARE_FAULTS, KERNEL_FAULTS, MODULE_FAULTS, ArgumentError, CudaError
from stagekit.runtime.launch_config import NO_BRACKETS
from tests.runtime.fake_driver import CAPTURING, FakeDriver
from tests.runtime.handmade import SAXPY, SAXPY_LAUNCH, artifact

ILLEGAL_ADDRESS, INVALID_ADDRESS_SPACE, ECC = 700, 717, 214


def kernel(name: str = "saxpy", **changes: Any) -> CudaKernel:
    fields = {"target": "cuda", "capability": 75, "code": b".version 8.0", "style": "entry", "launch": SAXPY_LAUNCH}
    return CudaKernel(artifact(name, SAXPY, **(fields | changes)))


def arrays(device: int = 0) -> tuple[DeviceArray, DeviceArray, float]:
    return to_device(np.ones(1000, np.float32), device), empty(1000, float32, device), 1.0


def launched(name: str, device: int = 0, **changes: Any) -> CudaKernel:
    made = kernel(name, **changes)
    made.launch(arrays(device))
    return made


def caught(call: Callable[[], object]) -> str:
    with pytest.raises(CudaError) as error:
        call()
    return str(error.value)


# Faults that stay with a context --------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[CudaKernel, Any], object]] = {
    "loading a module": lambda known, given: kernel("other").launch(given),
    "a launch": lambda known, given: known.launch(given),
    "synchronising": lambda known, given: synchronize(),
    "a copy to the host": lambda known, given: given[0].to_host(),
    "a copy to the device": lambda known, given: to_device(np.ones(3)),
    "an allocation": lambda known, given: empty(3, float32),
    "a capsule": lambda known, given: given[0].__dlpack__(),
    "an event": lambda known, given: driver.wait_for(0, 9),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_fault_is_blamed_on_the_kernel_before_whichever_call_reports_it(fake: FakeDriver, what: str) -> None:
    """R28: the page's example is a module that was "refused" for a fault of the launch before it."""
    known, given = launched("known"), arrays()
    launched("culprit")
    fake.current = 100
    fake.broken = {100: INVALID_ADDRESS_SPACE}

    first = caught(lambda: CALLS[what](known, given))

    assert "CONTEXT_LOST" in first
    assert "the kernel launched last there is `culprit`" in first
    assert "CUDA_ERROR_INVALID_ADDRESS_SPACE" in first
    assert "sk.sanitize(culprit)" in first
    assert "MODULE_REFUSED" not in first
    for call in CALLS.values():
        assert caught(functools.partial(call, known, given)) == first, "every call says the same from then on"


def test_only_the_device_with_the_fault_is_lost(fake: FakeDriver) -> None:
    on = [launched(f"k{device}", device) for device in (0, 1)]
    given = [arrays(device) for device in (0, 1)]
    fake.broken = {101: ILLEGAL_ADDRESS}

    text = caught(synchronize)

    assert "cuda:1: the kernel launched last there is `k1`" in text
    on[0].launch(given[0])
    synchronize(0)
    assert caught(lambda: on[1].launch(given[1])) == text


def test_without_a_launch_of_ours_no_kernel_is_named(fake: FakeDriver) -> None:
    empty(3, float32)
    fake.broken = {100: ILLEGAL_ADDRESS}

    assert "stagekit launched no kernel there" in caught(synchronize)


def test_a_broken_gpu_is_blamed_on_no_kernel(fake: FakeDriver) -> None:
    launched("innocent")
    fake.broken = {100: ECC}

    text = caught(synchronize)

    assert "no kernel is to blame" in text
    assert "innocent" not in text


def test_debug_names_the_kernel_for_certain(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: it waits before the launch, so that the fault of another is not its own, and after it."""
    launched("before")
    checked, given = launched("checked", is_debug=True), arrays()
    launch = fake.do_cuLaunchKernel

    def fault(*sizes: Any) -> None:
        launch(*sizes)
        fake.broken = {100: ILLEGAL_ADDRESS}

    monkeypatch.setattr(fake, "do_cuLaunchKernel", fault)

    text = caught(lambda: checked.launch(given))

    assert "the kernel `checked` failed" in text
    assert "sk.sanitize(checked)" in text


def test_debug_does_not_take_the_fault_of_another(fake: FakeDriver) -> None:
    checked, given = launched("checked", is_debug=True), arrays()
    launched("culprit")
    fake.broken = {100: ILLEGAL_ADDRESS}

    assert "launched last there is `culprit`" in caught(lambda: checked.launch(given))


def test_debug_does_not_wait_while_a_graph_is_captured(fake: FakeDriver) -> None:
    checked = kernel("checked", style="thread", launch=None, is_debug=True)
    given, request = arrays(), checked.request((4, 256, 0, CAPTURING))
    fake.calls.clear()

    checked.launch(given, request)

    assert fake.named("cuLaunchKernel")
    assert not fake.named("cuEventQuery")


def test_kernels_with_debug_do_not_launch_natively(fake: FakeDriver) -> None:
    assert kernel(is_debug=True).native_state(NO_BRACKETS) is None
    fn = sk.jit(target="cuda", debug=True)(touch).specialize(x=sk.Tensor((None,), sk.float32))
    assert fn._shown().artifact("cuda", 90, None).is_debug


def touch(x):  # type: ignore[no-untyped-def]
    x[0] = 1


def test_finalisers_are_silent_after_a_fault(fake: FakeDriver, capfd: pytest.CaptureFixture[str]) -> None:
    known, given = launched("known"), arrays()
    fake.broken = {100: ILLEGAL_ADDRESS}

    del given
    gc.collect()
    text = caught(synchronize)
    del known
    gc.collect()

    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in text
    assert capfd.readouterr().err == ""


def test_an_error_of_the_call_itself_stays_one(fake: FakeDriver) -> None:
    given = arrays()
    fake.failing = {"cuLaunchKernel"}

    assert "DRIVER_CALL_FAILED" in caught(lambda: kernel().launch(given))

    fake.failing = set()
    kernel().launch(given)


@pytest.mark.parametrize("status", [1, 2])
def test_a_module_is_refused_for_errors_of_modules_only(
    fake: FakeDriver, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, really = arrays(), fake._status
    monkeypatch.setattr(
        fake, "_status", lambda name: type(really(name))(status) if name == "cuModuleLoadDataEx" else really(name)
    )

    text = caught(lambda: kernel().launch(given))

    assert ("MODULE_REFUSED" if status == 1 else "DRIVER_CALL_FAILED") in text


def test_every_status_in_the_tables_is_one_of_the_driver() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")

    known = {status.name for status in bindings.CUresult}

    assert known >= KERNEL_FAULTS | HARDWARE_FAULTS | MODULE_FAULTS
    assert not KERNEL_FAULTS & HARDWARE_FAULTS
    assert not (KERNEL_FAULTS | HARDWARE_FAULTS) & MODULE_FAULTS


# Pinned memory --------------------------------------------------------------------------------------------------------


def test_pinned_memory_is_used_where_the_gpu_sees_it(fake: FakeDriver) -> None:
    """R30: NumPy does not say that an array's memory is pinned; the driver does."""
    x, made = np.ones(1000, np.float32), kernel()
    y = empty(1000, float32)
    fake.parameter_count = 4

    with pytest.raises(ArgumentError, match="WRONG_DEVICE"):
        made.launch((x, y, 1.0))
    fake.pinned = {x.ctypes.data: 0x7000}
    made.launch((x, y, 1.0))
    made.launch((y, y, 1.0))

    assert [row[0] for row in fake.launched] == [0x7000, y._address]


def test_pinned_memory_alone_goes_to_the_current_device(fake: FakeDriver) -> None:
    x, y = np.ones(1000, np.float32), np.ones(1000, np.float32)
    fake.pinned = {x.ctypes.data: 0x7000, y.ctypes.data: 0x8000}
    fake.current = int(driver.context_of(1))

    kernel().launch((x, y, 1.0))

    assert fake.named("cuLaunchKernel")[0][0] == "saxpy of module on 101"


@pytest.mark.parametrize("kind", [3, 13], ids=["kDLCUDAHost", "kDLCUDAManaged"])
def test_what_dlpack_calls_pinned_or_managed_is_taken_at_its_word(fake: FakeDriver, kind: int) -> None:
    class Owner:
        def __init__(self) -> None:
            self.array = np.ones(1000, np.float32)

        def __dlpack_device__(self) -> tuple[int, int]:
            return kind, 0

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__()

    kernel().launch((Owner(), empty(1000, float32), 1.0))

    assert fake.named("cuLaunchKernel")


# Memory and modules that are freed ------------------------------------------------------------------------------------


def test_what_may_still_be_used_is_freed_with_the_next_wait(fake: FakeDriver) -> None:
    """R30: a finaliser that waited would take no signal."""
    known, given = launched("known"), arrays()
    fake.is_busy = True

    del known, given
    gc.collect()
    assert not fake.named("cuModuleUnload")
    assert len(fake.memory) == 2

    fake.is_busy = False
    synchronize()
    assert fake.named("cuModuleUnload")
    assert not fake.memory


def test_an_allocation_waits_for_memory_that_is_to_be_freed(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    given, really = arrays(), fake._status
    fake.is_busy = True
    del given
    gc.collect()

    def full(name: str) -> Any:
        if name == "cuEventQuery":
            fake.is_busy = False
        return type(really(name))(2) if name == "cuMemAlloc" and fake.memory else really(name)

    monkeypatch.setattr(fake, "_status", full)

    made = empty(3, float32)

    assert list(fake.memory) == [made._address]


# Waiting --------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_work(fake: FakeDriver) -> None:
    empty(3, float32)
    fake.is_busy = True
    threading.Timer(0.05, lambda: setattr(fake, "is_busy", False)).start()
    start = time.perf_counter()

    synchronize()

    assert 0.04 < time.perf_counter() - start < 5


WAITS: dict[str, Callable[[Any], object]] = {
    "synchronising": lambda array: synchronize(),
    "a copy to the host": lambda array: array.to_host(),
    "a copy to the device": lambda array: to_device(np.ones(3)),
    "a capsule": lambda array: array.__dlpack__(),
}


@pytest.fixture
def sigint() -> Iterator[None]:
    """Ctrl-C raises, also where the tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("what", WAITS)
def test_a_wait_can_be_interrupted(fake: FakeDriver, sigint: None, what: str) -> None:
    """R30: Ctrl-C ends it though the kernel does not for long."""
    array = empty(3, float32)
    fake.is_busy = True
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    end = threading.Timer(10, lambda: setattr(fake, "is_busy", False))
    end.daemon = True
    end.start()
    start = time.perf_counter()

    with pytest.raises(KeyboardInterrupt):
        WAITS[what](array)

    end.cancel()
    assert time.perf_counter() - start < 2


def test_an_old_driver_waits_too(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuCtxRecordEvent is of CUDA 12.5; cuda-python raises where there is none."""

    def absent(*_: Any) -> None:
        raise RuntimeError('Function "cuCtxRecordEvent" not found')

    monkeypatch.setattr(fake, "cuCtxRecordEvent", absent, raising=False)
    empty(3, float32)

    synchronize()

    assert fake.named("cuEventRecord")[-1] == ["event", 0]
    assert fake.named("cuCtxSynchronize")


# Forks ----------------------------------------------------------------------------------------------------------------

FORK = """
import gc, os, sys
import numpy as np
import cuda.bindings
from tests.launch.fake_gpu import FakeNativeDriver
made = FakeNativeDriver()
sys.modules["cuda.bindings.driver"] = cuda.bindings.driver = made
import stagekit as sk
from stagekit.runtime import driver

@sk.jit
def twice(x):
    x[0] = x[0] * 2

def check_child():
    made.calls.clear()
    for call in (
        lambda: array.to_host(), lambda: sk.cuda.empty(3, np.float32), lambda: array.__dlpack__(), lambda: twice[1, 1](array)
    ):
        try:
            call()
        except sk.StagekitError as error:
            assert error.id == "FORKED_PROCESS", error
            assert 'multiprocessing.get_context("spawn")' in str(error)
        else:
            raise AssertionError("nothing was said")
    assert not sk.cuda.is_available()
    sk.cuda.synchronize()
    host = np.ones(1, np.float32)
    for _ in range(4):
        twice[1, 1](host)
    assert host[0] == 16
    assert made.calls == [], made.calls

array = sk.cuda.to_device(np.ones(3, np.float32))
other = sk.cuda.to_device(np.ones(3, np.float32))
for _ in range(4):
    twice[1, 1](array)
child = os.fork()
if not child:
    code = 1
    try:
        check_child()
        del other
        gc.collect()
        assert made.calls == [], made.calls
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    os._exit(code)
_, status = os.waitpid(child, 0)
assert status == 0
twice[1, 1](array)
array.to_host()
print("well")
"""


def program(path: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program that may import the tests."""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(path)]
    return subprocess.run(command, env=around, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_told_that_cuda_does_not_survive_and_runs_on_the_cpu(tmp_path: Path) -> None:
    """R29: whatever it inherited, without asking the driver anything."""
    pytest.importorskip("cuda.bindings")
    (tmp_path / "program.py").write_text(FORK)

    done = program(tmp_path / "program.py")

    assert done.stdout == "well\n", done.stderr
    assert "Error" not in done.stderr


def test_a_child_of_a_process_that_used_cuda_without_us_is_told_too(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29: torch in the parent. cuInit itself says so."""
    monkeypatch.setattr(fake, "_status", lambda name: type(FakeDriver._status(fake, name))(3))

    assert "FORKED_PROCESS" in caught(lambda: driver.call("cuDeviceGetCount"))
    assert not driver.is_available()


# A real GPU: what ends a context runs in a process of its own ---------------------------------------------------------

HEAD = """
import gc, numpy as np, os, signal, sys, threading, time, warnings
import stagekit as sk
from stagekit.runtime import driver

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored

@sk.jit
def culprit(x, i):
    x[i] = 1

@sk.jit(debug=True)
def checked(x, i):
    x[i] = 1

@sk.jit
def innocent(x):
    x[0] = x[0] + 2

@sk.jit
def other(x):
    x[0] = x[0] + 3

def told(call):
    try:
        call()
    except sk.StagekitError as error:
        return str(error)
    raise AssertionError("nothing was said")

FAR = np.int64(1 << 40)
x = sk.cuda.to_device(np.zeros(4, np.float32))
for _ in range(4):
    innocent[1, 1](x)
    culprit[1, 1](x, np.int64(1))
sk.cuda.synchronize()
"""
FAULTS = {
    "another kernel's module": "other[1, 1](x)",
    "another kernel": "innocent[1, 1](x)",
    "synchronising": "sk.cuda.synchronize()",
    "a copy": "x.to_host()",
    "an allocation": "sk.cuda.empty(3, np.float32)",
}


def in_process(tmp_path: Path, body: str) -> str:
    """Run a program on the GPU, which must end well; what it said on stderr."""
    (tmp_path / "program.py").write_text(f"{HEAD}\n{body}\nprint('well', flush=True)\nos._exit(0)\n")
    done = program(tmp_path / "program.py")
    assert done.stdout.endswith("well\n"), done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("what", FAULTS)
def test_on_a_gpu_a_fault_is_blamed_on_its_kernel(what: str, tmp_path: Path) -> None:
    """R28: the page's example."""
    in_process(
        tmp_path,
        f"""
culprit[1, 1](x, FAR)
time.sleep(0.5)
first = told(lambda: {FAULTS[what]})
assert "CONTEXT_LOST" in first and "`culprit`" in first and "MODULE_REFUSED" not in first, first
for call in ({", ".join(f"lambda: {call}" for call in FAULTS.values())}):
    assert told(call) == first
del x
gc.collect()
""",
    )


@pytest.mark.gpu
def test_on_a_gpu_debug_names_the_kernel_at_its_launch(tmp_path: Path) -> None:
    in_process(
        tmp_path,
        """
for _ in range(3):
    checked[1, 1](x, np.int64(1))
text = told(lambda: checked[1, 1](x, FAR))
assert "the kernel `checked` failed" in text, text
""",
    )


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_on_a_gpu_a_forked_child_is_told(tmp_path: Path) -> None:
    """R29."""
    in_process(
        tmp_path,
        """
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    code = 1
    try:
        for call in (lambda: innocent[1, 1](x), lambda: x.to_host(), lambda: sk.cuda.empty(3, np.float32)):
            assert "FORKED_PROCESS" in told(call)
        host = np.zeros(1, np.float32)
        for _ in range(4):
            innocent[1, 1](host)
        assert host[0] == 8 and not sk.cuda.is_available()
        x = None
        gc.collect()
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
innocent[1, 1](x)
sk.cuda.synchronize()
""",
    )


SPIN = '''
from stagekit.runtime.cuda import CudaKernel
from tests.runtime.handmade import artifact
from tests.runtime.test_cuda import FILL
ptx = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 value)
{
  .reg .b64 %rd<4>;
  .reg .pred %p;
  mov.u64 %rd1, %globaltimer;
  add.u64 %rd2, %rd1, 4000000000;
again:
  mov.u64 %rd3, %globaltimer;
  setp.lt.u64 %p, %rd3, %rd2;
  @%p bra again;
  ret;
}
"""
spin = CudaKernel(artifact("spin", FILL, target="cuda", capability=75, code=ptx, style="thread", block=None))
y = sk.cuda.to_device(np.zeros(4, np.float32))
'''


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call", ["sk.cuda.synchronize()", "x.to_host()", "x.__dlpack__()", "sk.cuda.to_device(np.ones(3))"]
)
def test_on_a_gpu_a_wait_can_be_interrupted(call: str, tmp_path: Path) -> None:
    """R30: a kernel that spins for four seconds; Ctrl-C is taken within a tenth of one, and what it used is freed later."""
    in_process(
        tmp_path,
        f"""
{SPIN}
stream = driver.call("cuStreamCreate", 1)  # one that the default stream does not wait for
spin.launch((y, 1.0), spin.request((1, 1, 0, int(stream))))
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.perf_counter()
try:
    {call}
    raise AssertionError("it was not interrupted")
except KeyboardInterrupt:
    took = time.perf_counter() - start
assert took < 0.4, took
spin = y = None
gc.collect()
assert time.perf_counter() - start < 1
sk.cuda.synchronize()
assert time.perf_counter() - start > 2
assert not driver._retired
""",
    )


@pytest.mark.gpu
def test_on_a_gpu_a_short_wait_is_as_quick_as_the_drivers(tmp_path: Path) -> None:
    """R30: within microseconds; `pytest -s` shows the figures."""
    figures = in_process(
        tmp_path,
        """
def median(wait):
    times = []
    for _ in range(500):
        innocent[1, 1](x)
        start = time.perf_counter()
        wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[250] * 1e6

def drivers():
    driver.call("cuCtxSynchronize")

with driver.on_device(0):
    ours, theirs = [min(median(wait) for _ in range(5)) for wait in (sk.cuda.synchronize, drivers)]
print(f"synchronize: {ours:.1f} us, cuCtxSynchronize: {theirs:.1f} us", file=sys.stderr)
assert ours < theirs + 15, (ours, theirs)
""",
    )
    sys.stderr.write(figures)


@pytest.mark.gpu
@pytest.mark.parametrize("owner", ["numpy", "torch"])
def test_on_a_gpu_pinned_memory_is_used_in_place(owner: str, tmp_path: Path) -> None:
    """R30."""
    if owner == "torch":
        pytest.importorskip("torch")
    in_process(
        tmp_path,
        f"""
import ctypes
if {owner == "torch"}:
    import torch
    pinned = torch.zeros(4, dtype=torch.float32).pin_memory()
else:
    with driver.on_device(0):
        address = int(driver.call("cuMemHostAlloc", 16, 1))
    pinned = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(address))
    pinned[:] = 0

@sk.jit
def add(pinned, there):
    i = sk.cuda.thread_idx("x")
    pinned[i] = there[i] + 5

there = sk.cuda.to_device(np.arange(4, dtype=np.float32))
for _ in range(4):
    add[1, 4](pinned, there)
sk.cuda.synchronize()
assert [float(v) for v in pinned] == [5, 6, 7, 8], pinned
assert "WRONG_DEVICE" in told(lambda: add[1, 4](np.zeros(4, np.float32), there))
""",
    )
