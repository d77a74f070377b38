// Gating of a mixture of experts: a warp for each token takes the best K of EXPERTS scores, with softmax weights.

constexpr int TAKEN = -2147483647 - 1, NONE = 2147483647;

__device__ int ordered(float score) {
    const int bits = __float_as_int(score + 0.0f);
    return bits ^ (bits >> 31 & 0x7FFFFFFF);
}

__device__ float score_of(int number) { return __int_as_float(number ^ (number >> 31 & 0x7FFFFFFF)); }

extern "C" __global__ void gate(float *__restrict__ weights, int *__restrict__ chosen, const float *__restrict__ logits, int tokens) {
    constexpr int EACH = (EXPERTS + 31) / 32;
    const int lane = threadIdx.x % 32, token = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (token < tokens) {
        int scores[EACH], experts[K];
        float sums[K], total = 0, largest = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int e = lane + 32 * j;
            scores[j] = e < EXPERTS ? ordered(logits[token * EXPERTS + e]) : TAKEN;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            int mine = scores[0], first = NONE;
#pragma unroll
            for (int j = 1; j < EACH; ++j)
                mine = max(mine, scores[j]);
            const int best = __reduce_max_sync(0xFFFFFFFF, mine);
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                first = min(first, scores[j] == best ? lane + 32 * j : NONE);
            experts[k] = __reduce_min_sync(0xFFFFFFFF, first);
            if (k == 0)
                largest = score_of(best);
            sums[k] = expf(score_of(best) - largest);
            total += sums[k];
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                scores[j] = lane + 32 * j == experts[k] ? TAKEN : scores[j];
        }
#pragma unroll
        for (int k = 0; k < K; ++k)
            if (lane == k) {
                weights[token * K + k] = sums[k] / total;
                chosen[token * K + k] = experts[k];
            }
    }
}
