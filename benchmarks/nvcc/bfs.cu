// One level of a breadth-first search in CSR form; the lanes of a warp that found something take places by one atomic.

#include <cooperative_groups.h>

extern "C" __global__ void advance(const int *__restrict__ starts, const int *__restrict__ targets, int *levels,
                                   const int *__restrict__ frontier, int *__restrict__ following, int *counts, int size, int level) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < size) {
        const int vertex = frontier[i];
        for (int k = starts[vertex]; k < starts[vertex + 1]; ++k) {
            const int target = targets[k];
            if (atomicCAS(levels + target, -1, level) == -1) {
                const auto finders = cooperative_groups::coalesced_threads();
                int first = 0;
                if (finders.thread_rank() == 0)
                    first = atomicAdd(counts, (int)finders.size());
                following[finders.shfl(first, 0) + finders.thread_rank()] = target;
            }
        }
    }
}
