import torch
from torch import Tensor

import stagekit.torch as skt


@skt.operator("errors::clear_", mutates="x")
def clear_(x: Tensor) -> None:
    x.zero_()


clear_(torch.ones(3, requires_grad=True))
# torch
