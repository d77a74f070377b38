"""`sk.export`: a program in C runs kernels without Python, and refuses what a launch from Python refuses."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.diagnostics import CallError
from stagekit.exporting import ExportError
from stagekit.exporting.expressions import Statements, definitions
from stagekit.hostexpr import KINDS, HostOp, Slot, compile_expressions

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
M, N = sk.dynamic("m"), sk.dynamic("n")


@sk.jit
def scale(x: sk.Tensor((N,), sk.float32), out: sk.Tensor((N,), sk.float32), b: sk.float32, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    n = x.shape[0]
    sk.store(out + i, sk.load(x + i, mask=i < n) * b, mask=i < n)


@sk.function
def row_sums(a: sk.Tensor((M, N), sk.float64, (None, 1)), sums: sk.Tensor((M,), sk.float64)):
    """One block for each row, with a barrier, in a launch that it computes itself."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=a.shape[0], block=64))
    t, row = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x")
    total = 0.0
    for column in range(t, a.shape[1], 64):
        total = total + a[row, column]
    total = sk.block_reduce(total, lambda p, q: p + q)
    if t == 0:
        sums[row] = total


@sk.function
def fill(p: sk.Pointer(sk.int16), int: sk.int32, flag: sk.bool_):
    """A pointer, a parameter with a name that C keeps for itself, and a thread-level launch."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if flag and i < int:
        sk.store(p + i, i)


@sk.function
def numbers(p: sk.Pointer(sk.int16), np: sk.uint8, ctypes: sk.int64):
    """Parameters with the names of modules, in a launch that it computes itself."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
    sk.store(p, np * ctypes)


@sk.function
def small(out: sk.Tensor((4,), sk.float64), a: sk.float16, b: sk.bfloat16, c: sk.float8_e4m3fn, d: sk.float8_e5m2):
    """Numbers that C takes by their bits."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
    out[0], out[1], out[2], out[3] = a, b, c, d


PROGRAM = r"""
#include "demo.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct { void (*body)(void *, int64_t, int64_t); void *state; int64_t first, last; } part;
static void *run_part(void *p) { part *q = p; q->body(q->state, q->first, q->last); return NULL; }
static void halves(void *context, int64_t count, void (*body)(void *, int64_t, int64_t), void *state) {
    part parts[2] = {{body, state, 0, count / 2}, {body, state, count / 2, count}};
    pthread_t thread;
    pthread_create(&thread, NULL, run_part, &parts[0]);
    run_part(&parts[1]);
    pthread_join(thread, NULL);
    ++*(int *)context;
}

int main(void) {
    enum { COUNT = 1000 };
    static float x[COUNT + 1], y[COUNT + 1];
    static double a[3][70], sums[3];
    static int16_t p[100];
    int64_t count[1] = {COUNT}, shape[2] = {3, 70}, three[1] = {3}, two[1] = {2}, strides[2] = {70, 1}, odd[1] = {2};
    int shared = 0, wrong = 0;
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    for (int i = 0; i < 210; i++) a[i / 70][i % 70] = i;
    demo_array from = {x, count, NULL}, to = {y, count, NULL}, rows = {a, shape, strides}, s = {sums, three, NULL};
    demo_array stepped = {x, count, odd}, none = {NULL, count, NULL}, off = {(char *)x + 1, count, NULL};
    demo_array q = {p, NULL, NULL}, later = {x + 1, count, NULL};
    demo_array few = {sums, two, NULL};
    demo_parallel parallel = {halves, &shared};
    demo_size grid = {16, 1, 1}, flat = {16, 2, 1}, no_blocks = {0, 1, 1}, one = {1, 1, 1};
    demo_size threads = {32, 1, 1}, four = {4, 1, 1};
    printf("%d\n", demo_abi_version() == DEMO_ABI_VERSION);
    printf("%d", demo_scale_cpu(&from, &to, 3.0f, grid, &parallel));
    for (int i = 0; i < COUNT; i++) wrong += y[i] != 3.0f * x[i];
    printf(" %d %d\n", wrong, shared);
    printf("%d", demo_row_sums_cpu(&rows, &s, NULL));
    printf(" %g %g\n", sums[0], sums[2]);
    printf("%d", demo_fill_cpu(&q, 100, 1, four, threads, NULL));
    printf(" %d", p[99]);
    memset(p, 0, sizeof p);
    printf(" %d", demo_fill_cpu(&q, 100, 0, four, threads, NULL));
    printf(" %d %d\n", p[99], demo_fill_cpu(&q, 1, 1, four, one, NULL) & 255);
    printf("%d", demo_scale_cpu(&from, &later, 1.0f, grid, NULL)); /* arrays that overlap run another entry */
    printf(" %g %g\n", x[1], x[2]);
    int32_t all[] = {
        demo_scale_cpu(NULL, &to, 1, grid, NULL), demo_scale_cpu(&none, &to, 1, grid, NULL),
        demo_scale_cpu(&stepped, &to, 1, grid, NULL), demo_scale_cpu(&from, &off, 1, grid, NULL),
        demo_scale_cpu(&from, &to, 1, flat, NULL), demo_scale_cpu(&from, &to, 1, no_blocks, NULL),
        demo_scale_cpu(&from, &s, 1, grid, NULL), demo_row_sums_cpu(&rows, &few, NULL)};
    for (int i = 0; i < 8; i++) printf("%d/%d ", all[i] & 255, all[i] >> 8);
    printf("%s\n", demo_message(all[2]));
    return demo_unload();
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("exported")
    kernels = {
        "scale": scale.specialize(BLOCK=64),
        "row_sums": row_sums,
        "fill": fill,
        "numbers": numbers,
        "small": small,
    }
    return sk.export(kernels, folder, name="demo", targets="cpu", block=32, python=True)


def built(library: Any, program: str, *flags: str) -> str:
    """The output of a program that is compiled with the library, under all warnings."""
    folder = library.header.parent
    (folder / "main.c").write_text(program)
    command = [
        "gcc",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-O1",
        "main.c",
    ]
    libraries = ["-o", "main", "-lm", "-ldl", "-lpthread", *flags]
    done = subprocess.run(
        [*command, *library.sources, *libraries], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    run = subprocess.run([folder / "main"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@needs_gcc
def test_a_program_in_c_runs_kernels_and_is_told_what_is_wrong(library: Any) -> None:
    lines = built(library, PROGRAM).splitlines()

    assert ["1", "0 0 1", "0 2415 12215"] == lines[:3]
    assert "0 99 0 0 6" == lines[3]
    assert lines[4].startswith("0 0 ")
    assert "1/1 1/1 3/1 4/2 5/0 0/0 2/2 2/2 an array has other strides than the kernel was compiled for" == lines[5]


@needs_gcc
def test_a_module_calls_the_library_without_stagekit(library: Any) -> None:
    """Which is what a wheel ships: the module and the shared library beside it."""
    done = subprocess.run(
        [sys.executable, "-c", MODULE_PROGRAM, module_in(library)], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["True", "-5 7"]


MODULE_PROGRAM = """
import sys; sys.path[:] = [sys.argv[1], *(p for p in sys.path if "site-packages" in p or "python3" in p)]
sys.modules["stagekit"] = None
import demo, numpy as np
x = np.arange(100, dtype=np.float32); out = np.zeros_like(x)
demo.scale(x, out, 2.0, 2); print(np.array_equal(out, 2 * x))
p = np.full(9, -5, np.int16)
demo.fill(p, np.int64(9), False, 1, 32)
demo.fill(p[8:], 1, np.True_, (), (32,)); demo.numbers(p[7:8], 7, 1); print(p[6], p[7])
"""


def module_in(library: Any) -> Path:
    """Return the folder with the module and the shared library that it needs."""
    folder: Path = library.header.parent
    command = ["gcc", "-O1", "-fPIC", "-shared", "-o", "libdemo.so", *library.sources, "-lm", "-ldl", "-lpthread"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def module(library: Any) -> Any:
    spec = importlib.util.spec_from_file_location("demo", module_in(library) / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


EDGES = [
    0.0,
    -0.0,
    1,
    True,
    448.0,
    464.0,
    465.0,
    57344.0,
    61440.0,
    65519.99,
    65520.0,
    1e39,
    math.inf,
    -math.inf,
    math.nan,
]


@needs_gcc
@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(EDGES)
    | st.floats()
    | st.floats(width=16)
    | st.builds(math.ldexp, st.integers(0, 99), st.integers(-150, 20))
)
def test_a_module_rounds_small_floats_as_a_launch_does(module: Any, number: float) -> None:
    found, wanted = np.zeros(4), np.zeros(4)

    module.small(found, *[number] * 4)
    small(wanted, *[number] * 4)

    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


X, P = np.zeros(100, np.float32), np.zeros(9, np.int16)
WRONG_CALLS = [
    ("scale", (X[::2], X[:50].copy(), 1.0, 2), RuntimeError, "`x`: an array has other strides than the kernel"),
    ("scale", (X.astype("i4"), X, 1.0, 2), TypeError, "`x` is an array of rank 1 of float32, got int32"),
    ("scale", (X.astype(">f4"), X, 1.0, 2), TypeError, "`x` is an array of rank 1 of float32, got >f4"),
    ("scale", (X, X.reshape(10, 10), 1.0, 2), TypeError, "`out` is an array of rank 1"),
    ("scale", (X, np.frombuffer(bytes(400), "f4"), 1.0, 2), ValueError, "`out` is written, and the array is read-only"),
    ("scale", (np.ma.masked_array(X), X, 1.0, 2), TypeError, "`x` is a masked array"),
    ("scale", (X, X, np.complex64(1j), 2), TypeError, "`b` is a float, got"),
    ("scale", (X, X, np.ones(1), 2), TypeError, "`b` is a float, got"),
    ("scale", (X, X, "1", 2), TypeError, "`b` is a float, got '1'"),
    ("scale", (X, X, 1.0, 2**32 + 2), ValueError, "`grid` is an integer from 0 to 4294967295, got 4294967298"),
    ("scale", (X, X, 1.0, -1), ValueError, "`grid` is an integer from 0"),
    ("scale", (X, X, 1.0, 2.0), TypeError, "`grid` is an integer from 0 to 4294967295, got 2.0"),
    ("scale", (X, X, 1.0, (2, 1, 1, 1)), TypeError, "`grid` is an integer, or up to three of them"),
    ("fill", (P, 2**31, True, 1, 32), ValueError, "`int_` is an integer from -2147483648 to 2147483647"),
    ("fill", (P, 1, 2, 1, 32), ValueError, "`flag` is an integer from 0 to 1, got 2"),
    ("numbers", (P, 256, 1), ValueError, "`np` is an integer from 0 to 255, got 256"),
    ("numbers", (P, -1, 1), ValueError, "`np` is an integer from 0 to 255, got -1"),
    ("numbers", (P, 1, 2**63), ValueError, "`ctypes` is an integer from -9223372036854775808 to 9223372036854775807"),
]


@needs_gcc
@pytest.mark.parametrize(("name", "arguments", "kind", "words"), WRONG_CALLS)
def test_a_module_refuses_what_c_would_cut_off(
    module: Any, name: str, arguments: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as error:
        getattr(module, name)(*arguments)

    assert words in str(error.value)
    assert not P.any()


CUDA_PROGRAM = r"""
#include "demo.h"
#include <dlfcn.h>
#include <stdio.h>
#define CU(name, ...) do { \
    int (*f)() = (int (*)())dlsym(cuda, name), r = f(__VA_ARGS__); \
    if (r) { printf("%s %d\n", name, r); return 1; } \
} while (0)
int main(void) {
    enum { COUNT = 100000 };
    static float x[COUNT], y[COUNT];
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    unsigned long long from, to;
    int device, wrong = 0;
    int64_t count[1] = {COUNT};
    demo_array a = {NULL, count, NULL}, b = {NULL, count, NULL};
    demo_size grid = {(COUNT + 63) / 64, 1, 1};
    if (cuda == NULL) { printf("%d\n", demo_scale_cuda(&a, &b, 1, grid, NULL) & 255); return 0; }
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    CU("cuInit", 0u);
    CU("cuDeviceGet", &device, 0);
    CU("cuDevicePrimaryCtxRetain", &context, device);
    CU("cuCtxSetCurrent", context);
    CU("cuMemAlloc_v2", &from, (size_t)sizeof x);
    CU("cuMemAlloc_v2", &to, (size_t)sizeof y);
    CU("cuMemcpyHtoD_v2", from, x, (size_t)sizeof x);
    a.data = (void *)from; b.data = (void *)to;
    printf("%d", demo_scale_cuda(&a, &b, 3.0f, grid, NULL));
    CU("cuMemcpyDtoH_v2", y, to, (size_t)sizeof y);
    for (int i = 0; i < COUNT; i++) wrong += y[i] != 3.0f * x[i];
    printf(" %d %d\n", wrong, demo_unload());
    return 0;
}
"""


def on_gpus(folder: Path) -> Any:
    return sk.export(scale.specialize(BLOCK=64), folder, name="demo", targets="cuda", capabilities=(80, 90))


@needs_gcc
def test_code_for_gpus_is_a_library_too(tmp_path: Path) -> None:
    """It is built without a toolkit; without a driver it says so."""
    library = on_gpus(tmp_path)

    assert {".cubin", ".ptx"} == {path.suffix for path in library.images}
    program = CUDA_PROGRAM.replace('dlopen("libcuda.so.1", RTLD_NOW)', "NULL")
    assert built(library, program) in ("11\n", "1\n", "12\n")  # no driver; with one: no context


@pytest.mark.gpu
@needs_gcc
def test_a_program_in_c_runs_a_kernel_on_a_gpu(tmp_path: Path) -> None:
    assert "0 0 0\n" == built(on_gpus(tmp_path), CUDA_PROGRAM)


NUMBERS = [0, 1, -1, 2, -7, 63, 64, 2**63 - 1, -(2**63), 12345678901]


@needs_gcc
def test_host_expressions_mean_the_same_in_c(tmp_path: Path) -> None:
    """Every kind, over the numbers at which C and Python differ."""
    expressions, lines = [], []
    for kind in KINDS:
        count = {"neg": 1, "not": 1, "select": 3}.get(kind, 2)
        expressions.append(HostOp(kind, tuple(map(Slot, range(count)))))
    for a in NUMBERS:
        for b in NUMBERS:
            block = Statements()
            values = [block.value(each) for each in expressions]
            slots = ", ".join(f"INT64_C({n})" if n > -(2**63) else "INT64_MIN" for n in (a, b, 5))
            lines.append(f"{{ int64_t sk_slot[] = {{{slots}}}; {' '.join(block.lines)}")
            lines += [*(f'printf("%lld ", (long long){value});' for value in values), 'printf("\\n"); }']
    text = f"#include <stdint.h>\n#include <stdio.h>\n{definitions()}\nint main(void) {{\n{chr(10).join(lines)}\nreturn 0; }}"
    (tmp_path / "main.c").write_text(text)
    subprocess.run(["gcc", "-O0", "-w", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    found = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    evaluate = compile_expressions(expressions)

    expected = [evaluate((a, b, 5)) for a in NUMBERS for b in NUMBERS]

    assert expected == [tuple(map(int, line.split())) for line in found]


@sk.jit
def printing(x: sk.Pointer(sk.int32)):
    print(sk.load(x))  # noqa: T201


def prefixed(name: str) -> Any:
    return lambda folder: sk.export({name: scale.specialize(BLOCK=64)}, folder, targets="cpu")


REFUSED: list[tuple[Callable[[Path], Any], type[Exception], str]] = [
    (lambda f: sk.export(printing, f, targets="cpu", block=32), ExportError, "prints"),
    (lambda f: sk.export(fill, f, targets="cpu"), ExportError, "give `block=`"),
    (lambda f: sk.export([fill, fill], f, targets="cpu"), ExportError, "two kernels"),
    (prefixed("a b"), ExportError, "not a name in C"),
    (lambda f: sk.export(fill, f, targets="cpu", block=32, processor="pentium"), ExportError, "not known"),
    (lambda f: sk.export(fill, f, targets="interp"), CallError, "targets"),
    (lambda f: sk.export(fill, f, name="a-b"), CallError, "not a name in C"),
    (lambda f: sk.export([], f), CallError, "holds none"),
    (lambda f: sk.export(fill, None), CallError, "`folder` is None"),
    (lambda f: sk.export(fill, f, targets=3), CallError, "`targets` is 3"),
    (lambda f: sk.export(fill, f, capabilities="90"), CallError, "`capabilities` is '90'"),
    (lambda f: sk.export(fill, f, capabilities=90), CallError, "`capabilities` is 90"),
    (lambda f: sk.export(scale, f), sk.SpecializeError, "BLOCK"),
    (lambda f: sk.export(3, f), sk.SpecializeError, "NOT_A_FUNCTION"),
    (lambda f: sk.export(fill, f, capabilities=(9,)), sk.SpecializeError, "capability"),
]


@pytest.mark.parametrize(("make", "error", "word"), REFUSED)
def test_what_c_cannot_launch_is_refused(
    make: Callable[[Path], Any], error: type[Exception], word: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=word):
        make(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_at_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(FileExistsError) as raised:
        sk.export(fill, tmp_path / "file", targets="cpu", block=32)

    assert len(traceback.extract_tb(raised.value.__traceback__)) == 1
