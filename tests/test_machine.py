"""`configure`, topology, resolver, system ops, eager ops on cores, `compilation_stats`."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

TPUClusterResolver = tf.distribute.cluster_resolver.TPUClusterResolver

REPORT = """
import json
import tf_tpu_ext
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)

@tf.function
def step():
    def replica():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("SUM", tf.cast(context.replica_id_in_sync_group, tf.float32))
    return strategy.experimental_local_results(strategy.run(replica))

machine = tf_tpu_ext.machine()
print(json.dumps({
    "cores": machine.cores,
    "machine_mesh": list(machine.mesh_shape),
    "mesh": topology.mesh_shape.tolist(),
    "coordinates": topology.device_coordinates[0].tolist(),
    "devices": [device.name for device in tf.config.list_logical_devices("TPU")],
    "physical": len(tf.config.list_physical_devices("TPU")),
    "metadata": resolver.get_tpu_system_metadata().num_cores,
    "sums": [float(x) for x in step()],
}))
"""


@pytest.fixture
def initialized():
    resolver = TPUClusterResolver()
    yield tf.tpu.experimental.initialize_tpu_system(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)


class TestConfigure:
    @pytest.mark.parametrize("cores", [0, -1, 1025])
    def test_number_of_cores_out_of_range(self, cores):
        with pytest.raises(ValueError, match=rf"from 1 to 1024 cores\. Received: cores={cores}"):
            tf_tpu_ext.configure(cores=cores)

    @pytest.mark.parametrize("cores", [2.0, "2", True, [2]])
    def test_number_of_cores_of_another_type(self, cores):
        with pytest.raises(ValueError, match=r"`cores` must be an int\. Received: cores="):
            tf_tpu_ext.configure(cores=cores)

    @pytest.mark.parametrize("limit", [0, -1.5, float("inf"), float("nan")])
    def test_wait_limit_out_of_range(self, limit):
        with pytest.raises(ValueError, match=r"positive, finite number\. Received"):
            tf_tpu_ext.configure(wait_limit_seconds=limit)

    @pytest.mark.parametrize("name", ["max_programs", "max_program_bytes"])
    @pytest.mark.parametrize("limit", [0, -1, 1.5, "many", True, 2**63])
    def test_limit_of_programs_out_of_range(self, name, limit):
        before = tf_tpu_ext.machine()
        with pytest.raises(ValueError, match=name):
            tf_tpu_ext.configure(**{name: limit})
        assert tf_tpu_ext.machine() == before

    def test_other_cores_once_there_are_devices(self):
        cores = len(tf.config.list_logical_devices("TPU"))
        with pytest.raises(
            RuntimeError, match=rf"with {cores} virtual TPU cores.*before the first"
        ):
            tf_tpu_ext.configure(cores=cores + 1)
        assert tf_tpu_ext.machine().cores == cores

    def test_same_cores_and_another_wait_limit_at_any_time(self):
        cores = len(tf.config.list_logical_devices("TPU"))
        before = tf_tpu_ext.machine().wait_limit_seconds
        try:
            machine = tf_tpu_ext.configure(cores=cores, wait_limit_seconds=77.5)
            assert machine.wait_limit_seconds == 77.5
            assert tf_tpu_ext.machine() == machine
        finally:
            assert tf_tpu_ext.configure(wait_limit_seconds=before).wait_limit_seconds == before

    def test_before_the_first_op(self, run_python):
        done = run_python(
            """
            import tf_tpu_ext
            import tensorflow as tf
            assert tf_tpu_ext.configure(cores=5).cores == 5
            assert tf_tpu_ext.configure(cores=3).mesh_shape == (3, 1, 1, 1)
            print(len(tf.config.list_physical_devices("TPU")))
            print(len(tf.config.list_logical_devices("TPU")))
            """
        )
        assert done.stdout.split() == ["3", "3"]

    def test_what_is_left_out_stays_as_it_is(self, run_python, tmp_path):
        run_python(
            """
            import sys
            import tf_tpu_ext
            import tensorflow as tf

            settings = {
                "cores": 4,
                "wait_limit_seconds": 60.0,
                "local_devices": False,
                "compilation_cache": sys.argv[1],
            }
            switches = {"stack_replicas": False, "launch_from_host": False}
            tf_tpu_ext.configure(**settings, **switches)
            for name, value in {**settings, **switches}.items():
                machine = tf_tpu_ext.configure(**{name: value})
                for other in settings:
                    assert getattr(machine, other) == settings[other], (name, other)
                assert not machine.options.stack_replicas
                assert not machine.options.launch_from_host
                assert machine.options.share_updates
            assert tf.config.list_logical_devices("TPU") == []
            assert not tf_tpu_ext.is_virtual()
            assert tf_tpu_ext.configure(wait_limit_seconds=70) == tf_tpu_ext.machine()
            assert tf.config.list_logical_devices("TPU") == []
            """,
            str(tmp_path),
        )

    def test_local_devices_once_there_are_devices(self):
        tf.config.list_logical_devices("TPU")
        with pytest.raises(RuntimeError, match=r"local_devices=True; received.*=False"):
            tf_tpu_ext.configure(local_devices=False)
        assert tf_tpu_ext.is_virtual()

    def test_no_compilation_cache(self, run_python, tmp_path):
        run_python(
            """
            import pathlib, sys
            import tf_tpu_ext

            folder = pathlib.Path(sys.argv[1])
            assert tf_tpu_ext.machine().compilation_cache == str(folder)
            assert tf_tpu_ext.configure(cores=2).compilation_cache == str(folder)
            tf_tpu_ext.tpu.rewrite(lambda x: x + 1.0, [1.0])
            kept = sorted(folder.rglob("*"))
            assert kept
            assert tf_tpu_ext.configure(compilation_cache="").compilation_cache is None
            tf_tpu_ext.tpu.rewrite(lambda x: x + 2.0, [1.0])
            assert sorted(folder.rglob("*")) == kept
            assert not tf_tpu_ext.compilation_stats().programs[-1].restored
            """,
            str(tmp_path),
            env={"TF_TPU_EXT_COMPILATION_CACHE": str(tmp_path)},
        )

    @pytest.mark.parametrize(
        ("variable", "value", "message"),
        [
            ("TF_TPU_EXT_CORES", "two", "must be an integer. Received: TF_TPU_EXT_CORES='two'"),
            ("TF_TPU_EXT_CORES", "0", "from 1 to 1024 cores. Received: cores=0"),
            ("TF_TPU_EXT_WAIT_LIMIT_SECONDS", "soon", "must be a number. Received"),
        ],
    )
    def test_variable_that_is_no_setting(self, run_python, variable, value, message):
        done = run_python("import tf_tpu_ext", env={variable: value}, check=False)
        assert done.returncode == 1
        assert message in done.stderr

    def test_variables(self, run_python):
        done = run_python(
            "import tf_tpu_ext; print(tf_tpu_ext.machine())",
            env={"TF_TPU_EXT_CORES": "6", "TF_TPU_EXT_WAIT_LIMIT_SECONDS": "2.5"},
        )
        assert "cores=6, mesh_shape=(3, 1, 1, 2), wait_limit_seconds=2.5" in done.stdout

    def test_default_is_eight_cores(self, run_python):
        done = run_python(
            "import tf_tpu_ext; print(tf_tpu_ext.machine().cores)", env={"TF_TPU_EXT_CORES": ""}
        )
        assert done.stdout.split() == ["8"]


@pytest.mark.parametrize(
    ("cores", "mesh"),
    [
        (1, [1, 1, 1, 1]),
        (2, [1, 1, 1, 2]),
        (3, [3, 1, 1, 1]),
        (8, [2, 2, 1, 2]),
        (64, [8, 4, 1, 2]),
    ],
)
def test_number_of_cores(run_python, cores, mesh):
    done = run_python(REPORT, env={"TF_TPU_EXT_CORES": str(cores)})
    report = json.loads(done.stdout.splitlines()[-1])
    sums = report.pop("sums")
    coordinates = report.pop("coordinates")
    assert report == {
        "cores": cores,
        "machine_mesh": mesh,
        "mesh": mesh,
        "devices": [f"/device:TPU:{i}" for i in range(cores)],
        "physical": cores,
        "metadata": cores,
    }
    assert sums == [cores * (cores - 1) / 2] * cores
    assert len({tuple(c) for c in coordinates}) == cores
    assert (np.array(coordinates) < mesh).all()


@pytest.mark.parametrize("name", [None, "", "local", "my-tpu"])
def test_resolver_finds_the_machine(name):
    resolver = TPUClusterResolver() if name is None else TPUClusterResolver(tpu=name)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = len(tf.config.list_logical_devices("TPU"))
    assert topology.num_tpus_per_task == cores
    assert tf.distribute.TPUStrategy(resolver).num_replicas_in_sync == cores


class TestSystem:
    def test_repeated_with_steps_between(self, initialized):
        resolver = TPUClusterResolver()
        for number in range(3):
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
            values = strategy.run(tf.function(lambda x: x * 1.0), args=(float(number),))
            total = strategy.reduce("SUM", values, axis=None)
            assert total == number * strategy.num_replicas_in_sync
            tf.tpu.experimental.shutdown_tpu_system(resolver)

    def test_another_thread(self, initialized):
        results = []

        def work():
            resolver = TPUClusterResolver()
            topology = tf.tpu.experimental.initialize_tpu_system(resolver)
            results.append(topology.num_tpus_per_task)
            tf.tpu.experimental.shutdown_tpu_system(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
            ones = strategy.run(tf.function(lambda: tf.constant(1.0)))
            results.append(float(strategy.reduce("SUM", ones, axis=None)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(timeout=60)
        cores = initialized.num_tpus_per_task
        assert results == [cores, cores]

    def test_v1_graph(self, initialized):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            serialized = session.run(tf.compat.v1.tpu.initialize_system())
            session.run(tf.compat.v1.tpu.shutdown_system())
            again = session.run(tf.compat.v1.tpu.initialize_system())
        assert serialized == again
        topology = tf.tpu.experimental.Topology(serialized=serialized)
        np.testing.assert_array_equal(topology.mesh_shape, initialized.mesh_shape)

    def test_chips_have_two_cores(self, initialized):
        assert initialized.mesh_shape[3] == 2
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            initialized, computation_shape=[1, 1, 1, 2], num_replicas=4
        )
        ordinals = [
            [assignment.tpu_ordinal(replica=r, logical_core=c) for c in range(2)] for r in range(4)
        ]
        # The two cores of a replica are on one chip.
        assert sorted(map(sorted, ordinals)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


class TestEager:
    def test_ops(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        with tf.device("/device:TPU:1"):
            y = tf.matmul(tf.constant(x), tf.constant(x.T)) + 1.0
            z = tf.nn.softmax(y)
        assert y.device.endswith("device:TPU:1")
        assert z.device.endswith("device:TPU:1")
        np.testing.assert_allclose(y, x @ x.T + 1)
        exponents = np.exp(y.numpy() - y.numpy().max(axis=1, keepdims=True))
        np.testing.assert_allclose(z, exponents / exponents.sum(axis=1, keepdims=True), rtol=1e-6)

    def test_variables_and_gradients(self):
        with tf.device("/device:TPU:1"):
            variable = tf.Variable([1.0, 2.0, 3.0])
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable**3)
            variable.assign_sub(0.5 * tape.gradient(loss, variable))
        assert variable.device.endswith("device:TPU:1")
        np.testing.assert_allclose(
            variable.numpy(), np.array([1, 2, 3]) - 1.5 * np.array([1, 4, 9])
        )

    def test_unplaced_ops_stay_on_the_cpu(self):
        assert tf.add(1.0, 2.0).device.endswith("device:CPU:0")
        assert tf.Variable(1.0).device.endswith("device:CPU:0")

    def test_values_move_between_cores(self):
        with tf.device("/device:TPU:0"):
            x = tf.constant([1.0, 2.0])
        with tf.device("/device:TPU:7"):
            y = tf.identity(x) * 2
        with tf.device("/device:CPU:0"):
            z = y + 1
        assert y.device.endswith("device:TPU:7")
        np.testing.assert_array_equal(z, [3, 5])


class TestCompilationStats:
    def test_compiled_once_for_each_shape(self, initialized):
        strategy = tf.distribute.TPUStrategy(TPUClusterResolver())

        @tf.function(reduce_retracing=False)
        def counted_program(x):
            return strategy.run(lambda y: y * 3.0 + 1.0, args=(x,))

        def stats():
            programs = tf_tpu_ext.compilation_stats().programs
            mine = [program for program in programs if "counted_program" in program.name]
            return len(mine), sum(program.hits for program in mine)

        assert stats() == (0, 0)
        counted_program(tf.ones([2]))
        assert stats() == (1, 0)
        for _ in range(3):
            counted_program(tf.ones([2]))
        assert stats() == (1, 3)
        counted_program(tf.ones([3]))
        assert stats() == (2, 3)
        counted_program(tf.ones([2]))
        assert stats() == (2, 4)

    def test_same_graph_with_an_unknown_dimension(self, initialized):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
            x = tf.compat.v1.placeholder(tf.float32, [None])
            [y] = tf.compat.v1.tpu.rewrite(lambda x: x * 2.0 - 5.0, [x])
            counts = []
            for length in (3, 3, 4, 3, 4):
                before = tf_tpu_ext.compilation_stats().compilations
                np.testing.assert_array_equal(
                    session.run(y, {x: np.arange(length)}), np.arange(length) * 2.0 - 5
                )
                counts.append(tf_tpu_ext.compilation_stats().compilations - before)
        assert counts == [1, 0, 1, 0, 0]

    def test_what_a_record_tells(self, initialized):
        seconds = tf_tpu_ext.compilation_stats().seconds
        strategy = tf.distribute.TPUStrategy(TPUClusterResolver())

        @tf.function
        def described(x):
            return strategy.run(lambda y: tf.matmul(y, y), args=(x,))

        described(tf.ones([5, 5]))
        stats = tf_tpu_ext.compilation_stats()
        # Failed compilations of other tests follow it.
        [program] = [program for program in stats.programs if "described" in program.name]
        assert "5,5" in program.argument_shapes
        assert program.num_replicas == strategy.num_replicas_in_sync
        assert program.num_cores_per_replica == 1
        assert program.error == ""
        assert program.lowering_seconds > 0
        assert program.building_seconds > 0
        added = program.lowering_seconds + program.building_seconds
        assert stats.seconds == pytest.approx(seconds + added)
        assert stats.compilations == len(stats.programs)

    def test_failed_compilation_is_listed_with_its_error(self, initialized):
        strategy = tf.distribute.TPUStrategy(TPUClusterResolver())

        @tf.function
        def not_compilable(x):
            groups = [[0, 0]]
            return strategy.run(lambda y: tf.compat.v1.tpu.cross_replica_sum(y, groups), args=(x,))

        with pytest.raises(tf.errors.InvalidArgumentError):
            not_compilable(tf.ones([2]))
        failed = tf_tpu_ext.compilation_stats().programs[-1]
        assert "not_compilable" in failed.name
        assert "replica 0 more than once" in failed.error
