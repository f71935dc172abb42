"""Ops that TensorFlow lowers for a TPU only, against its CPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

tpu = tf.compat.v1.tpu
raw = tf.raw_ops

compiled = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def on_tpu(function: Callable[..., Any], *inputs: Any) -> Any:
    """Runs `function` compiled, on one core."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        output = tpu.rewrite(function, [tf.constant(value) for value in inputs])
        session.run(tpu.initialize_system())
        return session.run(output)[0]


def on_cpu(function: Callable[..., Any], *inputs: Any) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device("/CPU:0"):
        return session.run(function(*[tf.constant(value) for value in inputs]))


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


class TestResizeNearestNeighborGrad:
    @compiled
    @given(
        st.tuples(st.integers(1, 7), st.integers(1, 7)),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
        st.sampled_from([(False, False), (True, False), (False, True)]),
    )
    def test_equals_the_cpu(self, original, resized, sampling):
        align_corners, half_pixel_centers = sampling

        def gradient(grads):
            return raw.ResizeNearestNeighborGrad(
                grads=grads,
                size=original,
                align_corners=align_corners,
                half_pixel_centers=half_pixel_centers,
            )

        grads = normal(2, *resized, 3)
        np.testing.assert_allclose(
            on_tpu(gradient, grads), on_cpu(gradient, grads), rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("dtype", ["half", "bfloat16", "float64"])
    def test_types(self, dtype):
        grads = normal(1, 6, 6, 2, dtype=tf.as_dtype(dtype).as_numpy_dtype)
        got = on_tpu(lambda g: raw.ResizeNearestNeighborGrad(grads=g, size=[3, 2]), grads)
        assert got.dtype == grads.dtype
        blocks = grads.astype(np.float64).reshape(1, 3, 2, 2, 3, 2).sum(axis=(2, 4))
        np.testing.assert_allclose(
            got.astype(np.float64), blocks, rtol=1e-2 if grads.itemsize == 2 else 1e-12, atol=1e-6
        )

    def test_training_through_a_resize(self):
        def gradient(x):
            resized = tf.image.resize(x, [8, 8], method="nearest")
            return tf.gradients(resized * resized, x)[0]

        x = normal(2, 4, 4, 3)
        # Every pixel was copied four times.
        np.testing.assert_allclose(on_tpu(gradient, x), 8 * x, rtol=1e-6)


class TestRowUpdates:
    @pytest.mark.parametrize("op", [raw.InplaceUpdate, raw.InplaceAdd])
    @pytest.mark.parametrize("dtype", [np.float32, np.int32])
    @pytest.mark.parametrize("rows", [[2], [0, 3], [-1, 1], [9, 0, 6]])
    def test_equals_the_cpu(self, op, dtype, rows):
        def update(x, v):
            return op(x=x, i=rows, v=v)

        x = (normal(5, 2, 3) * 10).astype(dtype)
        v = (normal(len(rows), 2, 3) * 7).astype(dtype)
        np.testing.assert_array_equal(on_tpu(update, x, v), on_cpu(update, x, v))

    def test_repeated_rows_add_up(self):
        got = on_tpu(lambda x: raw.InplaceAdd(x=x, i=[1, 1], v=[[1.0], [2.0]]), normal(2, 1) * 0)
        np.testing.assert_array_equal(got, [[0], [3]])

    def test_wrong_shapes(self):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"InplaceUpdate: expected x .*v"):
            on_tpu(lambda x: raw.InplaceUpdate(x=x, i=[0, 1], v=normal(1, 3)), normal(4, 3))
