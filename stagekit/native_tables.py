"""Memory that native launchers and the runtime share: the one place that says where each word is.

`backends/launcher` makes machine code that reads these tables, `runtime/native_process.py` fills them. All words have 8 bytes.

    PROCESS     one table per process: objects, types and functions whose addresses differ from process to process
    STATE       one per callable: what it launches; after it, `parameters` words each of NAMES, DEFAULTS and EXPECTED, then two
                for each part of an argument that holds others: the name of its attribute, and what EXPECTED is for a parameter
    EXCHANGE    a row per array type that speaks DLPack, by its C exchange API or by capsules
    DEVICE      a row per GPU: where a kernel's code is
    DESTINATION where a launch on a GPU goes: one per launch; that of a prepared launch is in its STATE
    WANTED_*    what a parameter takes: constants of a launcher
    GUARD       a row per place outside a kernel that its tracer read
    POOL        the threads that share launches on the CPU: one per process; in it JOBS, one per launch that is shared just now
    SAFEPOINT   what a thread that runs blocks looks at in loops: one per thread and launch
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType

from stagekit.config import MOST_THREADS
from stagekit.dtypes import (
    ALL_DTYPES,
    ELEMENT_DTYPES,
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint32,
    uint64,
)

WORD = 8  # bytes


def _numbered(names: str) -> Mapping[str, int]:
    """Return the byte offset of each word, by name."""
    return MappingProxyType({name: WORD * place for place, name in enumerate(names.split())})


PROCESS = _numbered(
    "none true false int float ndarray device_array device_array_slot"
    " environment target_switch sanitize_switch session modules torch_name torch_stream cupy_stream is_neg_name is_conj_name"
    " dlpack_name dlpack_device_name dlpack_version"
    " exchanges exchange_count launch_kernel encode_tiled get_context set_context last_launches"
    " is_undiverted bind read_array release read_number is_expected run enqueue is_current"
    " pool threads threads_seen threads_switch count_threads "
    + " ".join([f"dtype_{each.name}" for each in ELEMENT_DTYPES] + [f"scalar_{each.name}" for each in ALL_DTYPES])
)
"""is_undiverted to is_current are the functions of `backends/launcher/support`; dtype_* and scalar_*, NumPy's dtypes and the
types of its scalars. torch_stream: a C function that gives torch's current stream; cupy_stream: a Python callable that gives
CuPy's. *_name: strings. dlpack_version: a tuple. threads: how many share a launch, 0 where it must be counted (`count_threads`);
threads_seen: the object in the environment that said so."""

STATE = _numbered(
    "general process guards guard_count ask code cost record fail"
    " grid_x grid_y grid_z block_x block_y block_z shared_bytes blocks attributes attribute_count kernel_number"
    " device stream_of stream has_stream slots pointers scratch_bytes entries launch"
)
"""general, ask, record, fail: Python callables. code: a cpu entry, or the DEVICE rows.
attributes, attribute_count: of launches on a GPU. kernel_number: what an enqueued launch leaves in last_launches of its device.
device to has_stream: a DESTINATION; the device, stream_of, slots and pointers are those of a prepared launch. entries: of a
kernel that has several, a word for each `signature.KernelEntry`: its STATE, or 0. launch: in such a STATE, the code that launches
the entry."""

DESTINATION = _numbered("device stream_of stream has_stream")
"""device: -1 until an array says which GPU. stream_of: gives the current stream of the first array's owner that has one."""
GIVEN, ASKED = 1, 2  # has_stream: `stream` stands in the brackets, or `stream_of` has been asked for it; 0 if neither

EXCHANGE = _numbered("type read stream_of flags keywords stream_keywords")
"""read: a C function that fills a `DLTensor`; 0 for a type that only makes capsules. stream_of: gives the current stream on a
device; a C function, or PROCESS's cupy_stream, or 0. keywords, stream_keywords: tuples with the keywords of `__dlpack__`, without
and with a stream."""
EXCHANGES = 64  # rows; types beyond go the general way
NEVER_READ_ONLY = 1  # flags: all arrays of the type may be written to, which DLPack's struct does not say
MAY_BE_NEGATED = 2  # torch: an array may stand for its negative

LAUNCH: Mapping[str, int] = MappingProxyType(
    {
        **{f"{what}_{axis}": 4 * place for place, (what, axis) in enumerate(product(("grid", "block"), "xyz"))},
        "shared_bytes": 24,
        "stream": 32,
        "attributes": 40,
        "attribute_count": 48,
    }
)
"""The driver's `CUlaunchConfig`. attributes: a `LaunchAttribute` each."""
LAUNCH_BYTES = 56
ATTRIBUTE_IDS = {"COOPERATIVE": 2, "CLUSTER_DIMENSION": 4, "PROGRAMMATIC_STREAM_SERIALIZATION": 6}
"""Of the driver's `CUlaunchAttributeID`, what launches ask for. `tests/runtime/test_cuda.py` compares it with cuda-python's."""


class LaunchAttribute(ctypes.Structure):
    """The driver's `CUlaunchAttribute`, of whose value the first three numbers are ever used."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("_pad", ctypes.c_uint32),
        ("value", ctypes.c_uint32 * 3),
        ("_rest", ctypes.c_uint32 * 13),
    )


TENSOR_MAP_TYPES: Mapping[DType, int] = MappingProxyType(
    {
        **{each: {1: 0, 2: 1}[each.itemsize] for each in ALL_DTYPES if each.kind != "bool" and each.itemsize <= 2},
        **dict(zip((uint32, int32, uint64, int64, float16, float32, float64, bfloat16), range(2, 10))),
    }
)
"""The driver's `CUtensorMapDataType`; types of 8 bits have one number, and the sign of 16 bits none."""
TENSOR_MAP_MOST = 2**31 - 1  # elements along an axis: coordinates are int32
TENSOR_MAP_STRIDES = 1 << 40  # bytes that no stride reaches; CUDA driver API, cuTensorMapEncodeTiled


def tensor_map_form(swizzle: int, fill: str) -> tuple[int, int, int, int]:
    """Return the last arguments of `cuTensorMapEncodeTiled`: interleaving (none), swizzle, 128 bytes for L2, fill."""
    return 0, {0: 0, 32: 1, 64: 2, 128: 3}[swizzle], 2, {"zero": 0, "nan": 1}[fill]


DEVICE = _numbered("function context allowed_shared")
DEVICES = 64  # rows; GPUs beyond go the general way


def dlpack_dtype(dtype: DType) -> int:
    """Return a `DLDataType` as an int of 32 bits: code, bits (8 for a bool), one lane."""
    return dtype.dlpack | dtype.itemsize * 8 << 8 | 1 << 16


ON_CPU, ON_CUDA = 1, 2  # DLPack's device types
DLTENSOR_BYTES = 48
TENSOR: Mapping[str, int] = MappingProxyType(
    {"data": 0, "device_type": 8, "device": 12, "rank": 16, "dtype": 20, "shape": 24, "strides": 32, "byte_offset": 40}
)
VERSIONED: Mapping[str, int] = MappingProxyType({"major": 0, "flags": 24, "tensor": 32})
"""DLPack's `DLManagedTensorVersioned`; a `DLManagedTensor` begins with its tensor."""
READ_ONLY = 1  # in the flags of a VERSIONED
DLPACK_VERSION = (1, 0)  # the version that owners are asked for; another major number may have another layout

OBJECT: Mapping[str, int] = MappingProxyType({"type": 8, "list_items": 24})
"""CPython's object header: a count, the type; in a list, the address of its items. `runtime/native_process.py` probes both."""

ARRAY_MEMORY = 16
"""Where a ctypes object keeps the address of its memory. `runtime/native_process.py` probes it."""

NDARRAY: Mapping[str, int] = MappingProxyType(
    {"data": 16, "rank": 24, "shape": 32, "strides": 40, "dtype": 56, "flags": 64}
)
"""`PyArrayObject_fields`; `runtime/native_process.py` probes it."""
C_CONTIGUOUS, WRITEABLE = 0x1, 0x400  # NumPy's flags

WANTED_ARRAY = _numbered(
    "dtype dlpack_dtype device_type rank needed_flags checked_flags unit_shift is_written is_packed is_loose is_strided align"
)
"""After it, `rank` sizes, -1 for free ones. dtype: where in PROCESS. rank: -1 for any. *_flags: NumPy's. unit_shift: from bytes
to elements. is_packed: in C order without gaps; is_loose: not so. is_strided: strides are read."""

WANTED_NUMBER = _numbered("kind low high own")
"""kind: which of NUMBER_KINDS. low, high: of an integer. own: which dtype the object's own type must be, -1 for any."""

NUMBER_KINDS = (None, float32, float64, float16, bfloat16)
"""What numbers are converted to: an integer (None), or one of these. Floats of 8 bits go the general way."""

SCALAR_VALUE = 16
"""Where a NumPy scalar keeps its value: after the object's header. `runtime/native_process.py` tries it."""

SCRATCH_ALIGN = 64  # bytes: a cache line, and the widest vector

LINE = 64  # bytes: a cache line
POOL = _numbered("ticket sleepers started arrived looking_ns patience_ns")
"""ticket: changes with each job. sleepers: workers that wait for it to change. started, arrived: workers that were made, and that
run. looking_ns: for how long they look before they sleep. patience_ns: after so long, blocks that all wait are an error. After a
LINE come the JOBS."""
JOBS = 8  # launches that are shared at a time; others run in their own thread
JOB = _numbered(
    "state is_taken code slots grid scratch_bytes threads least most fault owner helpers waiting changed pool"
)
"""state: how many help, and bits (`backends/launcher/support/pool.py`). least, most: blocks of a chunk. threads: among how many
the blocks are cut; helpers: how many may help. waiting: how many threads wait in a loop that nothing but another thread ends;
changed: when that was last another number. After two LINEs comes a RANGE for each thread, a LINE each."""
RANGE = _numbered("next end")
JOB_BYTES = LINE * (2 + MOST_THREADS)
POOL_BYTES = LINE + JOBS * JOB_BYTES
SAFEPOINT = _numbered("ask countdown interval asked looked since raised process thread job")
"""ask: the function that a loop calls after `countdown` more iterations, `ask(safepoint, place)`; what it gives is 0, or the
fault with which the blocks are to be left. place: the number of the loop's op if it only waits for other threads, -1 where such a
loop is left, else 0. interval: from how many iterations the countdown begins. asked, looked: when it was asked, and Python's
handlers of signals ran. since: when the thread began to wait, 0 if it does not. raised: has a handler raised? process: a PROCESS,
or 0 in a worker; thread: of Python, 0 with the GIL. job: a JOB, or 0 if nobody helps."""
RAISED, NO_MEMORY, FORKED = -1, -2, -3
WAITS = 1 << 30
"""Faults of a launch on the CPU beside those that a kernel reports, which are above 0: a handler of a signal raised, there is no
scratch memory, and a handler forked, so that this is another process than the one that began. From WAITS on: all blocks wait, one
of them in the loop of that number."""

GUARD = _numbered("kind holder key seen")
GUARD_KINDS = (
    *("item", "cell", "member", "attribute", "type", "code", "defaults", "keywords"),
    *("list", "dict", "items", "array"),
)
"""What a guard compares with `seen`: an item of a dict, a cell's content, what a class or its bases store under a name, an
attribute, the class of an object, a function's code and defaults; the items of a list, a dict (keys and values) or an iterable
with a tuple; the bytes of an array, whose dtype, flags, shape and strides `key` holds. seen: 0 if there must be nothing."""

ABSENT = object()
"""Stands for no object: for a missing default, or for a key that must not be there."""


def tail(section: int, parameters: int, place: int) -> int:
    """Return the offset in a STATE of word `place` of NAMES (section 0), DEFAULTS (1), EXPECTED (2) or of the parts (3)."""
    return WORD * (len(STATE) + section * parameters + place)


NAMES, DEFAULTS, EXPECTED, PARTS = range(4)


def size(table: Mapping[str, int]) -> int:
    """Return the size of a table, or of a row, in bytes."""
    return WORD * len(table)
