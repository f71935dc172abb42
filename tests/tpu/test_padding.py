"""Padding changes no result, and bounds the number of compilations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tf_tpu_ext
from tf_tpu_ext import tpu

AUTO = tpu.PaddingSpec.AUTO
POWER_OF_TWO = tpu.PaddingSpec.POWER_OF_TWO
OPEN_ROWS = [tf.TensorShape([None, 4])]
MAXIMUM_SIZE = 8

_random = np.random.default_rng(1)
MATRIX = _random.normal(size=[4, 3]).astype(np.float32)
KERNEL = _random.normal(size=[3, 4, 2]).astype(np.float32)


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def convolved(x, stride, same):
    """The one-dimensional convolution of [size, 4] with KERNEL, in the two paddings."""
    size = len(x)
    if same:
        out = -(-size // stride)
        total = max(0, (out - 1) * stride + 3 - size)
        x = np.pad(x, [[total // 2, total - total // 2], [0, 0]])
    else:
        out = max(0, -(-(size - 2) // stride))
    rows = [np.einsum("ki,kio->o", x[i * stride : i * stride + 3], KERNEL) for i in range(out)]
    return np.reshape(rows, [out, 2])


# Each computation with its NumPy meaning. The padded rows would change all of them: most are
# not zero where the input is, and the others fold over the padded dimension.
OPERATIONS = {
    "mean": (lambda x: tf.reduce_mean(x), lambda x: x.mean()),
    "mean_of_rows": (lambda x: tf.reduce_mean(x + 1, 0), lambda x: (x + 1).mean(0)),
    "sum": (lambda x: tf.reduce_sum(x + 1), lambda x: (x + 1).sum()),
    "sum_of_columns": (lambda x: tf.reduce_sum(x + 1, 1), lambda x: (x + 1).sum(1)),
    "product": (lambda x: tf.reduce_prod(x, 0), lambda x: x.prod(0)),
    "maximum": (lambda x: tf.reduce_max(x - 100), lambda x: (x - 100).max()),
    "minimum": (lambda x: tf.reduce_min(x + 100, 0), lambda x: (x + 100).min(0)),
    "all": (lambda x: tf.reduce_all(x > -100), lambda x: (x > -100).all()),
    "any": (lambda x: tf.reduce_any(x - 100 > -100.5, 0), lambda x: (x - 100 > -100.5).any(0)),
    "variance": (lambda x: tf.math.reduce_variance(x, 0), lambda x: x.var(0)),
    "moments": (lambda x: tf.nn.moments(x, [0, 1])[1], lambda x: x.var()),
    "norm": (lambda x: tf.norm(x + 1), lambda x: np.linalg.norm(x + 1)),
    "softmax_rows": (lambda x: tf.nn.softmax(x, 0), lambda x: softmax(x, 0)),
    "softmax_columns": (lambda x: tf.nn.softmax(x, 1), lambda x: softmax(x, 1)),
    "log_softmax": (lambda x: tf.nn.log_softmax(x, 0), lambda x: np.log(softmax(x, 0))),
    "logsumexp": (lambda x: tf.reduce_logsumexp(x, 0), lambda x: np.log(np.exp(x).sum(0))),
    "matmul_over_rows": (
        lambda x: tf.matmul(tf.exp(x), x + 1, transpose_a=True),
        lambda x: np.exp(x).T @ (x + 1),
    ),
    "matmul_of_rows": (lambda x: tf.matmul(x, MATRIX), lambda x: x @ MATRIX),
    "matmul_outer": (lambda x: tf.matmul(x, x, transpose_b=True), lambda x: x @ x.T),
    "attention": (
        lambda x: tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x),
        lambda x: softmax(x @ x.T, 1) @ x,
    ),
    "conv_same": (
        lambda x: tf.nn.conv1d((x + 1)[None], KERNEL, 1, "SAME")[0],
        lambda x: convolved(x + 1, 1, True),
    ),
    "conv_sum": (
        lambda x: tf.reduce_sum(tf.nn.conv1d((x + 1)[None], KERNEL, 1, "SAME")),
        lambda x: convolved(x + 1, 1, True).sum(),
    ),
    "argmax": (lambda x: tf.argmax(x - 100, 0), lambda x: (x - 100).argmax(0)),
    "sort": (lambda x: tf.sort(x + 1, axis=0), lambda x: np.sort(x + 1, 0)),
    "reverse": (lambda x: tf.reverse(x, [0]), lambda x: x[::-1]),
    "concat": (lambda x: tf.concat([x, x + 1], 0), lambda x: np.concatenate([x, x + 1])),
    "reshape": (lambda x: tf.reshape(x, [-1]), lambda x: x.reshape(-1)),
    "differences": (
        lambda x: tf.reduce_sum((x[1:] - x[:-1]) ** 2),
        lambda x: (np.diff(x, axis=0) ** 2).sum(),
    ),
    "shape": (lambda x: tf.shape(x), lambda x: np.array(x.shape)),
    "count": (lambda x: tf.size(x), lambda x: x.size),
}
# The input may not be smaller than the kernel, as everywhere in TensorFlow, and XLA has no dynamic
# dimensions of bound 1.
SHRINKING_OPERATIONS = {
    "conv_same_strided": (
        lambda x: tf.nn.conv1d((x + 1)[None], KERNEL, 2, "SAME")[0],
        lambda x: convolved(x + 1, 2, True),
    ),
    "conv_valid": (
        lambda x: tf.nn.conv1d((x + 1)[None], KERNEL, 1, "VALID")[0],
        lambda x: convolved(x + 1, 1, False),
    ),
    "conv_valid_strided": (
        lambda x: tf.nn.conv1d((x + 1)[None], KERNEL, 2, "VALID")[0],
        lambda x: convolved(x + 1, 2, False),
    ),
}


def every_operation(x):
    return {name: operation(x) for name, (operation, _) in OPERATIONS.items()}


def shrinking_operations(x):
    return {name: operation(x) for name, (operation, _) in SHRINKING_OPERATIONS.items()}


def check_operations(operations, outputs, x):
    for name, (_, reference) in operations.items():
        got, expected = outputs[name], reference(x.astype(np.float64))
        assert got.shape == np.shape(expected), f"{name} of {x.shape}"
        message = f"{name} of {x.shape}"
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=message)


@pytest.fixture(params=["eager", "function"])
def padded_call(request, cores):
    """Runs a computation on one matrix for each core."""
    spec = tf.TensorSpec([None, 4], tf.float32)
    functions = {}

    def call(computation, matrices, padding_spec):
        return tpu.replicate(
            computation,
            [[x] for x in matrices],
            maximum_shapes=OPEN_ROWS,
            padding_spec=padding_spec,
        )

    if request.param == "eager":
        return call

    def call_function(computation, matrices, padding_spec):
        key = computation, padding_spec
        if key not in functions:
            functions[key] = tf.function(
                lambda matrices: call(computation, matrices, padding_spec),
                input_signature=[[spec] * cores],
            )
        return functions[key](matrices)

    return call_function


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_padding_changes_no_result(padded_call, cores, data):
    computation, operations, least = data.draw(
        st.sampled_from(
            [(every_operation, OPERATIONS, 1), (shrinking_operations, SHRINKING_OPERATIONS, 5)]
        )
    )
    sizes = data.draw(st.lists(st.integers(least, MAXIMUM_SIZE), min_size=cores, max_size=cores))
    padding_spec = data.draw(st.sampled_from([AUTO, POWER_OF_TWO]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    matrices = [random.normal(size=[size, 4]).astype(np.float32) for size in sizes]
    outputs = padded_call(computation, [tf.constant(x) for x in matrices], padding_spec)
    for replica, x in enumerate(matrices):
        check_operations(operations, outputs[replica], x)


@pytest.mark.parametrize("padding_spec", [None, POWER_OF_TWO])
def test_in_a_session(cores, padding_spec):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.compat.v1.placeholder(tf.float32, [None, 4]) for _ in range(cores)]
        outputs = tpu.replicate(
            every_operation,
            [[x] for x in inputs],
            maximum_shapes=OPEN_ROWS,
            padding_spec=padding_spec,
        )
        for size in (1, 3, 8):
            matrices = [_random.normal(size=[size + r % 3, 4]) for r in range(cores)]
            got = session.run(outputs, dict(zip(inputs, matrices, strict=True)))
            for replica, x in enumerate(matrices):
                check_operations(OPERATIONS, got[replica], x)


def test_second_example_of_the_page(cores):
    """With tensors where the replicas' lists of inputs belong, as the page has it."""

    def computation(x):
        x = x + 1
        return tf.math.reduce_mean(x)

    inputs = [tf.fill([3 + replica, 2], float(replica)) for replica in range(cores)]
    outputs = tpu.replicate(
        computation,
        inputs=inputs,
        maximum_shapes=[tf.TensorShape([None, None])],
        padding_spec=tpu.PaddingSpec.POWER_OF_TWO,
    )
    assert [output.numpy() for [output] in outputs] == [replica + 1 for replica in range(cores)]


@pytest.mark.parametrize(
    "dtype", [tf.int32, tf.int64, tf.bfloat16, tf.float16, tf.float64, tf.bool]
)
def test_dtypes(cores, dtype):
    inputs = [[tf.ones([2 + replica], tf.int32)] for replica in range(cores)]
    outputs = tpu.replicate(
        lambda x: (tf.cast(x, dtype), tf.reduce_sum(tf.cast(tf.cast(x, dtype), tf.int32))),
        inputs,
        maximum_shapes=[tf.TensorShape([None])],
    )
    for replica, (vector, total) in enumerate(outputs):
        assert vector.shape == [2 + replica]
        assert vector.dtype == dtype
        assert total.numpy() == 2 + replica


def test_gradient(cores):
    def computation(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(tf.nn.softmax(x, 0) ** 2)
        return tape.gradient(loss, x)

    matrices = [_random.normal(size=[3 + r, 4]).astype(np.float32) for r in range(cores)]
    outputs = tpu.replicate(computation, [[x] for x in matrices], maximum_shapes=OPEN_ROWS)
    for x, [got] in zip(matrices, outputs, strict=True):
        np.testing.assert_allclose(got, computation(tf.constant(x)), rtol=1e-4, atol=1e-6)


def test_empty_batch(cores):
    matrices = [np.ones([replica, 4], np.float32) for replica in range(cores)]
    outputs = tpu.replicate(
        lambda x: (tf.reduce_sum(x + 1), tf.size(x), x),
        [[x] for x in matrices],
        maximum_shapes=OPEN_ROWS,
        padding_spec=POWER_OF_TWO,
    )
    for replica, (total, size, same) in enumerate(outputs):
        assert total.numpy() == 8 * replica
        assert size.numpy() == 4 * replica
        assert same.shape == [replica, 4]


def test_two_dimensions_of_nested_inputs(cores):
    def computation(x):
        return tf.reduce_mean(x["a"] + 1, [0, 1]) + tf.reduce_sum(x["b"][0]), tf.shape(x["a"])

    inputs = [
        [{"a": np.full([2 + r, 3, 5 - r % 3], r, np.float32), "b": [np.ones(r + 1, np.float32)]}]
        for r in range(cores)
    ]
    shapes = [{"a": tf.TensorShape([None, 3, None]), "b": [tf.TensorShape([None])]}]
    outputs = tpu.replicate(computation, inputs, maximum_shapes=shapes)
    for replica, (total, shape) in enumerate(outputs):
        np.testing.assert_allclose(total, [2.0 * replica + 2] * (5 - replica % 3))
        assert shape.numpy().tolist() == [2 + replica, 3, 5 - replica % 3]


class TestCompilations:
    def test_power_of_two_bounds_them(self, cores):
        random = np.random.default_rng(3)
        before = tf_tpu_ext.compilation_stats().compilations
        for _ in range(300):
            vectors = [random.normal(size=random.integers(1, 1001)) for _ in range(cores)]
            outputs = tpu.replicate(
                tf.reduce_mean,
                [[x] for x in vectors],
                maximum_shapes=[tf.TensorShape([None])],
                padding_spec=POWER_OF_TWO,
            )
            for vector, [mean] in zip(vectors, outputs, strict=True):
                assert abs(mean.numpy() - vector.mean()) < 1e-9
        assert 0 < tf_tpu_ext.compilation_stats().compilations - before <= 11

    def test_maximum_makes_it_one(self, cores):
        before = tf_tpu_ext.compilation_stats().compilations
        for size in range(1, 20):
            vectors = [[tf.ones([max(1, size - r)])] for r in range(cores)]
            tpu.replicate(
                lambda x: tf.reduce_sum(x) * 3, vectors, maximum_shapes=[tf.TensorShape([20])]
            )
        assert tf_tpu_ext.compilation_stats().compilations - before == 1
