import torch
from torch import Tensor

import stagekit.torch as skt


@skt.operator("errors::add_", mutates="x", vmap="loop")
def add_(x: Tensor, y: Tensor) -> None:
    x += y


torch.vmap(add_, in_dims=(None, 0))(torch.ones(2), torch.ones(3, 2))
# torch
