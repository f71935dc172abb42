"""`call_for_each_tower`, `merge_call` and `TowerContext`, on 1, 2 and 8 towers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext.towers import VariableAggregation, get_tower_context

v1 = tf.compat.v1
WORDS = ("positive", "negative", "round")


def tower_id(dtype: Any = tf.float32) -> Any:
    return tf.cast(get_tower_context().tower_id, dtype)


def test_the_example_of_the_page(strategy, run):
    def merge_fn(distribution, three_plus_tower_id):
        return sum(distribution.unwrap(three_plus_tower_id))

    def fn(three):
        tower = get_tower_context()
        v = three + tower.tower_id
        return tower.merge_call(merge_fn, v) + v

    each = 3 + np.arange(strategy.num_towers)
    results = run(strategy, lambda: strategy.call_for_each_tower(fn, 3))
    np.testing.assert_array_equal(results, each.sum() + each)


def test_the_example_of_worker_device_index(strategy, run):
    results = run(
        strategy,
        lambda: strategy.call_for_each_tower(
            lambda device_id: tf.convert_to_tensor(device_id), strategy.worker_device_index
        ),
    )
    assert results == list(range(strategy.num_towers))


def test_arguments_and_results_of_any_structure(strategy, run):
    def fn(given, plain, key=None, run_concurrently="not passed on"):
        assert plain == "text"
        assert key is None
        assert run_concurrently == "not passed on"
        return {"a": (given["x"] * 2, None), "b": [given["y"] + 1.0], "c": 5}

    def build():
        per_tower = strategy.call_for_each_tower(tower_id)
        given = {"x": per_tower, "y": tf.constant([1.0, 2.0])}
        return strategy.call_for_each_tower(fn, given, "text", key=None, run_concurrently=False)

    results = run(strategy, build)
    towers = strategy.num_towers
    np.testing.assert_array_equal(results["a"][0], 2.0 * np.arange(towers))
    np.testing.assert_array_equal(results["b"][0], [[2.0, 3.0]] * towers)
    assert results["a"][1] == [None]
    assert results["c"] == [5]


def test_ragged_and_sparse_arguments(two):
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    sparse = tf.sparse.from_dense([[0.0, 4.0]])
    with two.scope():
        result = two.call_for_each_tower(
            lambda r, s: (tf.reduce_sum(r), tf.reduce_sum(s.values)), ragged, sparse
        )
    np.testing.assert_array_equal(two.unwrap(result[0]), [6, 6])
    np.testing.assert_array_equal(two.unwrap(result[1]), [4, 4])


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int64, tf.uint8, tf.bool], ids=str)
def test_unwrap_lists_the_values_of_any_type(strategy, dtype):
    values = np.arange(strategy.num_towers) % 2

    def fn():
        value = tf.cast(tower_id(tf.int32) % 2, dtype)
        return get_tower_context().merge_call(
            lambda distribution, x: tf.cast(tf.stack(distribution.unwrap(x)), tf.int32), value
        )

    with strategy.scope():
        for result in strategy.unwrap(strategy.call_for_each_tower(fn)):
            np.testing.assert_array_equal(result, values)


def test_unwrap_keeps_infinities_apart(two):
    def fn():
        x = tf.where(tower_id() > 0, np.inf, 1.0)
        merged = get_tower_context().merge_call(lambda d, v: tf.stack(d.unwrap(v)), x)
        first = get_tower_context().merge_call(
            lambda d, v: d.reduce(VariableAggregation.ONLY_FIRST_TOWER, v, v), x
        )
        return merged, first

    with two.scope():
        merged, first = two.call_for_each_tower(fn)
    np.testing.assert_array_equal(two.unwrap(merged), [[1, np.inf]] * 2)
    np.testing.assert_array_equal(two.unwrap(first), [1, 1])


class TestMergeCall:
    def test_each_tower_gets_its_own_of_a_per_device_result(self, strategy, run):
        def fn():
            return get_tower_context().merge_call(
                lambda _, x, keep: {"own": x, "same": tf.constant(7.0), "kept": keep},
                tower_id(),
                keep="a Python object",
            )

        results = run(strategy, lambda: strategy.call_for_each_tower(fn))
        np.testing.assert_array_equal(results["own"], np.arange(strategy.num_towers))
        np.testing.assert_array_equal(results["same"], [7] * strategy.num_towers)
        assert results["kept"] == ["a Python object"]

    def test_several_in_loops_and_under_conditions(self, strategy, run):
        def total(x):
            return get_tower_context().merge_call(
                lambda d, v: d.reduce(VariableAggregation.SUM, v, "/device:CPU:0"), x
            )

        def fn(x):
            _, looped = tf.while_loop(
                lambda i, _: i < 3,
                lambda i, acc: (i + 1, acc + total(x + tf.cast(i, tf.float32))),
                (0, 0.0),
            )
            # The same on all towers, but known only when they run.
            agreed = tf.cond(looped > -1.0, lambda: total(x * 2.0), lambda: tf.constant(0.0))
            return looped + agreed + total(looped)

        towers = strategy.num_towers
        x = np.arange(towers)
        looped = sum((x + i).sum() for i in range(3))
        expected = looped + 2 * x.sum() + towers * looped
        results = run(
            strategy,
            lambda: strategy.call_for_each_tower(
                lambda i: fn(tf.cast(i, tf.float32)), strategy.worker_device_index
            ),
        )
        np.testing.assert_allclose(results, [expected] * towers)

    def test_side_effects_happen_once_a_step(self, strategy, run):
        seen: list[Any] = []

        def merge_fn(distribution, x, i):
            values = tf.stack(distribution.unwrap(x))
            i = distribution.unwrap(i)[0]
            tf.numpy_function(lambda v, i: seen.append((int(i), v.tolist())), [values, i], [])
            return distribution.reduce(VariableAggregation.SUM, x, x)

        def fn():
            def body(i, acc):
                return i + 1, acc + get_tower_context().merge_call(merge_fn, tower_id(), i)

            first = get_tower_context().merge_call(merge_fn, tower_id() * 2.0, tf.constant(9))
            return first + tf.while_loop(lambda i, _: i < 2, body, (0, 0.0))[1]

        towers = strategy.num_towers
        run(strategy, lambda: strategy.call_for_each_tower(fn))
        each = np.arange(towers, dtype=float)
        assert sorted(seen) == [
            (0, each.tolist()),
            (1, each.tolist()),
            (9, (each * 2).tolist()),
        ]

    def test_printing(self, two, run, capfd):
        def fn():
            get_tower_context().merge_call(
                lambda d, x: tf.print("values are", d.unwrap(x), "of", "towers"), tower_id()
            )
            return tower_id()

        run(two, lambda: two.call_for_each_tower(fn))
        printed = capfd.readouterr().err
        assert printed.count("values are [0, 1] of towers") == 1

    def test_printing_under_conditions_and_in_loops(self, two, run, capfd):
        def merge_fn(distribution, x):
            total = distribution.reduce(VariableAggregation.SUM, x, x)

            def body(i):
                with tf.control_dependencies([tf.print("round", i)]):
                    return i + 1

            yes = tf.cond(total > 0.0, lambda: noted("positive", total), lambda: total)
            no = tf.cond(total < 0.0, lambda: noted("negative", total), lambda: total)
            return yes + no + tf.cast(tf.while_loop(lambda i: i < 2, body, [0])[0], tf.float32)

        def noted(text, value):
            with tf.control_dependencies([tf.print(text, value)]):
                return tf.identity(value)

        results = run(
            two,
            lambda: two.call_for_each_tower(
                lambda: get_tower_context().merge_call(merge_fn, tower_id() + 1.0)
            ),
        )
        np.testing.assert_array_equal(results, [8, 8])
        printed = capfd.readouterr().err
        lines = [line for line in printed.split("\n") if line.split(" ")[0] in WORDS]
        assert sorted(lines) == ["positive 3", "round 0", "round 1"]

    def test_results_of_host_ops_go_to_all_towers(self, strategy):
        def merge_fn(distribution, x):
            total = distribution.reduce(VariableAggregation.SUM, x, x)
            return tf.compat.v1.Print(total, [total])

        with strategy.scope():
            result = strategy.call_for_each_tower(
                lambda: get_tower_context().merge_call(merge_fn, tower_id() + 1.0)
            )
        towers = strategy.num_towers
        np.testing.assert_array_equal(strategy.unwrap(result), [towers * (towers + 1) / 2] * towers)

    def test_gradients_flow_through(self, strategy):
        def fn():
            x = tower_id() + 1.0
            with tf.GradientTape() as tape:
                tape.watch(x)
                listed = get_tower_context().merge_call(lambda d, v: sum(d.unwrap(v)), x * x)
                loss = listed * x
            return tape.gradient(loss, x)

        with strategy.scope():
            gradients = strategy.unwrap(strategy.call_for_each_tower(fn))
        x = np.arange(strategy.num_towers) + 1.0
        np.testing.assert_allclose(gradients, (x**2).sum() + 2 * x * x.sum(), rtol=1e-6)

    def test_towers_within_a_merge_call(self, strategy, run):
        def fn():
            def merge_fn(distribution, x):
                return distribution.call_for_each_tower(lambda v: v + tower_id(), x)

            return get_tower_context().merge_call(merge_fn, tower_id() * 10.0)

        results = run(strategy, lambda: strategy.call_for_each_tower(fn))
        np.testing.assert_array_equal(results, 11.0 * np.arange(strategy.num_towers))

    def test_in_strategy_run(self, two):
        def fn(x):
            return get_tower_context().merge_call(lambda d, v: sum(d.unwrap(v)), x)

        results = two.run(tf.function(fn), args=(tf.constant(2.0),))
        np.testing.assert_array_equal(two.unwrap(results), [4, 4])

    def test_a_result_as_a_tensor_is_refused(self, two):
        def fn():
            return get_tower_context().merge_call(lambda d, x: tf.reduce_sum(x), tower_id())

        with two.scope(), pytest.raises(TypeError, match=r"distribution\.unwrap\(value\)"):
            two.call_for_each_tower(fn)


def test_a_merge_call_that_not_all_towers_come_to(run_python):
    done = run_python(
        """
        import tensorflow as tf
        import tf_tpu_ext

        tf_tpu_ext.configure(cores=2, wait_limit_seconds=2)
        strategy = tf_tpu_ext.TPUStrategy(None, 1)

        def fn():
            tower = tf_tpu_ext.towers.get_tower_context()
            add = lambda d, x: d.reduce(tf_tpu_ext.towers.VariableAggregation.SUM, x, x)
            merged = lambda: tower.merge_call(add, tf.constant(1.0))
            return tf.cond(tower.tower_id == 0, merged, lambda: tf.constant(0.0))

        with strategy.scope():
            try:
                strategy.call_for_each_tower(fn)
            except tf.errors.DeadlineExceededError as error:
                print(error)
        """
    )
    assert "wait_limit_seconds" in done.stdout


class TestTowerContext:
    def test_members(self, strategy):
        seen = []

        def fn():
            tower = get_tower_context()
            assert tf.distribute.get_replica_context() is not None
            assert tower == get_tower_context()
            seen.append((tower.is_single_tower, tower.num_towers, tower.distribution_strategy))
            with tf.device(tower.device):
                return tf.constant(1.0) * tower.tower_id

        with strategy.scope():
            assert get_tower_context() is None
            strategy.call_for_each_tower(fn)
        assert seen[0] == (strategy.num_towers == 1, strategy.num_towers, strategy)

    def test_outside_of_any_strategy(self):
        tower = get_tower_context()
        assert (tower.is_single_tower, tower.num_towers, tower.tower_id) == (True, 1, 0)
        assert tower.device.endswith("CPU:0") or tower.device == ""
        assert tower.merge_call(lambda _, x, y: x + y, 3, y=4) == 7

    def test_one_trace_and_one_compilation_for_all_towers(self, strategy):
        traces = []

        def fn(x):
            traces.append(x)
            return x + tower_id()

        before = tf_tpu_ext.compilation_stats().compilations
        with strategy.scope():
            for step in range(3):
                strategy.call_for_each_tower(fn, tf.constant(float(step)))
        assert len(traces) == 1
        assert tf_tpu_ext.compilation_stats().compilations - before <= 1

    @pytest.mark.parametrize(
        ("use", "expected"),
        [
            (lambda i: 3 + i, [3, 4]),
            (lambda i: 0.5 * i, [0, 0.5]),
            (lambda i: tf.constant(2.0, tf.float64) - i, [2, 1]),
            (lambda i: np.float32([1, 2]) * i, [[0, 0], [1, 2]]),
            (lambda i: i * tf.constant(3, tf.int64), [0, 3]),
            (lambda i: i / 2, [0, 0.5]),
            (lambda i: 1 / (i + 1), [1, 0.5]),
            (lambda i: 7 // (i + 1), [7, 3]),
            (lambda i: (i + 5) % 2, [1, 0]),
            (lambda i: 2**i, [1, 2]),
            (lambda i: i**2 + i * i - i, [0, 1]),
            (lambda i: abs(-i), [0, 1]),
            (lambda i: tf.constant([10, 20])[i], [10, 20]),
            (lambda i: tf.gather([10.0, 20.0], i), [10, 20]),
            (lambda i: tf.one_hot(i, 2), [[1, 0], [0, 1]]),
            (lambda i: tf.where(i == 1, 5, 6), [6, 5]),
            (lambda i: tf.where(i < 1, 5, 6), [5, 6]),
            (lambda i: tf.cast(i != 0, tf.int32), [0, 1]),
            (lambda i: tf.range(3) >= i, [[1, 1, 1], [0, 1, 1]]),
            (lambda i: tf.fill([2], i), [[0, 0], [1, 1]]),
        ],
    )
    def test_tower_id_as_a_number(self, two, use, expected):
        with two.scope():
            results = two.call_for_each_tower(lambda: use(get_tower_context().tower_id))
        np.testing.assert_allclose(two.unwrap(results), expected)

    def test_python_conditions_are_converted(self, two):
        def fn():
            if get_tower_context().tower_id == 0:
                return tf.constant(5)
            return tf.constant(6)

        with two.scope():
            assert [int(x) for x in two.unwrap(two.call_for_each_tower(fn))] == [5, 6]

    @pytest.mark.parametrize(
        ("use", "advice"),
        [
            (lambda i: [1, 2][i], "tf.gather"),
            (lambda i: list(range(i)), "tf.gather"),
            (int, "tf.cast"),
            (float, "tf.cast"),
            (bool, "tf.cond"),
            (np.array, "tf.convert_to_tensor"),
        ],
    )
    def test_tower_id_where_only_a_python_number_will_do(self, two, use, advice):
        with two.scope(), pytest.raises(TypeError, match=f"all towers share a trace.*{advice}"):
            two.call_for_each_tower(
                tf.autograph.experimental.do_not_convert(lambda: use(get_tower_context().tower_id))
            )


class TestErrors:
    def test_outside_of_the_scope(self, two):
        with pytest.raises(RuntimeError, match=r'Need to be inside "with .*scope\(\)"'):
            two.call_for_each_tower(tower_id)

    def test_in_a_tower(self, two):
        with (
            two.scope(),
            pytest.raises(RuntimeError, match=r"get_tower_context\(\)\.merge_call"),
        ):
            two.call_for_each_tower(lambda: two.call_for_each_tower(tower_id))

    def test_another_strategy(self, two, resolver):
        other = tf_tpu_ext.TPUStrategy(resolver, 1, num_cores=2)
        with two.scope(), pytest.raises(RuntimeError, match="Mixing different"):
            other.call_for_each_tower(tower_id)

    def test_nested_scopes(self, two, resolver):
        with two.scope(), two.scope():
            assert tf.distribute.get_strategy() is two
        other = tf_tpu_ext.TPUStrategy(resolver, 1, num_cores=2)
        with two.scope(), pytest.raises(RuntimeError, match="Mixing different"):
            other.scope().__enter__()

    def test_a_context_of_the_past(self, two):
        kept = []
        with two.scope():
            two.call_for_each_tower(lambda: kept.append(get_tower_context()))
            with pytest.raises(RuntimeError, match="Need to be inside `call_for_each_tower"):
                kept[0].merge_call(lambda _: None)
            with pytest.raises(RuntimeError, match="Mismatching tower context"):
                two.call_for_each_tower(lambda: kept[0].tower_id)
        with pytest.raises(RuntimeError, match="Mismatching DistributionStrategy"):
            tf_tpu_ext.towers.require_tower_context(kept[0])

    def test_values_of_another_number_of_towers(self, two, resolver):
        other = tf_tpu_ext.TPUStrategy(resolver, 1, num_cores=8)
        with other.scope():
            eight = other.call_for_each_tower(tower_id)
        with two.scope(), pytest.raises(ValueError, match="an argument of 8 values, expected 2"):
            two.call_for_each_tower(lambda x: x, eight)

    def test_an_error_in_a_tower_keeps_its_type(self, two):
        def fn():
            raise KeyError("the tower's own")

        with two.scope(), pytest.raises(KeyError, match="the tower's own"):
            two.call_for_each_tower(fn)
        with two.scope():
            assert two.call_for_each_tower(lambda: 5) == 5
