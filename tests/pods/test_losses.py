"""A lost worker is an error that names it, and nobody waits."""

from __future__ import annotations

from typing import Any

import pytest
from worker_processes import COUNT, HOSTS, Pod

LOSE = (
    COUNT
    + """
import json, time
from tensorflow.python.eager import context

context.async_wait()
os.kill(int(sys.argv[2]), getattr(signal, sys.argv[3]))
start = time.monotonic()
try:
    for _ in range(100):
        step()
        context.async_wait()
except tf.errors.OpError as error:
    result = [type(error).__name__, str(error), time.monotonic() - start]

values = []
for value in total.values:
    try:
        values.append(float(value.numpy()))
    except tf.errors.OpError as error:
        values.append(type(error).__name__)
print("RESULT", json.dumps([*result, values]), flush=True)
os._exit(0)
"""
)


def test_a_killed_worker_is_an_error_at_once(program: Any, pod: Pod) -> None:
    lost = pod.workers[1]
    arguments = (str(lost.process.pid), "SIGKILL")
    kind, message, took, values = program(LOSE, *arguments, address=pod.address)
    assert kind == "UnavailableError"
    assert f"task:1 at localhost:{lost.port} " in message
    assert took < 60
    assert values == [4.0, 4.0, "UnavailableError", "UnavailableError"]


def test_a_stopped_worker_is_an_error_within_the_limit(program: Any, impatient: Pod) -> None:
    lost = impatient.workers[1]
    arguments = (str(lost.process.pid), "SIGSTOP")
    kind, message, took, values = program(LOSE, *arguments, address=impatient.address)
    assert kind == "UnavailableError"
    assert f"task:1 at localhost:{lost.port} has given no sign of life for 4s" in message
    assert took > 2
    # The first step's alone, and those of the stopped worker can't be read.
    assert values == [4.0, 4.0, "UnavailableError", "UnavailableError"]


def test_every_error_names_the_lost_workers(run_python: Any, pod: Pod) -> None:
    code = """
        import sys
        import tensorflow as tf
        import tf_tpu_ext
        from tf_tpu_ext import _workers

        print(tf.errors.UnavailableError(None, None, "Socket closed").message)
        _workers.note("/task:0", sys.argv[1])
        _workers.note("/task:1", "localhost:1")
        message = tf.errors.UnavailableError(None, None, "Socket closed").message
        print(message)
        # A session makes another error of it.
        assert tf.errors.UnavailableError(None, None, message).message == message
    """
    before, after = run_python(code, f"localhost:{pod.workers[0].port}").stdout.splitlines()
    assert before == "Socket closed"
    assert after.startswith("Socket closed /task:1 at localhost:1 gives no sign of life: ")
    assert "/task:0" not in after


@pytest.mark.parametrize("task", range(HOSTS))
def test_a_worker_stopped_before_the_first_step_lets_nobody_wait(
    program: Any, impatient: Pod, task: int
) -> None:
    # TensorFlow's workers register a function with each other without any limit of time.
    lost = impatient.workers[task].process.pid
    kind, took = program(
        """
        import json, time

        @tf.function
        def step():
            def of_replica():
                return tf.distribute.get_replica_context().all_reduce("SUM", 1.0)
            return strategy.run(of_replica)

        start = time.monotonic()
        os.kill(int(sys.argv[2]), signal.SIGSTOP)
        try:
            strategy.experimental_local_results(step())[0].numpy()
        except tf.errors.OpError as error:
            took = time.monotonic() - start
            print("RESULT", json.dumps([type(error).__name__, took]), flush=True)
        os._exit(0)
        """,
        str(lost),
        address=impatient.address,
    )
    assert kind == "UnavailableError"
    assert took < 30


@pytest.mark.parametrize("task", range(HOSTS))
@pytest.mark.parametrize("when", ["before it connects", "between steps"])
def test_sessions_do_not_wait_for_a_stopped_worker(
    run_python: Any, impatient: Pod, task: int, when: str
) -> None:
    code = """
        import os, signal, sys, time
        import tensorflow as tf
        import tf_tpu_ext

        v1 = tf.compat.v1
        lost, when = int(sys.argv[2]), sys.argv[3]
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
        config = v1.ConfigProto(cluster_def=resolver.cluster_spec().as_cluster_def())
        if when == "before it connects":
            os.kill(lost, signal.SIGSTOP)
            start = time.monotonic()
        try:
            with tf.Graph().as_default(), v1.Session(resolver.master(), config=config) as session:
                topology = session.run(v1.tpu.initialize_system(job="worker"))
                inputs = [[tf.constant(float(i))] for i in range(4)]
                assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=4)
                sums = v1.tpu.replicate(
                    v1.tpu.cross_replica_sum, inputs, device_assignment=assignment)
                print("SUMS", [float(sum) for [sum] in session.run(sums)], flush=True)
                os.kill(lost, signal.SIGSTOP)
                start = time.monotonic()
                session.run(sums)
        except tf.errors.UnavailableError as error:
            print("TOOK", time.monotonic() - start, flush=True)
        os._exit(0)
    """
    lost = str(impatient.workers[task].process.pid)
    printed = run_python(code, impatient.address, lost, when).stdout
    assert ("SUMS [6.0, 6.0, 6.0, 6.0]" in printed) == (when == "between steps")
    assert float(printed.split("TOOK ")[1]) < 30


@pytest.mark.parametrize(
    "call",
    [
        # All that a session asks the workers for before its first step: one may be lost just then.
        "_workers.run_on(address, 'TpuExt>DescribeHost', {}, tf.string)",
        "session.list_devices()",
        "one()",
        "v1.Session(master, graph=graph)._make_callable_from_options(options)",
        "callable()",
    ],
)
def test_no_call_of_a_session_waits_for_a_stopped_worker(
    run_python: Any, impatient: Pod, call: str
) -> None:
    code = f"""
        import os, signal, sys, time
        import tensorflow as tf
        from tensorflow.core.protobuf import config_pb2
        from tf_tpu_ext import _workers

        v1 = tf.compat.v1
        master, lost = sys.argv[1], int(sys.argv[2])
        address = master.removeprefix("grpc://")
        with tf.Graph().as_default() as graph:
            session = v1.Session(master)
            one = session.make_callable(tf.constant(1.0, name="one"))
            options = config_pb2.CallableOptions(fetch=["one:0"])
            callable = session._make_callable_from_options(options)
            assert one() == callable()[0] == 1.0
        os.kill(lost, signal.SIGSTOP)
        start = time.monotonic()
        try:
            {call}
        except tf.errors.UnavailableError as error:
            print("TOOK", time.monotonic() - start, flush=True)
        os._exit(0)
    """
    worker = impatient.workers[0]
    printed = run_python(code, worker.address, str(worker.process.pid), timeout=60).stdout
    assert float(printed.removeprefix("TOOK ")) < 20


def test_the_report_says_when_it_lacks_the_workers(run_python: Any) -> None:
    done = run_python(
        """
        import tf_tpu_ext
        from tf_tpu_ext import _workers
        from tf_tpu_ext.launcher import _report

        recorder = _report.Recorder()
        _workers.known[:] = ["localhost:1"]
        print("WORKERS", recorder.finish().workers)
        """
    )
    assert "WORKERS 0" in done.stdout
    lacks = (
        "tf-tpu: the report lacks the workers: There is no worker at localhost:1: nobody listens"
    )
    assert lacks in done.stderr
