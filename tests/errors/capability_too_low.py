"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import CapabilityTooLow, CudaError

raise CudaError(CapabilityTooLow(kernel="kernel", needed="9.0", device="cuda:0", capability="7.5"))
