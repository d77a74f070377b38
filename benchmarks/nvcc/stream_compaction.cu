// Stream compaction of the positive numbers in one launch: each block waits for the end of the part before its own.

#include <cuda/atomic>

extern "C" __global__ void compact(const float *__restrict__ source, float *__restrict__ result, int *ends, int *ticket, int size) {
    __shared__ int number, start, sums[BLOCK / 32];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (t == 0)
        number = atomicAdd(ticket, 1);
    __syncthreads();
    const int b = number, i = b * BLOCK + t;
    const float x = i < size ? source[i] : 0.0f;
    const bool kept = x > 0;
    int sum = kept;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int left = __shfl_up_sync(0xFFFFFFFF, sum, distance);
        sum += lane >= distance ? left : 0;
    }
    if (lane == 31)
        sums[warp] = sum;
    __syncthreads();
    int place = sum - kept;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; ++w)
        place += w < warp ? sums[w] : 0;
    if (t == BLOCK - 1) {
        int before = 0;
        if (b > 0) {
            const cuda::atomic_ref<int, cuda::thread_scope_device> previous(ends[b - 1]);
            int end;
            while ((end = previous.load(cuda::memory_order_acquire)) == 0) {
            }
            before = end - 1;
        }
        start = before;
        cuda::atomic_ref<int, cuda::thread_scope_device>(ends[b]).store(1 + before + place + kept, cuda::memory_order_release);
    }
    __syncthreads();
    if (kept)
        result[start + place] = x;
}
