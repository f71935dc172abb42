"""Chains of elementwise ops that are longer than what XLA is given as one kernel."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

LENGTH = 700


def chain(x: Any, y: Any) -> Any:
    for i in range(LENGTH):
        x = x * y if i % 2 else x + y
    return x


def values(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    return generator.normal(size=shape), generator.uniform(0.3, 0.9, size=shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bfloat16"])
def test_equals_numpy(dtype: str) -> None:
    as_dtype = tf.as_dtype(dtype).as_numpy_dtype
    x, y = (value.astype(as_dtype) for value in values((3, 5)))
    if dtype == "int32":
        y = y + 3  # Products overflow, which wraps around.
    [result] = tf.function(lambda x, y: tf_tpu_ext.tpu.rewrite(chain, [x, y]))(x, y)
    if dtype == "int32":
        np.testing.assert_array_equal(result, chain(x, y))
    else:
        tolerance = {"float64": 1e-12, "bfloat16": 0.1}.get(dtype, 1e-4)
        exact = [value.astype(np.complex128) for value in (x, y)]
        np.testing.assert_allclose(
            np.asarray(result).astype(np.complex128), chain(*exact), rtol=tolerance
        )


def test_gradient_equals_that_of_numpy() -> None:
    x, y = values((4,))

    def loss(x: Any, y: Any) -> Any:
        return tf.gradients(tf.reduce_sum(chain(x, y)), [x, y])

    by_x, by_y = tf.function(lambda x, y: tf_tpu_ext.tpu.rewrite(loss, [x, y]))(x, y)
    np.testing.assert_allclose(by_x, y ** (LENGTH // 2), rtol=1e-9)
    step = 1e-6
    difference = (chain(x, y + step) - chain(x, y - step)) / (2 * step)
    np.testing.assert_allclose(by_y, difference, rtol=1e-5)


def test_variables_updated_by_chains(strategy: tf.distribute.TPUStrategy) -> None:
    x, y = values((6,))
    with strategy.scope():
        weight = tf.Variable(x)

    @tf.function
    def step() -> Any:
        def replica() -> None:
            weight.assign(chain(weight, tf.constant(y)))

        strategy.run(replica)

    for _ in range(2):
        step()
        x = chain(x, y)
    for component in getattr(weight, "values", [weight]):
        np.testing.assert_allclose(component, x, rtol=1e-12)


def test_chain_of_a_loop_and_of_a_session() -> None:
    x, y = values((6,))

    def rounds(x: Any, y: Any) -> Any:
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, chain(x, y)), (0, x))[1]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        [result] = tf_tpu_ext.tpu.rewrite(rounds, [tf.constant(x), tf.constant(y)])
        session.run(tf.compat.v1.tpu.initialize_system())
        computed = session.run(result)
    for _ in range(3):
        x = chain(x, y)
    np.testing.assert_allclose(computed, x, rtol=1e-12)


def test_host_call_between_chains() -> None:
    x, y = values((6,))

    def body(x: Any, y: Any) -> Any:
        def on_host(value: Any) -> Any:
            return tf.ensure_shape(tf.numpy_function(np.sin, [value], tf.float64), [6])

        return chain(tf.compat.v1.tpu.outside_compilation(on_host, chain(x, y)), y)

    [result] = tf.function(lambda x, y: tf_tpu_ext.tpu.rewrite(body, [x, y]))(x, y)
    np.testing.assert_allclose(result, chain(np.sin(chain(x, y)), y), rtol=1e-9)


def test_machine_code_is_kept(tmp_path: pathlib.Path) -> None:
    x, y = values((7,))
    tf_tpu_ext.configure(compilation_cache=str(tmp_path))
    try:
        for restored in (False, True):
            # Each is a program of its own for the process.
            step = tf.function(lambda x, y: tf_tpu_ext.tpu.rewrite(chain, [x, y]))
            [result] = step(x, y)
            np.testing.assert_allclose(result, chain(x, y), rtol=1e-12)
            assert tf_tpu_ext.compilation_stats().programs[-1].restored == restored
    finally:
        tf_tpu_ext.configure(compilation_cache="")
