"""C's fmod as a function in LLVM IR, for targets without a maths library (LLVM's own `frem` there is not exact).

Long division with the widest exact step. While x >= y: find t = y * 2**k with x / t <= 2**step, subtract q * t where
q = trunc(x / t). The quotient has two spare bits, so rounding makes q at most one too high, which shows as a negative
rest; x is a multiple of the last place of t, so one fused multiply-add makes the rest exact. Operands whose quotient
fits one step, nearly all, need one round of either loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

from stagekit.backends.llvm.writer import Module


@dataclass(frozen=True, slots=True)
class _Format:
    """Overload suffix and, as LLVM constants, 2**step: the mantissa's bits less two."""

    suffix: str
    step: str


_FORMATS = {"float": _Format("f32", "0x4150000000000000"), "double": _Format("f64", "0x4320000000000000")}


def fmod_function(module: Module, held: str) -> str:
    """Add the function for `held` ("float" or "double") to the module, once; gives its name."""
    form = _FORMATS[held]
    name = f"stagekit.fmod.{form.suffix}"
    if not module.has_function(name):
        for intrinsic, args in (("fabs", 1), ("trunc", 1), ("copysign", 2), ("fma", 3)):
            module.declare(f"{held} @llvm.{intrinsic}.{form.suffix}({', '.join([held] * args)})")
        module.add_function(name, _TEMPLATE.substitute(name=name, T=held, S=form.suffix, step=form.step))
    return name


_TEMPLATE = Template("""\
define internal $T @$name($T %x, $T %y) alwaysinline nounwind {
entry:
  %x.abs = call $T @llvm.fabs.$S($T %x)
  %y.abs = call $T @llvm.fabs.$S($T %y)
  %x.finite = fcmp olt $T %x.abs, 0x7FF0000000000000
  %y.positive = fcmp ogt $T %y.abs, 0.0
  %valid = and i1 %x.finite, %y.positive
  br i1 %valid, label %start, label %exit
start:
  %started = fcmp oge $T %x.abs, %y.abs
  br i1 %started, label %scale, label %exit
scale:
  %r = phi $T [ %x.abs, %start ], [ %r.next, %reduce ]
  br label %grow
grow:
  %t = phi $T [ %y.abs, %scale ], [ %t.next, %grow ]
  %ratio = fdiv $T %r, %t
  %t.next = fmul $T %t, $step
  %far = fcmp ogt $T %ratio, $step
  br i1 %far, label %grow, label %reduce
reduce:
  %q = call $T @llvm.trunc.$S($T %ratio)
  %q.neg = fneg $T %q
  %rest = call $T @llvm.fma.$S($T %q.neg, $T %t, $T %r)
  %over = fcmp olt $T %rest, 0.0
  %back = fadd $T %rest, %t
  %r.next = select i1 %over, $T %back, $T %rest
  %more = fcmp oge $T %r.next, %y.abs
  br i1 %more, label %scale, label %exit
exit:
  %size = phi $T [ 0x7FF8000000000000, %entry ], [ %x.abs, %start ], [ %r.next, %reduce ]
  %result = call $T @llvm.copysign.$S($T %size, $T %x)
  ret $T %result
}""")
