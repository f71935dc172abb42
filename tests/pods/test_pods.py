"""Programs use the cores of several `tf-tpu worker`s as one TPU, unchanged."""

from __future__ import annotations

import json
import pathlib
import socket
from typing import Any

import imported_processes
import pytest
from worker_processes import CORES, HOSTS, Pod

import tf_tpu_ext


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
    done = imported_processes.tf_tpu("doctor", "--json", shared.address, timeout=120)
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
        addresses = f"{shared.workers[0].address},grpc://{gone}"
        done = imported_processes.tf_tpu("doctor", addresses, timeout=120)
    assert done.returncode == 1
    assert f"FAILED  {gone}" in done.stdout
    assert f"no worker at {gone}" in done.stdout


def test_a_python_function_on_a_worker_is_an_error_that_says_so(program: Any, shared: Pod) -> None:
    message = program(
        """
        import json

        @tf.function
        def step():
            def of_replica():
                twice = lambda x: tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
                return tf.ensure_shape(tf.compat.v1.tpu.outside_compilation(twice, 1.0), [])
            return strategy.run(of_replica)

        try:
            [float(each) for each in strategy.experimental_local_results(step())]
        except tf.errors.OpError as error:
            print("RESULT", json.dumps(str(error)), flush=True)
        os._exit(0)
        """
    )
    assert "A Python function runs only in the process that made it" in message
    assert any(f"of process {worker.process.pid} on" in message for worker in shared.workers)
