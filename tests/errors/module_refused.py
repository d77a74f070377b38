"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import CudaError, ModuleRefused

raise CudaError(
    ModuleRefused(kernel="kernel", device="cuda:0", name="CUDA_ERROR_INVALID_PTX", log="line 12: error: unknown symbol")
)
