// Gating of a mixture of experts: a warp for each token takes the best K of EXPERTS scores, with softmax weights.

struct Candidate {
    float score;
    int expert;
};

__device__ Candidate better(Candidate a, Candidate b) {
    return b.score > a.score || (b.score == a.score && b.expert < a.expert) ? b : a;
}

extern "C" __global__ void gate(float *__restrict__ weights, int *__restrict__ chosen, const float *__restrict__ logits, int tokens) {
    constexpr int EACH = (EXPERTS + 31) / 32;
    const int lane = threadIdx.x % 32, token = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (token < tokens) {
        float scores[EACH], sums[K], total = 0, largest = 0;
        int experts[K];
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int e = lane + 32 * j;
            scores[j] = e < EXPERTS ? logits[token * EXPERTS + e] : -INFINITY;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            Candidate best = {scores[0], lane};
#pragma unroll
            for (int j = 1; j < EACH; ++j)
                best = better(best, {scores[j], lane + 32 * j});
#pragma unroll
            for (int distance = 16; distance > 0; distance /= 2)
                best = better(best, {__shfl_xor_sync(0xFFFFFFFF, best.score, distance),
                                     __shfl_xor_sync(0xFFFFFFFF, best.expert, distance)});
            if (k == 0)
                largest = best.score;
            sums[k] = expf(best.score - largest);
            experts[k] = best.expert;
            total += sums[k];
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                scores[j] = lane + 32 * j == best.expert ? -INFINITY : scores[j];
        }
#pragma unroll
        for (int k = 0; k < K; ++k)
            if (lane == k) {
                weights[token * K + k] = sums[k] / total;
                chosen[token * K + k] = experts[k];
            }
    }
}
