"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import CudaError, DriverCallFailed

raise CudaError(DriverCallFailed(call="cuLaunchKernel", name="CUDA_ERROR_INVALID_VALUE", text="invalid argument"))
