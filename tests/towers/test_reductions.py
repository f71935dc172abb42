"""`reduce`, `batch_reduce`, `broadcast`, `unwrap` and the like, on 1, 2 and 8 towers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext.towers import VariableAggregation, get_tower_context

SUM = VariableAggregation.SUM
MEAN = VariableAggregation.MEAN
FIRST = VariableAggregation.ONLY_FIRST_TOWER
CPU = "/device:CPU:0"


def tower_id() -> Any:
    return tf.cast(get_tower_context().tower_id, tf.float32)


def values_of(strategy: Any) -> Any:
    return strategy.call_for_each_tower(lambda: tf.stack([tower_id() + 1.0, tower_id() * 2.0]))


def expected(aggregation: Any, towers: int) -> np.ndarray:
    each = np.stack([np.arange(towers) + 1.0, np.arange(towers) * 2.0], axis=1)
    return {SUM: each.sum(0), MEAN: each.mean(0), FIRST: each[0]}[aggregation]


@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST], ids=lambda a: a.name)
class TestReduce:
    def test_outside(self, strategy, run, aggregation):
        def build():
            value = values_of(strategy)
            worker = strategy.worker_devices[-1]
            return {
                "cpu": strategy.reduce(aggregation, value, destinations=CPU),
                "host": strategy.reduce(aggregation, value, strategy.get_host_cpu_device(0)),
                "core": strategy.reduce(aggregation, value, worker),
                "all": strategy.reduce(aggregation, value, value),
                "some": strategy.reduce(aggregation, value, [worker, CPU]),
            }

        results = run(strategy, build)
        towers = strategy.num_towers
        counts = {"cpu": 1, "host": 1, "core": 1, "all": towers, "some": 2}
        for name, result in results.items():
            assert len(result) == counts[name], name
            for copy in result:
                np.testing.assert_allclose(copy, expected(aggregation, towers), rtol=1e-6)

    def test_inside(self, strategy, run, aggregation):
        def merge_fn(distribution, value):
            [batched] = distribution.batch_reduce(aggregation, [(value, value)])
            return distribution.reduce(aggregation, value, CPU), batched

        def fn():
            value = tf.stack([tower_id() + 1.0, tower_id() * 2.0])
            return get_tower_context().merge_call(merge_fn, value)

        results = run(strategy, lambda: strategy.call_for_each_tower(fn))
        for result in results:
            towers = strategy.num_towers
            np.testing.assert_allclose(result, [expected(aggregation, towers)] * towers, rtol=1e-6)

    def test_to_a_variable(self, strategy, run, aggregation):
        def build(variable):
            return strategy.reduce(aggregation, values_of(strategy), destinations=variable)

        results = run(strategy, build, lambda: [tf.Variable([0.0, 0.0])])
        towers = strategy.num_towers
        np.testing.assert_allclose(results, [expected(aggregation, towers)] * towers)

    def test_batch(self, strategy, run, aggregation):
        def build():
            value = values_of(strategy)
            return strategy.batch_reduce(aggregation, [(value, CPU), (value, value)])

        first, second = run(strategy, build)
        towers = strategy.num_towers
        np.testing.assert_allclose(first, [expected(aggregation, towers)])
        np.testing.assert_allclose(second, [expected(aggregation, towers)] * towers)


def test_reduction_stands_on_its_destination(two):
    with two.scope():
        value = values_of(two)
        reduced = two.reduce(SUM, value, two.worker_devices[1])
        both = two.reduce(SUM, value, value)
    assert reduced.device == two.worker_devices[1]
    assert [copy.device for copy in two.unwrap(both)] == two.worker_devices


def test_mean_over_towers_in_tensorflow_2_words(strategy):
    with strategy.scope():
        value = values_of(strategy)
        total = strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
        mean = strategy.reduce("MEAN", value, axis=0)
    towers = strategy.num_towers
    np.testing.assert_allclose(total, expected(SUM, towers))
    np.testing.assert_allclose(mean, expected(MEAN, towers).mean(), rtol=1e-6)


def test_integers_and_long_integers_inside(strategy):
    def fn():
        def merge_fn(distribution, value):
            return distribution.reduce(SUM, value, CPU), distribution.reduce(FIRST, value, CPU)

        number = get_tower_context().tower_id
        return [
            get_tower_context().merge_call(merge_fn, tf.cast(number + 3, dtype))
            for dtype in (tf.int32, tf.int64)
        ]

    with strategy.scope():
        results = strategy.call_for_each_tower(fn)
    towers = strategy.num_towers
    for total, first in results:
        assert int(strategy.unwrap(total)[0]) == 3 * towers + sum(range(towers))
        assert int(strategy.unwrap(first)[-1]) == 3


def test_indexed_slices(two):
    def fn():
        slices = tf.IndexedSlices(
            tf.fill([1, 2], tower_id() + 1.0),
            tf.reshape(get_tower_context().tower_id + 0, [1]),
            tf.constant([3, 2]),
        )
        return get_tower_context().merge_call(
            lambda d, x: tf.convert_to_tensor(d.reduce(SUM, x, CPU)), slices
        )

    with two.scope():
        result = two.call_for_each_tower(fn)
    np.testing.assert_array_equal(two.unwrap(result)[0], [[1, 1], [2, 2], [0, 0]])


class TestWhatIsRefused:
    def test_destinations(self, two):
        with two.scope():
            value = values_of(two)
            for wrong in ("/device:TPU:7", "/device:GPU:0", "/job:elsewhere/device:CPU:0"):
                with pytest.raises(ValueError, match=r"Valid devices: .*TPU:0.*TPU:1.*CPU:0"):
                    two.reduce(SUM, value, wrong)
            for wrong in (3.5, [], object()):
                with pytest.raises(ValueError, match="expected a variable or a per-device"):
                    two.reduce(SUM, value, wrong)

    def test_aggregations(self, two):
        with two.scope():
            value = values_of(two)
            for wrong in (VariableAggregation.NONE, "MAX", None):
                with pytest.raises(ValueError, match="SUM, MEAN or ONLY_FIRST_TOWER"):
                    two.reduce(wrong, value, CPU)
                with pytest.raises(ValueError, match="SUM, MEAN or ONLY_FIRST_TOWER"):
                    two.batch_reduce(wrong, [(value, CPU)])

    def test_calls(self, two):
        with two.scope():
            value = values_of(two)
            with pytest.raises(TypeError, match="neither destinations nor axis"):
                two.reduce(SUM, value)
            with pytest.raises(TypeError, match="too few arguments"):
                two.reduce(SUM)
            with pytest.raises(ValueError, match="pairs of a value"):
                two.batch_reduce(SUM, [(value,)])
            with pytest.raises(ValueError, match="the same on all towers"):
                two.reduce(SUM, tf.constant(1.0), CPU)

    def test_in_a_tower(self, two):
        def fn():
            return two.reduce(SUM, tower_id(), CPU)

        with two.scope(), pytest.raises(RuntimeError, match="merge_call"):
            two.call_for_each_tower(fn)

    def test_mean_of_integers(self, two):
        with two.scope():
            value = two.call_for_each_tower(lambda: get_tower_context().tower_id)
            with pytest.raises(TypeError, match=r"tf\.cast"):
                two.reduce(MEAN, value, CPU)

    def test_strings(self, two):
        with two.scope(), pytest.raises(TypeError, match="expected numbers or booleans"):
            two.call_for_each_tower(
                lambda: get_tower_context().merge_call(
                    lambda d, x: d.unwrap(x)[0], tf.constant("text")
                )
            )


class TestBroadcast:
    def test_to_all_and_to_some(self, strategy, run):
        def build():
            value = tf.constant([1.0, 2.0])
            return (
                strategy.broadcast(value),
                strategy.broadcast(3.0, [strategy.worker_devices[0], CPU]),
                strategy.broadcast(value, CPU),
            )

        every, some, one = run(strategy, build)
        np.testing.assert_array_equal(every, [[1, 2]] * strategy.num_towers)
        np.testing.assert_array_equal(some, [3, 3])
        np.testing.assert_array_equal(one, [[1, 2]])

    def test_a_mirrored_value_reaches_each_tower(self, strategy, run):
        def build():
            mirrored = strategy.broadcast(tf.constant(4.0))
            return strategy.call_for_each_tower(lambda x: x + tower_id(), mirrored)

        results = run(strategy, build)
        np.testing.assert_array_equal(results, 4.0 + np.arange(strategy.num_towers))

    def test_inside(self, two):
        def fn():
            return get_tower_context().merge_call(lambda d: d.broadcast(tf.constant(2.0)) + 1.0)

        with two.scope():
            results = two.call_for_each_tower(fn)
        np.testing.assert_array_equal(two.unwrap(results), [3, 3])

    def test_a_per_device_value_is_refused(self, two):
        with two.scope(), pytest.raises(ValueError, match="Combine the values with reduce"):
            two.broadcast(values_of(two))


class TestContainers:
    def test_unwrap(self, two):
        with two.scope():
            variable = tf.Variable(1.0)
        plain = tf.constant(1.0)
        assert two.unwrap(plain)[0] is plain
        assert two.unwrap(None) == [None]
        assert len(two.unwrap(variable)) == 2

    def test_value_container(self, two):
        with two.scope():
            value = values_of(two)
            variable = tf.Variable(1.0)
            mirrored = two.broadcast(tf.constant(1.0))
        for container in (value, variable, mirrored):
            for component in two.unwrap(container):
                assert two.value_container(component) is container
                assert any(x is component for x in two.unwrap(two.value_container(component)))
            assert two.value_container(container) is container
        plain = tf.constant(1.0)
        assert two.value_container(plain) is plain

    def test_container_that_is_gone(self, two):
        with two.scope():
            value = values_of(two)
        component = two.unwrap(value)[0]
        del value
        gc.collect()
        assert two.value_container(component) is component

    def test_map_and_reduce_its_output(self, strategy, run):
        def build():
            mapped = strategy.map([1.0, 2.0, 6.0], lambda x, y: x * tf.constant(y), 2.0)
            return (
                strategy.unwrap(mapped),
                strategy.reduce(SUM, mapped, CPU),
                strategy.reduce(MEAN, mapped, CPU),
            )

        listed, total, mean = run(strategy, build)
        assert [float(x) for [x] in listed] == [2, 4, 12]
        assert (float(total[0]), float(mean[0])) == (18, 6)

    def test_group(self, strategy):
        assert strategy.group(tf.constant(1.0)) is None
        with tf.Graph().as_default(), tf.compat.v1.Session() as session, strategy.scope():
            variable = tf.compat.v1.get_variable(
                "v", initializer=0.0, aggregation=SUM, use_resource=True
            )
            added = strategy.call_for_each_tower(
                lambda: variable.assign_add(tower_id() + 1.0, read_value=False)
            )
            one = strategy.group(added)
            named = strategy.group({"a": added, "b": tf.constant(1.0)}, name="both")
            initialize = tf.compat.v1.global_variables_initializer()
            assert isinstance(one, tf.Operation)
            assert named.name == "both"
            session.run(strategy.initialize())
            session.run(initialize)
            session.run(one)
            session.run(named)
            assert session.run(variable) == strategy.num_towers * (strategy.num_towers + 1)
