"""Infinity and NaN are found by op, line, replica and step."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica
from watching import found_by, line_of

import tf_tpu_ext

v1 = tf.compat.v1


def test_located_by_op_line_replica_and_step(strategy):
    def step(x):
        scaled = x * 3.0
        logarithm = tf.math.log(scaled)
        return tf.reduce_sum(logarithm * 2.0)

    @tf.function
    def run(x):
        return strategy.run(step, args=(x,))

    last = strategy.num_replicas_in_sync - 1

    def three_steps():
        for number in range(3):
            bad = -3.0 if number == 2 else 3.0
            run(per_replica(strategy, [3.0] * last + [bad]))

    [finding] = found_by(three_steps)
    assert (finding.kind, finding.op, finding.replica, finding.step) == ("nan", "Log", last, 3)
    assert finding.source == line_of(step, "math.log")
    assert finding.instruction == "log f32[]"
    assert finding.arrives == "a result"
    assert finding.count == 1


def test_what_is_masked_is_no_finding(strategy):
    @tf.function
    def run(x):
        def step(x):
            safe = tf.where(x > 0.0, tf.math.log(x), tf.zeros_like(x))
            probabilities = tf.nn.softmax(tf.where(x > 0.0, x, float("-inf")))
            return tf.reduce_sum(safe), tf.reduce_sum(probabilities)

        return strategy.run(step, args=(x,))

    values = [np.float32([-1.0, 0.0, 2.0])] * strategy.num_replicas_in_sync
    assert found_by(lambda: run(per_replica(strategy, values))) == []


def test_infinity_before_nan():
    @tf.function
    def run(x):
        def step(x):
            large = tf.exp(x)
            return large - large

        return tf_tpu_ext.tpu.rewrite(step, [x])

    [finding] = found_by(lambda: run(tf.constant(200.0)))
    assert (finding.kind, finding.op) == ("infinity", "Exp")
    assert finding.source == line_of(run.python_function, "tf.exp")


def test_in_the_iteration_of_a_loop():
    @tf.function
    def run(x):
        def step(x):
            def body(i, x):
                root = tf.sqrt(x)
                return i + 1, root - 1.0

            return tf.while_loop(lambda i, x: i < 5, body, (0, x))[1]

        return tf_tpu_ext.tpu.rewrite(step, [x])

    # 16 -> 3 -> 0.73 -> -0.15 -> NaN
    [finding] = found_by(lambda: run(tf.constant(16.0)))
    assert (finding.kind, finding.op.rsplit("/", 1)[-1]) == ("nan", "Sqrt")
    assert finding.source == line_of(run.python_function, "tf.sqrt")


def test_in_a_branch():
    @tf.function
    def run(x):
        def step(x):
            return tf.cond(x > 0.0, lambda: x, lambda: 1.0 / (x - x))

        return tf_tpu_ext.tpu.rewrite(step, [x])

    assert found_by(lambda: run(tf.constant(1.0))) == []
    [finding] = found_by(lambda: run(tf.constant(-1.0)))
    assert (finding.kind, finding.instruction) == ("infinity", "divide f32[]")


def test_arrives_in_a_variable(strategy):
    with strategy.scope():
        weights = tf.Variable(tf.ones([3]), name="weights")

    @tf.function
    def run(x):
        def step(x):
            context = tf.distribute.get_replica_context()
            weights.assign_add(context.all_reduce("sum", tf.sqrt(x)))

        strategy.run(step, args=(x,))

    values = [np.float32([1.0, 2.0, -1.0])] * strategy.num_replicas_in_sync
    finding = found_by(lambda: run(per_replica(strategy, values)))[0]
    assert (finding.kind, finding.op, finding.arrives) == ("nan", "Sqrt", "'weights'")
    assert "Sqrt" in finding.message
    assert "'weights'" in finding.message


def test_goes_to_the_host():
    @tf.function
    def run(x):
        def step(x):
            v1.tpu.outside_compilation(
                lambda y: tf.print(y, output_stream="file:///dev/null"), tf.sqrt(x)
            )
            return x

        return tf_tpu_ext.tpu.rewrite(step, [x])

    [finding] = found_by(lambda: run(tf.constant(-1.0)))
    assert (finding.kind, finding.op, finding.arrives) == ("nan", "Sqrt", "the host")


def test_of_a_function_compiled_on_a_core():
    @tf.function(jit_compile=True)
    def run(x):
        return tf.sqrt(x) + 1.0

    def on_a_core():
        with tf.device("/device:TPU:0"):
            run(tf.constant([4.0, -4.0]))

    [finding] = found_by(on_a_core)
    assert (finding.kind, finding.op) == ("nan", "Sqrt")
    assert finding.source == line_of(run.python_function, "tf.sqrt")


def test_of_a_session():
    def computation(x):
        return tf.math.log(x, name="my_log")

    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        result = v1.tpu.rewrite(computation, [x])
        session.run(v1.tpu.initialize_system())
        feed = {x: [-1.0, 1.0]}
        [finding] = found_by(lambda: session.run(result, feed))
    assert (finding.kind, finding.op, finding.replica) == ("nan", "my_log", 0)
    assert finding.source == line_of(computation, "my_log")


@pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16, tf.float16, tf.complex64])
def test_of_other_types(dtype):
    @tf.function
    def run(x):
        return tf_tpu_ext.tpu.rewrite(lambda x: x / (x - x), [x])

    [finding] = found_by(lambda: run(tf.cast([1.0, 2.0], dtype)))
    assert finding.kind in ("nan", "infinity")
    assert finding.instruction.startswith("divide ")


@hypothesis.given(
    st.lists(
        st.sampled_from(["sqrt", "negative", "square", "reciprocal", "log1p"]),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([-4.0, -1.0, 0.0, 1.0, 4.0]),
)
@hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
def test_first_op_as_numpy_has_it(names, start):
    value, expected = np.float32(start), None
    with np.errstate(all="ignore"):
        for number, name in enumerate(names):
            value = getattr(np, name)(value)
            if expected is None and not np.isfinite(value):
                expected = f"op{number}"
    ends_finite = np.isfinite(value)

    @tf.function
    def run(x):
        def step(x):
            for number, name in enumerate(names):
                x = getattr(tf.math, name)(x, name=f"op{number}")
            return x

        return tf_tpu_ext.tpu.rewrite(step, [x])

    found = found_by(lambda: run(tf.constant(start)))
    if expected is None or ends_finite:
        assert found == []
    else:
        assert found[0].op.split("/")[0] == expected
