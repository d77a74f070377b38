"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import CudaError, NoCudaDriver

raise CudaError(NoCudaDriver(reason="libcuda.so.1 was not found"))
