"""Products of bfloat16 in compiled programs, by TensorFlow's kernels where those are faster."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_counts import kernels_since, uses

import tf_tpu_ext
from tf_tpu_ext import tpu

# The result is rounded to 8 bits.
TOLERANCE = 2.0**-8
# Whether the processor multiplies bfloat16 several times as fast as float32.
FAST = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()

Function = Callable[..., Any]


def numbers(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.cast(np.random.default_rng(seed).normal(size=shape), tf.bfloat16)


def check(function: Function, reference: Function, *arguments: tf.Tensor) -> int:
    """Compares a program with NumPy's float64; returns how many products kernels computed."""
    before = uses()
    actual = tpu.rewrite(function, list(arguments))[0]
    count = kernels_since(before)
    assert actual.dtype == tf.bfloat16
    expected = reference(*(np.asarray(argument, np.float64) for argument in arguments))
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(
        np.asarray(actual, np.float64) / scale, expected / scale, rtol=TOLERANCE, atol=TOLERANCE
    )
    return count


def check_count(count: int, products: int) -> None:
    """Checks that kernels computed all of them, or on other processors perhaps none."""
    assert count == products if FAST else count in (0, products)


def test_matmul(cores):
    count = check(lambda x, y: [x @ y], np.matmul, numbers(96, 130), numbers(130, 170, seed=1))
    check_count(count, 1)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(*[st.integers(100, 140)] * 3),
    adjoint=st.tuples(st.booleans(), st.booleans()),
)
def test_any_matmul(cores, batch, sizes, adjoint):
    rows, summed, columns = sizes
    x = numbers(*batch, *((summed, rows) if adjoint[0] else (rows, summed)))
    y = numbers(*batch, *((columns, summed) if adjoint[1] else (summed, columns)), seed=1)

    def reference(x, y):
        x = np.swapaxes(x, -1, -2) if adjoint[0] else x
        return x @ (np.swapaxes(y, -1, -2) if adjoint[1] else y)

    def function(x, y):
        return [tf.matmul(x, y, transpose_a=adjoint[0], transpose_b=adjoint[1])]

    check_count(check(function, reference, x, y), 1)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("btnh,bsnh->bnts", [(2, 60, 3, 64), (2, 70, 3, 64)]),
        ("bnts,bsnh->btnh", [(2, 3, 60, 70), (2, 70, 3, 64)]),
        ("abc,cde->abde", [(6, 20, 96), (96, 4, 32)]),
        ("abcd,cde->abe", [(6, 20, 4, 32), (4, 32, 96)]),
        ("abc,abd->cd", [(6, 20, 96), (6, 20, 128)]),
    ],
)
def test_einsum(equation, shapes, cores):
    x, y = (numbers(*shape, seed=seed) for seed, shape in enumerate(shapes))
    count = check(
        lambda x, y: [tf.einsum(equation, x, y)], lambda x, y: np.einsum(equation, x, y), x, y
    )
    check_count(count, 1)


def test_gradients(cores):
    x, y = numbers(90, 130), numbers(130, 110, seed=1)

    def gradient(x, y):
        with tf.GradientTape() as tape:
            tape.watch(y)
            # The weights of the sum are the first column of x.
            result = tf.reduce_sum((x @ y) * x[:, :1])
        return [tape.gradient(result, y)]

    def reference(x, y):
        return x.T @ np.broadcast_to(x[:, :1], (90, 110))

    # The sum itself is not returned, so its product is not computed.
    check_count(check(gradient, reference, x, y), 1)


def test_in_loop(cores):
    x = numbers(128, 128) * tf.cast(128**-0.5, tf.bfloat16)

    def power(x):
        result = x
        for _ in tf.range(3):
            result = result @ x
        return [result]

    def reference(x):
        result = x
        for _ in range(3):
            # A program rounds what it carries from one iteration to the next.
            result = np.asarray(tf.cast(result @ x, tf.bfloat16), np.float64)
        return result

    function = tf.autograph.to_graph(power)
    check_count(check(function, reference, x), 1)


def test_small_products_stay(cores):
    assert check(lambda x, y: [x @ y], np.matmul, numbers(32, 32), numbers(32, 32)) == 0


def test_option(cores):
    with tf_tpu_ext.Options(tensorflow_kernels=False):
        assert check(lambda x, y: [x @ y], np.matmul, numbers(160, 99), numbers(99, 160)) == 0


def test_on_every_core(strategy):
    """Several replicas in a group, too, get the products of their own values."""
    weights = numbers(128, 192, seed=9)
    replicas = strategy.num_replicas_in_sync
    inputs = [numbers(64, 128, seed=seed) for seed in range(replicas)]
    values = strategy.experimental_distribute_values_from_function(
        lambda context: inputs[context.replica_id_in_sync_group]
    )

    @tf.function
    def step(x):
        return strategy.run(lambda x: tf.matmul(x, weights), [x])

    before = uses()
    results = strategy.experimental_local_results(step(values))
    check_count(kernels_since(before), 1)
    for x, result in zip(inputs, results, strict=True):
        expected = np.asarray(x, np.float64) @ np.asarray(weights, np.float64)
        scale = np.max(np.abs(expected))
        np.testing.assert_allclose(
            np.asarray(result, np.float64) / scale, expected / scale, atol=TOLERANCE
        )
