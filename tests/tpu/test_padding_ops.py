"""Ops that pick, scan or pool over a padded dimension read its real elements only."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_tpu_ext import tpu

MAXIMUM_SIZE = 8
LEAST_SIZE = 3
ROWS = [tf.TensorShape([MAXIMUM_SIZE, 4])]


def exclusive(x, reverse=False):
    x = x[::-1] if reverse else x
    sums = np.cumsum(np.concatenate([np.zeros([1, x.shape[1]]), x[:-1]]), 0)
    return sums[::-1] if reverse else sums


def average(x, window, stride, same):
    """Means of windows over dimension 0; what lies outside counts nowhere."""
    size = len(x)
    if same:
        count = -(-size // stride)
        low = max(0, (count - 1) * stride + window - size) // 2
    else:
        count, low = (size - window) // stride + 1, 0
    starts = [i * stride - low for i in range(count)]
    return np.array([x[max(0, s) : s + window].mean(0) for s in starts])


def pool(x, window, stride, padding):
    return tf.nn.avg_pool1d((x + 1)[None], window, stride, padding)[0]


def last_state(x):
    """The last output of a recurrence, as Keras's layers compute it."""

    def step(inputs, states):
        state = tf.tanh(inputs + states[0])
        return state, [state]

    return tf.keras.backend.rnn(step, x[None], [tf.zeros([1, 4])])[0][0]


def last_state_of(x):
    state = np.zeros(4)
    for row in x:
        state = np.tanh(row + state)
    return state


OPERATIONS = {
    "cumsum": (lambda x: tf.cumsum(x + 1), lambda x: np.cumsum(x + 1, 0)),
    "cumsum_exclusive": (
        lambda x: tf.cumsum(x + 1, exclusive=True),
        lambda x: exclusive(x + 1),
    ),
    "cumsum_reverse": (
        lambda x: tf.cumsum(x + 1, reverse=True),
        lambda x: np.cumsum((x + 1)[::-1], 0)[::-1],
    ),
    "cumsum_both": (
        lambda x: tf.cumsum(x + 1, exclusive=True, reverse=True),
        lambda x: exclusive(x + 1, True),
    ),
    "cumsum_columns": (lambda x: tf.cumsum(x + 1, 1), lambda x: np.cumsum(x + 1, 1)),
    "cumprod": (lambda x: tf.math.cumprod(x), lambda x: np.cumprod(x, 0)),
    "cumulative_logsumexp": (
        lambda x: tf.math.cumulative_logsumexp(x),
        lambda x: np.log(np.cumsum(np.exp(x), 0)),
    ),
    "average_same": (lambda x: pool(x, 3, 1, "SAME"), lambda x: average(x + 1, 3, 1, True)),
    "average_same_even": (lambda x: pool(x, 2, 2, "SAME"), lambda x: average(x + 1, 2, 2, True)),
    "average_same_apart": (lambda x: pool(x, 2, 3, "SAME"), lambda x: average(x + 1, 2, 3, True)),
    "average_same_odd": (lambda x: pool(x, 3, 2, "SAME"), lambda x: average(x + 1, 3, 2, True)),
    "average_valid": (lambda x: pool(x, 3, 1, "VALID"), lambda x: average(x + 1, 3, 1, False)),
    "average_valid_2": (lambda x: pool(x, 2, 2, "VALID"), lambda x: average(x + 1, 2, 2, False)),
    "last": (lambda x: x[-1], lambda x: x[-1]),
    "last_of_both": (lambda x: x[-1, -2], lambda x: x[-1, -2]),
    "last_rows": (lambda x: x[-2:], lambda x: x[-2:]),
    "but_last": (lambda x: x[:-1], lambda x: x[:-1]),
    "from_the_end": (lambda x: x[-3:-1], lambda x: x[-3:-1]),
    "beyond_the_end": (lambda x: x[2:100], lambda x: x[2:100]),
    "backwards": (lambda x: x[::-1], lambda x: x[::-1]),
    "backwards_2": (lambda x: x[-2::-2, 1:], lambda x: x[-2::-2, 1:]),
    "every_second": (lambda x: x[1::2], lambda x: x[1::2]),
    "every_third": (lambda x: x[1:-1:3], lambda x: x[1:-1:3]),
    "new_axis": (lambda x: x[tf.newaxis, -2:, ..., 0], lambda x: x[None, -2:, ..., 0]),
    "roll": (lambda x: tf.roll(x, 1, 0), lambda x: np.roll(x, 1, 0)),
    "roll_back": (lambda x: tf.roll(x, [-5, 1], [0, 1]), lambda x: np.roll(x, [-5, 1], [0, 1])),
    "reflect": (
        lambda x: tf.pad(x, [[2, 1], [0, 1]], "REFLECT"),
        lambda x: np.pad(x, [[2, 1], [0, 1]], "reflect"),
    ),
    "symmetric": (
        lambda x: tf.pad(x, [[2, 3], [1, 0]], "SYMMETRIC"),
        lambda x: np.pad(x, [[2, 3], [1, 0]], "symmetric"),
    ),
    "ones": (lambda x: tf.reduce_sum(tf.ones_like(x)), lambda x: np.float64(x.size)),
    "where": (lambda x: tf.where(x + 9 > 9), lambda x: np.argwhere(x + 9 > 9)),
    "boolean_mask": (lambda x: tf.boolean_mask(x, x[:, 0] > 0), lambda x: x[x[:, 0] > 0]),
    "sort": (lambda x: tf.sort(x - 9, 0, "DESCENDING"), lambda x: np.sort(x - 9, 0)[::-1]),
    "top_k": (
        lambda x: tf.math.top_k(tf.transpose(x - 9), 2)[0],
        lambda x: np.sort(x.T - 9)[:, ::-1][:, :2],
    ),
    "argmin": (lambda x: tf.argmin(x + 9), lambda x: (x + 9).argmin(0)),
    "last_gathered": (lambda x: tf.gather(x, tf.shape(x)[0] - 1), lambda x: x[-1]),
    "counts": (
        lambda x: tf.reduce_sum(tf.one_hot(tf.argmax(x, 1), 4), 0),
        lambda x: np.bincount(x.argmax(1), minlength=4),
    ),
    "tile": (lambda x: tf.tile(x, [2, 1]), lambda x: np.tile(x, [2, 1])),
    "repeat": (lambda x: tf.repeat(x, 2, 0), lambda x: np.repeat(x, 2, 0)),
    "scan": (lambda x: tf.scan(tf.add, x + 1), lambda x: np.cumsum(x + 1, 0)),
    "recurrence": (last_state, last_state_of),
}

# Their gradients; plain TensorFlow is right on the unpadded data.
LOSSES = {
    "last": lambda x: x[-1] ** 2,
    "slices": lambda x: x[1:-1] ** 2,
    "every_second": lambda x: x[1::2] ** 3,
    "backwards": lambda x: x[::-1] * x,
    "cumsum": lambda x: tf.cumsum(x) ** 2,
    "average_same": lambda x: tf.nn.avg_pool1d(x[None], 3, 2, "SAME") ** 2,
    "average_valid": lambda x: tf.nn.avg_pool1d(x[None], 2, 2, "VALID") ** 2,
    "maximum_same": lambda x: tf.nn.max_pool1d(x[None], 2, 2, "SAME") ** 2,
    "maximum_valid": lambda x: tf.nn.max_pool1d(x[None], 3, 1, "VALID") ** 2,
    "recurrence": lambda x: last_state(x) ** 2,
}


def every_operation(x):
    return {name: operation(x) for name, (operation, _) in OPERATIONS.items()}


def every_gradient(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        losses = {name: tf.reduce_sum(loss(x)) for name, loss in LOSSES.items()}
    return {name: tape.gradient(loss, x) for name, loss in losses.items()}


def check(got, expected, message):
    assert got.shape == np.shape(expected), message
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=message)


@pytest.fixture(scope="module")
def compiled(cores):
    """Both computations, traced once."""
    signature = [[tf.TensorSpec([None, 4])] * cores]

    def function(computation):
        return tf.function(
            lambda matrices: tpu.replicate(
                computation, [[x] for x in matrices], maximum_shapes=ROWS
            ),
            input_signature=signature,
        )

    return function(every_operation), function(every_gradient)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_real_elements_only(compiled, cores, data):
    sizes = st.lists(st.integers(LEAST_SIZE, MAXIMUM_SIZE), min_size=cores, max_size=cores)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    matrices = [random.normal(size=[n, 4]).astype(np.float32) for n in data.draw(sizes)]
    operations, gradients = compiled
    inputs = [tf.constant(x) for x in matrices]
    for x, got in zip(matrices, operations(inputs), strict=True):
        for name, (_, reference) in OPERATIONS.items():
            check(got[name], reference(x.astype(np.float64)), f"{name} of {x.shape}")
    for x, got in zip(matrices, gradients(inputs), strict=True):
        with tf.device("/device:CPU:0"):
            expected = every_gradient(tf.constant(x))
        for name in LOSSES:
            check(got[name], expected[name], f"gradient of {name} of {x.shape}")


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: tf.unique(x[:, 0])[0], "Unique"),
        (lambda x: tf.linalg.diag(x[:, 0], name="made_here"), "made_here"),
        (lambda x: tf.linalg.trace(tf.matmul(x, x, transpose_b=True)), "MatrixDiagPartV3"),
    ],
    ids=["unique", "diagonal", "trace"],
)
def test_operations_that_cannot_be_right_are_errors(cores, operation, name):
    inputs = [[tf.ones([3 + r % 3, 4])] for r in range(cores)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"only at run time") as error:
        tpu.replicate(operation, inputs, maximum_shapes=ROWS)
    assert name in str(error.value)
    assert "test_padding_ops.py" in str(error.value)
