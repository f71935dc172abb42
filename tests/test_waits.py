"""Steps that wait for the host in vain: whatever ends the wait, the cores work afterwards."""

from __future__ import annotations

import pytest

IMPORTS = """
import threading
import numpy as np
import tf_tpu_ext
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops
v1 = tf.compat.v1
cores = tf_tpu_ext.machine().cores
graph = tf.Graph()
"""

# What a step takes its number from: `take` is part of the program, `feed` gives each core one, and
# `arrive` ends when each core has come to `take` once more.
SOURCES = {
    "host_call": """
with graph.as_default():
    queue = tf.queue.FIFOQueue(100, [tf.float32], shared_name="rows")
    arrivals = tf.queue.FIFOQueue(100, [tf.bool], shapes=[[]], shared_name="arrivals")

def take():
    def host():
        with tf.control_dependencies([arrivals.enqueue(True)]):
            return tf.ensure_shape(queue.dequeue(), [])
    return v1.tpu.outside_compilation(host)

def arrive():
    return arrivals.dequeue_many(cores)

def feed():
    return queue.enqueue_many([[2.0] * cores])
""",
    "infeed": """
def take():
    with tf.control_dependencies([tpu_ops.outfeed_enqueue_tuple([True])]):
        return tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])[0]

def arrive():
    with tf.device("/device:CPU:0"):
        return [
            tpu_ops.outfeed_dequeue_tuple([tf.bool], [[]], device_ordinal=core)
            for core in range(cores)
        ]

def feed():
    with tf.device("/device:CPU:0"):
        return tf.group(*[
            tpu_ops.infeed_enqueue_tuple([2.0], [[]], device_ordinal=core) for core in range(cores)
        ])
""",
}

STEP = """
def starved(x):
    return v1.tpu.cross_replica_sum(x + take())

def check_that_cores_work(session, outputs, enqueue):
    session.run(enqueue)
    assert np.ravel(session.run(outputs)).tolist() == [3.0 * cores] * cores
    with tf.Graph().as_default(), v1.Session() as other:
        other.run(v1.tpu.initialize_system())
        sums = v1.tpu.replicate(lambda x: v1.tpu.cross_replica_sum(x), [[1.0]] * cores)
        assert np.ravel(other.run(sums)).tolist() == [cores] * cores

with graph.as_default():
    start = v1.tpu.initialize_system()
    outputs = v1.tpu.replicate(starved, [[1.0]] * cores)
    enqueue = feed()
    arrival = arrive()
    session = v1.Session()
    session.run(start)
    # Compiles the program.
    session.run([outputs, enqueue, arrival])
"""


@pytest.fixture
def run_waiting_step(run_python):
    """Runs code on two cores after a step of `outputs` has been compiled and fed once."""

    def run(source, code):
        program = IMPORTS + SOURCES[source] + STEP + code
        run_python(program, env={"TF_TPU_EXT_CORES": "2"}, timeout=90)

    return run


@pytest.mark.parametrize("source", SOURCES)
def test_closing_the_session_ends_a_wait(run_waiting_step, source):
    run_waiting_step(
        source,
        """
with graph.as_default():
    def close():
        session.run(arrival)
        session.close()

    threading.Thread(target=close).start()
    try:
        session.run(outputs)
        raise SystemExit("the step ended without its number")
    except tf.errors.CancelledError:
        pass
    with v1.Session() as another:
        another.run(start)
        check_that_cores_work(another, outputs, enqueue)
""",
    )


@pytest.mark.parametrize("source", SOURCES)
def test_operation_timeout_ends_a_wait(run_waiting_step, source):
    run_waiting_step(
        source,
        """
with graph.as_default():
    for _ in range(2):
        try:
            session.run(outputs, options=v1.RunOptions(timeout_in_ms=700))
            raise SystemExit("the step ended without its number")
        except tf.errors.DeadlineExceededError:
            pass
        check_that_cores_work(session, outputs, enqueue)
""",
    )


def test_wait_limit_ends_a_wait_for_a_host_call(run_waiting_step):
    """One core has its row and waits for the other, whose host call has none."""
    run_waiting_step(
        "host_call",
        """
with graph.as_default():
    check_that_cores_work(session, outputs, enqueue)
    # One row for two cores: one of them waits for the other.
    one = queue.enqueue([2.0])
    session.run(one)
    tf_tpu_ext.configure(wait_limit_seconds=1)
    try:
        session.run(outputs)
        raise SystemExit("the step ended without its number")
    except tf.errors.DeadlineExceededError as error:
        message = str(error)
    assert "wait_limit_seconds" in message, message
    check_that_cores_work(session, outputs, enqueue)
""",
    )


def test_wait_limit_ends_a_wait_for_infeed(run_waiting_step):
    run_waiting_step(
        "infeed",
        """
with graph.as_default():
    before = tf_tpu_ext.machine().wait_limit_seconds
    tf_tpu_ext.configure(wait_limit_seconds=1)
    try:
        session.run(outputs)
        raise SystemExit("the step ended without its number")
    except tf.errors.DeadlineExceededError as error:
        message = str(error)
    assert "waited 1s" in message, message
    assert "infeed" in message.lower(), message
    assert "core" in message, message
    assert "wait_limit_seconds" in message, message
    tf_tpu_ext.configure(wait_limit_seconds=before)
    check_that_cores_work(session, outputs, enqueue)
""",
    )


def test_cancelling_a_function_ends_a_wait_for_infeed(run_waiting_step):
    run_waiting_step(
        "infeed",
        """
from tensorflow.python.eager import cancellation

@tf.function
def step():
    return v1.tpu.replicate(starved, [[1.0]] * cores)

@tf.function
def feed_cores():
    feed()

manager = cancellation.CancellationManager()
cancelled = manager.get_cancelable_function(step.get_concrete_function())

def cancel():
    arrive()
    manager.start_cancel()

threading.Thread(target=cancel).start()
try:
    cancelled()
    raise SystemExit("the step ended without its number")
except tf.errors.CancelledError:
    pass
feed_cores()
assert np.ravel(step()).tolist() == [3.0 * cores] * cores
with graph.as_default():
    check_that_cores_work(session, outputs, enqueue)
""",
    )
