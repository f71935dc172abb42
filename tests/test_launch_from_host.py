"""Functions that start their programs from the host give what an executor for each core gives."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tf_tpu_ext

Strategy = tf.distribute.TPUStrategy
ProgramDevices = Callable[..., set[str]]


def test_training_steps_agree_with_numpy(strategy: Strategy, from_host: bool) -> None:
    replicas = strategy.num_replicas_in_sync
    data = np.random.default_rng(3).normal(size=(replicas, 4, 3)).astype(np.float32)
    with strategy.scope():
        weight = tf.Variable(np.ones(3, np.float32))
        steps = tf.Variable(
            0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    @tf.function
    def step(batch: Any) -> Any:
        def replica(x: Any) -> Any:
            gradient = tf.reduce_sum(x * weight, axis=0)
            summed = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            weight.assign_sub(0.01 * summed)
            steps.assign_add(1)
            return tf.reduce_sum(gradient)

        return strategy.reduce("SUM", strategy.run(replica, args=(batch,)), axis=None)

    batch = strategy.experimental_distribute_values_from_function(
        lambda place: tf.constant(data[place.replica_id_in_sync_group])
    )
    expected = np.ones(3)
    for _ in range(3):
        gradient = (data.astype(np.float64) * expected).sum(axis=(0, 1))
        np.testing.assert_allclose(step(batch), gradient.sum(), rtol=1e-4)
        expected -= 0.01 * gradient
    for component in getattr(weight, "values", [weight]):
        np.testing.assert_allclose(component, expected, rtol=1e-5)
    assert int(steps.read_value()) == 3


def test_no_core_has_an_executor_if_all_starts_from_the_host(
    strategy: Strategy, from_host: bool, program_devices: ProgramDevices
) -> None:
    with strategy.scope():
        variable = tf.Variable(2.0)

    @tf.function
    def step() -> Any:
        results = strategy.run(lambda: variable.assign_add(1.0) * 2.0)
        return strategy.reduce("MEAN", results, axis=None) + 1.0

    assert program_devices(step) == ({"CPU"} if from_host else {"CPU", "TPU"})


def test_results_for_each_replica_stay_on_the_cores(strategy: Strategy, from_host: bool) -> None:
    @tf.function
    def step() -> Any:
        return strategy.run(
            lambda: tf.cast(
                tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32
            )
        )

    results = strategy.experimental_local_results(step())
    assert [int(result) for result in results] == list(range(strategy.num_replicas_in_sync))
    for replica, result in enumerate(results):
        assert result.backing_device.endswith(f"TPU:{replica}")


def test_loops_of_the_host(
    strategy: Strategy, from_host: bool, program_devices: ProgramDevices
) -> None:
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def steps(count: Any) -> Any:
        last = tf.constant(0.0)
        for i in tf.range(count):
            results = strategy.run(lambda i: total.assign_add(i), args=(tf.cast(i, tf.float32),))
            last = strategy.reduce("MEAN", results, axis=None)
        return last

    assert program_devices(steps, tf.constant(5)) == ({"CPU"} if from_host else {"CPU", "TPU"})
    assert float(total.read_value()) == 10.0
    assert float(steps(tf.constant(5))) == 20.0
    assert float(steps(tf.constant(0))) == 0.0
    assert float(total.read_value()) == 20.0


def test_loops_of_the_host_in_loops_and_branches(strategy: Strategy, from_host: bool) -> None:
    with strategy.scope():
        total = tf.Variable(0.0)
        odd = tf.Variable(0.0)

    def mean(replica: Any, *arguments: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica, args=arguments), axis=None)

    @tf.function
    def steps(rows: Any, stop: Any) -> Any:
        last = tf.constant(-1.0)
        for row in tf.range(rows):
            for column in tf.range(row):
                if column % 2 == 1:
                    last = mean(lambda x: odd.assign_add(x), tf.cast(column, tf.float32))
                else:
                    last = mean(lambda x: total.assign_add(x), tf.cast(row, tf.float32))
                if last > stop:
                    break
        return last

    def expected(rows: int, stop: float) -> tuple[float, float, float]:
        sums, last = [0.0, 0.0], -1.0
        for row in range(rows):
            for column in range(row):
                sums[column % 2] += column if column % 2 else row
                last = sums[column % 2]
                if last > stop:
                    break
        return last, sums[0], sums[1]

    for stop in (1e6, 7.0):
        total.assign(0.0)
        odd.assign(0.0)
        last = steps(tf.constant(6), tf.constant(stop))
        counted = tuple(float(value) for value in (last, total.read_value(), odd.read_value()))
        assert counted == expected(6, stop)


def test_loop_takes_what_each_core_has(strategy: Strategy, from_host: bool) -> None:
    places = strategy.experimental_distribute_values_from_function(
        lambda place: tf.constant(float(place.replica_id_in_sync_group))
    )

    @tf.function
    def steps(count: Any) -> Any:
        def double(x: Any, place: Any) -> Any:
            return x * 2.0 + place

        value = strategy.run(lambda place: place * 1.0, args=(places,))
        for _ in tf.range(count):
            value = strategy.run(double, args=(value, places))
        return strategy.reduce("SUM", value, axis=None)

    # After n rounds a core has (2**n) * place + (2**n - 1) * place.
    replicas = strategy.num_replicas_in_sync
    assert float(steps(tf.constant(5))) == 63.0 * sum(range(replicas))


def test_loop_of_the_host_ends_when_cancelled(strategy: Strategy, from_host: bool) -> None:
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def steps() -> Any:
        last = tf.constant(0.0)
        while last >= 0.0:
            last = strategy.reduce("MEAN", strategy.run(lambda: count.assign_add(1.0)), None)
        return last

    manager = cancellation.CancellationManager()
    concrete = manager.get_cancelable_function(steps.get_concrete_function())

    def cancel_later() -> None:
        while float(count.read_value()) < 100.0:
            pass
        manager.start_cancel()

    threading.Thread(target=cancel_later).start()
    with pytest.raises(tf.errors.CancelledError):
        concrete()
    assert float(count.read_value()) >= 100.0


def test_error_ends_a_loop_of_the_host(strategy: Strategy, from_host: bool) -> None:
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def steps() -> Any:
        last = tf.constant(0.0)
        for _ in tf.range(10):
            last = strategy.reduce("MEAN", strategy.run(lambda: count.assign_add(1.0)), None)
            tf.debugging.assert_less(last, 4.0, message="Too many rounds.")
        return last

    with pytest.raises(tf.errors.InvalidArgumentError, match="Too many rounds"):
        steps()
    assert float(count.read_value()) == 4.0


def test_variables_with_names_are_found_on_their_core(from_host: bool) -> None:
    # As a checkpoint reader or an old program makes them: the handle holds a name, no reference.
    with tf.device("/device:TPU:0"):
        handle = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[2], shared_name=f"named_{from_host}", container="mine"
        )
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant([1.0, 2.0]))

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.raw_ops.AssignVariableOp(resource=handle, value=value * 3.0)
            return tf.reduce_sum(value)

        return tf.identity(tf_tpu_ext.tpu.rewrite(replica)[0])

    assert float(step()) == 3.0
    with tf.device("/device:TPU:0"):
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    np.testing.assert_array_equal(read, [3.0, 6.0])


@pytest.mark.parametrize("state", ["missing", "uninitialized"])
def test_variable_without_value_is_told_with_its_core(from_host: bool, state: str) -> None:
    name = f"{state}_{from_host}"
    with tf.device("/device:TPU:0"):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name)

    @tf.function
    def step() -> Any:
        if state == "uninitialized":
            # Makes the variable, without a value.
            with tf.device("/device:TPU:0"):
                tf.raw_ops.VarIsInitializedOp(resource=handle)
        return tf_tpu_ext.tpu.rewrite(
            lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        )[0]

    with pytest.raises(tf.errors.FailedPreconditionError) as error:
        step()
    message = str(error.value)
    assert f"Variable '{name}'" in message
    assert "/device:TPU:0" in message


def test_cancelled_step_ends(strategy: Strategy, from_host: bool) -> None:
    @tf.function
    def step() -> Any:
        # Nobody feeds the cores.
        def replica() -> Any:
            tf.raw_ops.OutfeedEnqueueTuple(inputs=[tf.constant(True)])
            return tf.raw_ops.InfeedDequeueTuple(dtypes=[tf.float32], shapes=[[]])[0]

        return strategy.reduce("SUM", strategy.run(replica), axis=None)

    manager = cancellation.CancellationManager()
    concrete = manager.get_cancelable_function(step.get_concrete_function())

    def cancel_when_all_wait() -> None:
        for core in range(strategy.num_replicas_in_sync):
            with tf.device("/device:CPU:0"):
                tf.raw_ops.OutfeedDequeueTuple(dtypes=[tf.bool], shapes=[[]], device_ordinal=core)
        manager.start_cancel()

    threading.Thread(target=cancel_when_all_wait).start()
    with pytest.raises(tf.errors.CancelledError):
        concrete()


def scaled_sum(strategy: Strategy) -> tuple[Any, tf.Variable]:
    """A short step that returns a sum of the host's; the variable that it counts up."""
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def step(scale: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(lambda: count.assign_add(1.0)), None) * scale

    return step, count


def test_callers_thread_starts_the_programs(
    strategy: Strategy, from_host: bool, tmp_path: pathlib.Path
) -> None:
    step, _ = scaled_sum(strategy)
    for _ in range(30):  # compiles, and learns that the program is short
        step(tf.constant(1.0))
    tf.profiler.experimental.start(str(tmp_path))
    step(tf.constant(1.0))
    tf.profiler.experimental.stop()
    events = [
        {plane.event_metadata[event.metadata_id].name for event in line.events}
        for path in tmp_path.rglob("*.xplane.pb")
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes
        for line in plane.lines
    ]
    on_caller = [of_thread for of_thread in events if "EagerExecute" in of_thread]
    assert on_caller
    assert ("TPU core 0" in set().union(*on_caller)) == from_host


def test_callers_thread_computes_as_tensorflows_do(strategy: Strategy, from_host: bool) -> None:
    # TensorFlow's threads make zeros of results that are smaller than normal numbers.
    step, _ = scaled_sum(strategy)
    assert float(step(tf.constant(1e-39 / strategy.num_replicas_in_sync))) == 0.0
    assert float(np.float32(1e-39)) > 0.0  # the thread's own arithmetic stays as it was


def test_steps_of_several_threads(strategy: Strategy, from_host: bool) -> None:
    step, count = scaled_sum(strategy)
    step(tf.constant(1.0))
    results: list[float] = []

    def work() -> None:
        for _ in range(25):
            results.append(float(step(tf.constant(1.0))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each saw what another had left, on all cores alike.
    replicas = strategy.num_replicas_in_sync
    assert sorted(results) == [replicas * n for n in range(2, 102)]
    assert float(count.read_value()) == 101.0


def test_steps_in_a_row(strategy: Strategy, from_host: bool) -> None:
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def steps() -> Any:
        last = tf.constant(0.0)
        for _ in range(8):
            last = strategy.reduce("MEAN", strategy.run(lambda: count.assign_add(1.0)), None)
        return last

    assert float(steps()) == 8.0
    assert float(steps()) == 16.0


def test_steps_that_nobody_waits_for(strategy: Strategy, from_host: bool) -> None:
    step, count = scaled_sum(strategy)
    tf.config.experimental.set_synchronous_execution(False)
    try:
        results = [step(tf.constant(1.0)) for _ in range(5)]
        replicas = strategy.num_replicas_in_sync
        assert [float(result) for result in results] == [replicas * n for n in range(1, 6)]
        assert float(count.read_value()) == 5.0
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def test_chosen_executor_stays(strategy: Strategy, from_host: bool) -> None:
    step, _ = scaled_sum(strategy)
    with (
        tf.experimental.function_executor_type("NO_SUCH_EXECUTOR"),
        pytest.raises(tf.errors.NotFoundError, match="NO_SUCH_EXECUTOR"),
    ):
        step(tf.constant(1.0))
