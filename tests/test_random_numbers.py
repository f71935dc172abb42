"""Random numbers of a seed are made of the bits that TensorFlow draws, on any number of cores."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica


def draw(seed: tf.Tensor) -> list[tf.Tensor]:
    uniform = functools.partial(tf.random.stateless_uniform, seed=seed, alg="philox")
    return [
        # Few numbers, and more than a multiple of what the generator makes at once.
        uniform([3]),
        uniform([37, 5, 7]),
        uniform([999], dtype=tf.float64),
        uniform([129], minval=None, maxval=None, dtype=tf.int32),
        uniform([131], minval=None, maxval=None, dtype=tf.uint64),
    ]


def expected(seed: np.ndarray) -> list[np.ndarray]:
    """What XLA makes of the bits that TensorFlow's CPU kernels draw: the upper ones count."""

    def bits(shape: list[int], dtype: Any) -> np.ndarray:
        return tf.random.stateless_uniform(shape, seed, None, None, dtype, alg="philox").numpy()

    with tf.device("CPU:0"):
        return [
            (bits([3], tf.uint32) >> 9).astype(np.float32) * np.float32(2**-23),
            (bits([37, 5, 7], tf.uint32) >> 9).astype(np.float32) * np.float32(2**-23),
            (bits([999], tf.uint64) >> 12) * 2.0**-52,
            bits([129], tf.int32),
            bits([131], tf.uint64),
        ]


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_numbers_of_a_seed(make_strategy: Callable[[int], Any], replicas: int) -> None:
    strategy = make_strategy(replicas)
    seeds = [np.array([i, 1 << i], np.int32) for i in range(replicas)]

    @tf.function
    def step(seed: tf.Tensor) -> Any:
        return strategy.run(lambda seed: draw(seed), [seed])

    results = [strategy.experimental_local_results(x) for x in step(per_replica(strategy, seeds))]
    for replica, seed in enumerate(seeds):
        for numbers, right in zip(results, expected(seed), strict=True):
            np.testing.assert_array_equal(numbers[replica].numpy(), right)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_many_numbers_begin_as_few_do(make_strategy: Callable[[int], Any], dtype: Any) -> None:
    """With the algorithm that a TPU chooses by itself."""
    strategy = make_strategy(8)
    seeds = [np.array([i, 9], np.int32) for i in range(8)]

    @tf.function
    def step(seed: tf.Tensor) -> Any:
        return strategy.run(
            lambda seed: [tf.random.stateless_uniform([n], seed, dtype=dtype) for n in (5, 1001)],
            [seed],
        )

    few, many = map(strategy.experimental_local_results, step(per_replica(strategy, seeds)))
    for replica in range(8):
        np.testing.assert_array_equal(few[replica].numpy(), many[replica].numpy()[:5])
        assert abs(float(tf.reduce_mean(many[replica])) - 0.5) < 0.05
    assert len({tuple(values.numpy()) for values in few}) == 8


def test_generator_goes_on_from_its_state(make_strategy: Callable[[int], Any]) -> None:
    strategy = make_strategy(2)
    with strategy.scope():
        generator = tf.random.Generator.from_seed(5, alg="philox")

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: (generator.uniform([100]), generator.uniform([101])))

    drawn = [strategy.experimental_local_results(x) for _ in range(2) for x in step()]
    every = [tuple(values.numpy()[:100]) for pair in drawn for values in pair]
    assert len(set(every)) == 8


@pytest.mark.parametrize("kind", ["core", "CPU"])
def test_a_compiled_function(kind: str) -> None:
    function = tf.function(draw, jit_compile=True)
    with tf.device("TPU:0" if kind == "core" else "CPU:0"):
        results = function(tf.constant([3, 4]))
    for numbers, right in zip(results, expected(np.array([3, 4])), strict=True):
        np.testing.assert_array_equal(numbers.numpy(), right)
