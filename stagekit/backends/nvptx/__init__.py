"""IR to PTX, through LLVM's NVPTX target."""

from stagekit.backends.nvptx.kernel import CudaCode, compile

__all__ = ["CudaCode", "compile"]
