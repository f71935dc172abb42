"""How programs find workers, share them, and connect again."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from imported_processes import CLI
from worker_processes import CORES, COUNT, HOSTS, START, Pod


def test_two_programs_that_connect_first_have_sessions_of_their_own(pod: Pod) -> None:
    imports = "import sys\nimport tensorflow\nimport tf_tpu_ext\n"
    waits = 'print("READY", flush=True)\nsys.stdin.readline()\n'
    steps = """
for _ in range(50):
    step()
print([float(value.numpy()) for value in total.values], flush=True)
os._exit(0)
"""
    code = imports + waits + START + COUNT + waits + steps
    command = [sys.executable, "-c", code, pod.address]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as running:
        programs = [running.enter_context(subprocess.Popen(command, **pipes)) for _ in range(2)]
        for begin in ("to connect", "their steps"):
            for each in programs:
                assert each.stdout is not None
                assert each.stdout.readline() == "READY\n", f"before {begin}"
            for each in programs:
                print(file=each.stdin, flush=True)
        for each in programs:
            assert each.communicate(timeout=120)[0] == f"{[204.0] * HOSTS * CORES}\n"


@pytest.mark.parametrize("variable", ["TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG"])
def test_a_cloud_names_the_pod(run_python: Any, shared: Pod, variable: str) -> None:
    value = shared.address
    if variable == "TPU_CONFIG":
        value = json.dumps({"tpu_node_name": value})
    code = """
        import os
        import tensorflow as tf
        import tf_tpu_ext

        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        print("CORES", tf.distribute.TPUStrategy(resolver).num_replicas_in_sync, flush=True)
        os._exit(0)
    """
    assert f"CORES {HOSTS * CORES}" in run_python(code, env={variable: value}).stdout


# Connects to a pod that lacks a worker.
CONNECT = """
import os, signal, sys
import tensorflow as tf
from tf_tpu_ext import _workers

{before}
try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
    tf.config.experimental_connect_to_cluster(resolver)
except tf.errors.UnavailableError as error:
    print("RESULT", error, flush=True)
os._exit(0)
"""
# The worker has answered, and then stops.
STOP = """
_workers.wait_for = lambda *_: None
os.kill(int(sys.argv[2]), signal.SIGSTOP)
"""


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_programs_do_not_wait_for_a_worker_that_is_not_there(
    run_python: Any, impatient: Pod, how: signal.Signals
) -> None:
    worker = impatient.workers[1]
    worker.process.send_signal(how)
    message = run_python(CONNECT.format(before=""), impatient.address).stdout
    assert f"task:1 at localhost:{worker.port} has given no sign of life for 4 s" in message
    assert "Start it with tf-tpu worker" in message


@pytest.mark.parametrize("task", range(HOSTS))
def test_programs_do_not_wait_for_a_worker_that_stops_while_they_connect(
    run_python: Any, impatient: Pod, task: int
) -> None:
    worker = impatient.workers[task]
    code = CONNECT.format(before=STOP)
    lost = str(worker.process.pid)
    message = run_python(code, impatient.address, lost, timeout=60).stdout
    assert f"task:{task} at localhost:{worker.port} has given no sign of life for 4 s" in message


@pytest.mark.parametrize("lost", range(HOSTS))
def test_a_program_connects_again_when_a_worker_is_back(program: Any, pod: Pod, lost: int) -> None:
    worker = pod.workers[lost]
    before, kind, after = program(
        f"""
        import json, subprocess

        def counted():
            names = {{}}
            exec({START + COUNT!r}, names)
            return names["step"], [float(value.numpy()) for value in names["total"].values]

        step, before = counted()
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        try:
            for _ in range(100):
                step()
        except tf.errors.OpError as error:
            kind = type(error).__name__
        with subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE, text=True) as worker:
            while "for programs:" not in (line := worker.stdout.readline()):
                assert line, "the worker has ended"
            _, after = counted()
            print("RESULT", json.dumps([before, kind, after]), flush=True)
            worker.kill()
        os._exit(0)
        """,
        str(worker.process.pid),
        *(sys.executable, str(CLI), "worker", "--cores=2", f"--port={worker.port}"),
        address=pod.address,
    )
    assert before == after == [4.0] * HOSTS * CORES
    assert kind == "UnavailableError"
