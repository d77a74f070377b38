"""Arrays that go together: of one shape, not only of as many rows; apart where one is written; of dtypes that are known."""

from __future__ import annotations

import numpy as np
import pytest

from stagekit import kernels

WEIGHT = np.ones(8, np.float32)
ANGLES = np.ones((6, 4), np.float32)


def floats(*shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


X, NUMBERS = floats(2, 3, 8), np.arange(6).reshape(2, 3)
Q, SCALES = kernels.quantize(floats(2, 3, 64), group=16)
CALLS = {  # of arrays that the kernel sees as rows
    "elementwise": (lambda x, y, out: kernels.elementwise(lambda a, b: a + b, x, y, out=out), {"y": X, "out": X}),
    "softmax": (lambda x, out: kernels.softmax(x, out=out), {"out": X}),
    "rmsnorm": (
        lambda x, residual, out: kernels.rmsnorm(x, WEIGHT, residual=residual, out=out),
        {"residual": X, "out": X},
    ),
    "layernorm": (
        lambda x, residual, out: kernels.layernorm(x, WEIGHT, WEIGHT, residual=residual, out=out),
        {"residual": X, "out": X},
    ),
    "rmsnorm_backward": (
        lambda x, gradient, out: kernels.rmsnorm_backward(gradient, x, WEIGHT, out=out),
        {"gradient": X, "out": X},
    ),
    "layernorm_backward": (
        lambda x, gradient, out: kernels.layernorm_backward(gradient, x, WEIGHT, out=out),
        {"gradient": X, "out": X},
    ),
    "cross_entropy": (
        lambda x, targets, gradient: kernels.cross_entropy(x, targets, gradient=gradient),
        {"targets": NUMBERS, "gradient": X},
    ),
    "swiglu": (lambda x, up, out: kernels.swiglu(x, up, out=out), {"up": X, "out": X}),
    "swiglu_backward": (
        lambda x, gate, up, one, other: kernels.swiglu_backward(x, gate, up, out=(one, other)),
        {"gate": X, "up": X, "one": X, "other": X},
    ),
    "rope": (lambda x, out: kernels.rope(x[..., None, :], ANGLES, ANGLES, out=out), {"out": X[..., None, :]}),
    "cumsum": (lambda x, out: kernels.cumsum(x, axis=-1, out=out), {"out": X}),
    "embedding": (
        lambda x, numbers, out: kernels.embedding(x.reshape(6, 8), numbers, out=out),
        {"numbers": NUMBERS, "out": X},
    ),
    "embedding_backward": (
        lambda x, numbers: kernels.embedding_backward(x, numbers, np.zeros((6, 8), np.float32)),
        {"numbers": NUMBERS},
    ),
    "quantize": (lambda x, out: kernels.quantize(x, out=out), {"out": X.astype(np.int8)}),
    "dequantize": (
        lambda x, q, scales, out: kernels.dequantize(q, scales, group=16, out=out),
        {"q": Q, "scales": SCALES, "out": floats(2, 3, 64)},
    ),
    "quantized_linear": (
        lambda x, out: kernels.quantized_linear(np.tile(x, 2), np.ones((5, 16), np.int8), floats(5, 1), out=out),
        {"out": floats(2, 3, 5)},
    ),
    "stencil": (
        lambda x, out: kernels.stencil(lambda at: at(0, 0), x[..., None, :], out=out),
        {"out": X[..., None, :]},
    ),
    "conv2d": (
        lambda x, out: kernels.conv2d(x[:, None], floats(1, 1, 2, 2), out=out),
        {"out": floats(2, 1, 2, 7)},
    ),
}


def arguments_of(name):
    return {key: array.copy() for key, array in {"x": X, **CALLS[name][1]}.items()}


@pytest.mark.parametrize("name", CALLS)
def test_an_array_of_another_shape_is_refused_though_it_has_as_many_rows(name):
    call, given = CALLS[name][0], arguments_of(name)
    call(**given)

    for key in CALLS[name][1]:
        array = given[key]
        axes = (2, 3) if name == "conv2d" else (0, 1)
        swapped = np.ascontiguousarray(np.swapaxes(array, *axes))
        with pytest.raises(ValueError, match=r"shape"):
            call(**{**arguments_of(name), key: swapped})
        if array.ndim == 3:
            with pytest.raises(ValueError, match=r"shape"):
                call(**{**arguments_of(name), key: array.reshape(6, -1)})


def rows_of_two():
    both = floats(9, 8)
    return both[1:], both[:-1]


def shifted_residual(norm):
    x, residual = rows_of_two()
    return norm(x, WEIGHT, residual=residual)


def residual_as_out(norm):
    x, residual = floats(8, 8), floats(8, 8)
    return norm(x, WEIGHT, residual=residual, out=residual)


def weight_in_out(norm):
    out = floats(8, 8)
    return norm(floats(8, 8), out[3], out=out)


def shifted_gradient():
    logits, gradient = rows_of_two()
    return kernels.cross_entropy(logits, np.zeros(8, np.int64), gradient=gradient)


def one_gradient_for_two():
    out = floats(8, 8)
    return kernels.swiglu_backward(floats(8, 8), floats(8, 8), floats(8, 8), out=(out, out))


def table_that_is_the_gradient():
    table = floats(8, 8)
    return kernels.embedding_backward(table, np.zeros(8, np.int64), table)


def means_that_are_squares():
    mean = np.zeros(8, np.float32)
    return kernels.adamw(floats(8), floats(8), mean, mean, 1)


def parameters_beside_their_gradient():
    both = floats(9)
    return kernels.adamw(both[1:], both[:-1], np.zeros(8, np.float32), np.zeros(8, np.float32), 1)


def rates_in_out():
    memory = floats(48)
    A, out = memory[:12].reshape(3, 4), memory.reshape(2, 3, 8)
    return kernels.selective_scan(floats(2, 3, 8), floats(2, 3, 8), A, floats(2, 4, 8), floats(2, 4, 8), out=out)


def angles_in_out():
    out = floats(6, 1, 8)
    angles = out.reshape(-1)[:24].reshape(6, 4)
    return kernels.rope(floats(6, 1, 8), angles, angles, out=out)


def bias_in_out():
    out = floats(1, 2, 2, 2)
    return kernels.conv2d(floats(1, 1, 3, 3), floats(2, 1, 2, 2), out[0, 0, 0], out=out)


NORMS = {"rmsnorm": kernels.rmsnorm, "layernorm": kernels.layernorm}
SHARING = {
    **{f"{of.__name__} of {name}": lambda of=of, norm=norm: of(norm) for name, norm in NORMS.items()
       for of in (shifted_residual, residual_as_out, weight_in_out)},
    **{of.__name__: of for of in (
        shifted_gradient, one_gradient_for_two, table_that_is_the_gradient, means_that_are_squares,
        parameters_beside_their_gradient, rates_in_out, angles_in_out, bias_in_out,
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", SHARING)
def test_each_array_that_is_written_lies_apart_from_what_others_read_or_write(name):
    with pytest.raises(ValueError, match="shares memory"):
        SHARING[name]()


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_a_residual_may_be_x_itself(norm):
    x, residual = floats(4, 8), floats(4, 8)
    expected = norm(x.copy(), WEIGHT, residual=residual)

    found = norm(x, WEIGHT, residual=x)

    np.testing.assert_array_equal(expected, found)
    np.testing.assert_array_equal(residual, x)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_what_float32_does_not_hold_is_no_input_of_what_is_computed_in_it(dtype):
    x, f32 = np.ones((2, 3, 8), dtype), floats(3, 4)
    states = np.ones((2, 4, 8), dtype)
    calls = [
        lambda: kernels.selective_scan(x, x, f32, states, states),
        lambda: kernels.selective_scan_backward(x, x, x, f32, states, states),
        lambda: kernels.column_sums(x[0]),
        lambda: kernels.adamw(floats(8), floats(8), np.zeros(8, dtype), np.zeros(8, dtype), 1),
        lambda: kernels.adamw(floats(8), np.zeros(8, dtype), floats(8), floats(8), 1),
        lambda: kernels.dequantize(x, floats(2, 3, 1)),
    ]

    for call in calls:
        with pytest.raises(ValueError, match=f"of {np.dtype(dtype).name}"):
            call()


def test_scales_are_those_of_the_groups():
    q, scales = kernels.quantize(floats(2, 512), group=64)

    for wrong in (lambda: kernels.dequantize(q, scales), lambda: kernels.dequantize(q, scales[:, :3], group=64)):
        with pytest.raises(ValueError, match="scales has shape"):
            wrong()


def test_a_number_is_as_exact_as_the_arrays_beside_it():
    x = np.linspace(0, 1, 12).reshape(3, 4)

    found = kernels.elementwise(lambda x, y: x * y, x, 0.1)
    product = kernels.matmul(x, np.eye(4), 0.1, epilogue=lambda x, y: x * y)
    mixed = kernels.elementwise(lambda x, y, z: x * z + y, x.astype(np.float32), x, 0.1)

    np.testing.assert_array_equal(x * 0.1, found)
    np.testing.assert_array_equal(x * 0.1, product)
    assert mixed.dtype == np.float32


@pytest.mark.parametrize("edge", [300, -1, 0.5, float("nan"), float("inf")])
def test_an_edge_is_a_number_of_the_dtype(edge):
    with pytest.raises(ValueError, match="uint8 has no such number"):
        kernels.stencil(lambda at: at(0, 1), np.zeros((4, 5), np.uint8), edge=edge)


def test_sequences_of_other_axes_and_heads_of_no_size_are_refused_in_words():
    with pytest.raises(ValueError, match="give \\(batches, channels, length\\)"):
        kernels.selective_scan(X[0], X[0], floats(3, 4), X[0], X[0])
    with pytest.raises(ValueError, match="in pairs"):
        kernels.rope(floats(2, 3, 0), floats(2, 0), floats(2, 0))


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", object, np.longdouble, "S3", [("a", "f4")]], ids=str)
def test_an_array_of_a_dtype_that_kernels_do_not_know_is_refused_in_words(dtype):
    x = np.zeros((4, 4), dtype)
    calls = kernels.softmax, kernels.sum, kernels.transpose, kernels.argmax, lambda x: kernels.matmul(x, x)

    for call in calls:
        with pytest.raises(ValueError, match="no kernels"):
            call(x)
