"""Variables, optimizers and checkpoints of a `TPUStrategy`, on 1, 2 and 8 towers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext.towers import VariableAggregation, get_tower_context

v1 = tf.compat.v1
ON_READ = tf.VariableSynchronization.ON_READ
SUM = VariableAggregation.SUM
MEAN = VariableAggregation.MEAN
FIRST = VariableAggregation.ONLY_FIRST_TOWER


def tower_id() -> Any:
    return tf.cast(get_tower_context().tower_id, tf.float32)


def copies(strategy: Any, variable: Any) -> list[float]:
    return [float(copy) for copy in strategy.unwrap(variable)]


class TestScope:
    @pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST], ids=lambda a: a.name)
    def test_aggregation_of_assignments_in_towers(self, strategy, aggregation):
        with strategy.scope():
            variable = tf.Variable(10.0, aggregation=aggregation)
            strategy.call_for_each_tower(lambda: variable.assign_add(tower_id() + 1.0))
        each = np.arange(strategy.num_towers) + 1.0
        added = {SUM: each.sum(), MEAN: each.mean(), FIRST: each[0]}[aggregation]
        assert copies(strategy, variable) == [10 + added] * strategy.num_towers

    def test_without_an_aggregation_each_tower_writes_its_copy(self, strategy):
        with strategy.scope():
            variable = tf.Variable(10.0)
            strategy.call_for_each_tower(lambda: variable.assign_add(tower_id()))
        assert copies(strategy, variable) == [10.0 + i for i in range(strategy.num_towers)]

    def test_get_variable_and_custom_getters(self, strategy):
        asked = []

        def getter(next_getter, name, *args, **kwargs):
            asked.append(name)
            return next_getter(name, *args, **kwargs)

        with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
            with v1.variable_scope("outer", custom_getter=getter):
                variable = v1.get_variable(
                    "v",
                    shape=[4, 2],
                    initializer=v1.ones_initializer(),
                    aggregation=MEAN,
                    # Not supported, and warned of.
                    partitioner=v1.fixed_size_partitioner(2),
                )
            again = tf.Variable(3.0, name="again")
            added = strategy.call_for_each_tower(
                lambda: variable.assign_add(tf.fill([4, 2], tower_id()), read_value=False)
            )
            initialize = v1.global_variables_initializer()
            session.run(strategy.initialize())
            session.run(initialize)
            session.run(strategy.group(added))
            mean = (strategy.num_towers - 1) / 2
            np.testing.assert_allclose(session.run(variable), np.full([4, 2], 1 + mean))
            assert session.run(again) == 3
            assert len(strategy.unwrap(variable)) == strategy.num_towers
        assert asked == ["outer/v"]

    def test_names_of_the_copies(self, two):
        with tf.Graph().as_default(), two.scope():
            variable = v1.get_variable("v", shape=[])
            assert variable in v1.global_variables()
            assert variable in v1.trainable_variables()
        assert [copy.name for copy in two.unwrap(variable)] == ["v:0", "v/replica_1:0"]
        assert [copy.device for copy in two.unwrap(variable)] == two.parameter_devices

    def test_initial_values_are_the_same_on_all_devices(self, strategy):
        with strategy.scope():
            variable = tf.Variable(lambda: tf.random.normal([]))
        assert len(set(copies(strategy, variable))) == 1

    def test_gets_a_tpu_strategy(self, two):
        with two.scope():
            assert tf.distribute.get_strategy() is two
            assert isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
            assert isinstance(two, tf.distribute.Strategy)


class TestUpdate:
    def test_each_copy_on_its_device(self, strategy, run):
        def build(variable):
            mirrored = strategy.broadcast(tf.constant(2.0))
            reads = strategy.update(
                variable, lambda v, x, y: v.assign_add(x * y, read_value=True), mirrored, y=3.0
            )
            return strategy.unwrap(reads)

        results = run(strategy, build, lambda: [tf.Variable(1.0)])
        np.testing.assert_array_equal(np.ravel(results), [7.0] * strategy.num_towers)

    def test_ungrouped_and_other_variables_by_the_way(self, strategy):
        with strategy.scope():
            variable, slot = tf.Variable(1.0), tf.Variable(5.0)
            results = strategy.update(variable, lambda v, s: v + s, slot, grouped=False)
            assert [float(x) for x in results] == [6.0] * strategy.num_towers

    def test_inside_of_towers(self, strategy, run):
        def build(variable):
            def merge_fn(distribution, gradient):
                total = distribution.reduce(SUM, gradient, destinations=variable)
                update = distribution.update(
                    variable, lambda v, g: v.assign_sub(g, read_value=False), total
                )
                with tf.control_dependencies([distribution.group(update)] if update else []):
                    return distribution.read_var(variable)

            def fn():
                return get_tower_context().merge_call(merge_fn, tower_id() + 1.0)

            return strategy.call_for_each_tower(fn)

        towers = strategy.num_towers
        results = run(strategy, build, lambda: [tf.Variable(1.0)])
        np.testing.assert_array_equal(results, [1 - towers * (towers + 1) / 2] * towers)

    def test_what_is_refused(self, two, resolver):
        other = tf_tpu_ext.TPUStrategy(resolver, 1, num_cores=2)
        with other.scope():
            theirs = tf.Variable(1.0)
        with two.scope():
            variable = tf.Variable(1.0)
            per_device = two.call_for_each_tower(tower_id)
            with pytest.raises(ValueError, match="Combine it first"):
                two.update(variable, lambda v, x: v.assign(x), per_device)
            with pytest.raises(ValueError, match="Make it inside of this strategy's scope"):
                two.update(theirs, lambda v: v.assign(1.0))
            with pytest.raises(ValueError, match="expected a variable"):
                two.update(tf.constant(1.0), lambda v: v)
            with pytest.raises(RuntimeError, match="merge_call"):
                two.call_for_each_tower(lambda: two.update(variable, lambda v: v.assign(1.0)))


class TestNonSlot:
    def test_variables_on_the_non_slot_devices(self, strategy, run):
        def make():
            model = tf.Variable(1.0)
            with strategy.colocate_vars_with(strategy.non_slot_devices([model])):
                return [tf.Variable(2.0)]

        def build(variable):
            assert len(strategy.unwrap(variable)) == strategy.num_towers
            devices = strategy.non_slot_devices([variable])
            mirrored = strategy.broadcast(tf.constant(3.0))
            return strategy.unwrap(
                strategy.update_non_slot(devices, lambda v, x: v + x, variable, mirrored)
            )

        results = run(strategy, build, make)
        np.testing.assert_array_equal(np.ravel(results), [5.0] * strategy.num_towers)

    def test_inside_of_towers(self, two):
        def fn():
            return get_tower_context().merge_call(
                lambda d: d.update_non_slot(d.non_slot_devices([]), lambda x: x + 1.0, 4.0)
            )

        with two.scope():
            results = two.call_for_each_tower(lambda: tf.convert_to_tensor(fn()))
        np.testing.assert_array_equal(two.unwrap(results), 5)

    def test_wrong_devices(self, two):
        with two.scope(), pytest.raises(ValueError, match="Valid devices"):
            two.update_non_slot("/device:TPU:5", lambda: None)


class TestColocation:
    def test_with_a_variable_and_with_devices(self, two):
        host, core = two.get_host_cpu_device(0), two.worker_devices[1]
        with two.scope():
            first = tf.Variable(1.0)
            with two.colocate_vars_with(first):
                second, third = tf.Variable(2.0), tf.Variable(3.0)
            with two.colocate_vars_with(core):
                on_core = tf.Variable(4.0)
            with two.colocate_vars_with([host]):
                on_host = tf.Variable(5.0)
            results = two.update(first, lambda v1, v2, v3: v1 + v2 + v3, second, third)
        assert [copy.device for copy in two.unwrap(second)] == two.worker_devices
        assert [float(x) for x in two.unwrap(results)] == [6, 6]
        assert on_core.device == core
        assert on_host.device == host
        assert two.unwrap(on_host) == [on_host]

    def test_what_is_refused(self, two):
        with pytest.raises(RuntimeError, match="Need to be inside"):
            two.colocate_vars_with("/device:CPU:0")
        with two.scope(), pytest.raises(ValueError, match="Valid devices"):
            two.colocate_vars_with("/device:TPU:6")


class TestReadVar:
    @pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST], ids=lambda a: a.name)
    def test_tower_local_variables(self, strategy, aggregation):
        each = np.arange(strategy.num_towers) + 1.0
        expected = {SUM: each.sum(), MEAN: each.mean(), FIRST: each[0]}[aggregation]
        with strategy.scope():
            variable = tf.Variable(1.0, synchronization=ON_READ, aggregation=aggregation)

            def fn():
                variable.assign(tower_id() + 1.0)
                return get_tower_context().merge_call(lambda d: d.read_var(variable))

            inside = strategy.call_for_each_tower(fn)
            assert strategy.read_var(variable).numpy() == expected
        assert copies(strategy, variable) == each.tolist()
        np.testing.assert_allclose(strategy.unwrap(inside), [expected] * strategy.num_towers)

    def test_in_a_session(self, strategy):
        with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
            variable = v1.get_variable(
                "v", initializer=0.0, synchronization=ON_READ, aggregation=SUM
            )
            added = strategy.call_for_each_tower(
                lambda: variable.assign_add(tower_id() + 1.0, read_value=False)
            )
            value = strategy.read_var(variable)
            initialize = v1.global_variables_initializer()
            session.run(strategy.initialize())
            session.run(initialize)
            session.run(strategy.group(added))
            assert session.run(value) == strategy.num_towers * (strategy.num_towers + 1) / 2

    def test_mirrored_variables(self, two):
        with two.scope():
            variable = tf.Variable(4.0)
            assert two.read_var(variable).numpy() == 4
            inside = two.call_for_each_tower(
                lambda: get_tower_context().merge_call(lambda d: d.read_var(variable) * 2.0)
            )
        assert [float(x) for x in two.unwrap(inside)] == [8, 8]

    def test_what_is_refused(self, two):
        with pytest.raises(ValueError, match="expected a variable"):
            two.read_var(5)


def numpy_descent(towers: int, x: np.ndarray, y: np.ndarray, rate: float) -> np.ndarray:
    weights = np.zeros(3)
    for step in range(len(x) // towers):
        rows = slice(step * towers, (step + 1) * towers)
        residuals = x[rows] @ weights - y[rows]
        weights -= rate * 2 * x[rows].T @ residuals / towers
    return weights


@pytest.fixture(scope="module")
def regression() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(24, 3)).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float32)


class TestOptimizers:
    def test_v1_in_a_session(self, strategy, regression):
        x, y = regression
        with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
            weights = v1.get_variable("w", initializer=np.zeros(3, np.float32))
            iterator = strategy.distribute_dataset(
                lambda: tf.data.Dataset.from_tensor_slices((x, y))
            ).make_one_shot_iterator()
            optimizer = v1.train.GradientDescentOptimizer(0.1)

            def tower(x, y):
                loss = (tf.tensordot(x, weights, 1) - y) ** 2
                return optimizer.minimize(loss)

            train = strategy.group(strategy.call_for_each_tower(tower, *iterator.get_next()))
            initialize = v1.global_variables_initializer()
            session.run(strategy.initialize())
            session.run(initialize)
            for _ in range(len(x) // strategy.num_towers):
                session.run(train)
            np.testing.assert_allclose(
                session.run(weights), numpy_descent(strategy.num_towers, x, y, 0.1), rtol=1e-4
            )

    def test_by_merge_call_in_a_function(self, strategy, regression):
        x, y = regression
        with strategy.scope():
            weights = tf.Variable(np.zeros(3, np.float32))
        iterator = iter(
            strategy.distribute_dataset(lambda: tf.data.Dataset.from_tensor_slices((x, y)))
        )

        def apply(distribution, gradient):
            mean = distribution.reduce(MEAN, gradient, destinations=weights)
            distribution.update(weights, lambda w, g: w.assign_sub(0.1 * g), mean)

        def tower(x, y):
            with tf.GradientTape() as tape:
                loss = (tf.tensordot(x, weights, 1) - y) ** 2
            get_tower_context().merge_call(apply, tape.gradient(loss, weights))
            return loss

        @tf.function
        def step():
            with strategy.scope():
                strategy.call_for_each_tower(tower, *iterator.get_next())

        for _ in range(len(x) // strategy.num_towers):
            step()
        np.testing.assert_allclose(
            weights, numpy_descent(strategy.num_towers, x, y, 0.1), rtol=1e-4
        )

    @pytest.mark.parametrize(
        "make",
        [
            lambda: v1.train.AdamOptimizer(0.1),
            lambda: v1.train.MomentumOptimizer(0.1, 0.9),
            lambda: v1.train.AdagradOptimizer(0.1),
            lambda: v1.train.RMSPropOptimizer(0.1),
        ],
        ids=["adam", "momentum", "adagrad", "rmsprop"],
    )
    def test_v1_like_one_device(self, two, make):
        def train(minimize, initialize):
            with v1.Session() as session:
                init = v1.global_variables_initializer()
                session.run(initialize)
                session.run(init)
                for _ in range(4):
                    session.run(minimize)
                return session.run(weights)

        with tf.Graph().as_default():
            weights = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
            loss = tf.reduce_sum((weights - [3.0, 1.0]) ** 2)
            expected = train(make().minimize(loss), [])
        with tf.Graph().as_default(), two.scope():
            weights = v1.get_variable("w", initializer=[1.0, 2.0])
            optimizer = make()
            minimize = two.call_for_each_tower(
                lambda: optimizer.minimize(tf.reduce_sum((weights - [3.0, 1.0]) ** 2))
            )
            found = train(two.group(minimize), two.initialize())
        np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_keras_optimizer_in_towers(self, two):
        with two.scope():
            weights = tf.Variable([1.0, 2.0])
            optimizer = tf.keras.optimizers.SGD(0.5)
            optimizer.build([weights])

        def tower():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * (tower_id() + 1.0))
            optimizer.apply([tape.gradient(loss, weights)], [weights])
            return loss

        with two.scope():
            two.call_for_each_tower(tower)
        # The gradients of all replicas are summed, as under `run`.
        np.testing.assert_allclose(weights, [1 - 1.5, 2 - 1.5])


class TestCheckpoints:
    def test_to_plain_tensorflow_and_back(self, strategy, tmp_path):
        with strategy.scope():
            mirrored = tf.Variable([1.0, 2.0])
            local = tf.Variable(0.0, synchronization=ON_READ, aggregation=SUM)
            strategy.call_for_each_tower(lambda: local.assign_add(1.0))
        path = tf.train.Checkpoint(m=mirrored, s=local).save(str(tmp_path / "tpu"))
        plain = [tf.Variable([0.0, 0.0]), tf.Variable(0.0)]
        checkpoint = tf.train.Checkpoint(m=plain[0], s=plain[1])
        checkpoint.restore(path).assert_consumed()
        np.testing.assert_array_equal(plain[0], [1, 2])
        assert plain[1].numpy() == strategy.num_towers
        plain[0].assign([5.0, 6.0])
        path = checkpoint.save(str(tmp_path / "plain"))
        tf.train.Checkpoint(m=mirrored, s=local).restore(path)
        for copy in strategy.unwrap(mirrored):
            np.testing.assert_array_equal(copy, [5, 6])

    def test_a_saver_of_a_session(self, two, tmp_path):
        def build():
            return v1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)

        with tf.Graph().as_default(), v1.Session() as session, two.scope():
            variable = build()
            doubled = variable.assign(variable * 2.0)
            saver = v1.train.Saver()
            initialize = v1.global_variables_initializer()
            session.run(two.initialize())
            session.run(initialize)
            session.run(doubled)
            path = saver.save(session, str(tmp_path / "tpu"))
        with tf.Graph().as_default(), v1.Session() as session:
            variable = build()
            v1.train.Saver().restore(session, path)
            np.testing.assert_array_equal(session.run(variable), [2, 4])
            path = v1.train.Saver().save(session, str(tmp_path / "plain"))
        with tf.Graph().as_default(), v1.Session() as session, two.scope():
            variable = build()
            saver = v1.train.Saver()
            copies_of = two.unwrap(variable)
            session.run(two.initialize())
            saver.restore(session, path)
            for copy in session.run(copies_of):
                np.testing.assert_array_equal(copy, [2, 4])
