"""Padding that is taken for true elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from watching import found_by, line_of

v1 = tf.compat.v1


@pytest.fixture
def two_cores():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=2)


def test_padding_that_is_read(two_cores):
    @tf.function
    def run(x, y):
        def step(x):
            # Takes the padding for true elements.
            whole = gen_xla_ops.xla_set_dynamic_dimension_size(x, 0, 8)
            return tf.reduce_sum(whole * 2.0)

        return v1.tpu.replicate(
            step,
            [[x], [y]],
            maximum_shapes=[tf.TensorShape([8])],
            device_assignment=two_cores,
        )

    [finding] = found_by(lambda: run(tf.ones([3]), tf.ones([8])))
    assert (finding.kind, finding.replica) == ("unwritten", 0)
    assert finding.source == line_of(run.python_function, "set_dynamic_dimension_size")
    assert "padding" in finding.message
    assert "padding" in finding.on_a_tpu


def test_padding_that_is_not_read(two_cores):
    @tf.function
    def run(x, y):
        def step(x):
            return tf.reduce_mean(x), tf.nn.softmax(x), tf.reduce_max(tf.sort(x))

        return v1.tpu.replicate(
            step,
            [[x], [y]],
            maximum_shapes=[tf.TensorShape([8])],
            device_assignment=two_cores,
        )

    x, y = np.float32([1.0, 2.0, 6.0]), np.float32([1.0, 5.0])
    results: list[Any] = []
    assert found_by(lambda: results.extend(run(tf.constant(x), tf.constant(y)))) == []
    for value, (mean, probabilities, largest) in zip((x, y), results, strict=True):
        np.testing.assert_allclose(mean, value.mean(), rtol=1e-6)
        np.testing.assert_allclose(probabilities, np.exp(value) / np.exp(value).sum(), rtol=1e-5)
        assert largest == value.max()
