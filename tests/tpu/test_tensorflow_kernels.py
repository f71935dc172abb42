"""Convolutions and pools of compiled programs, by TensorFlow's kernels and by XLA's code."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_counts import kernels_since, uses

import tf_tpu_ext
from tf_tpu_ext import tpu

TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}
FUZZ = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Function = Callable[..., Any]


@pytest.fixture(params=[True, False], ids=["kernels", "xla"])
def kernels(request: pytest.FixtureRequest, cores: int) -> Iterator[bool]:
    """Whether the option is on."""
    tf_tpu_ext.configure(tensorflow_kernels=request.param)
    yield request.param
    tf_tpu_ext.configure(tensorflow_kernels=True)


def with_gradients(function: Function) -> Function:
    """Returns the function's result and the gradients of a weighed sum of its squares."""

    def run(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = function(*arguments)
            shape = result.shape
            weights = tf.reshape(tf.cos(tf.range(shape.num_elements(), dtype=result.dtype)), shape)
            # Squares: the gradient of a linear op would be a constant of the program.
            weighed = tf.reduce_sum(tf.square(result) * weights)
        return [result, *tape.gradient(weighed, arguments)]

    return run


def numbers(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def check(function: Function, *arguments: tf.Tensor) -> int:
    """Compares a program with plain TensorFlow; returns how many ops kernels computed."""
    expected = tf.function(function, autograph=False)(*arguments)
    before = uses()
    actual = tpu.rewrite(function, list(arguments))
    count = kernels_since(before)
    for mine, theirs in zip(actual, expected, strict=True):
        scale = max(1.0, float(tf.reduce_max(tf.abs(theirs))))
        np.testing.assert_allclose(mine / scale, theirs / scale, **TOLERANCE)
    return count


def conv2d(x, filter):
    return tf.nn.conv2d(x, filter, 1, "SAME")


OPS: dict[str, tuple[Function, list[tuple[int, ...]], int]] = {
    # The op, shapes of its arguments, and how many ops of it and its gradients kernels compute.
    "conv2d": (conv2d, [(64, 18, 16, 3), (3, 3, 3, 5)], 3),
    "conv2d_strided": (
        lambda x, f: tf.nn.conv2d(x, f, [1, 2, 3, 1], "VALID"),
        [(128, 9, 11, 3), (3, 2, 3, 5)],
        3,
    ),
    "conv2d_1x1": (lambda x, f: tf.nn.conv2d(x, f, 2, "SAME"), [(64, 16, 16, 4), (1, 1, 4, 7)], 3),
    "conv2d_transpose": (
        lambda x, f: tf.nn.conv2d_transpose(x, f, [32, 8, 10, 3], 2, "SAME"),
        [(32, 4, 5, 6), (3, 3, 3, 6)],
        3,
    ),
    "conv1d": (lambda x, f: tf.nn.conv1d(x, f, 1, "SAME"), [(64, 40, 3), (3, 3, 5)], 3),
    "conv3d": (
        lambda x, f: tf.nn.conv3d(x, f, [1, 1, 2, 1, 1], "SAME"),
        [(32, 5, 6, 4, 3), (3, 3, 2, 3, 4)],
        3,
    ),
    "depthwise": (
        lambda x, f: tf.nn.depthwise_conv2d(x, f, [1, 1, 1, 1], "SAME"),
        [(64, 18, 16, 3), (3, 3, 3, 2)],
        3,
    ),
    # XLA computes the gradient, in ops of ours.
    "max_pool": (lambda x: tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "SAME"), [(64, 18, 16, 3)], 1),
    "max_pool_wide": (
        lambda x: tf.nn.max_pool2d(tf.nn.relu(x), 6, 6, "SAME"),
        [(64, 18, 12, 3)],
        2,
    ),
    "max_pool_with_rest": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [(64, 19, 16, 3)], 2),
    "max_pool_overlapping": (
        lambda x: tf.nn.max_pool2d(tf.round(x) + x * 0, 3, 2, "VALID"),
        [(64, 18, 16, 3)],
        2,
    ),
    "avg_pool": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), [(64, 18, 16, 3)], 2),
    "avg_pool_apart": (lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), [(64, 18, 16, 3)], 1),
}


@pytest.mark.parametrize("name", OPS)
def test_op_and_gradients(name, kernels):
    function, shapes, count = OPS[name]
    arguments = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert check(with_gradients(function), *arguments) == (count if kernels else 0)


# Fewer multiplications, or elements of pools' windows, are not worth the call of a kernel.
LEAST_WORK = 100_000
LEAST_POOLED = LEAST_WORK // 8
SIZES = st.integers(1, 9)
WINDOWS = st.integers(1, 4)


def conv2d_shape(size, window, stride, dilation, padding):
    """The spatial sizes of a convolution's result."""
    sizes = zip(size, window, stride, dilation, strict=True)
    if padding == "SAME":
        return [-(-n // step) for n, _, step, _ in sizes]
    return [(n - (w - 1) * d - 1) // step + 1 for n, w, step, d in sizes]


@functools.cache
def plain_tensorflow_dilates() -> bool:
    """Whether gradients of dilated convolutions can be compared: on a CPU only oneDNN has them."""
    image, window = numbers(1, 4, 4, 1), numbers(2, 2, 1, 1)
    convolve = with_gradients(lambda x, f: tf.nn.conv2d(x, f, 1, "SAME", dilations=2))
    try:
        tf.function(convolve, autograph=False)(image, window)
    except tf.errors.InvalidArgumentError:
        return False
    return True


@FUZZ
@given(
    size=st.tuples(SIZES, SIZES),
    window=st.tuples(WINDOWS, WINDOWS),
    channels=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID"]),
)
def test_any_convolution(cores, size, window, channels, stride, dilation, padding):
    dilation = dilation if stride == (1, 1) and plain_tensorflow_dilates() else (1, 1)
    if padding == "VALID":
        size = tuple(s + (w - 1) * d for s, w, d in zip(size, window, dilation, strict=True))
    function = with_gradients(lambda x, f: tf.nn.conv2d(x, f, stride, padding, dilations=dilation))
    result = conv2d_shape(size, window, stride, dilation, padding)
    batch = -(-LEAST_WORK // math.prod((*result, *window, *channels)))
    count = check(function, numbers(batch, *size, channels[0]), numbers(*window, *channels, seed=1))
    assert count == 3


@FUZZ
@given(
    size=st.tuples(SIZES, SIZES),
    channels=st.integers(1, 20),
    window=st.tuples(WINDOWS, WINDOWS),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID"]),
    pool=st.sampled_from([tf.nn.max_pool2d, tf.nn.avg_pool2d]),
)
def test_any_pool(cores, size, channels, window, stride, padding, pool):
    if padding == "VALID":
        size = tuple(s + w - 1 for s, w in zip(size, window, strict=True))
    function = with_gradients(lambda x: pool(x, window, stride, padding))
    result = conv2d_shape(size, window, stride, (1, 1), padding)
    batch = -(-LEAST_POOLED // math.prod((*result, *window, channels)))
    # Many equal elements: the first of the largest gets the gradient.
    count = check(function, tf.round(numbers(batch, *size, channels)))
    if pool is tf.nn.max_pool2d:
        of_xla = window == stride and all(n % w == 0 for n, w in zip(size, window, strict=True))
    else:
        of_xla = all(w <= s for w, s in zip(window, stride, strict=True))
    assert count == (1 if of_xla else 2)


def first_largest_gradient(x: np.ndarray, gradient: np.ndarray, window: tuple[int, int]):
    """The gradient of a max pool whose windows tile `x`, element by element."""
    expected = np.zeros_like(x)
    for n, row, column, channel in np.ndindex(*gradient.shape):
        top, left = row * window[0], column * window[1]
        tile = x[n, top : top + window[0], left : left + window[1], channel]
        i, j = np.unravel_index(np.argmax(tile), tile.shape)
        expected[n, top + i, left + j, channel] = gradient[n, row, column, channel]
    return expected


@FUZZ
@given(
    tiles=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    window=st.tuples(WINDOWS, WINDOWS),
    channels=st.integers(1, 9),
    dtype=st.sampled_from([tf.float32, tf.bfloat16, tf.float16, tf.float64]),
    padding=st.sampled_from(["SAME", "VALID"]),
)
def test_gradient_of_pools_that_tile(cores, tiles, window, channels, dtype, padding):
    random = np.random.default_rng(5)
    shape = (2, tiles[0] * window[0], tiles[1] * window[1], channels)
    # Many equal elements: the first of the largest gets the gradient.
    x = random.integers(-3, 4, size=shape).astype(np.float64)
    gradient = random.integers(-9, 9, size=(2, *tiles, channels)).astype(np.float64)

    def function(x, gradient):
        y = tf.nn.max_pool2d(x, window, window, padding)
        return [tf.gradients(y, x, gradient)[0]]

    actual = tpu.rewrite(function, [tf.constant(x, dtype), tf.constant(gradient, dtype)])[0]
    expected = first_largest_gradient(x, gradient, window)
    np.testing.assert_array_equal(tf.cast(actual, tf.float64), expected)


def test_gradient_of_a_window_without_number_goes_to_one_element(cores):
    x = np.ones((1, 4, 4, 1), np.float32)
    x[0, 0, 1, 0] = np.nan

    def function(x):
        return [tf.gradients(tf.nn.max_pool2d(x, 2, 2, "VALID"), x)[0]]

    gradient = np.asarray(tpu.rewrite(function, [tf.constant(x)])[0])
    np.testing.assert_array_equal(gradient.reshape(2, 2, 2, 2).sum(axis=(1, 3)), np.ones((2, 2)))


@FUZZ
@given(
    size=st.tuples(SIZES, SIZES),
    channels=st.integers(1, 20),
    multiplier=st.integers(1, 3),
    window=st.tuples(WINDOWS, WINDOWS),
    stride=st.integers(1, 3),
    padding=st.sampled_from(["SAME", "VALID"]),
)
def test_any_depthwise_convolution(cores, size, channels, multiplier, window, stride, padding):
    if padding == "VALID":
        size = tuple(s + w - 1 for s, w in zip(size, window, strict=True))
    function = with_gradients(
        lambda x, f: tf.nn.depthwise_conv2d(x, f, [1, stride, stride, 1], padding)
    )
    result = conv2d_shape(size, window, (stride, stride), (1, 1), padding)
    batch = -(-LEAST_WORK // 16 // math.prod((*result, *window, channels, multiplier)))
    x, filter = numbers(batch, *size, channels), numbers(*window, channels, multiplier, seed=1)
    assert check(function, x, filter) == 3


def test_too_small_for_a_call(cores):
    function = with_gradients(lambda x, f: tf.nn.max_pool2d(conv2d(x, f), 2, 2, "SAME"))
    assert check(function, numbers(1, 6, 6, 3), numbers(3, 3, 3, 3)) == 0


def descend(x, filter):
    """One step that changes the filter."""
    loss_and_gradients = with_gradients(lambda x, f: tf.nn.max_pool2d(conv2d(x, f), 2, 2, "SAME"))
    _, gradient = loss_and_gradients(x, filter)[1:]
    return filter - 0.01 * gradient


def test_in_loop(kernels):
    def function(x, filter):
        return [
            tf.while_loop(
                lambda i, _: i < 3,
                lambda i, filter: (i + 1, descend(x, filter)),
                [0, filter],
            )[1]
        ]

    count = check(function, numbers(64, 8, 8, 3), numbers(3, 3, 3, 3, seed=1))
    assert (count >= 2) == kernels


def test_gradient_through_loop_and_branch(kernels):
    @with_gradients
    def function(x, filter):
        def body(i, x):
            x = tf.cond(i < 2, lambda: tf.tanh(conv2d(x, filter)), lambda: x + 1)
            return i + 1, x

        return tf.while_loop(lambda i, _: i < 3, body, [0, x], maximum_iterations=3)[1]

    count = check(function, numbers(64, 6, 6, 3), numbers(3, 3, 3, 3, seed=1))
    assert (count >= 3) == kernels


def test_on_all_cores(kernels, cores):
    images = [numbers(32, 8, 8, 3, seed=core) for core in range(cores)]
    filter = numbers(3, 3, 3, 5)

    def function(x):
        _, _, gradient = with_gradients(conv2d)(x, filter)
        return tf.compat.v1.tpu.cross_replica_sum(gradient)

    sums = [output[0] for output in tpu.replicate(function, [[x] for x in images])]
    expected = sum(with_gradients(conv2d)(x, filter)[2] for x in images)
    # Sums of thousands of products, in another order.
    for mine in sums:
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-2)


def test_jit_compile_on_core(kernels):
    @tf.function(jit_compile=True)
    def function(x, filter):
        return with_gradients(conv2d)(x, filter)

    arguments = numbers(64, 8, 8, 3), numbers(3, 3, 3, 5, seed=1)
    with tf.device("TPU:0"):
        actual = function(*arguments)
    assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 3 * kernels
    for mine, theirs in zip(actual, with_gradients(conv2d)(*arguments), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-3)


def test_option_concerns_the_next_program_of_the_same_function(cores):
    @tf.function
    def function(x, filter):
        return tpu.rewrite(conv2d, [x, filter])

    arguments = numbers(64, 8, 8, 3), numbers(3, 3, 3, 5, seed=1)
    first = function(*arguments)[0]
    assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 1
    try:
        assert not tf_tpu_ext.configure(tensorflow_kernels=False).options.tensorflow_kernels
        second = function(*arguments)[0]
        assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 0
    finally:
        assert tf_tpu_ext.configure(tensorflow_kernels=True).options.tensorflow_kernels
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-4)


def test_explicit_padding(cores):
    def function(x, filter):
        return [tf.nn.conv2d(x, filter, 1, [[0, 0], [1, 0], [0, 2], [0, 0]])]

    assert check(function, numbers(2, 9, 8, 3), numbers(3, 3, 3, 5, seed=1)) == 0


def test_no_images(cores):
    # TensorFlow's own kernel would return three channels.
    result = tpu.rewrite(conv2d, [numbers(0, 9, 8, 3), numbers(3, 3, 3, 5)])[0]
    assert result.shape == (0, 9, 8, 5)
    assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 0


def test_grouped_convolution(cores):
    x, filter = numbers(2, 8, 8, 6), numbers(3, 3, 3, 4, seed=1)
    actual = tpu.rewrite(conv2d, [x, filter])[0]
    halves = [conv2d(x[..., 3 * i : 3 * i + 3], filter[..., 2 * i : 2 * i + 2]) for i in range(2)]
    np.testing.assert_allclose(actual, tf.concat(halves, -1), rtol=1e-5, atol=1e-5)
    assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 0


def test_other_types(cores):
    x, filter = tf.cast(numbers(64, 8, 8, 3), tf.float64), tf.cast(numbers(3, 3, 3, 5), tf.float64)
    assert check(lambda x, filter: [conv2d(x, filter)], x, filter) == 0


def test_half_precision(kernels):
    x, filter = numbers(64, 8, 8, 3), numbers(3, 3, 3, 5, seed=1)
    x, filter = tf.cast(x, tf.bfloat16), tf.cast(filter, tf.bfloat16)
    before = uses()
    actual = tpu.rewrite(conv2d, [x, filter])[0]
    assert kernels_since(before) in ((0, 1) if kernels else (0,))
    assert actual.dtype == tf.bfloat16
    # Summed in float32, and rounded once.
    expected = tf.cast(conv2d(tf.cast(x, tf.float32), tf.cast(filter, tf.float32)), tf.bfloat16)
    np.testing.assert_allclose(
        tf.cast(actual, tf.float32), tf.cast(expected, tf.float32), rtol=2**-7, atol=1e-6
    )


def test_without_onednn(run_python):
    run_python(
        """
        import numpy as np
        import tf_tpu_ext
        import tensorflow as tf

        tf_tpu_ext.configure(cores=1)
        tf_tpu_ext.tpu.initialize_system()
        x = tf.constant(np.random.default_rng(0).normal(size=(128, 8, 8, 3)).astype("f"))
        filter = tf.constant(np.random.default_rng(1).normal(size=(3, 3, 3, 5)).astype("f"))

        def step(x, filter):
            with tf.GradientTape() as tape:
                tape.watch([x, filter])
                y = tf.nn.max_pool2d(tf.nn.conv2d(x, filter, 1, "SAME"), 2, 2, "SAME")
                loss = tf.reduce_sum(y * y)
            return [y, *tape.gradient(loss, [x, filter])]

        for mine, theirs in zip(tf_tpu_ext.tpu.rewrite(step, [x, filter]), step(x, filter)):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-3)
        assert tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels == 4
        """,
        env={"TF_ENABLE_ONEDNN_OPTS": "0"},
    )


def test_programs_split_over_cores(cores):
    if cores < 2:
        pytest.skip("a replica of two cores needs two")

    def function(x, filter):
        return [conv2d(x, filter)]

    x, filter = numbers(64, 8, 8, 3), numbers(3, 3, 3, 5, seed=1)
    topology = tf.tpu.experimental.initialize_tpu_system(
        tf.distribute.cluster_resolver.TPUClusterResolver("")
    )
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=1
    )
    options = tf.tpu.XLAOptions(use_spmd_for_xla_partitioning=True)
    before = uses()
    outputs = tpu.replicate(
        function, [[x, filter]], device_assignment=assignment, xla_options=options
    )
    assert kernels_since(before) == 0
    np.testing.assert_allclose(outputs[0][0], conv2d(x, filter), rtol=1e-5, atol=1e-5)
