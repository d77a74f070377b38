"""What can be wrong with an operator, of whichever library: the exception, and the texts that several have a use for."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError


class OperatorError(StagekitError, RuntimeError):
    """An operator that cannot be defined as it is asked for, or that cannot do what its library asks of it."""


class BadOperator(Diagnostic):
    title = "This cannot become an operator"
    label = "`{name}`: {problem}"
    help = "{advice}"


class BadOperand(Diagnostic):
    title = "An operator does not take this argument"
    label = "`{name}`: `{argument}` {problem}"
    help = "{advice}"


class OutputDiffers(Diagnostic):
    title = "An output is not what `outputs` says"
    label = "`{name}`: `{output}` is to be {expected}, and the function returned {received}"
    help = "make the same in `outputs`: torch.compile, torch.export and jax.jit plan by it"


class NoBackward(Diagnostic):
    title = "An operator has no backward"
    label = "`{name}` has no `backward`{why}, so nothing can be differentiated through it"
    help = "give `backward=`; use {way} where no gradient is needed"


class GradientCount(Diagnostic):
    title = "A backward does not give one gradient for each input"
    label = "the backward of `{name}` gave {given}, for {inputs}"
    help = "return one for each in order, None for one that has no gradient"


class NoBatchingRule(Diagnostic):
    title = "An operator has no batching rule"
    label = "{library}.vmap reached `{name}`, which was not told what a batch of calls is"
    help = (
        '`vmap=("x",)` names inputs that take further leading axes, `vmap="loop"` calls it for each; or give a function'
    )


def refused(name: str, problem: str, advice: str) -> OperatorError:
    """Return the error of a definition."""
    return OperatorError(BadOperator(name, problem, advice))


def second_derivative(forward: str | None) -> str:
    """Return why an operator that is the backward of another one, if any, has none itself, in words."""
    return f": it is the backward of `{forward}`, of which this would be a second derivative" if forward else ""
