"""TPUPartitionedCall: inference functions that run on the core that an input names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext

tpu = tf.compat.v1.tpu
CORES = 8


@pytest.fixture(scope="module", autouse=True)
def system() -> None:
    assert tf_tpu_ext.machine().cores == CORES
    tf_tpu_ext.tpu.initialize_system()


def partitioned(
    computation: Callable[..., Any], *signature: tf.TensorSpec, types: Sequence[Any] = (tf.float32,)
) -> Callable[..., Any]:
    """Returns `computation` as a function of a core and of its own arguments."""

    @tf.function(autograph=False)
    def rewritten(*inputs):
        return tpu.rewrite(computation, list(inputs))

    concrete = rewritten.get_concrete_function(*signature)

    @tf.function(autograph=False)
    def call(core, *inputs):
        return tpu_ops.tpu_partitioned_call(
            args=[*inputs, *concrete.captured_inputs],
            device_ordinal=core,
            Tout=list(types),
            f=concrete,
        )

    return lambda core, *inputs: call(tf.constant(core), *map(tf.constant, inputs))


def scalar(dtype: Any = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec([], dtype)


def test_every_core():
    weights = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
    call = partitioned(lambda x: x @ weights, tf.TensorSpec([4, 2]))
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    for core in range(CORES):
        np.testing.assert_allclose(call(core, x)[0], x @ weights.numpy(), rtol=1e-6)
    weights.assign(-weights)
    np.testing.assert_allclose(call(3, x)[0], x @ weights.numpy(), rtol=1e-6)


def test_error_of_the_host_computation():
    def host(x):
        with tf.control_dependencies([tf.debugging.Assert(x < 0, ["not below zero"])]):
            return x + 1

    call = partitioned(lambda x: tpu.outside_compilation(host, x), scalar())
    for core in range(CORES):
        assert call(core, -3.0)[0] == -2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="not below zero"):
            call(core, 1.0)
        assert call(core, -1.0)[0] == 0.0


def test_host_calls_before_and_after():
    def computation(x):
        doubled = tpu.outside_compilation(lambda x: x * 2, x)
        return tpu.outside_compilation(lambda x: x + 1, doubled * doubled), doubled

    call = partitioned(computation, tf.TensorSpec([3]), types=(tf.float32, tf.float32))
    for core in range(CORES):
        squares, doubled = call(core, [1.0, 2.0, core])
        np.testing.assert_array_equal(squares, [5.0, 17.0, 4.0 * core * core + 1])
        np.testing.assert_array_equal(doubled, [2.0, 4.0, 2.0 * core])


@pytest.mark.parametrize("device", ["CPU:0", "TPU:0", "TPU:5"])
def test_variable_that_the_function_changes(device):
    with tf.device(device):
        total = tf.Variable(0.0)

    def computation(x):
        total.assign_add(x)
        return total * 10.0

    call = partitioned(computation, scalar())
    for core in range(CORES):
        assert call(core, 1.0)[0] == 10.0 * (core + 1)
    assert total.numpy() == CORES


def test_replica_of_two_cores():
    def halves(x):
        with tf.device(tpu.core(0)):
            low = x[:2] + 1
        with tf.device(tpu.core(1)):
            return low * tf.reduce_sum(x[2:])

    assignment = tpu.experimental.DeviceAssignment.build(
        tf.tpu.experimental.initialize_tpu_system(), computation_shape=[1, 1, 1, 2]
    )

    @tf.function
    def rewritten(x):
        return tpu.rewrite(halves, [x], device_assignment=assignment)

    concrete = rewritten.get_concrete_function(tf.TensorSpec([4]))

    @tf.function
    def call(core, x):
        return tpu_ops.tpu_partitioned_call(
            args=[x], device_ordinal=core, Tout=[tf.float32], f=concrete
        )

    for core in range(CORES):
        out = call(tf.constant(core), tf.constant([1.0, 2.0, 3.0, core]))
        np.testing.assert_array_equal(out[0], np.array([2.0, 3.0]) * (3 + core))


def test_the_selector_names_every_core():
    chosen = [int(np.ravel(tpu_ops.tpu_ordinal_selector())[0]) for _ in range(2 * CORES)]
    assert sorted(chosen) == sorted([*range(CORES), *range(CORES)])


def test_round_robin_names_every_core():
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        # Serving systems insert the op; Python has no function for it.
        select = graph.create_op("TPURoundRobin", [], [tf.int32]).outputs[0]
        chosen = [int(np.ravel(session.run(select))[0]) for _ in range(CORES)]
    assert sorted(chosen) == list(range(CORES))


def test_calls_at_once():
    weights = tf.Variable(2.0)
    call = partitioned(
        lambda x: tpu.outside_compilation(lambda x: x + 1, x * weights), tf.TensorSpec([])
    )
    failures = []

    def work(thread):
        try:
            for step in range(20):
                assert call((thread + step) % CORES, float(step))[0] == 2.0 * step + 1
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture
def executors_of_cores() -> Iterator[None]:
    """Starts programs from their core's executor, so that a trace of the step names the core."""
    tf_tpu_ext.configure(launch_from_host=False)
    yield
    tf_tpu_ext.configure(launch_from_host=True)


@pytest.mark.usefixtures("executors_of_cores")
def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("w", initializer=3.0, use_resource=True)

        @tf.function
        def rewritten(x):
            return tpu.rewrite(lambda x: x * weights, [x])

        concrete = rewritten.get_concrete_function(scalar())
        core = tf.compat.v1.placeholder(tf.int32, [])
        result = tpu_ops.tpu_partitioned_call(
            args=[tf.constant(2.0), *concrete.captured_inputs],
            device_ordinal=core,
            Tout=[tf.float32],
            f=concrete,
        )
        session.run([tpu.initialize_system(), tf.compat.v1.global_variables_initializer()])
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        for ordinal in range(CORES):
            trace = tf.compat.v1.RunMetadata()
            assert session.run(result, {core: ordinal}, options, trace) == [6.0]
            ran_on = {
                device.device
                for device in trace.step_stats.dev_stats
                for node in device.node_stats
                if "TPUExecute" in node.node_name + node.timeline_label
            }
            assert [name.rsplit("/", 1)[1] for name in ran_on] == [f"device:TPU:{ordinal}"]


@pytest.mark.parametrize("core", [-1, CORES, 1000])
def test_core_that_does_not_exist(core):
    call = partitioned(lambda x: x + 1, scalar())
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"no core {core}; .* cores 0 to 7"):
        call(core, 1.0)
    assert call(7, 1.0)[0] == 2.0


def test_ordinal_that_is_no_number():
    call = partitioned(lambda x: x + 1, scalar())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"it must be a scalar"):
        call([0, 1], 1.0)


def test_several_replicas():
    @tf.function
    def replicated(x):
        return tpu.replicate(lambda x: x + 1, [[x], [x]])

    concrete = replicated.get_concrete_function(scalar())

    @tf.function
    def call(x):
        return tpu_ops.tpu_partitioned_call(
            args=[x], device_ordinal=0, Tout=[tf.float32] * 2, f=concrete
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match="must have one replica"):
        call(tf.constant(1.0))


def test_cancellation_reaches_the_core():
    rows = tf.queue.FIFOQueue(10, [tf.float32])
    asked = tf.queue.FIFOQueue(10, [tf.bool])

    def host():
        with tf.control_dependencies([asked.enqueue(True)]):
            row = rows.dequeue()
        row.set_shape([])
        return row

    @tf.function
    def rewritten(x):
        return tpu.rewrite(lambda x: x + tpu.outside_compilation(host), [x])

    concrete = rewritten.get_concrete_function(scalar())

    @tf.function
    def call():
        return tpu_ops.tpu_partitioned_call(
            args=[tf.constant(1.0), *concrete.captured_inputs],
            device_ordinal=4,
            Tout=[tf.float32],
            f=concrete,
        )

    rows.enqueue(2.0)
    assert call()[0] == 3.0
    asked.dequeue()
    manager = cancellation.CancellationManager()
    cancelled = manager.get_cancelable_function(call.get_concrete_function())
    threading.Thread(target=lambda: (asked.dequeue(), manager.start_cancel())).start()
    with pytest.raises(tf.errors.CancelledError):
        cancelled()
    rows.enqueue(5.0)
    assert call()[0] == 6.0
