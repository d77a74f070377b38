"""R25: an object whose own methods raise, lie or never end is refused in words, wherever it stands in a launch."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from tests.cells import cell


class Odd(Exception):
    """No exception of ours, and none that Python's own methods raise."""


def _raises(*_, **__):
    raise Odd("odd")


def _with(base=object, **members):
    return type("Strange", (base,), members)


def _dlpack(device, capsule=_raises):
    return _with(__dlpack_device__=lambda self: device, __dlpack__=capsule)()


def _cuda(interface):
    return _with(__cuda_array_interface__=interface)()


class Itself:
    def __getattr__(self, name):
        return self


class Endless:
    def __getattr__(self, name):
        return getattr(self, name)


class Unlooked:
    def __getattribute__(self, name):
        raise Odd(name)


ROUND = []
ROUND.append(ROUND)
EVERYTHING = (
    "__repr__", "__str__", "__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__getitem__", "__index__", "__float__",
    "__int__", "__getattr__",
)  # fmt: skip
OBJECTS = {
    "dlpack raises": _dlpack((1, 0)),
    "dlpack gives nothing": _dlpack((1, 0), lambda self, **_: None),
    "dlpack gives a number": _dlpack((1, 0), lambda self, **_: 5),
    "dlpack device raises": _with(__dlpack_device__=_raises, __dlpack__=_raises)(),
    "dlpack device is nothing": _dlpack(None),
    "dlpack device is text": _dlpack("ab"),
    "cuda interface is None": _cuda(None),
    "cuda interface is empty": _cuda({}),
    "cuda interface is a number": _cuda(5),
    "cuda interface raises": _cuda(property(_raises)),
    "cuda interface has no shape": _cuda({"data": (0, False), "typestr": "<f4", "shape": None}),
    "any attribute is itself": Itself(),
    "attributes without end": Endless(),
    "no attribute can be read": Unlooked(),
    "its class raises": _with(__class__=property(_raises))(),
    "a list that holds itself": ROUND,
    "a dict that holds itself": {"a": ROUND},
    "an int that lies": _with(int, __index__=_raises, __int__=_raises, __repr__=_raises)(3),
    "a text that raises": _with(str, __eq__=_raises, __hash__=_raises, __repr__=_raises)("x"),
    "a list that raises": _with(list, __iter__=_raises, __len__=_raises, __getitem__=_raises)([1]),
    "half a pair": "a\ud800b",
    "a long number": 10**5000,
    "a generator": (_raises() for _ in "a"),
    "everything raises": _with(**dict.fromkeys(EVERYTHING, _raises))(),
    **{f"{name} raises": _with(**{name: _raises})() for name in (
        "__repr__", "__eq__", "__hash__", "__bool__", "__len__", "__index__", "__int__", "__float__", "__iter__", "__call__",
        "__str__", "__array__", "__getitem__", "__lt__", "__add__", "__format__")},
}  # fmt: skip


@sk.jit
def untyped(out, a):
    out[0] = 1


@sk.jit
def typed(out, a: sk.Tensor((None,), sk.float32) | None):
    out[0] = 1


@sk.jit
def pointer(out, a: sk.Pointer(sk.float32)):
    out[0] = 1


@sk.jit
def scalar(out, a: sk.float32):
    out[0] = a


@sk.jit
def integer(out, a: sk.int32):
    out[0] = a


@sk.jit
def static_int(out, a: sk.constexpr[int]):
    out[0] = a


def out():
    return np.zeros(4, np.float32)


def _annotated(annotation):
    @sk.jit
    def kernel(out, a: annotation()):
        out[0] = 1

    kernel[1, 1](out(), np.zeros(3, np.float32))


PLACES = {
    "untyped": lambda a: untyped[1, 1](out(), a),
    "by keyword": lambda a: untyped[1, 1](a=a, out=out()),
    "prepared": lambda a: untyped.prepare[1, 1](out(), a),
    "typed": lambda a: typed[1, 1](out(), a),
    "pointer": lambda a: pointer[1, 1](out(), a),
    "scalar": lambda a: scalar[1, 1](out(), a),
    "integer": lambda a: integer[1, 1](out(), a),
    "constexpr": lambda a: static_int[1, 1](out(), a),
    "specialize": lambda a: static_int.specialize(a=a),
    "type": lambda a: untyped.specialize(a=a),
    "brackets": lambda a: untyped[a](out(), 1),
    "grid and block": lambda a: untyped[a, a](out(), 1),
    "stream": lambda a: untyped[1, 1, 0, a](out(), 1),
    "launch config": lambda a: untyped[sk.cuda.LaunchConfig(grid=a, block=1)](out(), 1),
    "sanitized": lambda a: sk.sanitize(untyped)[1, 1](out(), a),
    "shape": lambda a: _annotated(lambda: sk.Tensor(a, sk.float32)),
    "size": lambda a: _annotated(lambda: sk.Tensor((a,), sk.float32)),
    "dtype": lambda a: _annotated(lambda: sk.Tensor((None,), a)),
    "strides": lambda a: _annotated(lambda: sk.Tensor((None,), sk.float32, strides=a)),
    "align": lambda a: _annotated(lambda: sk.Tensor((None,), sk.float32, align=a)),
    "pointed": lambda a: _annotated(lambda: sk.Pointer(a)),
    "annotation": lambda a: _annotated(lambda: a),
    "class of a constexpr": lambda a: _annotated(lambda: sk.constexpr[a]),
    "name of a size": lambda a: sk.dynamic(a),
    "beside a size": lambda a: sk.dynamic("n") + a,
    "converted": lambda a: sk.float32(a),
    "computed": lambda a: sk.exp(a),
    "one of two": lambda a: sk.maximum(np.zeros(2), a),
    "chosen": lambda a: sk.where(True, 1, a),
    "chosen by": lambda a: sk.where(a, 1, 2),
    "bound of a loop": lambda a: sk.static_range(a),
    "asserted": lambda a: sk.static_assert(a),
    "printed": lambda a: sk.static_print(a),
    "shape on the device": lambda a: sk.cuda.empty(a, sk.float32),
    "dtype on the device": lambda a: sk.cuda.empty(3, a),
    "target": lambda a: sk.jit(target=a)(untyped.function),
    "budget": lambda a: sk.jit(unroll_budget=a)(untyped.function),
    "flag": lambda a: sk.jit(fastmath=a)(untyped.function),
    "order": lambda a: sk.sanitize(untyped, order=a),
    "type in brackets": lambda a: sk.jit(lambda out, x: None).specialize(x=sk.Tensor((a,), a)),
    "decorated": lambda a: sk.jit(a),
    "compiled": lambda a: sk.compile(a),
    "given to sanitize": lambda a: sk.sanitize(a),
}
PACKAGE = str(Path(sk.__file__).parent)


def refusal_of(call):
    try:
        call()
    except sk.StagekitError as error:
        return error
    return None


@pytest.mark.parametrize("place", PLACES)
def test_an_odd_object_is_refused_in_words_or_works(place):
    for name, odd in OBJECTS.items():
        with cell(name):
            refusal = refusal_of(lambda odd=odd: PLACES[place](odd))
            if refusal is not None:
                assert str(refusal)
                assert [f for f in traceback.extract_tb(refusal.__traceback__) if f.filename.startswith(PACKAGE)] == []


def test_an_array_whose_owner_raises_says_what_it_raised():
    with pytest.raises(sk.StagekitError, match="odd") as caught:
        untyped[1, 1](out(), OBJECTS["dlpack raises"])
    assert caught.value.id == "UNREADABLE_ARRAY"


@pytest.mark.parametrize("name", ["no attribute can be read", "its class raises"])
def test_a_captured_object_that_raises_when_looked_at_is_refused_at_the_line(name):
    captured = OBJECTS[name]

    @sk.jit
    def kernel(out):
        value = captured
        out[0] = 1 if value is None else 2

    with pytest.raises(sk.StagekitError, match="Odd") as caught:
        kernel[1, 1](out())
    assert caught.value.id == "STATIC_FAILURE"


# -- used in a kernel -------------------------------------------------------------------------------------------------------

CAPTURED = None


@sk.jit(unroll_budget=1_000)
def iterates(out, n):
    for _ in CAPTURED:
        out[0] = 1
        if n == 3:  # a huge range has 10**18 numbers, and each iteration is run
            break


@sk.jit
def lists(out, n):
    out[0] = len(list(CAPTURED))


@sk.jit
def calls(out, n):
    out[0] = CAPTURED(n)


@sk.jit
def asks(out, n):
    if CAPTURED:
        out[0] = 1


@sk.jit
def looks(out, n):
    out[0] = CAPTURED.name


@sk.jit
def indexes(out, n):
    out[0] = CAPTURED[0]


@sk.jit
def is_index(out, n):
    out[CAPTURED] = 1


@sk.jit
def stores(out, n):
    out[0] = CAPTURED


@sk.jit
def adds(out, n):
    out[0] = n + CAPTURED


@sk.jit
def repeats(out, n):
    out[0] = len([0] * CAPTURED)


@sk.jit
def shows(out, n):
    print(CAPTURED, n)  # noqa: T201


@sk.jit
def formats(out, n):
    out[0] = len(f"{CAPTURED}")


@sk.jit
def unpacks(out, n):
    a, b = CAPTURED
    out[0] = 1 if a is b else 2


@sk.jit
def enters(out, n):
    with CAPTURED:
        out[0] = 1


@sk.jit
def matches(out, n):
    match CAPTURED:
        case [_, _]:
            out[0] = 1
        case {"a": _}:
            out[0] = 2
        case _:
            out[0] = 3


@sk.jit
def is_in(out, n):
    out[0] = n in CAPTURED


@sk.jit
def is_equal(out, n):
    out[0] = n == CAPTURED


@sk.jit
def meets(out, n):
    x = CAPTURED
    if n > 1:
        x = 1
    out[0] = x


@sk.jit
def is_key(out, n):
    out[0] = len({CAPTURED: 1})


@sk.jit
def negates(out, n):
    out[0] = -CAPTURED


@sk.jit
def is_text(out, n):
    out[0] = sk.inline_asm(CAPTURED, "=r", (), sk.int32, host=lambda: 1)


@sk.jit
def unrolls(out, n):
    for i in range(n, unroll=CAPTURED):
        out[0] = i


@sk.jit
def allocates(out, n):
    sk.alloc_local((CAPTURED,), sk.float32)
    out[0] = 1


KERNELS = (
    iterates, lists, calls, asks, looks, indexes, is_index, stores, adds, repeats, shows, formats, unpacks, enters, matches,
    is_in, is_equal, meets, is_key, negates, is_text, unrolls, allocates,
)  # fmt: skip


class Growing:
    def __getattr__(self, name):
        return getattr(self, name + "_")


class Unending:
    def __len__(self):
        return 10**30

    def __getitem__(self, index):
        return index


class Answering(type):
    def __getattr__(cls, name):
        return cls


HUGE = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))
MORE = {
    "a negative long number": -(10**5000),
    "a number past all floats": 10**400,
    "names that grow": Growing(),
    "items without end": Unending(),
    "its metaclass answers to any name": Answering("Strange", (), {})(),
    "its dict is none": _with(__dict__=5)(),
    "its key is none": _with(__stagekit_key__=5)(),
    "a huge array": HUGE,
    "a huge range": range(10**18),
    "a range longer than any length": range(10**30),
    "a date": np.datetime64("2020-01-01"),
    "a duration": np.timedelta64(3, "s"),
    "raw bytes of NumPy": np.void(b"abc"),
    "a text of NumPy": np.str_("a"),
    "a complex number": np.complex64(1j),
}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_an_odd_object_in_a_kernel_is_refused_at_its_line_or_works(kernel, monkeypatch, capsys):
    for name, odd in {**OBJECTS, **MORE}.items():
        monkeypatch.setitem(globals(), "CAPTURED", odd)
        with cell(name):
            refusal = refusal_of(lambda: kernel[1, 1](out(), 3))
            if refusal is not None:
                assert refusal.loc is not None
                assert refusal.loc.file == __file__
                assert len(str(refusal)) < 4000
