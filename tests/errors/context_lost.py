"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import ContextLost, CudaError

raise CudaError(
    ContextLost(
        device="cuda:0",
        call="cuModuleLoadDataEx",
        name="CUDA_ERROR_ILLEGAL_ADDRESS",
        text="an illegal memory access was encountered",
        blamed="the kernel launched last there is `kernel`: it failed, or one that was launched before it",
        advice="`sk.sanitize(kernel)` finds the line, without a GPU; under `debug=True` launches wait and name the kernel",
    )
)
