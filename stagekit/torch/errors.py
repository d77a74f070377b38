"""What can be wrong with an operator of torch: the exception, and the catalogue of its texts."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError


class OperatorError(StagekitError, RuntimeError):
    """An operator that cannot be defined as it is asked for, or that cannot do what torch asks of it."""


class BadOperator(Diagnostic):
    title = "This cannot become an operator"
    label = "`{name}`: {problem}"
    help = "{advice}"


class OutputNotNew(Diagnostic):
    title = "An output of an operator is memory of an input"
    label = "`{name}`: the output `{output}` shares the memory of `{given}`"
    help = "make new memory (torch.empty, x.new_empty); name what the function writes to in `mutates`"


class OutputDiffers(Diagnostic):
    title = "An output is not what `outputs` says"
    label = "`{name}`: `{output}` is to be {expected}, and the function returned {received}"
    help = "make the same in `outputs`: torch.compile and torch.export plan by it"


class NoBackward(Diagnostic):
    title = "An operator has no backward"
    label = "`{name}` has no `backward`{why}, so nothing can be differentiated through it"
    help = "give `backward=`; use torch.no_grad(), or .detach() its inputs, where no gradient is needed"


class GradientOfMutated(Diagnostic):
    title = "Autograd cannot see what an operator writes to its inputs"
    label = "`{name}` writes to {written}, and `{needing}` needs a gradient"
    help = "call it under torch.no_grad(), or make what it writes an output (`outputs=`) and give `backward=`"


class GradientCount(Diagnostic):
    title = "A backward does not give one gradient for each tensor"
    label = "the backward of `{name}` gave {given}, for {tensors}"
    help = "return one for each tensor input in order, None for one that has no gradient"


class NoBatchingRule(Diagnostic):
    title = "An operator has no batching rule"
    label = "torch.vmap reached `{name}`, which was not told what a batch of calls is"
    help = (
        '`vmap=("x",)` names inputs that take further leading axes, `vmap="loop"` calls it for each; or give a function'
    )


class BatchOfMutated(Diagnostic):
    title = "Every call of a batch would write to the same tensor"
    label = "`{name}` writes to `{written}`, over which torch.vmap does not go"
    help = "let vmap go over `{written}` too (in_dims), or call the operator once"
