// Product of a sparse matrix in CSR form and a vector: a group of LANES lanes for each row.

extern "C" __global__ void spmv(float *__restrict__ y, const int *__restrict__ starts, const int *__restrict__ columns,
                                const float *__restrict__ values, const float *__restrict__ x, int rows) {
    const int row = blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES, rank = threadIdx.x % LANES;
    if (row < rows) {
        const unsigned mask = ((1ull << LANES) - 1) << (threadIdx.x % 32 / LANES * LANES);
        float total = 0;
        for (int k = starts[row] + rank; k < starts[row + 1]; k += LANES)
            total += values[k] * x[columns[k]];
#pragma unroll
        for (int distance = LANES / 2; distance > 0; distance /= 2)
            total += __shfl_xor_sync(mask, total, distance, LANES);
        if (rank == 0)
            y[row] = total;
    }
}
