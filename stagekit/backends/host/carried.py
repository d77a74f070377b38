"""The carried values of a loop: each keeps the form of its initial value, as long as the body hands it on in that form.

    i = tid; loop: i = i + 32            Linear(phi, (0, 1, ..)): one scalar phi carries it
    acc = 0.0; loop: acc = acc + x[i]    begins as one scalar, comes back as a vector: a vector phi carries it

The code of the body depends on the forms of what it reads, and their last forms are known only when the body is written. So the
loop is written on the assumption that every form is kept. `fit` compares, at the end of the body. Where a value came back in a
less regular form, `until_it_fits` deletes the loop and writes it again with that value as a vector (`forced_vectors`): at most
once for each carried value, twice for a pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from stagekit import dtypes
from stagekit.backends.host.forms import LANES, Form, Gep, Linear, Mask, Uniform, Varying, unknown
from stagekit.backends.host.joins import has_pattern_of
from stagekit.backends.host.pointers import address_of, as_full, as_index, at, full_vector, scalar_pointer
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.blocks import OpenPhi, open_phi
from stagekit.backends.llvm.types import llvm_type
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen
from stagekit.ir import INDEX, Pointer, Type, Value
from stagekit.ir.intervals import Interval

T = TypeVar("T")


@frozen()
class Carried:
    """A value that an open loop carries: `form` is how the body sees it, `phi` the part of the form that changes."""

    param: Value
    form: Form
    phi: OpenPhi
    moves_base: bool  # of an address: the pointer changes, not the index

    def after(self, warp: Warp, latest: str, back: str) -> Form:
        """Return the form after a loop that is left from its entry or from the block `back`."""
        return _with_part(self.param.type, self.form, self.phi.after(warp.w, latest, back), self.moves_base)


def until_it_fits(warp: Warp, attempt: Callable[[], T | None]) -> T:
    """Write a loop again until every carried value has a form that it keeps."""
    mark = warp.w.mark()
    while (found := attempt()) is None:
        warp.w.rewind(mark)
    return found


def prepare(warp: Warp, params: Sequence[Value], inits: Sequence[Form]) -> tuple[Form, ...]:
    """Return the initial values in the forms in which the loop will carry them. Call it before the loop's first block."""
    return tuple([_prepared(warp, p, init) for p, init in zip(params, inits, strict=True)])


def _prepared(warp: Warp, param: Value, init: Form) -> Form:
    if param in warp.kernel.forced_vectors:
        return as_full(param.type, full_vector(warp, param.type, init))
    if isinstance(init, Gep):
        return _prepared_address(warp, param, init)
    if isinstance(init, Uniform | Linear):
        return init
    return as_full(param.type, full_vector(warp, param.type, init))


def _prepared_address(warp: Warp, param: Value, init: Gep) -> Form:
    """Return an address as a fixed base with a changing index; once forced, as a changing pointer or a pointer per lane."""
    assert isinstance(param.type, Pointer)
    if param in warp.kernel.forced_pointers or isinstance(init.base, Varying):
        pointer = scalar_pointer(warp, param.type, init)
        return at(pointer) if pointer else as_full(param.type, full_vector(warp, param.type, init))
    if isinstance(init.index, Varying):
        return Gep(init.base, Varying(full_vector(warp, INDEX, init.index), Interval.of(dtypes.INDEX)))
    return init


def open_all(warp: Warp, params: Sequence[Value], inits: Sequence[Form], entry: str) -> list[Carried]:
    """Begin the loop's first block: write a phi per prepared value, and give `params` their forms."""
    opened = [_open(warp, param, init, entry) for param, init in zip(params, inits, strict=True)]
    for carried in opened:
        warp[carried.param] = carried.form
    return opened


def _open(warp: Warp, param: Value, init: Form, entry: str) -> Carried:
    moves_base = isinstance(init, Gep) and (isinstance(init.base, Varying) or param in warp.kernel.forced_pointers)
    part = _changing_part(init, moves_base)
    lanes = None if isinstance(part, Uniform | Linear) else LANES
    held = llvm_type(INDEX if isinstance(init, Gep) and not moves_base else param.type, lanes)
    slot = open_phi(warp.w, held, part.base.text if isinstance(part, Linear) else part.text, entry)
    return Carried(param, _with_part(param.type, init, slot.name, moves_base), slot, moves_base)


def _changing_part(form: Form, moves_base: bool) -> Uniform | Linear | Varying | Mask:
    """Return the part of a prepared form that a phi carries."""
    if isinstance(form, Gep):
        return form.base if moves_base else form.index
    return form


def _with_part(type_: Type, form: Form, name: str, moves_base: bool) -> Form:
    """Return `form`, a value of `type_`, with `name` as the part that changes, of whose value nothing is known."""
    match form:
        case Gep() if moves_base:
            return replace(form, base=replace(form.base, text=name))
        case Gep():
            return replace(form, index=as_index(_with_part(INDEX, form.index, name, moves_base)))
        case Linear():
            return replace(form, base=Uniform(name, unknown(type_.dtype)))
        case Mask():
            return Mask(name)
    return replace(form, text=name, interval=unknown(type_.dtype))


def fit(warp: Warp, opened: Sequence[Carried], latest: Sequence[Form]) -> list[str] | None:
    """Return the phis' operands, written at the end of the body. Where a form was not kept, note that and return None."""
    texts = [_fitting(warp, c, form) for c, form in zip(opened, latest, strict=True)]
    misfits = [carried.param for carried, text in zip(opened, texts, strict=True) if text is None]
    for param in misfits:
        _force(warp, param)
    return None if misfits else [text for text in texts if text is not None]


def _force(warp: Warp, param: Value) -> None:
    """Carry `param` in a less regular form from now on."""
    kernel = warp.kernel
    if param in kernel.forced_vectors:
        raise InternalError("a loop's carried value does not fit a vector")
    if isinstance(param.type, Pointer) and param not in kernel.forced_pointers:
        kernel.forced_pointers.add(param)
    else:
        kernel.forced_vectors.add(param)


def _fitting(warp: Warp, carried: Carried, latest: Form) -> str | None:
    form, type_ = carried.form, carried.param.type
    if not isinstance(form, Gep):
        return _fitting_number(warp, type_, form, latest)
    moved = address_of(latest)
    if not carried.moves_base:
        return _fitting_number(warp, INDEX, form.index, moved.index) if moved.base == form.base else None
    assert isinstance(type_, Pointer)
    return scalar_pointer(warp, type_, moved) if isinstance(form.base, Uniform) else full_vector(warp, type_, moved)


def _fitting_number(warp: Warp, type_: Type, form: Form, latest: Form) -> str | None:
    if isinstance(form, Uniform):
        return latest.text if isinstance(latest, Uniform) else None
    if isinstance(form, Linear):
        return latest.base.text if isinstance(latest, Linear) and has_pattern_of(form, latest) else None
    return full_vector(warp, type_, latest)


def close_all(warp: Warp, opened: Sequence[Carried], texts: Sequence[str], back: str) -> None:
    """Complete the phis: the operands `texts` come from the block `back`."""
    for carried, text in zip(opened, texts, strict=True):
        carried.phi.close(warp.w, text, back)
