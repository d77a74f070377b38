import torch
from torch import Tensor

import stagekit.torch as skt


@skt.operator("errors::tail", outputs={"out": lambda x: x[1:]})
def tail(x: Tensor, *, out: Tensor) -> None:
    out.zero_()


tail(torch.ones(3))
# torch
