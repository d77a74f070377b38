// Black-Scholes prices of calls and puts, a grid-stride loop; the cumulative normal distribution is Hull's polynomial.

__device__ float normal_cdf(float d) {
    const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float total = k * 1.330274429f;
    total = k * (-1.821255978f + total);
    total = k * (1.781477937f + total);
    total = k * (-0.356563782f + total);
    total = k * (0.31938153f + total);
    const float tail = total * expf(-0.5f * d * d) * 0.3989422804f;
    return d > 0 ? 1 - tail : tail;
}

extern "C" __global__ void black_scholes(float *__restrict__ calls, float *__restrict__ puts, const float *__restrict__ prices,
                                         const float *__restrict__ strikes, const float *__restrict__ years, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const float price = prices[i], strike = strikes[i], t = years[i];
        const float root = VOLATILITY * sqrtf(t);
        const float d1 = (logf(price / strike) + (RATE + VOLATILITY * VOLATILITY / 2) * t) / root;
        const float in_1 = normal_cdf(d1), in_2 = normal_cdf(d1 - root);
        const float discounted = strike * expf(-RATE * t);
        calls[i] = price * in_1 - discounted * in_2;
        puts[i] = discounted * (1 - in_2) - price * (1 - in_1);
    }
}
