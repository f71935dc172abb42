"""Values of a variable that should be the same on all replicas."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from replicas import per_replica
from watching import found_by, line_of


def test_first_op_and_variable(make_strategy):
    strategy = make_strategy(4)
    with strategy.scope():
        weights = tf.Variable(tf.ones([4]), name="kernel")

    def step(x):
        doubled = x * 2.0
        update = doubled + 1.0
        # What a custom optimizer does that forgets to sum gradients.
        tf.raw_ops.AssignSubVariableOp(resource=weights.handle, value=update)

    @tf.function
    def run(x):
        strategy.run(step, args=(x,))

    values = [np.float32([1.0, 2.0, 3.0, number]) for number in range(4)]

    def two_steps():
        run(per_replica(strategy, values))
        run(per_replica(strategy, values))

    [finding] = found_by(two_steps)
    assert (finding.kind, finding.step) == ("replicas-differ", 1)
    assert finding.arrives == "'kernel'"
    assert finding.source == line_of(step, "x * 2.0")
    assert finding.argument.startswith("input ")
    assert finding.other_source == line_of(step, "AssignSubVariableOp")


def test_before_the_first_step(make_strategy):
    strategy = make_strategy(2)
    with strategy.scope():
        weights = tf.Variable(1.0, name="restored")
    weights.values[1].assign(2.0)

    @tf.function
    def run():
        return strategy.run(lambda: weights * 2.0)

    [finding] = found_by(run)
    assert (finding.kind, finding.op, finding.arrives) == ("replicas-differ", "", "'restored'")
    assert "before step 1" in finding.message


def test_summed_gradients_and_own_variables_are_fine(strategy):
    with strategy.scope():
        weights = tf.Variable(tf.ones([4]))
        mean = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        optimizer = tf.keras.optimizers.SGD(0.1)

    @tf.function
    def run(x):
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * x)
            mean.assign(loss)
            optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
            return loss

        return strategy.run(step, args=(x,))

    count = strategy.num_replicas_in_sync
    values = [np.float32([1.0, 2.0, 3.0, number]) for number in range(count)]
    assert found_by(lambda: run(per_replica(strategy, values))) == []
    gradient = np.sum(values, axis=0)
    np.testing.assert_allclose(weights.values[0].numpy(), 1.0 - 0.1 * gradient, rtol=1e-6)


def test_statistics_of_keras_normalization(make_strategy):
    """Keras 3 gives each core statistics of its own, and never brings them together."""
    strategy = make_strategy(2)
    with strategy.scope():
        layer = tf.keras.layers.BatchNormalization()
        layer.build([None, 3])

    @tf.function
    def run(x):
        strategy.run(lambda x: layer(x, training=True), args=(x,))

    values = [np.float32([[1.0, 2.0, 3.0]]), np.float32([[3.0, 4.0, 5.0]])]
    found = found_by(lambda: run(per_replica(strategy, values)))
    assert {each.kind for each in found} == {"replicas-differ"}
    assert any("moving_mean" in each.arrives for each in found)
