"""Arrays that XLA divides over the cores of a replica (SPMD)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica, spmd_pairs
from watching import found_by, line_of


@pytest.fixture
def pairs():
    return spmd_pairs(2)


@pytest.mark.parametrize("place", [0, 6])
def test_the_core_that_has_it_tells(pairs, place):
    """Seven rows: the second core has fewer of its own than its part has room for."""

    def step(x):
        x = pairs.experimental_split_to_logical_devices(x, [2, 1])
        logarithm = tf.math.log(x[:7])
        return tf.reduce_sum(tf.matmul(logarithm, tf.ones([3, 5])), axis=0)

    @tf.function
    def run(x):
        return pairs.run(step, args=(x,))

    good = np.full([8, 3], 2.0, np.float32)
    bad = good.copy()
    bad[place, 1] = -1.0
    results: list[Any] = []
    assert found_by(lambda: results.append(run(per_replica(pairs, [good, good])))) == []
    for value in pairs.experimental_local_results(results[0]):
        np.testing.assert_allclose(value, 21 * np.log(2.0) * np.ones(5), rtol=1e-5)
    [finding] = found_by(lambda: run(per_replica(pairs, [good, bad])))
    assert (finding.kind, finding.op, finding.replica, finding.step) == ("nan", "Log", 1, 2)
    assert finding.instruction == "log f32[7,3]"
    assert finding.source == line_of(step, "math.log")
    assert finding.arrives == "a result"
