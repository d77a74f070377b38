"""CuPy's RawKernel: CUDA C through NVRTC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy

from systems.arrays import SIZE, Arrays, listed

NAME = "CuPy RawKernel"


def _source(count: int) -> str:
    parameters = ", ".join([*(f"float *a{i}" for i in range(count)), "long long n"] if count else [])
    total = " + ".join(f"a{i}[t]" for i in range(count - 1))
    body = f"int t = threadIdx.x; if (t < n) a{count - 1}[t] = {total};" if count else ""
    return f'extern "C" __global__ void take{count}({parameters}) {{ {body} }}'


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if arrays.library != "CuPy":
        return
    names = {**arrays.names(count), "k": cupy.RawKernel(_source(count), f"take{count}")}
    values = f"({listed(count, str(SIZE))})" if count else "()"
    yield "positional", f"k((1,), ({SIZE},), {values})", names


SOURCES = {
    "add": """
extern "C" __global__ void add(const float *a, float *b, long long n) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) b[i] = a[i] + SALT;
}""",
    "softmax": """
__device__ float over_block(float x, bool is_max) {
    __shared__ float parts[8];
    for (int d = 16; d; d /= 2) {
        float y = __shfl_xor_sync(0xffffffff, x, d);
        x = is_max ? fmaxf(x, y) : x + y;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (int i = 1; i < 8; i++) x = is_max ? fmaxf(x, parts[i]) : x + parts[i];
    return x;
}
extern "C" __global__ void softmax(const float *src, float *dst, int n) {
    int t = threadIdx.x;
    float x = t < n ? src[t] : __int_as_float(0xff800000);
    float e = expf(x - over_block(x, true)), sum = over_block(e, false);
    if (t < n) dst[t] = e / sum + SALT;
}""",
    "matmul": """
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[16][16], right[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float total = SALT;
    for (int start = 0; start < n; start += 16) {
        left[ty][tx] = row < n && start + tx < n ? a[row * n + start + tx] : 0;
        right[ty][tx] = start + ty < n && col < n ? b[(start + ty) * n + col] : 0;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < 16; k++) total += left[ty][k] * right[k][tx];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = total;
}""",
}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y, m = (cupy.ones(shape, cupy.float32) for shape in (256, 256, (64, 64)))
    cupy.cuda.get_current_stream().synchronize()
    calls = {
        "add": ((1,), (256,), (x, y, 256)),
        "softmax": ((1,), (256,), (x, y, cupy.int32(256))),
        "matmul": ((4, 4), (16, 16), (m, m, m, cupy.int32(64))),
    }

    def maker(name: str) -> Callable[[int], None]:
        def make(salt: int) -> None:
            cupy.RawKernel(f"#define SALT {salt}.0f\n{SOURCES[name]}", name)(*calls[name])
            cupy.cuda.get_current_stream().synchronize()

        return make

    return {name: maker(name) for name in SOURCES}
