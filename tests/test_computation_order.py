"""TPU computations of one graph run in the order of the program."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

Strategy = tf.distribute.TPUStrategy
v1 = tf.compat.v1

COMPUTATIONS = 12


def expected(count: int, start: float = 0.0) -> float:
    """What remains of `value = 2 * value + i` for each i: every order gives another number."""
    value = start
    for i in range(count):
        value = 2.0 * value + i
    return value


def test_steps_that_python_unrolls(strategy: Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(0.0)

    @tf.function
    def steps() -> Any:
        for i in range(COMPUTATIONS):
            results = strategy.run(lambda i=i: variable.assign(2.0 * variable + float(i)))
        return strategy.reduce("MEAN", results, axis=None)

    assert float(steps()) == expected(COMPUTATIONS)
    assert float(variable.read_value()) == expected(COMPUTATIONS)


def test_steps_in_a_loop_of_the_host(strategy: Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(0.0)

    @tf.function
    def steps(rounds: Any) -> None:
        for _ in tf.range(rounds):
            for i in range(COMPUTATIONS):
                strategy.run(lambda i=i: variable.assign(2.0 * variable + float(i)))

    steps(tf.constant(2))
    value = expected(COMPUTATIONS, start=expected(COMPUTATIONS))
    assert float(variable.read_value()) == value


def test_steps_between_effects_of_the_host(strategy: Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(0.0)
    seen: list[float] = []

    @tf.function
    def steps() -> None:
        for i in range(COMPUTATIONS):
            strategy.run(lambda i=i: variable.assign(2.0 * variable + float(i)))
            tf.py_function(lambda value: seen.append(float(value)), [variable.read_value()], [])

    steps()
    assert seen == [expected(count + 1) for count in range(COMPUTATIONS)]


@pytest.mark.parametrize("replicas", [1, 8])
def test_control_dependencies_of_a_session(replicas: int) -> None:
    with tf.Graph().as_default():
        variable = v1.get_variable(
            "variable", [], initializer=tf.zeros_initializer(), use_resource=True
        )
        earlier: list[tf.Operation] = []
        results = []
        for i in range(COMPUTATIONS):

            def computation(i: int = i) -> Any:
                with tf.control_dependencies([variable.assign(variable * 2.0 + float(i))]):
                    return variable.read_value()

            with tf.control_dependencies(earlier):
                outputs = v1.tpu.replicate(computation, [[] for _ in range(replicas)])
            results.append(outputs[0][0])
            earlier = [output.op for (output,) in outputs]
        with v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            session.run(v1.global_variables_initializer())
            # The variable is one for all replicas of a session's graph.
            if replicas == 1:
                assert session.run(results[-1]) == expected(COMPUTATIONS)
                assert session.run(variable) == expected(COMPUTATIONS)
            session.run(v1.global_variables_initializer())
            values = session.run(results)
            if replicas == 1:
                assert values == [expected(count + 1) for count in range(COMPUTATIONS)]
            assert values == sorted(values)


def test_computation_follows_the_host_in_a_session() -> None:
    with tf.Graph().as_default():
        variable = v1.get_variable(
            "variable", [], initializer=tf.zeros_initializer(), use_resource=True
        )
        with tf.control_dependencies([variable.assign(5.0)]):
            (result,) = v1.tpu.rewrite(lambda: variable.read_value() + 1.0)
        with tf.control_dependencies([result.op]):
            after = variable.assign_add(10.0)
        with v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            session.run(v1.global_variables_initializer())
            assert session.run([result, after]) == [6.0, 15.0]


def test_independent_computations_are_not_tied(strategy: Strategy) -> None:
    with strategy.scope():
        variables = [tf.Variable(0.0) for _ in range(3)]

    @tf.function
    def steps() -> Any:
        return [
            strategy.reduce("SUM", strategy.run(lambda v=v: v.assign_add(1.0)), axis=None)
            for v in variables
        ]

    assert [float(result) for result in steps()] == [strategy.num_replicas_in_sync] * 3
