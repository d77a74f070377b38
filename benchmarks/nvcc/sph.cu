// Smoothed particle hydrodynamics in a grid that is stored by hashes: densities, then a step. The order by bucket is given.

__device__ int2 cell_of(float2 place) { return make_int2((int)floorf(place.x * INVERSE), (int)floorf(place.y * INVERSE)); }

__device__ int bucket_of(int2 cell, int buckets) { return ((unsigned)cell.x * 73856093u ^ (unsigned)cell.y * 19349663u) & (buckets - 1); }

template <class Add>
__device__ void around(const float2 *__restrict__ places, const long long *__restrict__ ends, const int *__restrict__ order, int i,
                       int buckets, Add add) {
    const float2 here = places[i];
    const int2 own = cell_of(here);
    for (int number = 0; number < 9; ++number) {
        const int2 cell = make_int2(own.x + number / 3 - 1, own.y + number % 3 - 1);
        const int bucket = bucket_of(cell, buckets);
        for (int k = bucket > 0 ? ends[bucket - 1] : 0; k < ends[bucket]; ++k) {
            const int j = order[k];
            const float2 there = places[j];
            const float x = there.x - here.x, y = there.y - here.y, square = x * x + y * y;
            const int2 found = cell_of(there);
            if (square < RADIUS * RADIUS && found.x == cell.x && found.y == cell.y)
                add(j, x, y, square);
        }
    }
}

extern "C" __global__ void weigh(const float2 *__restrict__ places, const long long *__restrict__ ends,
                                 const int *__restrict__ order, float *__restrict__ densities, int count, int buckets) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) {
        float total = 0;
        around(places, ends, order, i, buckets, [&](int, float, float, float square) {
            const float lack = RADIUS * RADIUS - square;
            total += lack * lack * lack;
        });
        densities[i] = AREA * POLY6 * total;
    }
}

extern "C" __global__ void move(const float2 *__restrict__ places, const float2 *__restrict__ speeds,
                                const long long *__restrict__ ends, const int *__restrict__ order,
                                const float *__restrict__ densities, float2 *__restrict__ new_places,
                                float2 *__restrict__ new_speeds, int count, int buckets) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) {
        const float2 speed = speeds[i];
        const float pressure = fmaxf(STIFFNESS * (densities[i] - 1), 0.0f);
        float2 force = make_float2(0, 0);
        around(places, ends, order, i, buckets, [&](int j, float x, float y, float square) {
            const float length = sqrtf(square), lack = RADIUS - length;
            const float pressures = (pressure + fmaxf(STIFFNESS * (densities[j] - 1), 0.0f)) / 2;
            const float push = -pressures * SPIKY * lack * lack / fmaxf(length, 1e-6f);
            const float drag = VISCOSITY * LAPLACIAN * lack, share = AREA / densities[j];
            force.x += share * (push * x + drag * (speeds[j].x - speed.x));
            force.y += share * (push * y + drag * (speeds[j].y - speed.y));
        });
        const float x = speed.x + STEP * (force.x / densities[i]), y = speed.y + STEP * (force.y / densities[i] - GRAVITY);
        const float2 place = make_float2(places[i].x + STEP * x, places[i].y + STEP * y);
        new_speeds[i] = make_float2(place.x >= 0 && place.x <= WIDTH ? x : -REBOUND * x,
                                    place.y >= 0 && place.y <= HEIGHT ? y : -REBOUND * y);
        new_places[i] = make_float2(fminf(fmaxf(place.x, 0.0f), WIDTH), fminf(fmaxf(place.y, 0.0f), HEIGHT));
    }
}
