// All-pairs n-body: each thread sums the pull of all bodies on its own, in tiles of BLOCK bodies in shared memory.

extern "C" __global__ void accelerate(const float4 *__restrict__ bodies, float *__restrict__ result, int count) {
    __shared__ float4 held[BLOCK];
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    const float4 mine = bodies[min(i, count - 1)];
    float x = 0, y = 0, z = 0;
    for (int first = 0; first < count; first += BLOCK) {
        const int k = first + threadIdx.x;
        held[threadIdx.x] = k < count ? bodies[k] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int j = 0; j < BLOCK; ++j) {
            const float4 other = held[j];
            const float dx = other.x - mine.x, dy = other.y - mine.y, dz = other.z - mine.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING * SOFTENING);
            const float weight = other.w * inverse * inverse * inverse;
            x += weight * dx;
            y += weight * dy;
            z += weight * dz;
        }
        __syncthreads();
    }
    if (i < count) {
        result[3 * i] = x;
        result[3 * i + 1] = y;
        result[3 * i + 2] = z;
    }
}
