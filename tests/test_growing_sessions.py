"""Sessions whose graphs get ops between runs: TPU computations are bridged one by one, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

v1 = tf.compat.v1
VALUES = np.float32([1.0, 2.0, 3.0])


@pytest.fixture
def session() -> Iterator[v1.Session]:
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.tpu.initialize_system())
        yield session


def replicate(computation: Callable[..., Any], replicas: int, *inputs: Any) -> list[Any]:
    """The first result of each replica."""
    assignment = None
    if replicas > 1:
        with tf.control_dependencies(None):
            topology = v1.get_default_session().run(v1.tpu.initialize_system())
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            tf.tpu.experimental.Topology(serialized=topology), num_replicas=replicas
        )
    results = v1.tpu.replicate(computation, [list(inputs)] * replicas, device_assignment=assignment)
    return [first for first, *_ in results]


def compiled() -> int:
    return len(tf_tpu_ext.compilation_stats().programs)


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_by_ops_and_computations(session, replicas):
    x = v1.placeholder(tf.float32, [3])
    total = v1.get_variable("total", [3], initializer=v1.zeros_initializer(), use_resource=True)
    doubled = replicate(lambda x: x * 2.0, replicas, x)
    session.run(total.initializer)
    for value in session.run(doubled, {x: VALUES}):
        np.testing.assert_array_equal(value, VALUES * 2.0)
    programs = compiled()
    # Ops of the host, that take a result and others.
    kept = total.assign_add(tf.add_n(doubled))
    session.run(kept, {x: VALUES})
    np.testing.assert_array_equal(session.run(total), 2.0 * replicas * VALUES)
    assert compiled() == programs
    # One that depends on the host's ops, and through them on the first.
    squared = replicate(tf.square, replicas, kept)
    # And one of its own.
    negative = replicate(tf.negative, replicas, total)
    expected = (4.0 * replicas * VALUES) ** 2
    for value in session.run(squared, {x: VALUES}):
        np.testing.assert_array_equal(value, expected)
    for value in session.run(negative):
        np.testing.assert_array_equal(value, -4.0 * replicas * VALUES)
    for value in session.run(doubled, {x: VALUES}):
        np.testing.assert_array_equal(value, VALUES * 2.0)


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
def test_with_host_calls_loops_and_branches(session, control_flow):
    """Each step adds a computation, with a name for what it holds that others have too."""
    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if control_flow == "v2" else v1.disable_control_flow_v2)()
    seen: list[float] = []

    def note(x):
        seen.append(float(x))
        return x

    def noted(x):
        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), [])

    def computation(x):
        def body(i, x):
            return i + 1, v1.tpu.outside_compilation(noted, x) + 1.0

        looped = tf.while_loop(lambda i, x: i < 2, body, (0, x))[1]
        return v1.cond(looped > 10.0, lambda: looped - 10.0, lambda: looped)

    try:
        x = v1.placeholder(tf.float32, [])
        results = []
        for number in range(3):
            with tf.name_scope("step"):
                results.append(replicate(computation, 1, x + float(number))[0])
            values = session.run(results, {x: 7.0})
            assert values == [9.0, 10.0, 1.0][: number + 1]
            assert sorted(seen) == sorted(7.0 + i + j for i in range(number + 1) for j in range(2))
            seen.clear()
    finally:
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()


def test_in_a_loop_of_the_host(session):
    """Loops of TensorFlow 1 are bridged as a whole."""
    was_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        start = v1.placeholder(tf.float32, [])
        (outside,) = replicate(lambda x: x + 0.5, 1, start)
        looped = tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, replicate(lambda x: x * 2.0, 1, x)[0]),
            (0, start),
        )[1]
        assert session.run([outside, looped], {start: 1.0}) == [1.5, 8.0]
        more = looped + outside
        assert session.run(more, {start: 1.0}) == 9.5
    finally:
        if was_v2:
            v1.enable_control_flow_v2()


def test_after_a_computation_and_before_another(session):
    """Control edges out of a computation, and into one."""
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer(), use_resource=True)
    session.run(count.initializer)

    def add():
        return count.assign_add(1.0, read_value=False)

    first = v1.tpu.replicate(add, [[]])
    with tf.control_dependencies(first):
        seen = count.read_value()
    assert session.run(seen) == 1.0
    with tf.control_dependencies([seen]):
        (tripled,) = replicate(lambda: count * 3.0, 1)
    assert session.run(tripled) == 6.0
    assert session.run(count) == 2.0


@pytest.mark.filterwarnings("ignore:.*learning_phase_scope.*:UserWarning")
def test_steps_of_keras_in_graph_mode(make_strategy):
    """tf_keras adds ops for each epoch."""
    keras = pytest.importorskip("tf_keras")
    losses = {}
    for replicas in (1, 2):
        with tf.Graph().as_default():
            strategy = make_strategy(replicas)
            with strategy.scope():
                model = keras.Sequential(
                    [keras.layers.Dense(1, input_shape=(3,), kernel_initializer="ones")]
                )
                model.compile(keras.optimizers.legacy.SGD(0.05), "mse")
            random = np.random.default_rng(0)
            images = random.normal(size=[16, 3]).astype(np.float32)
            labels = images.sum(axis=1, keepdims=True) * 2.0
            history = model.fit(
                images, labels, batch_size=8 // replicas, epochs=3, shuffle=False, verbose=0
            )
            losses[replicas] = history.history["loss"]
            assert losses[replicas][-1] < losses[replicas][0]
