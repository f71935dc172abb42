"""Convolutions and pools in bfloat16 and float16: sums are exact, and only results are rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext.tpu import replicate

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.standard_normal([2, 24, 24, 16])
VOLUMES = RANDOM.standard_normal([2, 8, 8, 8, 8])


def gradients(operation: Callable[..., tf.Tensor]) -> Callable[..., list[tf.Tensor]]:
    """Makes a function that returns the operation's result and its gradients."""

    def run(*operands: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(operands)
            made = operation(*operands)
            # Small integers, which the smaller types can hold.
            upstream = tf.reshape(tf.range(tf.size(made)) % 5 - 2, made.shape)
        return [made, *tape.gradient(made, operands, tf.cast(upstream, made.dtype))]

    return run


OPERATIONS: dict[str, tuple[Callable[..., tf.Tensor], list[np.ndarray]]] = {
    "convolution": (
        lambda x, f: tf.nn.conv2d(x, f, 2, "SAME"),
        [IMAGES, RANDOM.standard_normal([3, 3, 16, 8])],
    ),
    "convolution of volumes": (
        lambda x, f: tf.nn.conv3d(x, f, [1] * 5, "VALID"),
        [VOLUMES, RANDOM.standard_normal([3, 3, 3, 8, 4])],
    ),
    "depthwise": (
        lambda x, f: tf.nn.depthwise_conv2d(x, f, [1] * 4, "SAME"),
        [IMAGES, RANDOM.standard_normal([3, 3, 16, 1])],
    ),
    "max pool": (lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), [IMAGES]),
    "average pool": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), [IMAGES]),
}


def repeated(step: Callable[..., list[tf.Tensor]]) -> Callable[..., Any]:
    """Makes a function that runs the step in a loop and returns the last results."""

    def run(*operands: tf.Tensor) -> Any:
        def body(i: tf.Tensor, *_: tf.Tensor) -> Any:
            # Differs in each iteration, so that it stays in the loop.
            scale = tf.cast(tf.where(i < 1, 2, 1), operands[0].dtype)
            return i + 1, *step(operands[0] * scale, *operands[1:])

        return tf.while_loop(lambda i, *_: i < 2, body, [0, *step(*operands)])[1:]

    return run


@pytest.mark.parametrize("loop", [False, True], ids=["once", "in a loop"])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", OPERATIONS)
def test_only_results_are_rounded(name: str, dtype: tf.DType, loop: bool) -> None:
    operation, values = OPERATIONS[name]
    step = gradients(operation)
    operands = [tf.cast(value, dtype) for value in values]
    [found] = replicate(repeated(step) if loop else step, [operands])
    expected = step(*(tf.cast(operand, tf.float64) for operand in operands))
    for one, exact in zip(found, expected, strict=True):
        assert one.dtype == dtype
        scale = np.abs(exact).max()
        rounding = 2.0**-11 if dtype == tf.float16 else 2.0**-8
        one = tf.cast(one, tf.float64)
        np.testing.assert_allclose(one, exact, rtol=rounding, atol=1e-5 * scale)
