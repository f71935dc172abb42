"""Infeed and outfeed: order, full and empty queues, and what a failed step leaves behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext

v1 = tf.compat.v1
CORES = 8


def test_infeed_and_outfeed():
    def computation(x):
        [fed] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[2]])
        out = tpu_ops.outfeed_enqueue_tuple([fed * 2.0, x])
        with tf.control_dependencies([out]):
            return fed + x

    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.tpu.initialize_system())
        outputs = v1.tpu.replicate(computation, [[float(i)] for i in range(8)])
        with tf.device("/device:CPU:0"):
            fed = [
                tpu_ops.infeed_enqueue_tuple([[1.0, i]], [[2]], device_ordinal=i) for i in range(8)
            ]
            taken = [
                tpu_ops.outfeed_dequeue_tuple([tf.float32] * 2, [[2], []], device_ordinal=i)
                for i in range(8)
            ]
        for _ in range(2):
            got, out, _ = session.run([outputs, taken, fed])
            for i in range(8):
                np.testing.assert_array_equal(got[i][0], [1 + i, 2 * i])
                np.testing.assert_array_equal(out[i][0], [2, 2 * i])
                assert out[i][1] == i


@pytest.fixture(scope="module")
def initialized() -> None:
    tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver())


def feed(values: Any) -> None:
    """Enqueues a scalar for each core, eagerly."""
    for core, value in enumerate(values):
        tpu_ops.infeed_enqueue_tuple([tf.constant(value, tf.float32)], [[]], device_ordinal=core)


def good(replica: Any, bad: Any) -> Any:
    """Returns 1.0 on the host; raises on replica `bad`."""
    ratio = tf.cast(replica - bad, tf.float32) / tf.cast(replica - bad, tf.float32)
    return tf.debugging.check_numerics(ratio, "replica gave up")


def doubled(bad: Any) -> list[float]:
    """Doubles each core's element; the host function of replica `bad` raises."""

    def host(replica, x, bad):
        return x * 2 * good(replica, bad)

    def computation(replica, bad):
        [x] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])
        return v1.tpu.outside_compilation(host, replica, x, bad)

    outputs = tf_tpu_ext.tpu.replicate(computation, [[r, bad] for r in range(CORES)])
    return [float(x) for [x] in outputs]


class TestLeftovers:
    def test_failed_step(self, initialized):
        ahead = 3
        for step in range(ahead):
            feed(np.arange(CORES) + 100 * step)
        with pytest.raises(tf.errors.InvalidArgumentError, match="replica gave up"):
            doubled(5)
        feed(np.arange(CORES) + 1.0)
        assert doubled(-1) == [2 * (core + 1.0) for core in range(CORES)]

    def test_failed_compilation(self, initialized):
        def computation(shape):
            [x] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])
            return tf.fill(shape, x)

        feed(np.zeros(CORES))
        with pytest.raises(tf.errors.InvalidArgumentError, match="compile-time constant"):
            tf_tpu_ext.tpu.replicate(computation, [[[2]]] * CORES)
        feed(np.ones(CORES))
        assert doubled(-1) == [2.0] * CORES

    def test_step_that_also_feeds(self):
        """What a step enqueues after its own failure is dropped, too."""
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            variable = v1.get_variable("unset", shape=[], use_resource=True)

            def computation():
                [x] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])
                return variable.assign_add(x)

            outputs = v1.tpu.replicate(computation, [[]] * CORES)
            value = v1.placeholder(tf.float32, [])
            with tf.device("/device:CPU:0"):
                fed = [
                    tpu_ops.infeed_enqueue_tuple([value], [[]], device_ordinal=core)
                    for core in range(CORES)
                ]
            for _ in range(10):
                with pytest.raises(tf.errors.FailedPreconditionError, match="unset"):
                    session.run([outputs, fed], {value: 7.0})
            session.run(variable.assign(1.0))
            got, _ = session.run([outputs, fed], {value: 2.0})
            assert np.ravel(got).tolist() == [3.0] * CORES

    def test_other_programs_leave_them(self, initialized):
        feed(np.ones(CORES))

        def fails():
            def host():
                return tf.debugging.check_numerics(np.inf, "never true")

            return v1.tpu.outside_compilation(host)

        with pytest.raises(tf.errors.InvalidArgumentError, match="never true"):
            tf_tpu_ext.tpu.replicate(fails, [[]] * CORES)
        assert doubled(-1) == [2.0] * CORES

    def test_initialization(self, initialized):
        feed(np.zeros(CORES))
        tf_tpu_ext.tpu.initialize_system()
        feed(np.ones(CORES))
        assert doubled(-1) == [2.0] * CORES

    def test_outfeed_of_a_failed_step(self, initialized):
        def host(replica, bad):
            return good(replica, bad)

        def computation(replica, bad, step):
            out = tpu_ops.outfeed_enqueue_tuple([step])
            with tf.control_dependencies([out]):
                return v1.tpu.outside_compilation(host, replica, bad)

        def run(step, bad):
            inputs = [[r, bad, step] for r in range(CORES)]
            tf_tpu_ext.tpu.replicate(computation, inputs)

        run(1.0, -1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="replica gave up"):
            run(2.0, 3)
        run(3.0, -1)
        for step in (1.0, 3.0):
            for core in range(CORES):
                [got] = tpu_ops.outfeed_dequeue_tuple([tf.float32], [[]], device_ordinal=core)
                assert float(got) == step


def test_shape_that_is_not_known(initialized):
    def computation():
        [x] = tpu_ops.infeed_dequeue_tuple([tf.float32], [None], name="taken_here")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="static shape") as error:
        tf_tpu_ext.tpu.replicate(computation, [[]] * CORES)
    assert "taken_here" in str(error.value)
    assert "infeed" in str(error.value)


OUTFEED_WAIT = """
import threading
import tf_tpu_ext
import tensorflow as tf
from tensorflow.python.eager import cancellation
from tensorflow.python.tpu.ops import tpu_ops
v1 = tf.compat.v1
v1.enable_eager_execution()
tf_tpu_ext.tpu.initialize_system()
arrived = threading.Event()

@tf.function
def take():
    with tf.control_dependencies([tf.py_function(arrived.set, [], [])]):
        with tf.device("/device:CPU:0"):
            return tpu_ops.outfeed_dequeue_tuple([tf.float32], [[]], device_ordinal=1)

@tf.function
def give(steps):
    def replica(steps):
        def body(step):
            with tf.control_dependencies(
                [tpu_ops.outfeed_enqueue_tuple([tf.cast(step, tf.float32)])]
            ):
                return step + 1
        return tf.while_loop(lambda step: step < steps, body, [tf.constant(0)])
    return v1.tpu.replicate(replica, [[steps]] * 2)

def ends(call, error):
    try:
        call()
    except error as caught:
        return str(caught)
    raise SystemExit("the wait ended without its element")

def ends_when_cancelled(arrive, function, *arguments):
    manager = cancellation.CancellationManager()
    call = manager.get_cancelable_function(function.get_concrete_function(*arguments))
    threading.Thread(target=lambda: (arrive(), manager.start_cancel())).start()
    ends(lambda: call(*arguments), tf.errors.CancelledError)
"""


def test_outfeed_that_is_never_filled(run_python):
    run_python(
        OUTFEED_WAIT
        + """
ends_when_cancelled(arrived.wait, take)
tf_tpu_ext.configure(wait_limit_seconds=1)
message = ends(take, tf.errors.DeadlineExceededError)
assert "the outfeed of core 1" in message and "wait_limit_seconds" in message, message
give(tf.constant(1))
assert float(take()[0]) == 0
""",
        env={"TF_TPU_EXT_CORES": "2"},
        timeout=90,
    )


def test_outfeed_that_is_never_emptied(run_python):
    run_python(
        OUTFEED_WAIT
        + """
many = tf.constant(1000)
ends_when_cancelled(take, give, many)
tf_tpu_ext.configure(wait_limit_seconds=1)
message = ends(lambda: give(many), tf.errors.DeadlineExceededError)
assert "the outfeed of core" in message and "wait_limit_seconds" in message, message
give(tf.constant(2))
assert [float(take()[0]) for _ in range(2)] == [0, 1]
""",
        env={"TF_TPU_EXT_CORES": "2"},
        timeout=90,
    )


def test_infeed_that_is_never_emptied(run_python):
    run_python(
        OUTFEED_WAIT
        + """
CAPACITY = 32

@tf.function
def feed(times):
    with tf.device("/device:CPU:0"):
        def body(number):
            tf.cond(number == CAPACITY, lambda: tf.py_function(arrived.set, [], []), tf.no_op)
            with tf.control_dependencies(
                [tpu_ops.infeed_enqueue_tuple([1.0], [[]], device_ordinal=1)]
            ):
                return number + 1
        tf.while_loop(lambda number: number < times, body, [tf.constant(0)])

many = tf.constant(100)
ends_when_cancelled(arrived.wait, feed, many)
tf_tpu_ext.configure(wait_limit_seconds=1)
message = ends(lambda: feed(many), tf.errors.DeadlineExceededError)
assert "the infeed of core 1" in message and "wait_limit_seconds" in message, message
tf_tpu_ext.tpu.initialize_system()
feed(tf.constant(CAPACITY))
""",
        env={"TF_TPU_EXT_CORES": "2"},
        timeout=90,
    )
