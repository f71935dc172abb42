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
