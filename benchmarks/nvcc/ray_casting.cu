// Ray casting in a tree of boxes around spheres, each ray with a small stack of its own.

struct Box {
    float corners[2][3];
};

__device__ bool enters(const Box &box, const float *start, const float *slope, float nearest) {
    float near = 0, far = nearest;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const float a = (box.corners[0][axis] - start[axis]) * slope[axis];
        const float b = (box.corners[1][axis] - start[axis]) * slope[axis];
        near = fmaxf(near, fminf(a, b));
        far = fminf(far, fmaxf(a, b));
    }
    return near <= far;
}

__device__ float distance_to(float4 sphere, const float *start, const float *way) {
    const float x = sphere.x - start[0], y = sphere.y - start[1], z = sphere.z - start[2];
    const float along = x * way[0] + y * way[1] + z * way[2];
    const float room = along * along - (x * x + y * y + z * z) + sphere.w * sphere.w;
    const float hit = along - sqrtf(fmaxf(room, 0.0f));
    return room >= 0 && hit > 0 ? hit : INFINITY;
}

extern "C" __global__ void cast(float *__restrict__ result, const float *__restrict__ origins, const float *__restrict__ ways,
                                const Box *__restrict__ boxes, const int2 *__restrict__ children,
                                const float4 *__restrict__ spheres, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) {
        float start[3], way[3], slope[3];
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
            start[axis] = origins[3 * i + axis];
            way[axis] = ways[3 * i + axis];
            slope[axis] = 1 / way[axis];
        }
        int stack[DEPTH], top = 1;
        stack[0] = 0;
        float nearest = INFINITY;
        while (top > 0) {
            const int node = stack[--top];
            if (enters(boxes[node], start, slope, nearest)) {
                const int2 child = children[node];
                if (child.x < 0) {
                    nearest = fminf(nearest, distance_to(spheres[child.y], start, way));
                } else {
                    stack[top++] = child.x;
                    stack[top++] = child.y;
                }
            }
        }
        result[i] = nearest < INFINITY ? nearest : 0;
    }
}
