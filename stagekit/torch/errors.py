"""What can be wrong with an operator of torch alone; what several libraries have a use for is in `stagekit.operators`."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic


class OutputNotNew(Diagnostic):
    title = "An output of an operator is memory of an input"
    label = "`{name}`: the output `{output}` shares the memory of `{given}`"
    help = "make new memory (torch.empty, x.new_empty); name what the function writes to in `mutates`"


class GradientOfMutated(Diagnostic):
    title = "Autograd cannot see what an operator writes to its inputs"
    label = "`{name}` writes to {written}, and `{needing}` needs a gradient"
    help = "call it under torch.no_grad(), or make what it writes an output (`outputs=`) and give `backward=`"


class BatchOfMutated(Diagnostic):
    title = "Every call of a batch would write to the same tensor"
    label = "`{name}` writes to `{written}`, over which torch.vmap does not go"
    help = "let vmap go over `{written}` too (in_dims), or call the operator once"
