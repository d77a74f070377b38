"""The C header and source of a library of kernels.

    header("demo", kernels)        demo.h: what a program includes
    source("demo", kernels)        demo.c: checks of arguments, choice of an entry, launches; code for GPUs as arrays of bytes

Nothing of stagekit, Python or CUDA's toolkit is needed to compile or to run it: the driver is opened when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagekit.exporting.entries import CParameter, ExportedKernel
from stagekit.exporting.expressions import Statements, definitions
from stagekit.exporting.runtime_source import (
    CPU_RUNTIME,
    CUDA_RUNTIME,
    HEADER,
    NO_GPU,
    STATUS,
    STATUSES,
    UNLOAD,
    filled,
)
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.native_tables import SAFEPOINT, SCRATCH_ALIGN
from stagekit.signature import ArraySpec, KernelEntry, PointerSpec, ScalarSpec

ABI_VERSION = 1
_FACTS = 10_000  # the number of the first variable of facts, in the scope of those of sizes
_SHARED_WITHOUT_ASKING = 48 * 1024  # per block; more must be opted in


def header(name: str, version: str, kernels: Sequence[ExportedKernel]) -> str:
    """Return the text of the header. version: stagekit's."""
    declared = "\n\n".join(f"{_comment(kernel)}\n{_declaration(name, kernel)};" for kernel in kernels)
    statuses = ",\n".join(f"    {name.upper()}_{each} = {number}" for number, each in enumerate(STATUSES, 1))
    return filled(HEADER, name, VERSION=version, ABI=ABI_VERSION, STATUSES=statuses, KERNELS=declared)


def source(name: str, kernels: Sequence[ExportedKernel]) -> str:
    """Return the text of the source."""
    targets = {kernel.target for kernel in kernels}
    messages = "\n".join(f'    case {name.upper()}_{each}: return "{text}";' for each, text in STATUSES.items())
    status = filled(STATUS, name, MESSAGES=messages)
    parts = [f'#define _POSIX_C_SOURCE 200809L\n#include "{name}.h"', status, definitions()]
    if "cpu" in targets:
        parts.append(filled(CPU_RUNTIME, name, ALIGN=SCRATCH_ALIGN, SAFEPOINT=len(SAFEPOINT)))
    if "cuda" in targets:
        parts.append(filled(CUDA_RUNTIME, name, SHARED=_SHARED_WITHOUT_ASKING))
    parts += ["\n".join(_kernel(name, kernel)) for kernel in kernels]
    modules = [f"&{function_name(name, k)}_{e.kind}" for k in kernels if k.target == "cuda" for e in k.entries]
    parts.append(filled(UNLOAD if modules else NO_GPU, name, MODULES=", ".join(modules)))
    return "\n\n".join(parts) + "\n"


# -- declarations ---------------------------------------------------------------------------------------------------------


def _comment(kernel: ExportedKernel) -> str:
    block = f"; blocks of {' x '.join(map(str, kernel.block))} threads" if kernel.block else ""
    text = f"{kernel.name}{kernel.signature}, {kernel.target}{block}".replace("*/", "* /").replace("\n", " ")
    return f"/* {text} */"


def function_name(name: str, kernel: ExportedKernel) -> str:
    return f"{name}_{kernel.name}_{kernel.target}"


def _declaration(name: str, kernel: ExportedKernel) -> str:
    taken = [_argument(name, parameter) for parameter in kernel.parameters]
    taken += [f"{name}_size {each}" for each in kernel.sizes]
    if kernel.takes_shared_bytes:
        taken.append("uint32_t shared_bytes")
    taken.append(f"const {name}_parallel *parallel" if kernel.target == "cpu" else "void *stream")
    return f"int32_t {function_name(name, kernel)}({', '.join(taken)})"


def _argument(name: str, parameter: CParameter) -> str:
    if isinstance(parameter.spec, ScalarSpec):
        return f"{parameter.type} {parameter.name}"
    return f"const {name}_array *{parameter.name}"


# -- the launcher of one kernel ---------------------------------------------------------------------------------------------


def _kernel(name: str, kernel: ExportedKernel) -> Iterator[str]:
    prefix = function_name(name, kernel)
    yield from _code(prefix, kernel)
    yield f"{_declaration(name, kernel)} {{"
    yield f"    int64_t sk_slot[{max(len(kernel.signature.slots), 1)}] = {{0}};"
    yield "    (void)sk_slot;"
    for statement in _body(name, prefix, kernel):
        yield f"    {statement}"
    yield "}"


def _code(prefix: str, kernel: ExportedKernel) -> Iterator[str]:
    """Declare the code of all entries: functions of object files, or images for GPUs."""
    for entry in kernel.entries:
        if kernel.target == "cpu":
            yield f"extern int32_t {entry.symbol}(int64_t *, const int64_t *, int64_t, int64_t, void *, void *);"
            continue
        rows: list[str] = []
        for number, image in enumerate(entry.images):
            yield f"{_BYTES} {prefix}_{entry.kind}_{number}[] = {{{','.join(map(str, image.code))}}};"
            kinds = f"{image.capability}, {int(image.kind == 'cubin')}, {int(image.is_exact)}"
            rows.append(f'{{{prefix}_{entry.kind}_{number}, "{image.entry}", {kinds}}}')
        yield f"static const sk_image {prefix}_{entry.kind}_images[] = {{{', '.join(rows)}}};"
        yield f"static sk_module {prefix}_{entry.kind} = {{{prefix}_{entry.kind}_images, {len(entry.images)}, 0, {{{{0}}}}}};"


_BYTES = "static const unsigned char __attribute__((aligned(16)))"


def _body(name: str, prefix: str, kernel: ExportedKernel) -> Iterator[str]:
    """Yield the statements of a launch: arguments, sizes, the entry, the call."""
    if kernel.requires:
        yield "#if defined(__x86_64__) || defined(__i386__)"
        asked = " && ".join(f'__builtin_cpu_supports("{each}")' for each in kernel.requires)
        yield f"if (!({asked})) return {_status(name, 'NO_CODE')};"
        yield "#endif"
    yield from _read(name, kernel)
    yield from _check_related(name, kernel)
    yield from _sizes(name, kernel)
    yield from _launch(name, prefix, kernel)


def _status(name: str, kind: str, argument: int = 0) -> str:
    return f"{name.upper()}_{kind}{f' | {argument} << 8' if argument else ''}"


# -- arguments ------------------------------------------------------------------------------------------------------------


def _read(name: str, kernel: ExportedKernel) -> Iterator[str]:
    """Check each argument by itself, and fill the slots."""
    by_name = {parameter.spec.name: parameter for parameter in kernel.parameters}
    for number, parameter in enumerate(kernel.parameters, 1):
        if not isinstance(parameter.spec, ScalarSpec):
            yield from _check_array(name, parameter.name, parameter.spec, number)
    for place, slot in enumerate(kernel.signature.slots):
        parameter = by_name[kernel.signature.specs[slot.argument].name]
        c, spec = parameter.name, parameter.spec
        if slot.kind == "address":
            yield f"sk_slot[{place}] = (int64_t)(intptr_t){c}->data;"
        elif slot.kind == "size":
            yield f"sk_slot[{place}] = {c}->shape[{slot.axis}];"
        elif slot.kind == "stride":
            assert isinstance(spec, ArraySpec)
            yield f"sk_slot[{place}] = {_stride(name, c, spec.rank, slot.axis)};"
        elif parameter.type in ("float", "double"):
            yield f"memcpy(&sk_slot[{place}], &{c}, sizeof {c});"
        else:
            value = f"({c} != 0)" if spec.dtype.kind == "bool" else c
            yield f"sk_slot[{place}] = (int64_t){value};"


def _check_array(name: str, c: str, spec: ArraySpec | PointerSpec, number: int) -> Iterator[str]:
    rank = spec.rank if isinstance(spec, ArraySpec) else 0
    null = f"{c} == NULL" + (f" || {c}->shape == NULL" if rank else "")
    yield f"if ({null}) return {_status(name, 'NO_ARRAY', number)};"
    if isinstance(spec, ArraySpec):
        for axis, size in enumerate(spec.shape):
            wrong = f"{c}->shape[{axis}] != {size}" if isinstance(size, int) else f"{c}->shape[{axis}] < 0"
            yield f"if ({wrong}) return {_status(name, 'WRONG_SIZE', number)};"
        if spec.is_contiguous:
            yield f"if (!{name}_is_packed({c}, {rank})) return {_status(name, 'WRONG_STRIDE', number)};"
        for axis, stride in enumerate(spec.strides or ()):
            if isinstance(stride, int):
                yield _stride_check(name, c, spec, axis, str(stride), number)
        yield f"if ({c}->data == NULL && !{name}_is_empty({c}, {rank})) return {_status(name, 'NO_ARRAY', number)};"
    if spec.align > 1:
        yield f"if ((uintptr_t){c}->data % {spec.align}) return {_status(name, 'MISALIGNED', number)};"


def _stride(name: str, c: str, rank: int, axis: int) -> str:
    return f"{name}_stride({c}, {rank}, {axis})"


def _stride_check(name: str, c: str, spec: ArraySpec, axis: int, expected: str, number: int) -> str:
    """Return a statement that compares a stride where it matters: the axis has several elements, and the array is not empty."""
    matters = f"{c}->shape[{axis}] > 1 && !{name}_is_empty({c}, {spec.rank})"
    actual = _stride(name, c, spec.rank, axis)
    return f"if ({matters} && {actual} != {expected}) return {_status(name, 'WRONG_STRIDE', number)};"


def _check_related(name: str, kernel: ExportedKernel) -> Iterator[str]:
    """Compare sizes and strides that follow from other arguments."""
    block = Statements()
    checks: list[str] = []
    for number, parameter in enumerate(kernel.parameters, 1):
        spec, c = parameter.spec, parameter.name
        if not isinstance(spec, ArraySpec):
            continue
        for axis, size in enumerate(spec.shape):
            if size is not None and not isinstance(size, int):
                value = block.value(size)
                checks.append(f"if ({c}->shape[{axis}] != {value}) return {_status(name, 'WRONG_SIZE', number)};")
        for axis, stride in enumerate(spec.strides or ()):
            if stride is not None and not isinstance(stride, int):
                checks.append(_stride_check(name, c, spec, axis, block.value(stride), number))
    if checks:
        yield "{"
        yield from (f"    {line}" for line in (*block.lines, *checks))
        yield "}"


# -- sizes and the launch itself --------------------------------------------------------------------------------------------


def _sizes(name: str, kernel: ExportedKernel) -> Iterator[str]:
    """Compute and check grid, block and dynamic shared bytes; return where there is nothing to run."""
    block = Statements()
    fixed = kernel.block or (1, 1, 1)
    if kernel.launch is not None:
        values = [block.value(e) for e in (*kernel.launch.grid, *kernel.launch.block, kernel.launch.shared_bytes)]
    else:
        of_block = ["block.x", "block.y", "block.z"] if kernel.style == "thread" else [*map(str, fixed)]
        values = ["grid.x", "grid.y", "grid.z", *of_block, "shared_bytes" if kernel.takes_shared_bytes else "0"]
    yield from block.lines
    yield f"const int64_t sk_g[3] = {{{', '.join(values[:3])}}}, sk_b[3] = {{{', '.join(values[3:6])}}};"
    yield f"const int64_t sk_dynamic = {values[6]};"
    limits = [f"sk_g[{i}] < 0 || sk_g[{i}] > {n}" for i, n in enumerate(GRID_LIMITS)]
    yield f"if ({' || '.join(limits)}) return {_status(name, 'BAD_GRID')};"
    limits = [f"sk_b[{i}] < 0 || sk_b[{i}] > {n}" for i, n in enumerate(BLOCK_LIMITS)]
    yield f"if ({' || '.join(limits)} || sk_b[0] * sk_b[1] * sk_b[2] > {MAX_THREADS}) return {_status(name, 'BAD_BLOCK')};"
    yield "if (sk_g[0] == 0 || sk_g[1] == 0 || sk_g[2] == 0 || sk_b[0] == 0 || sk_b[1] == 0 || sk_b[2] == 0) return 0;"
    if kernel.block is not None:
        other = " || ".join(f"sk_b[{i}] != {n}" for i, n in enumerate(kernel.block))
        yield f"if ({other}) return {_status(name, 'BAD_BLOCK')};"
    if same := [f"sk_g[{axis}] > 1" for axis in range(3) if axis not in kernel.grid_axes and kernel.launch is None]:
        yield f"if ({' || '.join(same)}) return {_status(name, 'BAD_GRID')};"
    needs = Statements()
    too_small = [f"sk_dynamic < {needs.value(each)}" for each in kernel.signature.shared_needs]
    if too_small:
        yield from ("{", *needs.lines)
        yield f"if ({' || '.join(too_small)}) return {_status(name, 'BAD_SHARED')};"
        yield "}"
    own = max(entry.own_shared_bytes for entry in kernel.entries)
    yield f"if (sk_dynamic < 0 || sk_dynamic > {MAX_SHARED_BYTES - own}) return {_status(name, 'BAD_SHARED')};"


def _launch(name: str, prefix: str, kernel: ExportedKernel) -> Iterator[str]:
    """Choose the entry, and launch it."""
    facts = kernel.signature.facts
    if len(kernel.entries) > 1:
        block = Statements(_FACTS)
        holds = [(fact.otherwise, block.value(fact.holds)) for fact in facts]
        by_kind = {entry.kind for entry in kernel.entries}
        yield from block.lines
        for other in (KernelEntry.OVERLAPPING, KernelEntry.GENERAL):
            if other in by_kind:
                failed = " || ".join(f"!{value}" for kind, value in holds if kind is other)
                yield f"if ({failed}) {{"
                yield from (f"    {line}" for line in _call(name, prefix, kernel, other))
                yield "}"
    yield from _call(name, prefix, kernel, KernelEntry.QUICK)


def _call(name: str, prefix: str, kernel: ExportedKernel, kind: KernelEntry) -> Iterator[str]:
    entry = next(each for each in kernel.entries if each.kind is kind)
    if kernel.target == "cpu":
        yield f"return {name}_run({entry.symbol}, sk_slot, sk_g, {entry.scratch_bytes} + sk_dynamic, parallel);"
        return
    count = len(kernel.signature.slots)
    pointers = ", ".join(f"&sk_slot[{place}]" for place in range(count)) or "NULL"
    yield f"void *sk_pointers[] = {{{pointers}}};"
    static = entry.own_shared_bytes - entry.added_shared_bytes
    shared = f"sk_dynamic + {entry.added_shared_bytes}, {static}"
    yield f"return {name}_enqueue(&{prefix}_{kind}, sk_g, sk_b, {shared}, sk_pointers, stream);"
