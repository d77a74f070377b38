"""R15: a parameter may have any name, and `@sk.inline` may stand above any `def`."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.sources import module_of

# What functions of ours, on the way from a call to the kernel, call their own parameters.
NAMES = """
    self cls fn func function args kwargs key values target kernel brackets options outer fixed whole given constexprs name
    call tracer frame node owner run entry arguments signature request block grid stream launch device variant mapper spec
    callable obj iterable shape dtype size mark context error diagnostic loc
""".split()

KERNELS = """
    import stagekit as sk

    @sk.jit
    def plain({name}, out):
        out[0] = {name} + 1

    @sk.jit
    def fixed({name}: sk.constexpr, out):
        out[0] = {name} + 1

    @sk.jit
    def entry(out, {name}: sk.int32):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
        out[0] = {name} + 1

    @sk.inline
    def fragment(*, {name}):
        return {name} + 1

    def helper({name}=0, **rest):
        return {name} + len(rest)

    class Callable:
        def __init__(me, {name}):
            me.value = {name}

        def __call__(me, {name}=1):
            return {name} + 0

    @sk.jit
    def inner(x, out):
        nested = lambda *, {name}: {name} + 1
        made = dict({name}=x, **{{"another": 1}})
        value = fragment({name}=x) + helper({name}=x, other=1) + nested({name}=x) + Callable({name}=x).value
        out[0] = value + Callable(0)({name}=x) + made["{name}"]
"""


@pytest.fixture
def out():
    return np.zeros(2, np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_of_any_name_is_given_by_keyword(tmp_path, name, out):
    module = module_of(tmp_path, KERNELS.format(name=name))
    five = {name: 5}

    for launch in (
        lambda: module.plain[1, 1](out=out, **five),
        lambda: module.plain.specialize(**{name: sk.int32})[1, 1](out=out, **five),
        lambda: sk.compile(module.plain.specialize(), "cpu")[1, 1](out=out, **five),
        lambda: sk.compile(module.fixed.specialize(**five), "interp").specialize(**five)[1, 1](out=out),
        lambda: module.plain.prepare[1, 1](out=out, **five)(),
        lambda: module.fixed[1, 1](out=out, **five),
        lambda: module.fixed.specialize(**five).specialize(**five)[1, 1](out),
        lambda: sk.sanitize(module.fixed).specialize(**five)[1, 1](out),
        lambda: sk.sanitize(module.plain)[1, 1](out=out, **five),
        lambda: module.entry(out, **five),
        lambda: module.entry.prepare(out, **five)(),
    ):
        for _ in range(2):  # the general way, then the native one
            out[0] = 0
            launch()
            assert out[0] == 6


@pytest.mark.parametrize("name", NAMES)
def test_a_function_in_a_kernel_is_given_any_name_by_keyword(tmp_path, name, out):
    module = module_of(tmp_path, KERNELS.format(name=name))

    module.inner[1, 1](5, out)

    assert out[0] == 6 + 6 + 6 + 5 + 5 + 5
    assert module.fragment(**{name: 5}) == 6


def test_inline_above_a_nested_def_means_what_it_means_elsewhere(out):
    @sk.inline
    def outside(x):
        @sk.inline
        def twice(v):
            @sk.inline
            def once(w):
                return w + x

            return once(once(v))

        return twice(x)

    @sk.jit
    def kernel(out, n):
        @sk.inline
        def add(i, v=2):
            nonlocal n
            if i < n:
                out[i] = v + outside(i + 1)
                n -= 1

        fragment = sk.inline(lambda i: add(i, v=3))
        add(0)
        fragment(1)

    kernel[1, 1](out, 3)

    assert out.tolist() == [2 + 3, 3 + 6]


def test_decorators_of_functools_and_of_the_user_work_in_a_kernel(out):
    def traced(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs) + 10

        return wrapper

    @sk.jit
    def kernel(out, x):
        def again(fn):
            @functools.wraps(fn)
            @sk.inline
            def wrapper(v):
                return fn(v) * 2

            return wrapper

        @traced
        @sk.inline
        def first(v):
            return v + 1

        @sk.inline
        @again
        @again
        def second(v):
            return v + 1

        out[0] = first(x)
        out[1] = second(x)

    kernel[1, 1](out, 5)

    assert out.tolist() == [16, 24]


@pytest.mark.parametrize("decorator", [sk.jit, sk.function])
def test_a_kernel_is_not_defined_inside_a_kernel(decorator, out):
    @sk.jit
    def kernel(out):
        @decorator
        def nested(v):
            return v

        out[0] = nested(1)

    with pytest.raises(sk.StagekitError, match="`nested`, defined inside a kernel") as caught:
        kernel[1, 1](out)
    assert caught.value.id == "NOT_A_FUNCTION"
