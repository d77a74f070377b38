// Bitonic sort: parts of 2 * BLOCK keys in shared memory, longer merges in global memory; mirrored partners first.

constexpr int PART = 2 * BLOCK;

__device__ void exchange(int *keys, int i, int j, int n) {
    if (j < n) {
        const int a = keys[i], b = keys[j];
        if (b < a) {
            keys[i] = b;
            keys[j] = a;
        }
    }
}

__device__ int lower(int t, int distance) { return 2 * t - (t & (distance - 1)); }

template <bool IS_MERGE> __device__ void in_shared(int *__restrict__ keys, int count) {
    __shared__ int held[PART];
    const int t = threadIdx.x, first = blockIdx.x * PART, n = min(count - first, PART);
#pragma unroll
    for (int k = 0; k < 2; ++k)
        if (t + k * BLOCK < n)
            held[t + k * BLOCK] = keys[first + t + k * BLOCK];
#pragma unroll
    for (int run = IS_MERGE ? PART : 2; run <= PART; run *= 2) {
        __syncthreads();
        if (!IS_MERGE) {
            const int low = lower(t, run / 2);
            exchange(held, low, low ^ (run - 1), n);
        }
        for (int distance = IS_MERGE ? run / 2 : run / 4; distance > 0; distance /= 2) {
            __syncthreads();
            const int low = lower(t, distance);
            exchange(held, low, low + distance, n);
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k)
        if (t + k * BLOCK < n)
            keys[first + t + k * BLOCK] = held[t + k * BLOCK];
}

extern "C" __global__ void sort_parts(int *__restrict__ keys, int count) { in_shared<false>(keys, count); }

extern "C" __global__ void merge_parts(int *__restrict__ keys, int count) { in_shared<true>(keys, count); }

extern "C" __global__ void mirrored(int *__restrict__ keys, int count, int distance) {
    const int low = lower(blockIdx.x * BLOCK + threadIdx.x, distance);
    exchange(keys, low, low ^ (2 * distance - 1), count);
}

extern "C" __global__ void halved(int *__restrict__ keys, int count, int distance) {
    const int low = lower(blockIdx.x * BLOCK + threadIdx.x, distance);
    exchange(keys, low, low + distance, count);
}
