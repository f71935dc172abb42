"""Updates from several threads: each counts exactly once, whatever kind of program makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

CORE = "/device:TPU:0"
CALLS = 150
# Below and above the size from which a program overwrites variables where they are.
SIZES = [1, 100_000]


def _call_from_threads(functions: Sequence[Callable[[], Any]]) -> None:
    """Calls each function `CALLS` times, from a thread of its own."""
    errors: list[BaseException] = []

    def call(function: Callable[[], Any]) -> None:
        try:
            with tf.device(CORE):
                for _ in range(CALLS):
                    function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _adder(variable: tf.Variable, **options: Any) -> Callable[[], Any]:
    @tf.function(**options)
    def add() -> tf.Tensor:
        variable.assign_add(tf.ones_like(variable))
        return tf.constant(0)

    with tf.device(CORE):
        add()
        variable.assign(tf.zeros_like(variable))
    return add


@pytest.mark.parametrize("size", SIZES)
def test_compiled_functions_on_a_core(size: int) -> None:
    with tf.device(CORE):
        variable = tf.Variable(tf.zeros([size]))
    _call_from_threads([_adder(variable, jit_compile=True)] * 4)
    np.testing.assert_array_equal(variable, np.full([size], 4 * CALLS))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_steps_of_a_strategy_and_compiled_functions(
    make_strategy: Callable[[int], Any], replicas: int, size: int
) -> None:
    strategy = make_strategy(replicas)
    with strategy.scope():
        variable = tf.Variable(
            tf.zeros([size]),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def step() -> None:
        strategy.run(lambda: (variable.assign_add(tf.ones([size])), None)[1])

    step()
    parts = strategy.experimental_local_results(variable)
    for part in parts:
        part.assign(tf.zeros([size]))
    compiled = _adder(parts[0], jit_compile=True)
    _call_from_threads([step, step, compiled, compiled])
    np.testing.assert_array_equal(parts[0], np.full([size], 4 * CALLS))
    for part in parts[1:]:
        np.testing.assert_array_equal(part, np.full([size], 2 * CALLS))


def _eager_adder(variable: tf.Variable) -> Callable[[], Any]:
    ones = tf.ones_like(variable)
    return lambda: variable.assign_add(ones)


def _scatter_adder(variable: tf.Variable) -> Callable[[], Any]:
    size = variable.shape[0]
    update = tf.IndexedSlices(tf.ones([size]), tf.range(size))
    return lambda: variable.scatter_add(update)


def _executor_adder(variable: tf.Variable) -> Callable[[], Any]:
    return _adder(variable)  # ops, one by one, on the core


@pytest.mark.parametrize("make_adder", [_eager_adder, _scatter_adder, _executor_adder])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_steps_of_a_strategy_and_ops_on_a_core(
    make_strategy: Callable[[int], Any],
    replicas: int,
    size: int,
    make_adder: Callable[[tf.Variable], Callable[[], Any]],
) -> None:
    strategy = make_strategy(replicas)
    with strategy.scope():
        variable = tf.Variable(
            tf.zeros([size]),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def step() -> None:
        strategy.run(lambda: (variable.assign_add(tf.ones([size])), None)[1])

    step()
    parts = strategy.experimental_local_results(variable)
    add = make_adder(parts[0])
    for part in parts:
        part.assign(tf.zeros([size]))
    _call_from_threads([step, step, add, add])
    np.testing.assert_array_equal(parts[0], np.full([size], 4 * CALLS))
    for part in parts[1:]:
        np.testing.assert_array_equal(part, np.full([size], 2 * CALLS))


def test_a_host_call_updates_a_variable_of_the_core_that_waits_for_it(
    make_strategy: Callable[[int], Any],
) -> None:
    strategy = make_strategy(1)
    with strategy.scope():
        updated = tf.Variable(0.0)
        calls = tf.Variable(0.0)
    (on_core,) = strategy.experimental_local_results(calls)

    def count() -> np.ndarray:
        on_core.assign_add(1.0)
        return np.float32(1.0)

    def step() -> None:
        updated.assign_add(
            tf.compat.v1.tpu.outside_compilation(lambda: tf.py_function(count, [], tf.float32))
        )

    @tf.function
    def run() -> None:
        strategy.run(step)

    for _ in range(5):
        run()
    assert updated.numpy() == 5.0
    assert calls.numpy() == 5.0
