"""`tf.distribute.TPUStrategy`, unmodified, against NumPy and plain TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local, per_replica, replica_id, strategy_of_all_cores

ReduceOp = tf.distribute.ReduceOp
Aggregation = tf.VariableAggregation
Synchronization = tf.VariableSynchronization
TPUClusterResolver = tf.distribute.cluster_resolver.TPUClusterResolver
v1 = tf.compat.v1


@pytest.fixture(scope="module")
def strategy() -> Any:
    """All cores of the process, a replica each."""
    return strategy_of_all_cores()


@pytest.fixture(scope="module")
def topology() -> Any:
    return tf.tpu.experimental.initialize_tpu_system(TPUClusterResolver())


def strategy_on(topology: Any, replicas: int) -> Any:
    assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)
    return tf.distribute.TPUStrategy(
        TPUClusterResolver(), experimental_device_assignment=assignment
    )


class TestRunAndReduce:
    def test_run_on_every_core(self, strategy):
        @tf.function
        def step(x):
            return strategy.run(lambda x: x * tf.cast(replica_id(), tf.float32), args=(x,))

        np.testing.assert_array_equal(
            local(strategy, step(tf.constant([1.0, 2.0]))), np.outer(np.arange(8), [1, 2])
        )

    def test_nested_outputs(self, strategy):
        @tf.function
        def step(x):
            return strategy.run(lambda x: {"a": (x + 1, None), "b": [x * 2]}, args=(x,))

        result = step(tf.constant(3))
        np.testing.assert_array_equal(local(strategy, result["a"][0]), [4] * 8)
        np.testing.assert_array_equal(local(strategy, result["b"][0]), [6] * 8)

    @pytest.mark.parametrize(
        ("op", "reduce"), [(ReduceOp.SUM, np.sum), (ReduceOp.MEAN, np.mean)], ids=["sum", "mean"]
    )
    @pytest.mark.parametrize("axis", [None, 0])
    def test_reduce(self, strategy, op, reduce, axis):
        values = np.random.default_rng(0).normal(size=(8, 3, 2)).astype(np.float32)
        reduced = strategy.reduce(op, per_replica(strategy, values), axis=axis)
        expected = reduce(values, axis=0) if axis is None else reduce(values.reshape(24, 2), axis=0)
        np.testing.assert_allclose(reduced, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("op", list(ReduceOp), ids=lambda op: op.name)
    @pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
    def test_all_reduce(self, strategy, op, dtype):
        if op == ReduceOp.MEAN and dtype == np.int32:
            pytest.skip("TensorFlow multiplies by a float to get a mean")
        values = (np.random.default_rng(1).normal(size=(8, 5)) * 10).astype(dtype)

        @tf.function
        def step(x):
            context = tf.distribute.get_replica_context
            return strategy.run(lambda x: context().all_reduce(op, x), args=(x,))

        expected = values.sum(0) if op == ReduceOp.SUM else values.sum(0) / 8
        tolerance = 0.05 if dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            local(strategy, step(per_replica(strategy, values))),
            np.tile(expected, (8, 1)),
            rtol=tolerance,
            atol=tolerance,
        )

    def test_gather_and_all_gather(self, strategy):
        values = np.arange(48, dtype=np.float32).reshape(8, 2, 3)
        distributed = per_replica(strategy, values)
        for axis in (0, 1):
            expected = np.concatenate(list(values), axis=axis)
            np.testing.assert_array_equal(strategy.gather(distributed, axis=axis), expected)

            @tf.function
            def step(x, axis=axis):
                context = tf.distribute.get_replica_context
                return strategy.run(lambda x: context().all_gather(x, axis=axis), args=(x,))

            for gathered in strategy.experimental_local_results(step(distributed)):
                np.testing.assert_array_equal(gathered, expected)

    def test_gradient_of_an_all_reduce(self, strategy):
        values = np.arange(8, dtype=np.float32)

        @tf.function
        def step(x):
            def replica(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    total = tf.distribute.get_replica_context().all_reduce("SUM", x**2)
                    loss = total * (x + 1)
                return tape.gradient(loss, x)

            return strategy.run(replica, args=(x,))

        # The gradient that comes back to a replica is the sum over all replicas' losses.
        expected = 2 * values * (values + 1).sum() + (values**2).sum()
        np.testing.assert_allclose(local(strategy, step(per_replica(strategy, values))), expected)

    def test_collectives_in_a_subset_of_groups(self, strategy):
        @tf.function
        def step():
            def replica():
                x = tf.cast(replica_id(), tf.float32)
                pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
                return v1.tpu.cross_replica_sum(x, pairs)

            return strategy.run(replica)

        np.testing.assert_array_equal(local(strategy, step()), [1, 1, 5, 5, 9, 9, 13, 13])


class TestVariables:
    @pytest.mark.parametrize("aggregation", list(Aggregation), ids=lambda a: a.name)
    @pytest.mark.parametrize(
        "synchronization",
        [Synchronization.AUTO, Synchronization.ON_WRITE, Synchronization.ON_READ],
        ids=lambda s: s.name,
    )
    def test_assign_in_a_replica(self, strategy, synchronization, aggregation):
        with strategy.scope():
            variable = tf.Variable(10.0, synchronization=synchronization, aggregation=aggregation)

        @tf.function
        def step():
            def replica():
                value = tf.cast(replica_id(), tf.float32) + 2.0
                variable.assign_add(value)
                return variable.read_value()

            return strategy.run(replica)

        on_read = synchronization == Synchronization.ON_READ
        reads = local(strategy, step())
        each = np.arange(8) + 12.0
        outside = {
            Aggregation.SUM: each.sum() if on_read else 10 + (each - 10).sum(),
            Aggregation.MEAN: each.mean(),
            Aggregation.ONLY_FIRST_REPLICA: each[0],
            Aggregation.NONE: each[0],
        }[aggregation]
        alone = on_read or aggregation == Aggregation.NONE
        np.testing.assert_allclose(reads, each if alone else [outside] * 8)
        if not alone:
            np.testing.assert_allclose(variable.read_value(), outside)

    def test_assign_outside_of_replicas(self, strategy):
        with strategy.scope():
            mirrored = tf.Variable([1.0, 2.0])
            summed = tf.Variable(
                8.0, synchronization=Synchronization.ON_READ, aggregation=Aggregation.SUM
            )
        mirrored.assign([3.0, 4.0])
        mirrored.assign_sub([1.0, 1.0])
        for copy in mirrored.values:
            np.testing.assert_array_equal(copy, [2, 3])
        summed.assign(16.0)
        assert summed.read_value() == 16.0
        assert [float(copy) for copy in summed.values] == [2.0] * 8

    def test_copies_stand_on_their_cores(self, strategy):
        with strategy.scope():
            variable = tf.Variable(1.0)
        assert len(variable.values) == 8
        assert [copy.device[-1] for copy in variable.values] == [str(i) for i in range(8)]

    def test_updates_from_the_cross_replica_context(self, strategy):
        with strategy.scope():
            variable = tf.Variable(1.0)

            strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(2.0,))
        assert variable.read_value() == 3.0

    def test_uninitialized_variable_in_a_graph(self, strategy):
        with tf.Graph().as_default(), strategy.scope(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            variable = v1.get_variable("never", shape=[2], use_resource=True)
            total = strategy.reduce("SUM", strategy.run(lambda: variable + 1.0), axis=None)
            with pytest.raises(tf.errors.FailedPreconditionError, match="never"):
                session.run(total)
            session.run(v1.global_variables_initializer())
            assert np.isfinite(session.run(total)).all()

    def test_packed_variable(self, topology):
        strategy = strategy_on(topology, 4)
        strategy._enable_packed_variable_in_eager_mode = True
        with strategy.scope():
            variable = tf.Variable(2.0, aggregation=Aggregation.MEAN)

        @tf.function
        def step():
            strategy.run(lambda: variable.assign_add(tf.cast(replica_id(), tf.float32)))

        step()
        assert variable.read_value() == 3.5
        assert [float(copy) for copy in variable.values] == [3.5] * 4

    @pytest.mark.parametrize("declared", [None, [None]])
    def test_shape_known_only_when_the_program_runs(self, topology, declared):
        strategy = strategy_on(topology, 2)
        with strategy.scope():
            variable = tf.Variable([1.0, 2.0, 3.0], shape=tf.TensorShape(declared))

        @tf.function
        def shape_and_sum():
            value = variable.read_value()
            return tf.shape(value), tf.shape(variable), tf.reduce_sum(value)

        def results():
            return tf.nest.map_structure(
                lambda copies: [copy.numpy().tolist() for copy in copies.values],
                strategy.run(shape_and_sum),
            )

        assert results() == ([[3]] * 2, [[3]] * 2, [6.0] * 2)
        variable.assign([4.0, 5.0])
        assert results() == ([[2]] * 2, [[2]] * 2, [9.0] * 2)
        strategy.run(tf.function(lambda: variable.assign(tf.concat([variable, [1.0]], 0))))
        assert results() == ([[3]] * 2, [[3]] * 2, [10.0] * 2)


def train(strategy: Any, steps: int, host_loop: bool) -> np.ndarray:
    """Linear regression; every replica has its own rows."""
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(steps, 32, 3)).astype(np.float32)
    targets = (inputs @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float32)
    replicas = strategy.num_replicas_in_sync
    dataset = tf.data.Dataset.from_tensor_slices((inputs, targets)).unbatch().batch(32)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    with strategy.scope():
        weights = tf.Variable(tf.zeros([3]))

    def replica(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.linalg.matvec(x, weights) - y) ** 2) / 32
        gradient = tape.gradient(loss, weights)
        if replicas > 1:
            gradient = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
        weights.assign_sub(0.05 * gradient)

    @tf.function
    def loop(iterator, count):
        for _ in tf.range(count):
            strategy.run(replica, args=(next(iterator),))

    if host_loop:
        loop(iterator, steps)
    else:
        for _ in range(steps):
            loop(iterator, 1)
    return weights.numpy()


def numpy_training(steps: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(steps, 32, 3)).astype(np.float32)
    targets = inputs @ np.array([1.0, -2.0, 0.5], np.float32)
    weights = np.zeros(3)
    for x, y in zip(inputs, targets, strict=True):
        weights -= 0.05 * 2 * x.T @ (x @ weights - y) / 32
    return weights


class TestTraining:
    @pytest.mark.parametrize("host_loop", [True, False])
    def test_equals_numpy(self, topology, host_loop):
        for replicas in (8, 2):
            weights = train(strategy_on(topology, replicas), 10, host_loop)
            np.testing.assert_allclose(weights, numpy_training(10), rtol=1e-4, atol=1e-5)

    def test_two_strategies_by_turns(self, topology):
        whole, part = strategy_on(topology, 8), strategy_on(topology, 2)
        variables = []
        for strategy in (whole, part):
            with strategy.scope():
                variables.append(tf.Variable(0.0, aggregation=Aggregation.SUM))

        @tf.function
        def step_whole():
            whole.run(lambda: variables[0].assign_add(tf.ones([])))

        @tf.function
        def step_part():
            part.run(lambda: variables[1].assign_add(tf.ones([])))

        for _ in range(5):
            step_whole()
            step_part()
        assert [float(v.read_value()) for v in variables] == [40.0, 10.0]

    def test_chosen_cores(self, topology):
        ordinals = [5, 2, 7]
        coordinates = [[topology.device_coordinates[0][core]] for core in ordinals]
        assignment = tf.tpu.experimental.DeviceAssignment(topology, coordinates)
        strategy = tf.distribute.TPUStrategy(
            TPUClusterResolver(), experimental_device_assignment=assignment
        )
        with strategy.scope():
            variable = tf.Variable(1.0, aggregation=Aggregation.SUM)

        @tf.function
        def step():
            return strategy.run(lambda: variable.assign_add(tf.cast(replica_id(), tf.float32)))

        np.testing.assert_array_equal(local(strategy, step()), [4, 4, 4])
        assert [copy.device[-5:] for copy in variable.values] == [f"TPU:{i}" for i in ordinals]


class TestDatasets:
    def test_uneven_last_batch(self, strategy):
        dataset = tf.data.Dataset.range(27).map(lambda x: tf.cast(x, tf.float32)).batch(16)
        sizes, total = [], 0.0

        @tf.function
        def step(x):
            return strategy.run(lambda x: (tf.size(x), tf.reduce_sum(x)), args=(x,))

        for batch in strategy.experimental_distribute_dataset(dataset):
            count, part = step(batch)
            sizes.append(int(strategy.reduce("SUM", count, axis=None)))
            total += float(strategy.reduce("SUM", part, axis=None))
        assert sizes == [16, 11]
        assert total == sum(range(27))

    def test_shards_of_a_batch_keep_their_order(self, strategy):
        dataset = tf.data.Dataset.range(16).batch(16)
        [batch] = list(strategy.experimental_distribute_dataset(dataset))
        np.testing.assert_array_equal(local(strategy, batch), np.arange(16).reshape(8, 2))

    def test_dataset_from_a_function_without_prefetching(self, topology):
        strategy = strategy_on(topology, 2)
        options = tf.distribute.InputOptions(
            experimental_fetch_to_device=False,
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_WORKER,
        )
        dataset = strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.range(4).map(lambda x: x * 10), options
        )
        seen = [local(strategy, value).tolist() for value in dataset]
        assert seen == [[0, 10], [20, 30]]

    def test_end_of_the_data(self, strategy):
        iterator = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(8)))

        @tf.function
        def step():
            return strategy.run(lambda x: x, args=(next(iterator),))

        step()
        with pytest.raises(tf.errors.OutOfRangeError):
            step()


class TestSaving:
    def test_checkpoint_to_plain_tensorflow_and_back(self, strategy, tmp_path):
        with strategy.scope():
            mirrored = tf.Variable([1.0, 2.0])
            summed = tf.Variable(
                0.0, synchronization=Synchronization.ON_READ, aggregation=Aggregation.SUM
            )
        strategy.run(tf.function(lambda: summed.assign_add(2.0)))
        path = tf.train.Checkpoint(m=mirrored, s=summed).save(str(tmp_path / "tpu"))

        plain = [tf.Variable([0.0, 0.0]), tf.Variable(0.0)]
        checkpoint = tf.train.Checkpoint(m=plain[0], s=plain[1])
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(plain[0], [1, 2])
        assert plain[1].numpy() == 16.0

        plain[0].assign([5.0, 6.0])
        plain[1].assign(24.0)
        path = checkpoint.save(str(tmp_path / "plain"))
        tf.train.Checkpoint(m=mirrored, s=summed).restore(path)
        assert [copy.numpy().tolist() for copy in mirrored.values] == [[5.0, 6.0]] * 8
        assert summed.read_value() == 24.0

    def test_restored_before_the_variable_is_made(self, strategy, tmp_path):
        path = tf.train.Checkpoint(v=tf.Variable(7.0)).save(str(tmp_path / "c"))
        root = tf.train.Checkpoint()
        root.restore(path)
        with strategy.scope():
            root.v = tf.Variable(0.0)
        assert [float(copy) for copy in root.v.values] == [7.0] * 8

    def test_saved_model(self, strategy, tmp_path):
        with strategy.scope():
            module = tf.Module()
            module.weights = tf.Variable([[1.0], [2.0]])
            module.call = tf.function(
                lambda x: tf.matmul(x, module.weights),
                input_signature=[tf.TensorSpec([None, 2], tf.float32)],
            )
            tf.saved_model.save(module, os.fspath(tmp_path / "m"), signatures=module.call)
        x = tf.constant([[3.0, 4.0]])
        plain = tf.saved_model.load(os.fspath(tmp_path / "m"))
        np.testing.assert_array_equal(plain.call(x), [[11.0]])
        with strategy.scope():
            loaded = tf.saved_model.load(os.fspath(tmp_path / "m"))
        assert len(loaded.weights.values) == 8

        @tf.function
        def step():
            return strategy.run(loaded.call, args=(x,))

        np.testing.assert_array_equal(local(strategy, step()), np.full([8, 1, 1], 11.0))

    def test_summaries(self, strategy, tmp_path):
        writer = tf.summary.create_file_writer(os.fspath(tmp_path))

        @tf.function
        def step(x):
            loss = strategy.reduce("MEAN", strategy.run(lambda: x + 1.0), axis=None)
            with writer.as_default():
                # Without TensorBoard, tf.summary.scalar is not there.
                tf.summary.write("loss", loss, step=3)

        step(tf.constant(4.0))
        writer.close()
        [file] = tmp_path.iterdir()
        events = list(v1.train.summary_iterator(os.fspath(file)))
        values = [float(tf.make_ndarray(value.tensor)) for e in events for value in e.summary.value]
        assert values == [5.0]
