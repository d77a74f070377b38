// Separable convolution of an image by tiles of a line with a halo in shared memory; the weights are known.

constexpr int RADIUS = COUNT / 2;

template <bool IS_ROW> __device__ void convolve(const float *__restrict__ source, float *__restrict__ result, int height, int width) {
    constexpr float weights[COUNT] = {WEIGHTS};
    __shared__ float held[BLOCK + 2 * RADIUS];
    const int t = threadIdx.x, line = blockIdx.y, first = blockIdx.x * BLOCK, extent = IS_ROW ? width : height;
    const int start = IS_ROW ? line * width : line, step = IS_ROW ? 1 : width;
    for (int k = t; k < BLOCK + 2 * RADIUS; k += BLOCK) {
        const int i = first + k - RADIUS;
        held[k] = i >= 0 && i < extent ? source[start + i * step] : 0.0f;
    }
    __syncthreads();
    if (first + t < extent) {
        float total = 0;
#pragma unroll
        for (int k = 0; k <= 2 * RADIUS; ++k)
            total += weights[2 * RADIUS - k] * held[t + k];
        result[start + (first + t) * step] = total;
    }
}

extern "C" __global__ void rows(const float *__restrict__ source, float *__restrict__ result, int height, int width) {
    convolve<true>(source, result, height, width);
}

extern "C" __global__ void columns(const float *__restrict__ source, float *__restrict__ result, int height, int width) {
    convolve<false>(source, result, height, width);
}
