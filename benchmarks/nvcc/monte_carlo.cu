// Monte Carlo price of an Asian option. Normal numbers by Philox 4x32-10 and Box-Muller, number by number of a stream.

__device__ uint4 philox(unsigned long long seed, unsigned long long counter) {
    unsigned a = counter, b = counter >> 32, c = 0, d = 0, low = seed, high = seed >> 32;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high_a = __umulhi(a, 0xD2511F53u), low_a = a * 0xD2511F53u;
        const unsigned high_c = __umulhi(c, 0xCD9E8D57u), low_c = c * 0xCD9E8D57u;
        a = high_c ^ b ^ low;
        b = low_c;
        c = high_a ^ d ^ high;
        d = low_a;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return make_uint4(a, b, c, d);
}

__device__ float minus_two_log(unsigned word) {
    const unsigned odd = word | 1;
    const int zeros = __clz(odd);
    const float half = (float)(odd << zeros >> 8) * 0x1p-24f;
    const bool is_small = half < 0.70710678f;
    const float near_one = is_small ? half * 2 : half;
    const float s = (near_one - 1) / (near_one + 1), x = s * s;
    const float series = fmaf(fmaf(fmaf(fmaf(4.0f / 9, x, 4.0f / 7), x, 4.0f / 5), x, 4.0f / 3), x, 4.0f);
    return fmaf((float)(zeros + is_small), 1.3862943611f, -(s * series));
}

__device__ float cosine(unsigned word) {
    const unsigned quadrant = (word + (1u << 29)) >> 30;
    const float x = (float)(int)(word - (quadrant << 30)) * 1.4629180793e-9f, square = x * x;
    const float cosine = fmaf(fmaf(fmaf(fmaf(1.0f / 40320, square, -1.0f / 720), square, 1.0f / 24), square, -0.5f), square, 1.0f);
    const float sine =
        x * fmaf(fmaf(fmaf(fmaf(1.0f / 362880, square, -1.0f / 5040), square, 1.0f / 120), square, -1.0f / 6), square, 1.0f);
    const float found = quadrant & 1 ? sine : cosine;
    return quadrant + 1 & 2 ? -found : found;
}

__device__ float normal(unsigned long long seed, unsigned long long number) {
    const uint4 words = philox(seed, number >> 2);
    const bool is_upper = number & 2;
    const unsigned radius = is_upper ? words.z : words.x, angle = is_upper ? words.w : words.y;
    return sqrtf(minus_two_log(radius)) * cosine(angle - ((unsigned)number << 30 & 0x40000000u));
}

__device__ double warp_sum(double x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xFFFFFFFF, x, distance);
    return x;
}

extern "C" __global__ void simulate(double *__restrict__ out, long long paths, long long seed) {
    __shared__ double totals[BLOCK / 32], all_squares[BLOCK / 32];
    double total = 0, squares = 0;
    for (long long path = blockIdx.x * BLOCK + threadIdx.x; path < paths; path += gridDim.x * BLOCK) {
        float logarithm = 0, mean = 0;
        for (int step = 0; step < STEPS; ++step) {
            logarithm += DRIFT + SPREAD * normal(seed, path * STEPS + step);
            mean += PRICE * expf(logarithm) / STEPS;
        }
        const double payoff = fmaxf(mean - STRIKE, 0.0f);
        total += payoff;
        squares += payoff * payoff;
    }
    total = warp_sum(total);
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) {
        totals[threadIdx.x / 32] = total;
        all_squares[threadIdx.x / 32] = squares;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        total = squares = 0;
#pragma unroll
        for (int warp = 0; warp < BLOCK / 32; ++warp) {
            total += totals[warp];
            squares += all_squares[warp];
        }
        atomicAdd(out, total);
        atomicAdd(out + 1, squares);
    }
}
