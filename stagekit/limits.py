"""What no CUDA GPU goes beyond. A kernel or a launch that does is refused on every target. And how many axes arrays may have.

Source: CUDA C++ Programming Guide, technical specifications per compute capability.
"""

GRID_LIMITS = (2**31 - 1, 65535, 65535)  # blocks along x, y and z
BLOCK_LIMITS = (1024, 1024, 64)  # threads of a block along x, y and z
MAX_THREADS = 1024  # of a block
WARP = 32  # threads
WARPGROUP = 4 * WARP  # threads, from a multiple of as many on
REGISTERS = 1 << 16  # of a block, 32 bits each
BARRIERS = 16  # of a block, by number; PTX ISA, bar
MAX_LOCAL_BYTES = 512 * 1024  # of a thread
MAX_SHARED_BYTES = 227 * 1024  # of a block, on the largest GPU; what the GPU at hand has is checked against it
MAX_PARAMETER_BYTES = 4096  # of a kernel, on every GPU; CUDA C++ Programming Guide, function parameters
MAX_CLUSTER_BLOCKS = 8  # of a cluster, on every GPU that has clusters
WARPGROUP_CAPABILITY = 90  # ten times the only compute capability on which warpgroups multiply by `wgmma`
MBARRIER_BYTES = 8
MBARRIER_MOST = (
    2**20 - 1
)  # arrivals at a phase of an mbarrier, and bytes that it may lack; PTX ISA, "mbarrier: supported range"
TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGN = 64  # of its address, in bytes
TENSOR_MAP_AXES = 5
MAX_BOX = 256  # elements of the box of a tensor map along an axis; CUDA driver API, cuTensorMapEncodeTiled
MAX_AXES = 64  # of an array, as NumPy has it
MAX_ITERATIONS = 10_000_000  # of a loop in the checking interpreter, where no option says otherwise: no limit of a GPU

MOST_ELEMENTS = 1 << 57
"""Of an array along an axis: the most that an address space holds."""
