// Radix sort, two bits at a time: the four counts of a thread's digits are fields of one 64-bit number, scanned over the block.

typedef unsigned long long u64;

__device__ u64 before_in_block(u64 one) {
    __shared__ u64 sums[BLOCK / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = one;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const u64 left = __shfl_up_sync(0xFFFFFFFF, sum, distance);
        sum += lane >= distance ? left : 0;
    }
    if (lane == 31)
        sums[warp] = sum;
    __syncthreads();
    u64 before = 0;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; ++w)
        before += w < warp ? sums[w] : 0;
    return before + sum - one;
}

struct Ranked {
    int digit, rank;
    u64 fields;
};

__device__ Ranked ranked(const unsigned *keys, int count, int i, int shift) {
    const int digit = i < count ? keys[i] >> shift & 3 : 3;
    const int field = digit * 16;
    const u64 one = i < count ? 1ull << field : 0;
    const u64 before = before_in_block(one);
    return {digit, (int)(before >> field & 0xFFFF), before + one};
}

extern "C" __global__ void count(const unsigned *__restrict__ keys, int *__restrict__ counts, int size, int shift) {
    const Ranked found = ranked(keys, size, blockIdx.x * BLOCK + threadIdx.x, shift);
    if (threadIdx.x == BLOCK - 1)
#pragma unroll
        for (int digit = 0; digit < 4; ++digit)
            counts[digit * gridDim.x + blockIdx.x] = found.fields >> (16 * digit) & 0xFFFF;
}

extern "C" __global__ void scatter(const unsigned *__restrict__ keys, const long long *__restrict__ sums,
                                   unsigned *__restrict__ result, int size, int shift) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    const Ranked found = ranked(keys, size, i, shift);
    if (i < size) {
        const int place = found.digit * gridDim.x + blockIdx.x;
        const long long before = place > 0 ? sums[place - 1] : 0;
        result[before + found.rank] = keys[i];
    }
}
