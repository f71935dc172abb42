"""Programs use the cores of a `tf-tpu worker`, unchanged, and learn what becomes of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import imported_processes
import pytest
from doc_pages import PAGES, blocks_of
from worker_processes import START, Worker


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


def test_a_strategy_trains(run_python: Any, shared: Worker) -> None:
    code = f"""{START}
assert (strategy.num_replicas_in_sync, topology.num_tasks) == (2, 1)
with strategy.scope():
    total = tf.Variable(1.0)
    own = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
                      aggregation=tf.VariableAggregation.SUM)

@tf.function
def step(batch):
    def of_replica(batch):
        context = tf.distribute.get_replica_context()
        total.assign_add(context.all_reduce("SUM", batch[0]))
        own.assign_add(tf.cast(context.replica_id_in_sync_group + 1, tf.float32))
        seen = tf.compat.v1.tpu.outside_compilation(
            lambda x: tf.strings.to_number(tf.strings.as_string(x)) * 2, batch)
        return context.all_gather(tf.reshape(seen, [1]), 0)
    return strategy.run(of_replica, args=(batch,))

data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(1, 5).map(
    lambda x: tf.cast(x, tf.float32)).batch(2))
for first, batch in zip((1.0, 3.0), data, strict=True):
    for got in strategy.experimental_local_results(step(batch)):
        assert got.numpy().tolist() == [2 * first, 2 * first + 2], got
assert total.numpy() == 11.0, total
assert own.numpy() == 6.0
print("as expected")
"""
    assert "as expected" in run_python(code, shared.address).stdout


def test_keras_trains_as_on_this_machine(run_python: Any, shared: Worker) -> None:
    code = """
import sys
import numpy as np
import tensorflow as tf
import tf_tpu_ext

tf_tpu_ext.configure(cores=2)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
tf.keras.utils.set_random_seed(1)
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
losses = model.fit(inputs, inputs[:, :1], epochs=2, batch_size=16, verbose=0, shuffle=False)
print("LOSSES", *losses.history["loss"], *model.predict(inputs[:2], verbose=0).ravel())
"""
    runs = []
    for tpu in (shared.address, "local"):
        [line] = [
            line for line in run_python(code, tpu).stdout.splitlines() if line.startswith("LOSSES")
        ]
        runs.append([float(value) for value in line.split()[1:]])
    assert runs[0] == pytest.approx(runs[1], rel=1e-5)


def test_sessions_of_two_programs(run_python: Any, shared: Worker) -> None:
    code = """
import sys
import tensorflow as tf

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session(sys.argv[1]) as session:
    session.run(v1.tpu.initialize_system())
    sums = v1.tpu.replicate(lambda x: v1.tpu.cross_replica_sum(x), [[1.0], [2.0]])
    assert session.run(sums) == [[3.0], [3.0]]
    session.run(v1.tpu.shutdown_system())
print("as expected")
"""
    for _ in range(2):
        assert "as expected" in run_python(code, shared.address).stdout


def test_it_listens_on_loopback_only(shared: Worker) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=30):
        pass
    # The whole 127.0.0.0/8 is this machine, and what listens on all addresses answers there.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", shared.port), timeout=30)
    assert f"TPUClusterResolver('{shared.address}')" in shared.said
    assert "2 cores, task 0 of 1, healthy" in shared.said
    assert "password" not in shared.said


def test_it_listens_elsewhere_if_told(run_python: Any) -> None:
    worker = Worker("--listen", "0.0.0.0")
    try:
        assert "whoever reaches 0.0.0.0" in worker.said
        assert "no password" in worker.said
        code = START + "print('as expected')"
        address = f"grpc://127.0.0.2:{worker.port}"
        assert "as expected" in run_python(code, address).stdout
    finally:
        worker.end()


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_it_ends_by_signals(how: signal.Signals, code: int) -> None:
    worker = Worker()
    ended, errors = worker.end(how)
    assert ended == code
    assert f"ended by {how.name}" in errors


def test_it_ends_by_sigterm_while_a_program_is_connected() -> None:
    # TensorFlow has then replaced the handler of SIGTERM.
    worker = Worker()
    code = START + 'print("CONNECTED", flush=True)\nsys.stdin.read()\n'
    command = [sys.executable, "-c", code, worker.address]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "CONNECTED\n"
        ended, errors = worker.end(signal.SIGTERM)
        program.kill()
    assert ended == 0
    assert "ended by SIGTERM" in errors


def test_a_program_learns_at_once_that_its_worker_was_killed(
    run_python: Any, worker: Worker
) -> None:
    code = f"""{START}
import os, signal, time

@tf.function
def step(x):
    return strategy.run(lambda x: x + 1.0, args=(x,))

step(tf.constant(1.0))
os.kill(int(sys.argv[2]), signal.SIGKILL)
start = time.monotonic()
try:
    for _ in range(100):
        tf.nest.map_structure(lambda x: x.numpy(), strategy.experimental_local_results(
            step(tf.constant(1.0))))
except tf.errors.UnavailableError:
    assert time.monotonic() - start < 60
    print("as expected", flush=True)
os._exit(0)
"""
    done = run_python(code, worker.address, str(worker.process.pid))
    assert "as expected" in done.stdout


def test_the_worker_serves_the_next_program(run_python: Any, worker: Worker) -> None:
    code = f"""{START}
import os, signal, threading

@tf.function
def step(x):
    for _ in range(1_000_000):
        x = x * 0.5 + 1.0
    return strategy.run(lambda x: x + 1.0, args=(x,))

threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
while True:
    step(tf.constant(1.0))
"""
    killed = run_python(code, worker.address, check=False)
    assert killed.returncode != 0
    code = f"""{START}
got = strategy.experimental_local_results(strategy.run(tf.function(lambda: tf.constant(3.0))))
assert [float(value) for value in got] == [3.0, 3.0]
print("as expected")
"""
    assert "as expected" in run_python(code, worker.address).stdout


def test_a_program_that_has_made_its_own_cores(run_python: Any, shared: Worker) -> None:
    code = f"""
import sys
import tensorflow as tf
import tf_tpu_ext

tf.zeros([1])
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
try:
    tf.config.experimental_connect_to_cluster(resolver)
except RuntimeError as error:
    assert "configure(local_devices=False)" in str(error), error
    assert "{shared.address}" in str(error), error
    print("as expected")
"""
    assert "as expected" in run_python(code, shared.address).stdout


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["--listen", "localhost"], {}, "'localhost' is no address to listen on"),
        (["--listen", "192.0.2.1"], {}, "Can't listen on 192.0.2.1"),
        (["--port", "TAKEN"], {}, "Address already in use. Name another port by --port"),
        ([], {"TF_CONFIG": "{}"}, "TF_CONFIG is '{}'"),
        (["--cores", "0"], {}, "from 1 to 1024 cores. Received: cores=0"),
    ],
    ids=["name", "other machine's", "taken", "TF_CONFIG", "cores"],
)
def test_one_that_can_not_start(
    shared: Worker, arguments: list[str], variables: dict[str, str], words: str
) -> None:
    arguments = [str(shared.port) if one == "TAKEN" else one for one in arguments]
    environment = {**os.environ, **variables}
    done = imported_processes.tf_tpu("worker", *arguments, env=environment, timeout=120)
    assert done.returncode == 2
    assert words in done.stderr


def test_the_program_of_the_page(run_python: Any, shared: Worker) -> None:
    [page] = [page for page in PAGES if page.name == "pods.md"]
    [code] = [
        block.code.replace("grpc://localhost:8470", shared.address)
        for block in blocks_of(page)
        if "TPUClusterResolver" in block.code and block.language == "python"
    ]
    checks = "assert strategy.num_replicas_in_sync == 2\nprint('as expected')"
    assert "as expected" in run_python(f"{code}\n{checks}", shared.address).stdout
