// Conway's Game of Life on a torus: all generations in one cooperative launch, each thread in strides of the grid.

#include <cooperative_groups.h>

__device__ void generation(const unsigned char *source, unsigned char *result, int height, int width) {
    for (int cell = blockIdx.x * BLOCK + threadIdx.x; cell < height * width; cell += gridDim.x * BLOCK) {
        const int row = cell / width, column = cell % width;
        const int rows[] = {(row + height - 1) % height, row, (row + 1) % height};
        const int columns[] = {(column + width - 1) % width, column, (column + 1) % width};
        int around = 0;
#pragma unroll
        for (int i = 0; i < 3; ++i)
#pragma unroll
            for (int j = 0; j < 3; ++j)
                around += source[rows[i] * width + columns[j]];
        const int own = source[row * width + column];
        around -= own;
        result[row * width + column] = around == 3 || (around == 2 && own != 0);
    }
}

extern "C" __global__ void life(unsigned char *board, unsigned char *other, int height, int width, int pairs) {
    const auto grid = cooperative_groups::this_grid();
    for (int k = 0; k < pairs; ++k) {
        generation(board, other, height, width);
        grid.sync();
        generation(other, board, height, width);
        grid.sync();
    }
}
