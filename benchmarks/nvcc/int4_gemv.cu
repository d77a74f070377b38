// Product of a matrix of 4-bit weights and a vector: a warp for each row, eight weights in a word, a scale for 32 of them.

extern "C" __global__ void gemv(float *__restrict__ y, const unsigned *__restrict__ words, const float *__restrict__ scales,
                                const float4 *__restrict__ x, int rows, int words_per_row) {
    const int row = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row < rows) {
        float total = 0;
        for (int k = lane; k < words_per_row; k += 32) {
            const unsigned word = words[row * words_per_row + k];
            const float4 low = x[2 * k], high = x[2 * k + 1];
            const float factors[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            float part = 0;
#pragma unroll
            for (int place = 0; place < 8; ++place)
                part += ((int)(word >> (4 * place) & 0xF) - 8) * factors[place];
            total += part * scales[row * (words_per_row / 4) + k / 4];
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            total += __shfl_xor_sync(0xFFFFFFFF, total, distance);
        if (lane == 0)
            y[row] = total;
    }
}
