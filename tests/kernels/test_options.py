"""Every factory refuses what is none of its options in words, before anything is traced, and takes NumPy's numbers as Python's.

Factories and their parameters are found, and what is wrong for a parameter follows from its annotation: a new factory needs a row
of `VALID` alone.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import typing
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import matrices, reducing

F16, F32, BF16 = sk.float16, sk.float32, sk.bfloat16
BY_ROWS = ((None, 1), (None, 1))
BLOCKS = (64, 64, 32, 128, 3)
OF_HEADS = (F16, 64, False, 1)

VALID: dict[str, tuple[Any, ...]] = {
    "adamw_kernel": (BF16, BF16, F32, 1, True, 1024),
    "argmax_kernel": (F32, 1024),
    "attention_backward_kv_kernel": (*OF_HEADS, (64, 64, 128)),
    "attention_backward_q_kernel": (*OF_HEADS, (64, 64, 128)),
    "attention_by_pairs_kernel": (64, False, 1, 32, 64),
    "attention_kernel": (*OF_HEADS, (64, 64, 128)),
    "attention_on_cpu_kernel": (*OF_HEADS, 32, 64),
    "batched_matmul_kernel": (F16, BLOCKS),
    "column_sums_kernel": (F32, F32, 128),
    "conv2d_kernel": (F32, (3, 3), (1, 1), (1, 1), (1, 1), (64, 64, 16, 64), "ieee"),
    "conv2d_of_rows_kernel": (F16, (3, 3), 1, (1, 1), 32, (64, 128, 32, 128, 3), "ieee"),
    "cross_entropy_kernel": (F32, sk.int64, 1024, True),
    "cumsum_kernel": (F32, 1024),
    "cumsum_of_long_tiles_kernel": (F32, 1024),
    "cumsum_of_stretches_kernel": (F32, 1024),
    "cumsum_rows_kernel": (F32, 1024),
    "dequantize_kernel": (sk.int8, F32, 128, 8),
    "dropout_kernel": (F32, 1, 1024),
    "elementwise_kernel": (abs, ((F32, 1),), (F32, 1), False, 1024),
    "embedding_backward_kernel": (F32, sk.int64, F32, 1024),
    "embedding_kernel": (F32, sk.int64, 1024),
    "few_rows_kernel": (F16, sk.int8, 128, False, 1, 1, 4),
    "fill_kernel": (sk.uint64, 1024),
    "filter_rows_kernel": (F16, 9, 32, 64),
    "grouped_matmul_kernel": (F16, 8, BLOCKS),
    "hopper_attention_backward_kernel": OF_HEADS,
    "hopper_attention_kernel": OF_HEADS,
    "hopper_attention_rounding_kernel": (F16, 64, 1),
    "hopper_attention_rows_kernel": (F16, 64, 1),
    "hopper_matmul_kernel": (F16, F16, (False, False), (64, 64), 4, None, ()),
    "joined_kernel": (F32, F16),
    "layernorm_kernel": (F32, F32, 1024, True, False),
    "matmul_kernel": (F16, F16, BY_ROWS, None, (), BLOCKS, "ieee", False),
    "norm_backward_kernel": (F32, F32, 1024, True, True),
    "partial_matmul_kernel": (F16, F32, BY_ROWS, BLOCKS, "ieee"),
    "quantize_int4_kernel": (F32, 128, 128),
    "quantize_kernel": (F32, sk.int8, 128, 8),
    "quantized_linear_kernel": (F16, sk.int8, 128, False, BLOCKS),
    "reduce_kernel": (reducing.SUM, F32, 1, F32, 1024),
    "reduce_rows_kernel": (reducing.SUM, F32, 1024),
    "rmsnorm_kernel": (F32, F32, 1024, True, False),
    "rope_kernel": (F32, F32, 64, False, 8),
    "selective_scan_backward_kernel": (F32, 16, 512),
    "selective_scan_kernel": (F32, 16, 512),
    "softmax_kernel": (F32, 1024, True, False),
    "stencil_kernel": (abs, F32, F32, 0.0, (16, 64)),
    "stretch_sums_kernel": (F32, 1024),
    "swiglu_backward_kernel": (F32, 1024),
    "topk_kernel": (F32, 8, 64),
    "to_rows_kernel": (F16, (1, 1)),
    "transpose_kernel": (F32, 64, 32, 256),
}


def factories() -> dict[str, Any]:
    """Every factory of the shelf, those of its modules alone too."""
    modules = [
        importlib.import_module(f"{kernels.__name__}.{each.name}") for each in pkgutil.iter_modules(kernels.__path__)
    ]
    named = [(name, value, module) for module in modules for name, value in vars(module).items()]
    return {n: f for n, f, module in named if n.endswith("_kernel") and f.__module__ == module.__name__}


FACTORIES = factories()
NO_INTS = (True, np.True_, 2.0, np.float32(2), "4", [4], (4,), sk.int32, np.array(4))
NO_BOOLS = (0, 1, 2, "x", [True], None)
NO_DTYPES = ("float32", np.float32, np.dtype("float32"), 4, [sk.float32], None)


def wrong(value: Any, hint: Any) -> list[Any]:
    """What is wrong for a parameter in place of a value that is right."""
    match value:
        case bool():
            return [*NO_BOOLS]
        case int():
            more = [] if types_of(hint) & {type(None)} else [None]
            return [*NO_INTS, -1, np.int64(-1), *more, 0]
        case float():
            return [None, "x", [0.0], True]
        case str():
            return ["fast", 1, None, ["ieee"]]
        case sk.DType():
            return [*NO_DTYPES]
        case tuple():
            return [None, 5, "ab", list(value), *within(value)]
        case _:  # a function, or none
            return [5, "x", [abs]]


def within(value: tuple[Any, ...]) -> list[Any]:
    """Tuples with one that is wrong, or of another length where numbers have meanings by place."""
    found: list[Any] = [(*value[:i], bad, *value[i + 1 :]) for i in range(len(value)) for bad in wrong(value[i], Any)]
    if value and all(type(each) in (int, bool) for each in value):
        found += [(), value[:1], (*value, *value)]
    return found


def types_of(hint: Any) -> set[Any]:
    return set(typing.get_args(hint))


def cases() -> list[Any]:
    found = []
    for name, factory in FACTORIES.items():
        hints = typing.get_type_hints(inspect.unwrap(factory), include_extras=True)
        for place, parameter in enumerate(inspect.signature(factory).parameters):
            found.append(pytest.param(name, place, hints[parameter], id=f"{name}-{parameter}"))
    return found


ALSO_RIGHT = {  # by parameter, what would be wrong for others
    "PADDING": [(0, 1), (1, 0)],
    "kinds": [(None,)],
    "strides": [((5, 1), (None, 1)), ((None, 1), (5, 1)), ((None, 1), (None, None)), ((None, None), (None, 1))],
}


def test_each_factory_has_valid_options_here() -> None:
    assert FACTORIES.keys() == VALID.keys()
    assert {name for name in kernels.__all__ if name.endswith("_kernel")} <= VALID.keys()


@pytest.mark.parametrize(("name", "place", "hint"), cases())
def test_what_is_no_option_is_refused_in_words(name: str, place: int, hint: Any) -> None:
    """The option is named, as it was given, with what it is."""
    factory, valid, told = FACTORIES[name], VALID[name], {}
    factory.forget()  # tuples are compared, so that (True, 1) would be found where (1, 1) has been
    parameter = [*inspect.signature(factory).parameters][place]
    for bad in wrong(valid[place], hint):
        if any(bad is each or (isinstance(bad, tuple) and bad == each) for each in ALSO_RIGHT.get(parameter, ())):
            continue
        try:
            factory(*valid[:place], bad, *valid[place + 1 :])
        except Exception as error:
            told[repr(bad)] = type(error), str(error)
        else:
            told[repr(bad)] = None, "taken"

    strange = {
        bad: error
        for bad, error in told.items()
        if error[0] is not ValueError or not error[1].startswith(f"{parameter} is {bad}: it is ")
    }
    assert told
    assert strange == {}


@pytest.mark.parametrize("name", VALID)
def test_a_kernel_is_the_same_for_numbers_of_numpy_and_options_by_name(name: str) -> None:
    factory, valid = FACTORIES[name], VALID[name]
    names = inspect.signature(factory).parameters

    kernel = factory(*valid)

    assert kernel is factory(*valid) is factory(*map(of_numpy, valid)) is factory(**dict(zip(names, valid)))


def of_numpy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(of_numpy, value))
    return {bool: np.bool_, int: np.int64}.get(type(value), lambda same: same)(value)


def test_blocks_are_their_numbers() -> None:
    assert kernels.batched_matmul_kernel(F16, BLOCKS) is kernels.batched_matmul_kernel(F16, matrices.Blocks(*BLOCKS))


APART = {  # options that do not go together: the factory, its options by name, and the error
    "K is 64: it is below BLOCK, which is 64": ("topk_kernel", {"K": 64}),
    "SIDE is 64: it is a multiple of 48": ("transpose_kernel", {"STRIP": 48}),
    "CHANNELS is 48: it is a multiple of 32": ("conv2d_of_rows_kernel", {"CHANNELS": 48}),
    "GROUP is 48: it is a multiple of 32": ("quantized_linear_kernel", {"GROUP": 48}),
    "GROUP is 27: it is a multiple of 2": ("quantize_int4_kernel", {"GROUP": 27}),
    "TILE is 64: it is a power of two, at least GROUP, 128": ("quantize_int4_kernel", {"TILE": 64}),
    "TILE is 192: it is a power of two": ("quantize_int4_kernel", {"TILE": 192}),
    "ROWS is 48: it is a multiple of 32": ("attention_on_cpu_kernel", {"ROWS": 48}),
    "COLUMNS is 12: it is a multiple of 8": ("attention_on_cpu_kernel", {"COLUMNS": 12}),
    "COLUMNS is 8: it is a multiple of 32": ("attention_by_pairs_kernel", {"COLUMNS": 8}),
}


@pytest.mark.parametrize("text", APART)
def test_options_that_do_not_go_together_are_refused_in_words(text: str) -> None:
    name, changed = APART[text]
    options = dict(zip(inspect.signature(FACTORIES[name]).parameters, VALID[name]))

    with pytest.raises(ValueError, match=re.escape(text)):
        FACTORIES[name](**{**options, **changed})


# -- plain functions ------------------------------------------------------------------------------------------------------

ROWS, LONG = np.ones((4, 64), np.float32), np.ones(64, np.float32)
HEADS = np.ones((1, 2, 8, 16), np.float32)
SEQUENCE, STATES = np.ones((1, 8, 16), np.float32), np.ones((1, 4, 16), np.float32)

CALLS: dict[str, tuple[Any, ...]] = {
    "adamw": (*[np.ones((4, 64), np.float32) for _ in range(4)], 1),
    "argmax": (ROWS,),
    "attention": (HEADS,) * 3,
    "attention_backward": (*[HEADS] * 5, np.ones((1, 2, 8), np.float32)),
    "batched_matmul": (np.ones((2, 8, 16), np.float32), np.ones((2, 16, 8), np.float32)),
    "column_sums": (ROWS,),
    "conv2d": (np.ones((1, 2, 8, 8), np.float32), np.ones((3, 2, 3, 3), np.float32)),
    "cross_entropy": (ROWS, np.zeros(4, np.int64)),
    "cumsum": (LONG,),
    "dequantize": (np.ones((4, 64), np.int8), np.ones((4, 1), np.float32)),
    "dropout": (ROWS, 0.5, 1),
    "elementwise": (abs, ROWS),
    "embedding": (ROWS, np.zeros(4, np.int64)),
    "embedding_backward": (ROWS, np.zeros(4, np.int64), ROWS.copy()),
    "grouped_matmul": (ROWS, np.ones((2, 64, 8), np.float32), np.array([2, 4], np.int32)),
    "hopper_attention_backward": (*[np.ones((1, 2, 8, 64), np.float16)] * 5, np.ones((1, 2, 8), np.float32)),
    "hopper_attention": (np.ones((1, 2, 8, 64), np.float16),) * 3,
    "hopper_matmul": (np.ones((64, 64), np.float16),) * 2,
    "layernorm": (ROWS, LONG),
    "layernorm_backward": (ROWS, ROWS, LONG),
    "matmul": (ROWS, ROWS.T),
    "max": (ROWS,),
    "quantize": (ROWS,),
    "quantize_int4": (np.ones((4, 128), np.float32),),
    "quantized_linear": (ROWS, np.ones((8, 64), np.int8), np.ones((8, 1), np.float32)),
    "rmsnorm": (ROWS, LONG),
    "rmsnorm_backward": (ROWS, ROWS, LONG),
    "rope": (np.ones((2, 3, 8), np.float32), *[np.ones((2, 4), np.float32)] * 2),
    "selective_scan": (SEQUENCE, SEQUENCE, np.ones((8, 4), np.float32), STATES, STATES),
    "selective_scan_backward": (SEQUENCE, SEQUENCE, SEQUENCE, np.ones((8, 4), np.float32), STATES, STATES),
    "softmax": (ROWS,),
    "stencil": (lambda at: at(0, 1), ROWS),
    "sum": (ROWS,),
    "swiglu": (ROWS, ROWS),
    "swiglu_backward": (ROWS, ROWS, ROWS),
    "topk": (ROWS, 3),
    "transpose": (ROWS,),
}
FOR_HOPPER = {"hopper_attention", "hopper_attention_backward", "hopper_matmul"}  # no CPU runs them

NO_OPTION: dict[str, list[Any]] = {  # by the beginning of an annotation
    "int": [2.5, "x", [1], np.nan, np.inf, object()],
    "float": ["x", [1.0], object()],
    "bool": [2, "x", [True], None],
    "str": ["fast", 5, None, np.array("ieee")],
    "Dtype": [*NO_DTYPES],
    "tuple": [5, 2.5, (1,), object()],
    "Edge": ["beyond", [0.0], None, object()],
    "Callable": [5, "x"],
}
NO_ARRAY = [5, "x", [1.0], True]
LESS = {  # of ints
    "step": [0, -1],
    "group": [0, -1, True],
    "k": [0, -1, True, 65],
    "axis": [-2, 2, True],
    "stride": [0, True],
    "dilation": [0],
    "heads_axis": [0, 3, 1.0, np.array(1)],
}


def options() -> list[Any]:
    found = []
    for name in CALLS:
        for option, parameter in inspect.signature(getattr(kernels, name)).parameters.items():
            kind = str(parameter.annotation).partition("[")[0].partition(" ")[0]
            bad = NO_ARRAY if option == "out" else NO_OPTION.get(kind, []) + LESS.get(option, []) * (kind == "int")
            if bad:
                found.append(pytest.param(name, option, bad, id=f"{name}-{option}"))
    return found


def test_each_plain_function_has_a_call_here() -> None:
    assert {
        name for name in kernels.__all__ if inspect.isfunction(getattr(kernels, name))
    } - FACTORIES.keys() == CALLS.keys()


@pytest.mark.parametrize("name", [each for each in CALLS if each not in FOR_HOPPER])
def test_a_call_without_options_is_right(name: str) -> None:
    getattr(kernels, name)(*CALLS[name])


@pytest.mark.parametrize(("name", "option", "bad"), options())
def test_what_is_no_option_of_a_plain_function_is_refused_in_words(name: str, option: str, bad: list[Any]) -> None:
    """By an error of ours that names it."""
    function, args, told = getattr(kernels, name), CALLS[name], {}
    place = [*inspect.signature(function).parameters].index(option)
    for each in bad:
        given = (*args[:place], each, *args[place + 1 :]) if place < len(args) else args
        try:
            function(*given, **({} if place < len(args) else {option: each}))
        except (ValueError, sk.StagekitError) as error:
            if option not in str(error).lower():
                told[repr(each)] = str(error)
        except Exception as error:
            told[repr(each)] = repr(error)
        else:
            told[repr(each)] = "taken"

    assert told == {}


@pytest.mark.parametrize("seed", ["x", "7", np.nan, np.inf, 2.5, None])
def test_a_launch_of_one_of_several_entries_refuses_what_is_no_number(seed: object) -> None:
    """Which entry it is for is asked before arguments are looked at."""
    kernel, x = kernels.dropout_kernel(F32, 2, 64), np.ones((4, 64), np.float32)

    with pytest.raises(sk.ArgumentError, match="`seed`"):
        kernel[4](x, x.copy(), 0.5, seed)
