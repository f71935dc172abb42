"""What a `TPUStrategy` reports about itself, its start and end, and the whole page of members."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import TPUStrategy
from tf_tpu_ext.towers import get_tower_context

v1 = tf.compat.v1

PROPERTIES = [
    "between_graph",
    "is_single_tower",
    "num_hosts",
    "num_towers",
    "num_towers_per_host",
    "parameter_devices",
    "should_checkpoint",
    "should_init",
    "should_save_summary",
    "worker_device_index",
    "worker_devices",
]
METHODS = {
    "batch_reduce": ["aggregation", "value_destination_pairs"],
    "broadcast": ["tensor", "destinations"],
    "call_for_each_tower": ["fn", "args", "kwargs"],
    "colocate_vars_with": ["colocate_with_variable"],
    "configure": ["session_config", "cluster_spec", "task_type", "task_id"],
    "distribute_dataset": ["dataset_fn"],
    "finalize": [],
    "get_host_cpu_device": ["host_id"],
    "group": ["value", "name"],
    "initialize": [],
    "map": ["map_over", "fn", "args", "kwargs"],
    "non_slot_devices": ["var_list"],
    "read_var": ["tower_local_var"],
    "reduce": ["aggregation", "value", "destinations", "reduce_op", "axis"],
    "run_steps_on_dataset": ["fn", "iterator", "iterations", "initial_loop_values"],
    "scope": [],
    "unwrap": ["value"],
    "update": ["var", "fn", "args", "kwargs"],
    "update_non_slot": ["colocate_with", "fn", "args", "kwargs"],
    "value_container": ["value"],
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    parameters = list(inspect.signature(getattr(TPUStrategy, name)).parameters)
    assert parameters[1:] == METHODS[name]
    documentation = inspect.getdoc(getattr(TPUStrategy, name))
    if name != "scope":
        for parameter in METHODS[name]:
            assert f"{parameter}: " in documentation, parameter


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(name):
    assert isinstance(inspect.getattr_static(TPUStrategy, name), property)
    assert inspect.getdoc(getattr(TPUStrategy, name))


def test_values_of_properties(strategy):
    towers = strategy.num_towers
    assert towers == strategy.num_replicas_in_sync
    assert strategy.is_single_tower == (towers == 1)
    assert not strategy.between_graph
    assert strategy.should_init
    assert strategy.should_checkpoint
    assert strategy.should_save_summary
    assert strategy.num_hosts == 1
    assert strategy.num_towers_per_host == towers
    assert strategy.steps_per_run == strategy.extended.steps_per_run == 2
    devices = [f"/job:localhost/replica:0/task:0/device:TPU:{i}" for i in range(towers)]
    assert strategy.worker_devices == strategy.parameter_devices == devices
    with strategy.scope():
        index = strategy.worker_device_index
    if towers == 1:
        assert index == 0
    else:
        assert [index.get(device) for device in index.devices] == list(range(towers))


def test_host_devices(two):
    host = two.get_host_cpu_device(0)
    assert host == "/job:localhost/replica:0/task:0/device:CPU:0"
    for wrong in (1, -1):
        with pytest.raises(ValueError, match="expected 0 to 0"):
            two.get_host_cpu_device(wrong)


def test_worker_device_index_needs_the_cross_tower_context(two):
    with pytest.raises(RuntimeError, match="Need to be inside"):
        _ = two.worker_device_index


def test_arguments(resolver):
    assert TPUStrategy(resolver, steps_per_run=5).num_towers == 8
    assert TPUStrategy(None, 1).num_towers == 8
    assert TPUStrategy(resolver, 1, 3).worker_devices[-1].endswith("TPU:2")
    for wrong in (0, 9, -1, 1.5):
        with pytest.raises(ValueError, match="expected 1 to 8, the number of"):
            TPUStrategy(resolver, 1, num_cores=wrong)
    for wrong in (0, -3, None, 2.0):
        with pytest.raises(ValueError, match="expected a positive integer"):
            TPUStrategy(resolver, steps_per_run=wrong)


class TestDeviceAssignment:
    @pytest.fixture
    def assignment(self, resolver):
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        cores = topology.device_coordinates[0]
        return tf.tpu.experimental.DeviceAssignment(topology, [[[*cores[5]]], [[*cores[2]]]])

    def test_says_which_core_a_tower_is(self, resolver, assignment):
        strategy = TPUStrategy(resolver, experimental_device_assignment=assignment)
        assert [device[-5:] for device in strategy.worker_devices] == ["TPU:5", "TPU:2"]
        with strategy.scope():
            ids = strategy.call_for_each_tower(lambda: get_tower_context().tower_id + 10)
            numbers = strategy.distribute_dataset(lambda: tf.data.Dataset.range(8))
            context = strategy.run_steps_on_dataset(
                lambda context, x: context.set_last_step_output("x", x), iter(numbers), 3
            )
        assert [int(x) for x in strategy.unwrap(ids)] == [10, 11]
        assert [int(x) for x in strategy.unwrap(context.last_step_outputs["x"])] == [4, 5]

    def test_is_not_taken_for_steps_per_run(self, resolver, assignment):
        with pytest.raises(ValueError, match="by keyword: experimental_device_assignment="):
            TPUStrategy(resolver, assignment)

    def test_has_a_number_of_cores_of_its_own(self, resolver, assignment):
        with pytest.raises(ValueError, match="num_cores=2 together with"):
            TPUStrategy(resolver, 1, 2, experimental_device_assignment=assignment)

    def test_gives_a_tower_one_core(self, resolver):
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        chips = tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=[1, 1, 1, 2], num_replicas=4
        )
        with pytest.raises(ValueError, match=r"of 2 cores for each replica, expected 1"):
            TPUStrategy(resolver, experimental_device_assignment=chips)


def test_configure(two):
    config = v1.ConfigProto()
    two.configure(session_config=config)
    assert config.isolate_session_state
    two.configure()


def test_initialize_and_finalize_in_a_graph(two):
    with tf.Graph().as_default(), v1.Session() as session, two.scope():
        [initialize] = two.initialize()
        assert two.initialize() == [initialize]
        assert isinstance(initialize, tf.Operation)
        [finalize] = two.finalize()
        assert isinstance(finalize, tf.Operation)
        result = two.unwrap(two.call_for_each_tower(lambda: tf.constant(2.0) * 3.0))
        session.run(initialize)
        assert session.run(result) == [6, 6]


def test_initialize_and_finalize_eagerly(run_python):
    printed = run_python(
        """
        import tensorflow as tf
        import tf_tpu_ext

        strategy = tf_tpu_ext.TPUStrategy(None, 1)
        for number in (1, 2):
            assert strategy.initialize() is None
            with strategy.scope():
                result = strategy.call_for_each_tower(lambda x: x + 1, tf.constant(number))
            print([int(x) for x in strategy.unwrap(result)])
            assert strategy.finalize() is None
        """,
        env={"TF_TPU_EXT_CORES": "2"},
    ).stdout
    assert printed.split("\n")[:2] == ["[2, 2]", "[3, 3]"]


def test_part_of_the_cores_before_the_system_is_initialized(run_python):
    printed = run_python(
        """
        import tensorflow as tf
        import tf_tpu_ext

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            strategy = tf_tpu_ext.TPUStrategy(None, 1, num_cores=2)
            with strategy.scope():
                fn = lambda: tf.cast(tf_tpu_ext.towers.get_tower_context().tower_id, tf.float32)
                result = strategy.unwrap(strategy.call_for_each_tower(fn))
                session.run(strategy.initialize())
                print(*session.run(result))
        """,
        env={"TF_TPU_EXT_CORES": "4"},
    ).stdout
    assert printed.strip() == "0.0 1.0"


def test_tensorflow_2_members(two):
    dataset = two.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))

    @tf.function
    def step(x):
        def replica(x):
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", tf.reduce_sum(tf.cast(x, tf.float32)))

        return two.run(replica, args=(x,))

    results = [np.array(two.experimental_local_results(step(x))) for x in dataset]
    np.testing.assert_array_equal(results, [[6, 6], [22, 22]])


def test_exported_names():
    assert tf_tpu_ext.TPUStrategy is tf_tpu_ext.towers.TPUStrategy
    aggregation = tf_tpu_ext.towers.VariableAggregation
    assert aggregation.ONLY_FIRST_TOWER == tf.VariableAggregation.ONLY_FIRST_REPLICA
