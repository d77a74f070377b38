"""Facts: what a trace asks about the arguments of launches that it does not know yet, and takes for granted afterwards.

    sk.speculate(n % 8 == 0)                 a fact: the argument `n` is a multiple of 8
    is_multiple(src + row * stride, 16)      two: `src` begins at a multiple of 16 bytes, `stride` is a multiple of 4 elements
    is_multiple(row * 32, 16)                none: it is one, whatever the arguments

A question is answered with True where the answer follows from the code alone. Otherwise, where it is a function of the
arguments, the trace of the quick entry (`signature.KernelEntry`) answers with True and notes a fact: the launcher then sees to it
that the code runs only where the fact holds. The other entries answer with False, which means "not known".

An integer or an address is written as a sum of products, with coefficients that count modulo a power of two:

    address of src + 4 * row * stride        {(src,): 1, (row, stride): 4}

An unknown (the index of a block, of a thread, of an iteration, an element that was loaded) may be anything; so what stands
before it, here 4 * stride, has to be a multiple by itself. Sums, products and shifts wrap in the width of their dtype, which
keeps multiples of powers of two up to that width, and of no other numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stagekit.dtypes import DType, bool_, uint64
from stagekit.frozen import frozen
from stagekit.hostexpr import KINDS, HostExpr, HostOp, Slot
from stagekit.ir import INDEX, BinaryKind, Builder, Op, Pointer, Scalar, Value, flow, ops
from stagekit.ir.intervals import Interval, Intervals
from stagekit.ir.ops import CompareKind, UnaryKind

_WORD = 64  # bits; sums of products count modulo 2**64
_MOST_TERMS = 8  # of a sum; longer ones are unknown as a whole

Product = tuple[Value, ...]  # factors, each an argument or an unknown; none for the number 1


class Polynomial(NamedTuple):
    """The sum of coefficient * product, which is right modulo 2**bits."""

    terms: Mapping[Product, int]
    bits: int = _WORD

    def plus(self, other: Polynomial, factor: int = 1) -> Polynomial:
        """Return `self + factor * other`."""
        terms = dict(self.terms)
        for product, coefficient in other.terms.items():
            terms[product] = terms.get(product, 0) + factor * coefficient
        return Polynomial({p: c % 2**_WORD for p, c in terms.items() if c % 2**_WORD}, min(self.bits, other.bits))

    def times(self, other: Polynomial) -> Polynomial:
        found = Polynomial({}, min(self.bits, other.bits))
        for p, c in self.terms.items():
            found = found.plus(Polynomial({tuple(sorted((*p, *q), key=id)): d for q, d in other.terms.items()}), c)
        return found

    def held_by(self, value: Value) -> Polynomial:
        """Return what is right of it in the width of a value."""
        return self if isinstance(value.type, Pointer) else self._replace(bits=min(self.bits, value.type.dtype.bits))


@frozen()
class Multiple:
    """The fact that a sum of products of arguments is a multiple of `divisor`."""

    terms: tuple[tuple[Product, int], ...]
    divisor: int


@frozen()
class Predicate:
    """The fact that an expression of the arguments is not 0, in the words of the user's line."""

    holds: HostExpr
    text: str


class Argument(NamedTuple):
    """A parameter of the kernel in machine code: its number among all, and what texts call it."""

    slot: int
    text: str


class Question(NamedTuple):
    """Whether a value is a multiple was asked, and answered so."""

    value: Value
    divisor: int
    answer: bool


class Unanswerable(Exception):
    """Raised where a question does not depend on the arguments alone. Its text says why."""


class Facts:
    """The questions of one trace. is_quick: whether what depends on arguments may be taken for granted.

    arguments: the parameters. loops: by the index of a loop, where it starts and its step. asked: the facts so far, in order.
    missed: the values that have stood in the way of an answer.
    """

    def __init__(self, builder: Builder, intervals: Intervals, *, is_quick: bool) -> None:
        self.builder = builder
        self.intervals = intervals
        self.is_quick = is_quick
        self.arguments: dict[Value, Argument] = {}
        self.loops: dict[Value, tuple[Value, Value]] = {}
        self.asked: list[Multiple | Predicate] = []
        self.missed: set[Value] = set()
        self._multiples: set[tuple[Value, int]] = set()  # what is known, or taken for granted, by the facts so far
        self._sums: dict[Value, Polynomial] = {}
        self._iterations: dict[Value, Value] = {}
        self._inside: dict[Value, Op] = {}  # the ops that are under a condition, by their results

    # -- multiples ----------------------------------------------------------------------------------------------

    def ask(self, value: Value, divisor: int) -> bool:
        """Return `is_multiple`, where no argument may be off; False where that has no answer."""
        log, self.builder.log = self.builder.log, None
        try:
            answer = (value, divisor) in self._multiples or self.is_multiple(value, divisor, may_be_off=False)
        except Unanswerable:
            answer = False
        self.builder.log = log
        if log is not None:
            log.append(Question(value, divisor, answer))
        return answer

    def is_multiple(self, value: Value, divisor: int, *, may_be_off: bool = True) -> bool:
        """Return whether an integer, or an address in bytes, is known to be a multiple, or is taken for one from now on.

        may_be_off: an argument that misses it by a constant may be asked for, as `a % 8 == 7` for a + 1.
        Raises Unanswerable where that would have to be known of something else than arguments.
        """
        self.builder.spoil_log()
        if (value, divisor) in self._multiples:
            return True
        found = self._is_known_multiple(value, divisor, may_be_off)
        if found:
            self._multiples.add((value, divisor))
        return found

    def _is_known_multiple(self, value: Value, divisor: int, may_be_off: bool) -> bool:
        if isinstance(value.type, Scalar) and self.intervals[value].multiple % divisor == 0:
            return True
        if divisor & (divisor - 1):
            return self._is_argument_multiple(value, divisor)
        found = self._sum(value)
        if divisor > 1 << found.bits:
            found = Polynomial({(value,): 1})
        needed = []
        for unknown, terms in self._by_unknowns(found).items():
            left = self._reduced(terms, divisor)
            if unknown and left:
                self.missed.update(unknown)
            if unknown and left and not any(left):
                raise Unanswerable("it depends on more than the arguments")
            if left:
                needed.append(left)
        if not may_be_off and any(() in each for each in needed):
            return False
        return all(self._may_hold(each, divisor) for each in needed) and self._take(needed, divisor)

    # -- conditions ---------------------------------------------------------------------------------------------

    def holds(self, condition: Value, text: str) -> bool:
        """Return whether a bool is known to be true, or is taken for true from now on. text: the user's, for what is new.

        Raises Unanswerable where it is no function of the arguments.
        """
        self.builder.spoil_log()
        op = self._definition_of(condition)
        match op:
            case ops.Constant():
                return bool(op.value)
            case ops.Binary(kind=BinaryKind.AND):
                return self.holds(op.lhs, text) and self.holds(op.rhs, text)
            case ops.Select() | ops.If() if both := self._conjunction(op, condition):
                return self.holds(both[0], text) and self.holds(both[1], text)
        question = self._remainder(op)
        if question is not None:
            with contextlib.suppress(Unanswerable):  # as of a sum that may wrap: the launcher computes that
                return self.is_multiple(*question)
        expression = self._on_host(condition)
        if self.is_quick:
            self.note([Predicate(expression, text)])
        return self.is_quick

    def _definition_of(self, value: Value) -> Op | None:
        return self._inside.get(value) or self.builder.definition_of(value)

    def _arms(self, op: ops.Select | ops.If, result: Value) -> tuple[Value, Value, Value]:
        """Return the condition of a choice, and the values that it chooses from."""
        if isinstance(op, ops.Select):
            return op.condition, op.if_true, op.if_false
        self._inside.update((v, each) for body in op.bodies() for each in body.ops for v in each.results)
        then, otherwise = (flow.end_of(body)[op.results.index(result)] for body in op.bodies())
        return op.condition, then, otherwise

    def _conjunction(self, op: ops.Select | ops.If, result: Value) -> tuple[Value, Value] | None:
        """Return the operands of `a and b`: `b if a else False`, or `a if not a else b`."""
        condition, then, otherwise = self._arms(op, result)
        if self._is_false(otherwise):
            return condition, then
        negated = self._definition_of(condition)
        is_same = isinstance(negated, ops.Unary) and negated.kind is UnaryKind.NOT and negated.operand is then
        return (then, otherwise) if is_same else None

    def _is_false(self, value: Value) -> bool:
        op = self._definition_of(value)
        return isinstance(op, ops.Constant) and not op.value

    def _remainder(self, op: Op | None) -> tuple[Value, int] | None:
        """Return x and n of `x % n == 0`, or of `x & (n - 1) == 0` with a power of two."""
        if not isinstance(op, ops.Compare) or op.kind is not CompareKind.EQ or not self._is_false(op.rhs):
            return None
        made = self._definition_of(op.lhs)
        if not isinstance(made, ops.Binary) or made.kind not in (BinaryKind.MOD, BinaryKind.AND):
            return None
        divisor = self.intervals[made.rhs].constant
        if divisor is not None and made.kind is BinaryKind.AND:
            divisor = divisor + 1 if divisor & (divisor + 1) == 0 else None
        return (made.lhs, divisor) if divisor is not None and divisor > 0 else None

    def _on_host(self, value: Value) -> HostExpr:
        """Return an integer or a bool as an expression of the parameters, which wraps as the value does."""
        if value in self.arguments:
            _check_on_host(value)
            return Slot(self.arguments[value].slot)
        dtype, op = value.type.dtype, self._definition_of(value)
        match op:
            case ops.Constant():
                found: HostExpr = int(op.value)
            case ops.Cast() if dtype is bool_:
                found = HostOp("ne", (self._on_host(op.operand), 0))
            case ops.Cast():
                found = self._on_host(op.operand)
            case ops.Unary(kind=UnaryKind.NOT) if dtype is bool_:
                found = HostOp("eq", (self._on_host(op.operand), 0))
            case ops.Select() | ops.If():
                found = HostOp("select", tuple(map(self._on_host, self._arms(op, value))))
            case _ if op is not None and (kind := _kind_on_host(op)) in KINDS:
                found = HostOp(kind, tuple(map(self._on_host, op.operands())))
            case _:
                raise Unanswerable("it depends on more than the arguments")
        _check_on_host(value)
        return found if isinstance(found, int) else _wrapped(found, dtype)

    def _is_argument_multiple(self, value: Value, divisor: int) -> bool:
        """Answer for a divisor that is no power of two, of an argument alone: a sum or a product may have wrapped."""
        while isinstance(op := self._definition_of(value), ops.Cast) and _is_widening(op):
            value = op.operand
        if value not in self.arguments or isinstance(value.type, Pointer):
            raise Unanswerable(f"a result of arithmetic may wrap, and {divisor} is no power of two")
        _check_on_host(value)
        return self._take([{(value,): 1}], divisor)

    def _by_unknowns(self, found: Polynomial) -> dict[Product, dict[Product, int]]:
        """Return the sums of products of arguments that stand before each product of unknowns."""
        groups: dict[Product, dict[Product, int]] = {}
        for product, coefficient in found.terms.items():
            unknown = tuple(v for v in product if v not in self.arguments)
            known = tuple(v for v in product if v in self.arguments)
            groups.setdefault(unknown, {})[known] = coefficient
        return groups

    def _reduced(self, terms: Mapping[Product, int], divisor: int) -> dict[Product, int]:
        """Return the part of a sum that is not known to be a multiple."""
        return {p: c % divisor for p, c in terms.items() if c * self._divisor_of(p) % divisor}

    def _divisor_of(self, product: Product) -> int:
        """Return a power of two that divides a product of arguments."""
        known = [f.divisor for f in self.asked if isinstance(f, Multiple) and f.terms == ((product, 1),)]
        if len(product) == 1:
            known.append(self.intervals[product[0]].multiple)
        else:
            known.append(math.prod([self._divisor_of((value,)) for value in product]))
        return max(map(_power_of_two, known))

    def _may_hold(self, terms: Mapping[Product, int], divisor: int) -> bool:
        """Return whether a sum may be a multiple at all, by its constant part and by the facts that hold already."""
        rest = {p: c for p, c in terms.items() if p}
        constant = terms.get((), 0)
        if constant % math.gcd(divisor, *[c * self._divisor_of(p) for p, c in rest.items()]):
            return False
        for fact in self.asked:
            known = dict(fact.terms) if isinstance(fact, Multiple) else {}
            common = math.gcd(fact.divisor, divisor) if isinstance(fact, Multiple) else 1
            other = known.pop((), 0)
            same = known.keys() == rest.keys() and all((known[p] - rest[p]) % common == 0 for p in rest)
            if same and (other - constant) % common:
                return False
        return True

    def _take(self, needed: list[dict[Product, int]], divisor: int) -> bool:
        """Take it for granted that these sums are multiples, in the quick entry; return whether that is so."""
        if needed and not self.is_quick:
            return False
        for terms in needed:
            common = math.gcd(divisor, *terms.values())  # 4 * n is a multiple of 16 where n is one of 4
            rows = ((p, c // common) for p, c in terms.items())
            plain = tuple(sorted(rows, key=lambda row: [self.arguments[value].slot for value in row[0]]))
            if len(plain) == 1 and divisor & (divisor - 1) == 0:
                plain = ((plain[0][0], 1),)  # what is left is odd
            self.note([Multiple(plain, divisor // common)])
        return True

    def note(self, facts: Iterable[Multiple | Predicate]) -> None:
        """Take facts for granted from now on."""
        self.asked += [fact for fact in facts if fact not in self.asked]

    def withdraw(self, count: int) -> list[Multiple | Predicate]:
        """Take back all facts but the first `count`, and return them."""
        withdrawn, self.asked[count:] = self.asked[count:], []
        if withdrawn:
            self._multiples.clear()
        return withdrawn

    # -- sums of products ---------------------------------------------------------------------------------------

    def _sum(self, value: Value) -> Polynomial:
        found = self._sums.get(value)
        if found is None:
            found = self._sums[value] = self._computed(value)
        return found

    def step(self, now: Value, before: Value) -> Polynomial | None:
        """Return `now - before`, if it is a sum of products of arguments: what each turn of a loop adds."""
        if not isinstance(now.type, Pointer) and not (isinstance(now.type, Scalar) and now.type.dtype.is_integer):
            return None
        apart = self._sum(now).plus(self._sum(before), -1)
        return apart if all(value in self.arguments for product in apart.terms for value in product) else None

    def carry(self, value: Value, start: Value | int, step: Polynomial) -> None:
        """Take `value`, which a loop carries, for `start` and some times `step` from now on."""
        begun = self._sum(start) if isinstance(start, Value) else Polynomial({(): start})
        self._sums[value] = begun.plus(step.times(Polynomial({(Value(INDEX, "turns"),): 1}))).held_by(value)

    def _computed(self, value: Value) -> Polynomial:
        if value in self.arguments:
            return Polynomial({(value,): 1})
        made = self._of_loop(value) if value in self.loops else self._of_op(self._definition_of(value))
        return self._unknown(value) if made is None or len(made.terms) > _MOST_TERMS else made.held_by(value)

    def _unknown(self, value: Value) -> Polynomial:
        """Return a value as an unknown, times what is known to divide it."""
        op = self._definition_of(value)
        if isinstance(op, ops.Alloc):
            divisor = op.align
        elif isinstance(op, ops.Table):
            divisor = ops.TABLE_ALIGN
        else:
            divisor = _power_of_two(self.intervals[value].multiple) if isinstance(value.type, Scalar) else 1
        return Polynomial({(value,): divisor})

    def _of_op(self, op: Op | None) -> Polynomial | None:
        match op:
            case ops.Constant() if not isinstance(op.value, float):
                return Polynomial({(): int(op.value)} if op.value else {})
            case ops.Offset():
                return self._sum(op.pointer).plus(self._sum(op.index), op.pointer.type.dtype.itemsize)
            case ops.Binary() if op.result.type.dtype.is_integer:
                return self._of_binary(op)
            case ops.Unary() if op.kind is UnaryKind.NEG and op.result.type.dtype.is_integer:
                return Polynomial({}).plus(self._sum(op.operand), -1)
            case ops.Cast() if _is_between_integers(op):
                return self._sum(op.operand)
            case ops.Bitcast() if isinstance(op.operand.type, Pointer):
                return self._sum(op.operand)
        return None

    def _of_binary(self, op: ops.Binary) -> Polynomial | None:
        match op.kind:
            case BinaryKind.ADD | BinaryKind.SUB:
                return self._sum(op.lhs).plus(self._sum(op.rhs), 1 if op.kind is BinaryKind.ADD else -1)
            case BinaryKind.MUL:
                return self._sum(op.lhs).times(self._sum(op.rhs))
            case BinaryKind.SHL:
                by = self.intervals[op.rhs].constant
                if by is not None and 0 <= by < op.result.type.dtype.bits:
                    return Polynomial({}).plus(self._sum(op.lhs), 1 << by)
        return None

    def _of_loop(self, index: Value) -> Polynomial:
        start, step = self.loops[index]
        iteration = self._iterations.setdefault(index, Value(index.type, index.name))
        return self._sum(start).plus(self._sum(step).times(Polynomial({(iteration,): 1})))

    # -- for the launcher ---------------------------------------------------------------------------------------

    def found(self) -> Iterator[tuple[HostExpr, str]]:
        """Yield each fact as an expression that is not 0 where it holds, and in words. What another one implies is left out."""
        for fact in self.asked:
            if isinstance(fact, Predicate):
                yield fact.holds, fact.text
            elif not any(_implies(other, fact) for other in self.asked):
                yield self._expression(fact), self._text(fact)

    def _expression(self, fact: Multiple) -> HostExpr:
        total: HostExpr = 0
        for product, coefficient in fact.terms:
            term: HostExpr = 1
            for factor in product:
                term = _op("mul", term, Slot(self.arguments[factor].slot))
            total = _op("add", total, _op("mul", term, coefficient))
        divisor = fact.divisor
        rest = ("and", (total, divisor - 1)) if divisor & (divisor - 1) == 0 else ("mod", (total, divisor))
        return HostOp("eq", (HostOp(*rest), 0))

    def _text(self, fact: Multiple) -> str:
        (product, coefficient), *others = fact.terms
        if not others and coefficient == 1 and len(product) == 1 and isinstance(product[0].type, Pointer):
            return f"`{product[0].name}` begins at a multiple of {fact.divisor} bytes"
        texts = [([str(c)] if c != 1 or not p else []) + [self._name(v) for v in p] for p, c in fact.terms]
        return f"{' + '.join(map(' * '.join, texts))} is a multiple of {fact.divisor}"

    def _name(self, value: Value) -> str:
        text = self.arguments[value].text
        return f"the address of {text}" if isinstance(value.type, Pointer) else text


def _op(kind: str, left: HostExpr, right: HostExpr) -> HostExpr:
    """Return a sum or a product, without adding 0 or multiplying by 1."""
    neutral = 0 if kind == "add" else 1
    if left == neutral or right == neutral:
        return right if left == neutral else left
    return HostOp(kind, (left, right))


def _check_on_host(value: Value) -> None:
    dtype = value.type.dtype
    if isinstance(value.type, Pointer) or not (dtype.is_integer or dtype is bool_) or dtype is uint64:
        what = "an address" if isinstance(value.type, Pointer) else f"a {dtype.name}"
        raise Unanswerable(f"it depends on {what}, and launches compute with integers up to int64")


def _kind_on_host(op: Op) -> str:
    """Return the key of `hostexpr.KINDS` for an op; an empty text where there is none."""
    match op:
        case ops.Binary() | ops.Unary() | ops.Compare():
            return str(op.kind.value)
        case ops.IntrinsicOp():
            return op.spec.extreme or ""
    return ""


def _wrapped(expression: HostExpr, dtype: DType) -> HostExpr:
    """Return what is left of an int64 in a dtype."""
    unused = _WORD - dtype.bits
    if not unused or dtype is bool_:
        return expression
    if dtype.is_signed:
        return HostOp("shr", (HostOp("shl", (expression, unused)), unused))
    return HostOp("and", (expression, (1 << dtype.bits) - 1))


def _power_of_two(number: int) -> int:
    """Return the greatest power of two that divides a number; of 0 one that is large enough."""
    return number & -number or 1 << _WORD


def _is_between_integers(op: ops.Cast) -> bool:
    return all(isinstance(each, Scalar) and each.dtype.is_integer for each in (op.operand.type, op.result.type))


def _is_widening(op: ops.Cast) -> bool:
    """Return whether the result of a cast is always the number that it casts."""
    return _is_between_integers(op) and Interval.of(op.operand.type.dtype).fits(op.result.type.dtype)


def _implies(other: Multiple | Predicate, fact: Multiple) -> bool:
    if not isinstance(other, Multiple) or other.terms != fact.terms:
        return False
    return other.divisor > fact.divisor and other.divisor % fact.divisor == 0
