"""What kernels of the shelf become on a GPU: how wide they access memory, what stays in registers, and where threads wait."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.ir import ops, walk
from stagekit.kernels import attending, matrices
from stagekit.testing import force_entry
from tests.kernels.test_shelf import SPECIALISED

COLUMNS = (1024, 32_768)  # the rows between differ in their threads, or in how many vectors these hold
SCALARS = {  # accesses of single elements, by their size: a target, a loss, the logit and the gradient at the target
    "cross-entropy": {
        4: {"ld.global.b64": 1, "ld.global.b32": 1, "st.global.b32": 2},
        2: {"ld.global.b64": 1, "ld.global.b16": 1, "st.global.b16": 1, "st.global.b32": 1},
    }
}


def added(x: Any, y: Any) -> Any:
    return x + y


def rows_of(dtype: sk.DType) -> Iterator[tuple[str, int, sk.Specialization, tuple[int, int, int]]]:
    """Yield name, elements of a row, the kernel, and how many arrays it reads once, reads as constants, and writes."""
    rows, weight = sk.Tensor((None, None), dtype, strides=(None, 1)), sk.Tensor((None,), dtype, strides=(1,))
    absent = dict.fromkeys("cdefgh")
    add = kernels.elementwise_kernel(added, ((dtype, 1),) * 2, (dtype, 1), False, 1024)
    yield "add", 1024, add.specialize(**absent), (2, 0, 1)
    for n in COLUMNS if dtype is sk.float32 else COLUMNS[1:]:
        norms = kernels.rmsnorm_kernel(dtype, dtype, n, True), kernels.layernorm_kernel(dtype, dtype, n, True)
        loss = kernels.cross_entropy_kernel(dtype, sk.int64, n, True)
        yield "softmax", n, kernels.softmax_kernel(dtype, n, True).specialize(), (1, 0, 1)
        yield "rmsnorm", n, norms[0].specialize(residual=None), (1, 1, 1)
        yield "layernorm", n, norms[1].specialize(residual=None, bias=weight), (1, 2, 1)
        yield "cross-entropy", n, loss.specialize(gradient=rows), (1, 0, 1)


@pytest.mark.parametrize("dtype", [sk.float32, sk.bfloat16], ids=lambda dtype: dtype.name)
def test_rows_are_read_once_by_16_bytes_and_stay_in_registers(dtype: sk.DType) -> None:
    """Nothing is spilled, no local memory is touched, and loads of a weight are of constants.

    Accesses are counted in the PTX. What they become in machine code is looked at once: the disassembler takes longest to start.
    """
    wrong = {}
    for name, columns, kernel, (read, constant, written) in rows_of(dtype):
        quick = force_entry(kernel, "quick")
        code = ptxas.assemble(quick.ptx)
        threads = int(re.findall(r"\.reqntid (\d+)", quick.ptx)[0])
        vectors = columns * dtype.itemsize // (16 * threads)
        found = Counter(re.findall(r"\b(?:ld|st)\.(?:global|local)\b[.\w]*", quick.ptx))
        counts = [count * vectors for count in (read, constant, written)]
        wide = dict(zip(("ld.global.v4.b32", "ld.global.nc.v4.b32", "st.global.v4.b32"), counts))
        expected = Counter(SCALARS.get(name, {}).get(dtype.itemsize, {})) + Counter(wide)
        if (name, columns) == ("layernorm", COLUMNS[-1]):
            sass = re.findall(r"\b(?:LDG|STG|LDL|STL|LD|ST)\b[.\w]*", ptxas.disassemble(code.cubin))
            assert Counter(sass) == dict(zip(("LDG.E.128", "LDG.E.128.CONSTANT", "STG.E.128"), counts))
        if found != expected or code.resources.stack_bytes:
            wrong[name, columns] = found, code.resources
    assert wrong == {}


BARRIERS = {  # in all, and those of them that the order of statements needs
    "softmax": (2, 0),
    "softmax of tiles": (2, 0),
    "rmsnorm": (1, 0),
    "layernorm": (2, 0),
    "backward": (4, 0),
    "backward of tiles": (4, 0),
    "cross_entropy": (3, 1),  # before the gradient at the target is written again
    "swiglu_backward": (0, 0),
    "rope": (0, 0),
    "dropout": (0, 0),
    "sum": (1, 0),
    "argmax": (1, 0),
    "topk": (0, 1),  # of a warp
    "cumsum": (5, 1),  # before all know which tile it is
    "matmul": (2, 0),
    "matmul of what is turned": (2, 0),
    "transpose": (2, 0),
    "selective_scan": (4, 0),
    "selective_scan_backward": (11, 1),
    "embedding_backward": (0, 0),
    "quantize": (0, 0),
    "dequantize": (2, 0),
    "adamw": (0, 0),
    "attention": (8, 0),
    "attention by threads": (14, 0),  # both factors of each product go through shared memory
    "attention, gradient of q": (10, 0),
    "attention, gradients of k and v": (6, 0),
    "batched_matmul": (2, 0),
    "grouped_matmul": (7, 0),
    "quantized_linear": (6, 0),
    "stencil": (0, 0),
    "conv2d": (12, 0),
}


def test_threads_of_the_shelf_wait_as_often_as_is_needed() -> None:
    """A reduction over a block waits once, for what its warps have found; in sorts and scans each round does."""
    found = {}
    for name, (kernel, types) in SPECIALISED.items():
        quick = force_entry(kernel.specialize(**types), "quick")
        found[name] = (quick.ir.count("syncthreads"), len(quick.trace().waits))
    assert found == BARRIERS


# -- products and attention -------------------------------------------------------------------------------------------------


def of_matrices(dtype: Any, kind: str) -> tuple[sk.JitFunction, list[Any]]:
    """Return the kernel of large matrices whose rows lie side by side, and arguments for two rounds of one program."""
    blocks = matrices.BLOCKS[kind][0]
    total = np.int32 if kind == "bytes" else np.float32
    held, sums = (sk.dtypes.dtype_from_numpy(np.dtype(each)) for each in (dtype, total))
    kernel = kernels.matmul_kernel(held, sums, ((None, 1),) * 2, None, (), blocks)
    shapes = (blocks.rows, 2 * blocks.depth), (2 * blocks.depth, blocks.columns)
    return kernel, [*(np.zeros(shape, dtype) for shape in shapes), np.zeros((blocks.rows, blocks.columns), total)]


@pytest.mark.parametrize("kind", ["warpgroups", "bytes"])
def test_operands_of_an_epilogue_need_no_shared_memory(kind: str) -> None:
    """Large blocks leave none: what goes with them is loaded as the sums lie. Only the specialiser knows how much that takes."""
    dtype = {"warpgroups": sk.bfloat16, "bytes": sk.int8}[kind]
    types = (dtype, 2), (dtype, 1)
    kernel = kernels.matmul_kernel(dtype, dtype, ((None, 1),) * 2, added_to, types, matrices.BLOCKS[kind][0])

    compiled = force_entry(kernel.specialize(e=None, f=None), "quick").compile("cuda", capability=90)

    assert "mma" in str(compiled.stages["ptx"])


def added_to(x: Any, y: Any, z: Any) -> Any:
    return x + y + z


def of_heads(factory: Any, name: str, arrays: str) -> tuple[sk.JitFunction, list[Any]]:
    """Return a kernel of attention, and arguments for one program. arrays: which ones, q and k those like q or k, l of rows."""
    rows, columns, *_ = blocks = attending._OF_GPU[name][128]
    made = {"l": (np.float32, (1, 1, rows)), "q": (ml_dtypes.bfloat16, (1, 1, rows, 128))}
    made["k"] = ml_dtypes.bfloat16, (1, 1, columns, 128)
    kernel = factory(sk.bfloat16, 128, False, 1, blocks)
    return kernel, [*(np.zeros(made[each][1], made[each][0]) for each in arrays), 0.5]


WITH_PRODUCTS = {
    "bfloat16": lambda: of_matrices(ml_dtypes.bfloat16, "warpgroups"),
    "int8": lambda: of_matrices(np.int8, "bytes"),
    "attention": lambda: of_heads(kernels.attention_kernel, "forward", "qkkql"),
    "gradient of q": lambda: of_heads(kernels.attention_backward_q_kernel, "q", "qqkkqlllq"),
    "gradients of k and v": lambda: of_heads(kernels.attention_backward_kv_kernel, "k and v", "qqkkllkk"),
}


def conflicts(kernel: sk.JitFunction, arguments: list[Any]) -> list[Any]:
    """Return the accesses of shared memory that take more steps than their bytes need, as a program runs."""
    with sk.sanitize(statistics=True, races=False, uninitialised=False) as watch:
        kernel[1, 1, 1](*arguments)
    accesses = [each for each in watch.report.statistics.accesses if each.space == "shared"]
    assert len(accesses) >= 5
    return [each for each in accesses if each.passes > max(each.requests, -(-each.bytes // 128))]


@pytest.mark.parametrize("name", WITH_PRODUCTS)
def test_products_wait_once_a_round_and_meet_no_bank_conflicts(name: str) -> None:
    """Warps that read what the TMA unit has copied wait for its mbarrier, and never for each other."""
    kernel, arguments = WITH_PRODUCTS[name]()

    assert conflicts(kernel, arguments) == []
    types = dict.fromkeys("cdef") if "f" in kernel.__signature__.parameters else {}
    traced = force_entry(kernel.specialize(**types), "quick").trace().function
    loops = [[*walk(op.loop_body)] for op in walk(traced.body) if type(op) is ops.For]
    innermost = [each for each in loops if not any(type(op) is ops.For for op in each)]
    acts = [Counter(op.spec.name for op in each if type(op) is ops.IntrinsicOp) for each in innermost]
    waits = [each["syncthreads"] for each in acts if each["cp_async_wait"] or each["tma_load"]]
    assert waits == [0 if name == "bfloat16" else 1]


@pytest.mark.parametrize("blocks", matrices.BLOCKS["warpgroups"][:2])
def test_products_of_warpgroups_go_on_one_after_the_other(blocks: Any) -> None:
    """`ptxas` says where it makes them wait for each other, and nothing is spilled."""
    kernel = kernels.matmul_kernel(sk.bfloat16, sk.bfloat16, ((None, 1),) * 2, None, (), blocks)
    quick = force_entry(kernel.specialize(**dict.fromkeys("cdef")), "quick")

    code = ptxas.assemble(str(quick.compile("cuda", capability=90).stages["ptx"]))

    assert (code.resources.spill_store_bytes, code.warnings) == (0, ())
    assert "HGMMA" in ptxas.disassemble(code.cubin)


OF_ANY_ARRAYS = {
    "float16": (sk.float16, "warpgroups"), "bfloat16": (sk.bfloat16, "warpgroups"), "int8": (sk.int8, "bytes"),
    "float32": (sk.float32, "by threads"), "tf32": (sk.float32, "words"),
}  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", OF_ANY_ARRAYS)
def test_products_of_arrays_that_begin_anywhere_spill_nothing(name: str, turned: bool) -> None:
    """No entry does: an exported program has those that other arguments than the usual ones need, too."""
    dtype, kind = OF_ANY_ARRAYS[name]
    strides, precision = ((1, None) if turned else (None, 1),) * 2, "tf32" if name == "tf32" else "ieee"
    for blocks, entry, capability in zip(matrices.BLOCKS[kind], ("general", "overlapping"), (90, 80)):
        kernel = kernels.matmul_kernel(dtype, sk.float32, strides, None, (), blocks, precision)
        forced = force_entry(kernel.specialize(**dict.fromkeys("cdef")), entry)
        resources = ptxas.assemble(str(forced.compile("cuda", capability=capability).stages["ptx"])).resources
        assert (resources.spill_store_bytes, resources.stack_bytes) == (0, 0), (blocks, entry)


@pytest.mark.parametrize("name", ["attention, gradients of k and v", "batched_matmul"])
def test_loops_that_copy_spill_next_to_nothing(name: str) -> None:
    """Of arrays that begin anywhere: where a round loads whole tiles, gradients spill 16 KB."""
    kernel, types = SPECIALISED[name]
    forced = force_entry(kernel.specialize(**types), "general")
    resources = ptxas.assemble(str(forced.compile("cuda", capability=90).stages["ptx"])).resources
    assert resources.spill_store_bytes <= 64


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_transpositions_meet_no_bank_conflicts(dtype: Any) -> None:
    x, out = (np.arange(128 * 128).reshape(128, 128).astype(dtype) for _ in range(2))
    itemsize = x.dtype.itemsize
    side = 128 if itemsize == 1 else 64

    kernel = kernels.transpose_kernel(sk.dtypes.dtype_from_numpy(x.dtype), side, matrices._STRIPS[itemsize])
    assert conflicts(kernel, [x[:side, :side], out[:side, :side]]) == []
    assert (out[:side, :side] == x[:side, :side].T).all()
