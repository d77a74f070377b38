"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import CudaError, ForkedProcess

raise CudaError(ForkedProcess())
