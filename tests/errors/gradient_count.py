import torch
from torch import Tensor

import stagekit.torch as skt


@skt.operator("errors::add", outputs={"out": "x"}, backward=lambda gradient: gradient)
def add(x: Tensor, y: Tensor, *, out: Tensor) -> None:
    torch.add(x, y, out=out)


add(torch.ones(3, requires_grad=True), torch.ones(3)).sum().backward()
# torch
