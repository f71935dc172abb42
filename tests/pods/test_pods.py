"""Programs use the cores of several `tf-tpu worker`s as one TPU, unchanged."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from worker_processes import CLI, START, Worker

import tf_tpu_ext

CORES = 2
HOSTS = 2


class Pod:
    """Workers of two cores each."""

    def __init__(self) -> None:
        self.workers = [Worker() for _ in range(HOSTS)]
        self.address = ",".join(worker.address for worker in self.workers)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


@pytest.fixture(scope="module")
def shared() -> Iterator[Pod]:
    pod = Pod()
    yield pod
    pod.end()


@pytest.fixture
def pod() -> Iterator[Pod]:
    pod = Pod()
    yield pod
    pod.end()


@pytest.fixture
def program(run_python: Any, shared: Pod) -> Any:
    """Runs a program on the pod, and returns what it prints after "RESULT" as JSON."""

    def run(code: str, *arguments: str, address: str | None = None) -> Any:
        done = run_python(START + textwrap.dedent(code), address or shared.address, *arguments)
        [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        return json.loads(line.removeprefix("RESULT "))

    return run


def test_the_topology_is_that_of_a_slice(program: Any) -> None:
    assert program(
        """
        import json
        print("RESULT", json.dumps([
            topology.mesh_shape.tolist(), topology.num_tasks, topology.num_tpus_per_task,
            topology.device_coordinates.tolist(), strategy.num_replicas_in_sync,
            strategy.extended.num_hosts, strategy.extended.worker_devices]))
        """
    ) == [
        [1, 2, 1, 2],
        2,
        2,
        [[[0, 0, 0, 0], [0, 0, 0, 1]], [[0, 1, 0, 0], [0, 1, 0, 1]]],
        4,
        2,
        [
            f"/job:worker/replica:0/task:{host}/device:TPU:{core}"
            for host in range(HOSTS)
            for core in range(CORES)
        ],
    ]


def test_collectives(program: Any) -> None:
    sums, gathered, groups, scattered, moved, minimum = program(
        """
        import json
        from tensorflow.python.tpu.ops import tpu_ops

        @tf.function
        def step():
            def of_replica():
                context = tf.distribute.get_replica_context()
                number = tf.cast(context.replica_id_in_sync_group, tf.float32)
                own = number * 10 + tf.range(4, dtype=tf.float32)
                assignment = [[0, 1, 2, 3]]
                return (
                    context.all_reduce("SUM", own),
                    context.all_gather(tf.reshape(own, [1, 4]), 0),
                    tpu_ops.cross_replica_sum(own, [[0, 2], [1, 3]]),
                    tpu_ops.all_to_all(tf.reshape(own, [4, 1]), 1, 0, 4, assignment),
                    tpu_ops.collective_permute(own, [[0, 3], [3, 1], [1, 0]]),
                    context.all_reduce("MEAN", own),
                )
            return strategy.run(of_replica)

        results = [
            [each.numpy().tolist() for each in strategy.experimental_local_results(result)]
            for result in step()
        ]
        print("RESULT", json.dumps(results))
        """
    )
    own = [[10.0 * replica + i for i in range(4)] for replica in range(4)]
    assert sums == [[60.0 + 4 * i for i in range(4)]] * 4
    assert gathered == [own] * 4
    pairs = [[20.0 + 2 * i for i in range(4)], [40.0 + 2 * i for i in range(4)]]
    assert groups == pairs * 2
    assert [row for [row] in scattered] == [
        [own[source][target] for source in range(4)] for target in range(4)
    ]
    assert moved == [own[1], own[3], [0.0] * 4, own[0]]
    assert minimum == [[15.0 + i for i in range(4)]] * 4


def test_each_host_reads_its_own_input(program: Any) -> None:
    pipelines, batches = program(
        """
        import json
        pipelines = []

        def make(context):
            pipelines.append([context.num_input_pipelines, context.input_pipeline_id,
                              context.num_replicas_in_sync])
            first = 100 * context.input_pipeline_id
            return tf.data.Dataset.range(first, first + 8).batch(2)

        data = strategy.distribute_datasets_from_function(make)

        @tf.function
        def loop(iterator):
            def body(i, total):
                seen = strategy.run(lambda batch: batch * 2, args=(next(iterator),))
                return i + 1, total + tf.add_n(strategy.experimental_local_results(seen))

            zeros = tf.zeros([2], tf.int64)
            return tf.while_loop(lambda i, total: i < 2, body, (0, zeros))[1]

        print("RESULT", json.dumps([pipelines, loop(iter(data)).numpy().tolist()]))
        """
    )
    assert sorted(pipelines) == [[2, 0, 4], [2, 1, 4]]
    # Four batches of two from each host.
    expected = [sum(2 * (host + i) for host in (0, 100) for i in range(at, 8, 2)) for at in (0, 1)]
    assert batches == expected


def test_outside_compilation_runs_on_the_host_of_its_replica(program: Any, shared: Pod) -> None:
    hosts, values = program(
        """
        import json
        v1 = tf.compat.v1

        def process_of_host(x):
            # Else grappler would read it once for all.
            nothing = tf.strings.substr(tf.strings.as_string(x), 0, 0)
            status = tf.io.read_file(tf.strings.join(["/proc/self/stat", nothing]))
            return tf.strings.to_number(tf.strings.split(status, " ")[0], tf.int32)

        @tf.function
        def step(x):
            def of_replica(x):
                def on_host(x):
                    text = tf.strings.as_string(x)
                    return tf.strings.to_number(tf.strings.join([text, "1"]))
                def on_host_if(x):
                    return tf.cond(tf.reduce_sum(x) > 3.0, lambda: on_host(x), lambda: x)
                number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group,
                                 tf.float32)
                first = v1.tpu.outside_compilation(on_host, x + number)
                later = v1.tpu.outside_compilation(on_host_if, first)
                return later, v1.tpu.outside_compilation(process_of_host, x)
            return strategy.run(of_replica, args=(x,))

        later, process = step(tf.constant(0.0))
        print("RESULT", json.dumps([
            [int(each) for each in strategy.experimental_local_results(process)],
            [float(each) for each in strategy.experimental_local_results(later)]]))
        """
    )
    assert hosts == [worker.process.pid for worker in shared.workers for _ in range(CORES)]

    def once(x: float) -> float:
        return float(f"{x:.6f}1")

    def expected(x: float) -> float:
        first = once(x)
        return once(first) if first > 3 else first

    assert values == pytest.approx([expected(float(number)) for number in range(4)])


def test_branches_on_the_host_use_resources_of_another_one(program: Any) -> None:
    results, total = program(
        """
        import json
        v1 = tf.compat.v1
        with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
            total = tf.Variable(0.0)

        @tf.function
        def step(x):
            def of_replica(x):
                number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group,
                                 tf.float32)
                def on_host(x):
                    total.assign_add(x)
                    return x
                def branch():
                    # Not one call: the host learns which branch it is, and then its arguments.
                    return v1.tpu.outside_compilation(on_host, x + number) * 2.0
                return tf.cond(number > 0.5, branch, lambda: x)
            return strategy.run(of_replica, args=(x,))

        results = [float(each) for each in strategy.experimental_local_results(
            step(tf.constant(1.0)))]
        print("RESULT", json.dumps([results, float(total.numpy())]))
        """
    )
    assert results == [1.0, 4.0, 6.0, 8.0]
    assert total == 9.0


def test_checkpoints(program: Any, tmp_path: pathlib.Path) -> None:
    code = """
        import json
        with strategy.scope():
            total = tf.Variable(tf.zeros([3]))
            own = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
                              aggregation=tf.VariableAggregation.SUM)
        checkpoint = tf.train.Checkpoint(total=total, own=own)

        @tf.function
        def step():
            def of_replica():
                context = tf.distribute.get_replica_context()
                total.assign_add(context.all_reduce("SUM", tf.ones([3])))
                own.assign_add(1.0)
            strategy.run(of_replica)

        if len(sys.argv) > 3:
            checkpoint.restore(sys.argv[3])
        step()
        path = checkpoint.write(sys.argv[2])
        print("RESULT", json.dumps([
            path, [value.numpy().tolist() for value in total.values], float(own.numpy())]))
        """
    path, total, own = program(code, str(tmp_path / "first"))
    assert (total, own) == ([[4.0] * 3] * 4, 4.0)
    _, total, own = program(code, str(tmp_path / "second"), path)
    assert (total, own) == ([[8.0] * 3] * 4, 8.0)


def test_models_of_several_cores(program: Any) -> None:
    assert program(
        """
        import json
        def strategy_of(replicas, shape):
            assignment = tf.tpu.experimental.DeviceAssignment.build(
                topology, computation_shape=shape, num_replicas=replicas)
            return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)

        def of_replica(x):
            y = strategy.experimental_assign_to_logical_device(x * 2, 0)
            return strategy.experimental_assign_to_logical_device(y + 1, 1)

        strategy = strategy_of(2, [1, 1, 1, 2])
        got = strategy.run(tf.function(of_replica), args=(tf.constant([1.0, 2.0]),))
        values = [each.numpy().tolist() for each in strategy.experimental_local_results(got)]
        # The two cores of a replica on two hosts.
        strategy = strategy_of(2, [1, 2, 1, 1])
        try:
            strategy.run(tf.function(of_replica), args=(tf.constant([1.0, 2.0]),))
            from tensorflow.python.eager import context
            context.async_wait()
            error = ""
        except tf.errors.UnimplementedError as raised:
            error = str(raised)
        print("RESULT", json.dumps([values, "must be on one host" in error]), flush=True)
        os._exit(0)
        """
    ) == [[[3.0, 5.0], [3.0, 5.0]], True]


def test_towers(program: Any) -> None:
    assert program(
        """
        import json
        strategy = tf_tpu_ext.TPUStrategy(resolver)
        with strategy.scope():
            total = tf.Variable(1.0)

        @tf.function
        def step():
            def tower(x):
                added = tf.distribute.get_replica_context().all_reduce("SUM", x)
                total.assign_add(added)
                return added
            with strategy.scope():
                return strategy.call_for_each_tower(tower, 2.0)

        with strategy.scope():
            result = step()
            print("RESULT", json.dumps([
                [float(each) for each in strategy.unwrap(result)], float(total.numpy()),
                float(strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None))]))
        """
    ) == [[8.0] * 4, 9.0, 32.0]


def test_embeddings_are_refused_before_anything_runs(program: Any) -> None:
    assert program(
        """
        import json
        e = tf.tpu.experimental.embedding
        table = e.TableConfig(vocabulary_size=8, dim=4)
        with strategy.scope():
            embedding = e.TPUEmbedding(e.FeatureConfig(table=table), e.SGD(0.1))
        try:
            embedding.build(per_replica_batch_size=2)
            from tensorflow.python.eager import context
            context.async_wait()
            error = ""
        except tf.errors.UnimplementedError as raised:
            error = str(raised)
        print("RESULT", json.dumps("tf-tpu worker --cores=4" in error), flush=True)
        os._exit(0)
        """
    )


def test_sessions(run_python: Any, shared: Pod) -> None:
    code = """
    import sys
    import tensorflow as tf

    v1 = tf.compat.v1
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
    config = v1.ConfigProto(cluster_def=resolver.cluster_spec().as_cluster_def())
    with tf.Graph().as_default(), v1.Session(resolver.master(), config=config) as session:
        topology = session.run(v1.tpu.initialize_system(job="worker"))
        inputs = [[tf.constant(float(i))] for i in range(4)]
        assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=4)
        sums = v1.tpu.replicate(
            lambda x: v1.tpu.cross_replica_sum(x) + x, inputs, device_assignment=assignment)
        for _ in range(3):
            assert session.run(sums) == [[6.0 + i] for i in range(4)]
        session.run(v1.tpu.shutdown_system(job="worker"))
    print("as expected")
    """
    for _ in range(2):
        assert "as expected" in run_python(code, shared.address).stdout


def test_doctor_examines_all_workers(shared: Pod) -> None:
    command = [sys.executable, CLI, "doctor", "--json", shared.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    found = {check["name"]: check["found"] for check in report["checks"]}
    assert (done.returncode, report["ok"]) == (0, True)
    for task, worker in enumerate(shared.workers):
        described = found[worker.address.removeprefix("grpc://")]
        assert f"task:{task}: 2 cores, tf_tpu_ext {tf_tpu_ext.__version__}" in described
    assert "an all-reduce over 4 cores is right" in found["TPUStrategy step"]


def test_doctor_names_the_worker_that_is_not_there(shared: Pod) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"localhost:{taken.getsockname()[1]}"
        command = [sys.executable, CLI, "doctor", f"{shared.workers[0].address},grpc://{gone}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"FAILED  {gone}" in done.stdout
    assert f"no worker at {gone}" in done.stdout


FIT = """
import json
import sys
import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
tf.keras.utils.set_random_seed(1)
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
losses = model.fit(inputs, inputs[:, :1], epochs=3, batch_size=16, verbose=0, shuffle=False)
with open(sys.argv[1], "w") as file:
    json.dump([strategy.num_replicas_in_sync, losses.history["loss"],
               model.predict(inputs[:2], verbose=0).ravel().tolist()], file)
"""


def test_keras_trains_as_on_one_machine(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    out, report = tmp_path / "losses.json", tmp_path / "report.json"
    runs, reports = [], []
    for options in (["--cores=4"], ["--cores=2", "--workers=2"]):
        command = [
            sys.executable,
            CLI,
            "run",
            *options,
            f"--report={report}",
            str(script),
            str(out),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        # TensorFlow's end waits for the workers.
        assert "async_wait" not in done.stderr
        runs.append(json.loads(out.read_text()))
        reports.append(json.loads(report.read_text()))
    assert runs[0][0] == runs[1][0] == 4
    for one, other in zip(runs[0][1:], runs[1][1:], strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    one, other = reports
    assert one["cores"] == other["cores"] == 4
    # Each worker compiles and launches.
    assert other["launches"] == 2 * one["launches"]
    assert (one["workers"], other["workers"]) == (0, 2)
    assert one["messages_between_workers"] == one["bytes_between_workers"] == 0
    # Of each worker, at least the gradients of each step of training: 4 x 8 and 8 weights.
    assert other["messages_between_workers"] >= 2 * 12
    assert other["bytes_between_workers"] >= 2 * 12 * 40 * 4
    assert other["wait_seconds_between_workers"] > 0


ESTIMATE = """
import sys
import numpy as np
import tensorflow as tf
import tf_tpu_ext.estimator as te

def model_fn(features, labels, mode, params):
    v1 = tf.compat.v1
    weight = v1.get_variable("weight", [4, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return te.TPUEstimatorSpec(mode, loss=loss, train_op=train)

def input_fn(params):
    inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1]))
    # Each host reads its part.
    hosts, host = params["context"].num_hosts, params["context"].current_host
    return data.shard(hosts, host).repeat().batch(params["batch_size"], drop_remainder=True)

config = te.RunConfig(
    cluster=tf.distribute.cluster_resolver.TPUClusterResolver(),
    model_dir=sys.argv[1],
    tpu_config=te.TPUConfig(
        iterations_per_loop=5,
        per_host_input_for_training=te.InputPipelineConfig.PER_HOST_V2))
estimator = te.TPUEstimator(model_fn, config=config, train_batch_size=16, use_tpu=True)
estimator.train(input_fn, max_steps=10)
np.save(sys.argv[2], estimator.get_variable_value("weight"))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None,
    reason="tensorflow-estimator is not installed",
)
def test_an_estimator_trains_with_the_input_of_each_worker(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "estimate.py"
    script.write_text(ESTIMATE)
    weights = []
    pods = {"one": ["--cores=4", "--hosts=2"], "two": ["--cores=2", "--workers=2"]}
    for name, options in pods.items():
        out = str(tmp_path / f"{name}.npy")
        command = [sys.executable, CLI, "run", *options, str(script), str(tmp_path / name), out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        weights.append(np.load(out))
    assert np.abs(weights[0]).max() > 0.1
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5, atol=1e-7)


# Each step adds the number of cores to a variable.
COUNT = """
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    def of_replica():
        here = tf.distribute.get_replica_context()
        total.assign_add(here.all_reduce("SUM", 1.0))
    strategy.run(of_replica)

step()
"""


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
    lost = pod.workers[1].process.pid
    kind, message, took, values = program(LOSE, str(lost), "SIGKILL", address=pod.address)
    assert kind == "UnavailableError"
    assert "task:1" in message
    assert took < 60
    assert values == [4.0, 4.0, "UnavailableError", "UnavailableError"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    """A pod, and programs, that wait for 4 seconds for a sign of life."""
    monkeypatch.setenv("TF_TPU_EXT_HOST_LIMIT_SECONDS", "4")
    pod = Pod()
    yield pod
    pod.end()


def test_a_stopped_worker_is_an_error_within_the_limit(program: Any, impatient: Pod) -> None:
    lost = impatient.workers[1]
    arguments = (str(lost.process.pid), "SIGSTOP")
    kind, message, took, values = program(LOSE, *arguments, address=impatient.address)
    assert kind == "UnavailableError"
    assert f"task:1 at localhost:{lost.port} has given no sign of life for 4s" in message
    assert took > 2
    # The first step's alone, and those of the stopped worker can't be read.
    assert values == [4.0, 4.0, "UnavailableError", "UnavailableError"]


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


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_programs_do_not_wait_for_a_worker_that_is_not_there(
    run_python: Any, impatient: Pod, how: signal.Signals
) -> None:
    worker = impatient.workers[1]
    worker.process.send_signal(how)
    code = """
        import os, sys
        import tensorflow as tf
        import tf_tpu_ext

        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
            tf.config.experimental_connect_to_cluster(resolver)
        except tf.errors.UnavailableError as error:
            print("RESULT", error, flush=True)
        os._exit(0)
    """
    message = run_python(code, impatient.address).stdout
    assert f"task:1 at localhost:{worker.port} has given no sign of life for 4 s" in message
    assert "Start it with tf-tpu worker" in message


@pytest.mark.parametrize("lost", range(HOSTS))
def test_a_program_connects_again_when_a_worker_is_back(program: Any, pod: Pod, lost: int) -> None:
    worker = pod.workers[lost]
    before, kind, after = program(
        """
        import json, subprocess

        def counted():
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
            tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
            with strategy.scope():
                total = tf.Variable(0.0)

            @tf.function
            def step():
                def of_replica():
                    here = tf.distribute.get_replica_context()
                    total.assign_add(here.all_reduce("SUM", 1.0))
                strategy.run(of_replica)

            step()
            return step, [float(value.numpy()) for value in total.values]

        step, before = counted()
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        try:
            for _ in range(100):
                step()
        except tf.errors.OpError as error:
            kind = type(error).__name__
        with subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE, text=True) as worker:
            while "for programs:" not in worker.stdout.readline():
                pass
            _, after = counted()
            print("RESULT", json.dumps([before, kind, after]), flush=True)
            worker.kill()
        os._exit(0)
        """,
        str(worker.process.pid),
        *(sys.executable, CLI, "worker", "--cores=2", f"--port={worker.port}"),
        address=pod.address,
    )
    assert before == after == [4.0] * HOSTS * CORES
    assert kind == "UnavailableError"


def test_the_report_says_when_it_lacks_the_workers(run_python: Any) -> None:
    done = run_python(
        """
        import tf_tpu_ext
        from tf_tpu_ext.launcher import _report

        recorder = _report.Recorder()
        _report.count_in("grpc://localhost:1")
        print("WORKERS", recorder.finish().workers)
        """
    )
    assert "WORKERS 0" in done.stdout
    lacks = (
        "tf-tpu: the report lacks the workers: There is no worker at localhost:1: nobody listens"
    )
    assert lacks in done.stderr
