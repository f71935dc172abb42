"""`initialize_system`, `shutdown_system`, `Topology` and `DeviceAssignment`."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu


@pytest.fixture(autouse=True)
def initialized_again(cores):
    yield
    tpu.initialize_system()


def evaluated_topology(how: str) -> tpu.Topology:
    if how == "eager":
        return tpu.Topology(serialized=tpu.initialize_system().numpy())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return tpu.Topology(serialized=session.run(tpu.initialize_system()))


@pytest.mark.parametrize("how", ["eager", "session"])
def test_topology_has_every_core(cores, how):
    topology = evaluated_topology(how)
    assert topology.num_tasks == 1
    assert topology.num_tpus_per_task == cores
    assert topology.mesh_rank == 4
    assert np.prod(topology.mesh_shape) >= cores
    assert len({tuple(core) for core in topology.device_coordinates[0].tolist()}) == cores


def test_repeated_with_work_between(cores):
    for step in range(3):
        tpu.initialize_system()
        assert tpu.rewrite(lambda x: x + 1, [float(step)])[0].numpy() == step + 1
        assert tpu.shutdown_system() is None


def test_shutdown_in_a_session(cores):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tpu.initialize_system())
        session.run(tpu.shutdown_system())
        session.run(tpu.initialize_system())
        assert session.run(tpu.rewrite(lambda x: x + 1, [1.0])) == [2.0]


def test_from_another_thread(cores):
    results = []
    thread = threading.Thread(target=lambda: results.append(tpu.initialize_system().numpy()))
    thread.start()
    thread.join()
    assert tpu.Topology(serialized=results[0]).num_tpus_per_task == cores


def test_with_options(cores):
    topology = tpu.initialize_system(
        compilation_failure_closes_chips=False, tpu_cancellation_closes_chips=False
    )
    assert tpu.Topology(serialized=topology.numpy()).num_tpus_per_task == cores


def test_graphs_are_those_of_tensorflow(same_graph):
    same_graph(
        lambda: (tpu.initialize_system(job="worker"), tpu.shutdown_system(job="worker")),
        lambda: (
            tf.compat.v1.tpu.initialize_system(job="worker"),
            tf.compat.v1.tpu.shutdown_system(job="worker"),
        ),
    )


def test_device_assignment_of_pairs_of_cores(cores):
    if cores < 2:
        pytest.skip("there is one core")
    topology = evaluated_topology("eager")
    assignment = tpu.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=cores // 2
    )
    assert assignment.num_replicas == cores // 2
    assert assignment.num_cores_per_replica == 2
    assert len({tuple(core) for core in assignment.core_assignment.reshape([-1, 4])}) == cores


def test_classes_are_those_of_tensorflow():
    assert tpu.DeviceAssignment is tf.tpu.experimental.DeviceAssignment
    assert tpu.Topology is tf.tpu.experimental.Topology
    assert tpu.PaddingSpec is tf.compat.v1.tpu.PaddingSpec
    assert tpu.XLAOptions is tf.tpu.XLAOptions


def test_dtensor_is_refused_before_anything_runs(run_python):
    code = """
        import tf_tpu_ext
        import tensorflow as tf
        from tensorflow.experimental import dtensor

        try:
            dtensor.initialize_accelerator_system("TPU")
        except tf.errors.UnimplementedError as error:
            assert "DTensor does not run on virtual TPU cores" in error.message
        else:
            raise AssertionError

        # What the message advises.
        mesh = dtensor.create_mesh([("x", dtensor.num_local_devices("CPU"))], device_type="CPU")
        layout = dtensor.Layout(["x", dtensor.UNSHARDED], mesh)
        ones = dtensor.call_with_layout(tf.ones, layout, [8, 4])
        assert float(tf.function(tf.reduce_sum)(ones)) == 32
    """
    run_python(code)
