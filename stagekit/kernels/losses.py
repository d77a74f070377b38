"""Losses of rows of logits, with their gradients: cross-entropy. One program for each row.

The row is read twice, or once where it fits a tile: for its largest element and the sum of exponentials, as in softmax, and to
write the gradient. A loss and a gradient are made by one kernel, so that no softmax is stored between them.
"""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.fragments import exp_for, load_piece, starts, store_piece
from stagekit.kernels.host import Dtype, as_rows, dtype_of, empty, factory, float_dtype_of, require_shape, tile_for
from stagekit.kernels.normalizing import largest_and_total
from stagekit.kernels.sharing import checked_out


@factory
def cross_entropy_kernel(dtype: Dtype, target_dtype: Dtype, BLOCK: int, ONE_TILE: bool) -> sk.JitFunction:
    """Return the kernel `k[rows](logits, targets, losses, gradient, scale, ignore)`; gradient may be None, or the logits.

    scale: of the gradient, what the loss of a row counts for.
    """
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Targets = Annotated[sk.Array, sk.Tensor((rows,), target_dtype)]
    Losses = Annotated[sk.Array, sk.Tensor((rows,), sk.float32)]

    @sk.jit
    def cross_entropy(
        logits: Rows, targets: Targets, losses: Losses, gradient: Rows | None, scale: sk.float32, ignore: sk.int64
    ) -> None:
        row = sk.program_id(0)
        target = targets[row]
        counts, is_class = target != ignore, (target >= 0) & (target < columns)
        assert is_class | (target == ignore), f"targets[{row}] is {target}, and there are {columns} classes"
        if ONE_TILE:
            x = load_piece(logits[row], 0, columns, BLOCK, -float("inf"))
            largest = sk.reduce_max(x)
        # by now the target has arrived, and threads wait once more before the gradient may take the place of the logits
        chosen = sk.load(logits[row] + target, mask=is_class, other=float("nan")).to(sk.float32)
        if ONE_TILE:
            total = sk.reduce_sum(exp_for(logits, x - largest))
        else:
            largest, total = largest_and_total(logits[row], columns, BLOCK)
        if gradient is not None:
            factor = scale if counts else 0
            share = factor * (1 / total)
            for start in starts(columns, BLOCK, ONE_TILE):
                if not ONE_TILE:  # else the row is still here
                    x = load_piece(logits[row], start, columns, BLOCK)
                store_piece(gradient[row], start, columns, exp_for(logits, x - largest) * share)
            sk.store(gradient[row] + target, exp_for(logits, chosen - largest) * share - factor, mask=is_class)
        losses[row] = sk.where(counts, largest + sk.log(total) - chosen, 0)

    return cross_entropy


def cross_entropy(logits: Any, targets: Any, *, gradient: Any = None, scale: float = 1.0, ignore: int = -100) -> Any:
    """Return the loss of each row, float32: log(sum(exp(logits))) - logits[target], 0 where the target is `ignore`.

    logits: float32, float16 or bfloat16, classes along the last axis. targets: int32 or int64, an axis less; each is `ignore`, or
    from 0 to below the number of classes: any other is an error on the CPU, and its loss is NaN. gradient: like logits, or the
    logits themselves; (softmax(logits) - one_hot(target)) * scale is written to it, 0 for an ignored row. scale: 1 / rows for the
    gradient of the mean. exp is as in `softmax`.
    """
    source = as_rows(logits)
    require_shape("targets", targets, logits.shape[:-1])
    if gradient is not None:
        checked_out(gradient, logits, apart=(targets,), shape=logits.shape, name="gradient")
    losses = empty(logits, tuple(targets.shape), sk.float32)
    rows, columns = source.shape
    kernel = cross_entropy_kernel(float_dtype_of(logits), dtype_of(targets), *tile_for(columns))
    flat = [x if len(x.shape) == 1 else x.reshape((rows,)) for x in (targets, losses)]
    kernel[rows](source, *flat, gradient if gradient is None else as_rows(gradient), scale, ignore)
    return losses
