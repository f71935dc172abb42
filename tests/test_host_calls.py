"""Host computations that are cut short, run long, or run on many cores."""

from __future__ import annotations

import pytest

LONG_LOOP = """
import threading, time
import numpy as np
import tf_tpu_ext
import tensorflow as tf
from tensorflow.python.eager import cancellation
v1 = tf.compat.v1
tf_tpu_ext.tpu.initialize_system()
cores = tf_tpu_ext.machine().cores
calls = []

def host_function(number):
    calls.append(int(number))
    return number + 1

@tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
def count(steps):
    def host(number):
        return tf.ensure_shape(tf.py_function(lambda x: host_function(x), [number], tf.int32), [])
    def replica(steps):
        return tf.while_loop(
            lambda number: number < steps,
            lambda number: v1.tpu.outside_compilation(host, number),
            [tf.constant(0)],
        )
    return v1.tpu.replicate(replica, [[steps]] * cores)

def check():
    assert np.ravel(count(tf.constant(3))).tolist() == [3] * cores
check()
"""


@pytest.mark.parametrize("cores", [1, 8])
def test_cancelled_in_the_middle_of_host_calls(run_python, cores):
    run_python(
        LONG_LOOP
        + """
in_the_middle = threading.Event()

def host_function(number):
    calls.append(int(number))
    if len(calls) == 100:
        in_the_middle.set()
    return number + 1

for _ in range(3):
    manager = cancellation.CancellationManager()
    call = manager.get_cancelable_function(count.get_concrete_function())
    calls.clear()
    in_the_middle.clear()
    threading.Thread(target=lambda: (in_the_middle.wait(), manager.start_cancel())).start()
    try:
        call(tf.constant(10**8))
        raise SystemExit("the loop ended by itself")
    except tf.errors.CancelledError:
        pass
    check()
""",
        env={"TF_TPU_EXT_CORES": str(cores)},
        timeout=90,
    )


def test_time_limit_counts_single_waits_not_the_loop(run_python):
    run_python(
        LONG_LOOP
        + """
END = 10**8
begin = time.monotonic()

def host_function(number):
    # The loop lasts longer than the limit, and each call for far less.
    return number + 1 if time.monotonic() < begin + 2.5 else END

tf_tpu_ext.configure(wait_limit_seconds=2)
assert np.ravel(count(tf.constant(END))).tolist() == [END] * cores
""",
        env={"TF_TPU_EXT_CORES": "2"},
        timeout=90,
    )


def test_repeated_host_calls_on_64_cores(run_python):
    run_python(
        LONG_LOOP
        + """
assert cores == 64
for _ in range(3):
    calls.clear()
    assert np.ravel(count(tf.constant(5))).tolist() == [5] * cores
    assert sorted(calls) == sorted(list(range(5)) * cores)
""",
        env={"TF_TPU_EXT_CORES": "64"},
        timeout=150,
    )


def test_many_steps_keep_no_memory(run_python):
    """What the host never reads of a step goes with the step, not 4,096 steps later."""
    run_python(
        """
        import resource
        import tf_tpu_ext
        import tensorflow as tf
        v1 = tf.compat.v1
        tf_tpu_ext.tpu.initialize_system()

        @tf.function
        def step(x):
            def replica(x):
                return tf.reduce_sum(v1.tpu.outside_compilation(lambda y: y + 1.0, x))
            return v1.tpu.replicate(replica, [[x]] * 2)

        x = tf.ones([1 << 18])
        for _ in range(30):
            step(x)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(300):
            step(x)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # A megabyte for each core and step would be 600 of them.
        assert after - before < 150 * 1024, (before, after)
        """,
        env={"TF_TPU_EXT_CORES": "2"},
        timeout=120,
    )


def test_python_functions_find_what_they_kept_by_thread(run_python):
    """A thread that calls Python functions keeps its Python state, and the process still ends."""
    run_python(
        """
import threading
import tf_tpu_ext
import tensorflow as tf

kept = threading.local()
counts = []

def count(number):
    kept.calls = getattr(kept, "calls", 0) + 1
    counts.append(kept.calls)
    return number + 1

def host(number):
    return tf.ensure_shape(tf.numpy_function(count, [number], tf.int32), [])

@tf.function
def step():
    def replica():
        return tf.while_loop(
            lambda number: number < 50,
            lambda number: tf_tpu_ext.tpu.outside_compilation(host, number),
            [tf.constant(0)],
        )
    return tf_tpu_ext.tpu.rewrite(replica, [])

assert int(step()[0]) == 50
assert len(counts) == 50
assert max(counts) > 1, counts
""",
        timeout=90,
    )
