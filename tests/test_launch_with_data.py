"""Steps that take their data from iterators of the cores, started from host and from cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

import tf_tpu_ext

Strategy = tf.distribute.TPUStrategy
ProgramDevices = Callable[..., set[str]]
STEPS = 4
BATCH = 16  # of all replicas


def batches(steps: int = STEPS) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(steps, BATCH, 3)).astype(np.float32)


def distribute(strategy: Strategy, data: np.ndarray) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(data.reshape(-1, data.shape[-1]))
    return strategy.experimental_distribute_dataset(dataset.batch(BATCH))


class Trained:
    """A weight, the step that trains it on a batch, and what NumPy says that it becomes."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(np.ones(3, np.float32))

    def step(self, batch: Any) -> Any:
        def replica(x: Any) -> Any:
            gradient = tf.reduce_sum(x * self.weight, axis=0)
            summed = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            self.weight.assign_sub(0.01 * summed)
            return tf.reduce_sum(gradient)

        return self.strategy.reduce("SUM", self.strategy.run(replica, args=(batch,)), axis=None)

    def check(self, data: np.ndarray) -> None:
        expected = np.ones(3)
        for batch in data.astype(np.float64):
            expected -= 0.01 * (batch * expected).sum(axis=0)
        for component in self.strategy.experimental_local_results(self.weight):
            np.testing.assert_allclose(component, expected, rtol=1e-4)


def test_steps_of_a_loop_take_batches(
    strategy: Strategy, from_host: bool, program_devices: ProgramDevices
) -> None:
    trained = Trained(strategy)
    iterator = iter(distribute(strategy, batches()))

    @tf.function
    def steps(iterator: Any, count: Any) -> Any:
        last = 0.0
        for _ in tf.range(count):
            last = trained.step(next(iterator))
        return last

    devices = program_devices(steps, iterator, tf.constant(1))
    assert devices == ({"CPU"} if from_host else {"CPU", "TPU"})
    steps(iterator, tf.constant(STEPS - 1))
    trained.check(batches())
    with pytest.raises(tf.errors.OutOfRangeError):
        steps(iterator, tf.constant(1))
    trained.check(batches())


def test_single_steps_take_batches(
    strategy: Strategy, from_host: bool, program_devices: ProgramDevices
) -> None:
    trained = Trained(strategy)

    @tf.function
    def step(iterator: Any) -> Any:
        return trained.step(next(iterator))

    iterator = iter(distribute(strategy, batches()))
    devices = program_devices(step, iterator)
    assert devices == ({"CPU"} if from_host else {"CPU", "TPU"})
    for _ in range(STEPS - 1):
        step(iterator)
    trained.check(batches())


def test_loop_ends_with_the_data(strategy: Strategy, from_host: bool) -> None:
    trained = Trained(strategy)

    @tf.function
    def epoch(iterator: Any) -> Any:
        count = tf.constant(0)
        batch = iterator.get_next_as_optional()
        while batch.has_value():
            trained.step(batch.get_value())
            count += 1
            batch = iterator.get_next_as_optional()
        return count

    assert int(epoch(iter(distribute(strategy, batches())))) == STEPS
    trained.check(batches())


def test_functions_make_iterators_of_their_own(strategy: Strategy, from_host: bool) -> None:
    trained = Trained(strategy)
    dataset = distribute(strategy, batches())

    @tf.function
    def epoch() -> None:
        for batch in dataset:
            trained.step(batch)

    epoch()
    trained.check(batches())


def test_last_batch_may_be_smaller(strategy: Strategy, from_host: bool) -> None:
    rows = np.random.default_rng(11).normal(size=(BATCH + 5, 3)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    with strategy.scope():
        total = tf.Variable(
            0.0,
            aggregation=tf.VariableAggregation.SUM,
            synchronization=tf.VariableSynchronization.ON_READ,
        )

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in tf.range(2):
            strategy.run(lambda x: total.assign_add(tf.reduce_sum(x)), args=(next(iterator),))

    steps(iterator)
    np.testing.assert_allclose(total.read_value(), rows.astype(np.float64).sum(), rtol=1e-4)


def test_error_of_the_data_ends_the_loop(strategy: Strategy, from_host: bool) -> None:
    trained = Trained(strategy)
    data = batches()
    data[2:] = np.inf

    def check(row: Any) -> Any:
        tf.debugging.assert_all_finite(row, "Row without numbers.")
        return row

    dataset = tf.data.Dataset.from_tensor_slices(data.reshape(-1, 3)).map(check).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in tf.range(STEPS):
            trained.step(next(iterator))

    with pytest.raises(tf.errors.InvalidArgumentError, match="Row without numbers"):
        steps(iterator)
    trained.check(data[:2])


def test_loop_that_waits_for_data_ends_when_cancelled(strategy: Strategy, from_host: bool) -> None:
    trained = Trained(strategy)
    asked, never = threading.Event(), threading.Event()

    def rows() -> Iterator[Any]:
        yield from batches(steps=1)
        asked.set()
        never.wait()

    dataset = tf.data.Dataset.from_generator(
        rows, output_signature=tf.TensorSpec([BATCH, 3], tf.float32)
    )
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in tf.range(STEPS):
            trained.step(next(iterator))

    manager = cancellation.CancellationManager()
    concrete = manager.get_cancelable_function(steps.get_concrete_function(iterator))
    threading.Thread(target=lambda: (asked.wait(), manager.start_cancel())).start()
    try:
        with pytest.raises(tf.errors.CancelledError):
            concrete(iterator)
    finally:
        never.set()


@pytest.fixture
def on_core() -> Any:
    return tf.device("/device:TPU:0")


def doubled(value: Any) -> Any:
    return tf.identity(tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [value])[0])


def test_iterators_with_names_are_found_on_their_core(from_host: bool, on_core: Any) -> None:
    # The handle holds a name, no reference.
    spec = {"output_types": [tf.float32], "output_shapes": [[]]}
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0])
    with on_core:
        handle = tf.raw_ops.IteratorV2(shared_name=f"named_{from_host}", container="mine", **spec)
        tf.raw_ops.MakeIterator(dataset=dataset._variant_tensor, iterator=handle)

    @tf.function
    def steps(count: Any) -> Any:
        total = 0.0
        for _ in tf.range(count):
            with on_core:
                value = tf.raw_ops.IteratorGetNext(iterator=handle, **spec)[0]
            total += doubled(value)
        return total

    assert float(steps(tf.constant(2))) == 6.0
    assert float(steps(tf.constant(1))) == 6.0
    with on_core:
        tf.raw_ops.DestroyResourceOp(resource=handle)
    with pytest.raises(tf.errors.NotFoundError, match=f"named_{from_host}"):
        steps(tf.constant(1))


def test_variables_of_a_core_are_read_for_the_host(
    from_host: bool, on_core: Any, program_devices: ProgramDevices
) -> None:
    @tf.function
    def steps() -> Any:
        total = 0.0
        with on_core:
            count = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int32)
        for i in tf.range(count):
            total += doubled(tf.cast(i, tf.float32))
        return total

    with on_core:
        handle = tf.raw_ops.VarHandleOp(
            dtype=tf.int32, shape=[], shared_name=f"count_{from_host}", container="mine"
        )

    with pytest.raises(tf.errors.FailedPreconditionError, match=f"count_{from_host}"):
        steps()
    with on_core:
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(4))
    assert float(steps()) == 12.0
    assert program_devices(tf.function(steps.python_function)) == (
        {"CPU"} if from_host else {"CPU", "TPU"}
    )
