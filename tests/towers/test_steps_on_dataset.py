"""`run_steps_on_dataset`, `MultiStepContext` and `distribute_dataset`, on 1, 2 and 8 towers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext.towers import VariableAggregation, get_tower_context

v1 = tf.compat.v1
SUM = VariableAggregation.SUM
MEAN = VariableAggregation.MEAN
FIRST = VariableAggregation.ONLY_FIRST_TOWER


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda x: tf.cast(x, tf.float32))


def batches(sizes: list[int]) -> tf.data.Dataset:
    """Batches of different sizes, whose shapes are therefore not static."""
    return tf.data.Dataset.from_generator(
        lambda: (np.full(size, i, np.float32) for i, size in enumerate(sizes)),
        output_signature=tf.TensorSpec([None], tf.float32),
    )


def step_on(strategy: Any, variable: Any) -> Callable[..., Any]:
    """A step that adds up what it sees, and puts out all kinds of outputs."""

    def tower(context, x):
        context.set_last_step_output("in_tower", {"x": x, "twice": [x * 2.0]}, MEAN)
        context.set_non_tensor_output("said", "a word")
        return variable.assign_add(x, read_value=False), x

    def step(context, x):
        assert get_tower_context() is None
        added, x = strategy.call_for_each_tower(tower, context, x)
        context.set_last_step_output("each", x)
        context.set_last_step_output("sum", x, SUM)
        context.set_last_step_output("mean", x, aggregation=MEAN)
        context.set_last_step_output("first", x, FIRST)
        context.set_non_tensor_output("object", step_on)
        return strategy.group(added)

    return step


def check_outputs(strategy: Any, outputs: Any, last_step: int) -> None:
    towers = strategy.num_towers
    seen = last_step * towers + np.arange(towers, dtype=float)
    np.testing.assert_array_equal(strategy.unwrap(outputs["each"]), seen)
    for name, expected in {"sum": seen.sum(), "mean": seen.mean(), "first": seen[0]}.items():
        assert strategy.unwrap(outputs[name]) == [expected], name
    assert outputs["in_tower"]["x"] == seen.mean()
    assert outputs["in_tower"]["twice"] == [2 * seen.mean()]


def total_of(strategy: Any, steps: int) -> int:
    return sum(range(steps * strategy.num_towers))


class TestEagerly:
    def test_outputs_of_the_last_step(self, strategy):
        with strategy.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            iterator = strategy.distribute_dataset(lambda: numbers(1000)).make_one_shot_iterator()
            step = step_on(strategy, variable)
            for call in range(3):
                context = strategy.run_steps_on_dataset(step, iterator, iterations=4)
                check_outputs(strategy, context.last_step_outputs, 4 * call + 3)
                assert context.non_tensor_outputs == {"said": ["a word"], "object": step_on}
                assert context.run_op is None
                assert variable.numpy() == total_of(strategy, 4 * call + 4)

    def test_more_elements_than_an_infeed_holds(self, two):
        with two.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            iterator = iter(two.distribute_dataset(lambda: numbers(1000)))
            two.run_steps_on_dataset(step_on(two, variable), iterator, iterations=100)
        assert variable.numpy() == total_of(two, 100)

    def test_a_new_iterator_each_epoch_is_no_new_program(self, two):
        compilations = []
        with two.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            step = step_on(two, variable)
            for epoch in range(4):
                # Another dataset, of elements of the same kind.
                dataset = two.distribute_dataset(lambda: numbers(8).map(lambda x: x + 0.0))
                two.run_steps_on_dataset(step, dataset.make_one_shot_iterator(), iterations=4)
                compilations.append(tf_tpu_ext.compilation_stats().compilations)
                assert variable.numpy() == (epoch + 1) * total_of(two, 4)
        assert compilations == compilations[:1] * 4

    def test_elements_of_another_shape_are_another_program(self, two):
        def step(context, x):
            context.set_last_step_output("sum", two.call_for_each_tower(tf.identity, x), SUM)

        with two.scope():
            for shape in ([], [3], []):
                dataset = numbers(8).map(lambda x, shape=shape: tf.broadcast_to(x, shape))
                iterator = iter(two.distribute_dataset(lambda dataset=dataset: dataset))
                outputs = two.run_steps_on_dataset(step, iterator, 2).last_step_outputs
                assert outputs["sum"].shape == shape
                np.testing.assert_array_equal(outputs["sum"], np.full(shape, 5.0))

    def test_the_iterator_of_an_epoch_is_let_go(self, two):
        with two.scope():
            step = step_on(two, tf.Variable(0.0, aggregation=SUM))
            iterator = iter(two.distribute_dataset(lambda: numbers(8)))
            two.run_steps_on_dataset(step, iterator, iterations=2)
            taken = weakref.ref(iterator._iterator)
            del iterator
        gc.collect()
        assert taken() is None

    def test_the_end_of_the_data(self, strategy):
        towers = strategy.num_towers
        with strategy.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            # Three whole steps, and for the fourth not enough for all towers if there are several.
            count = 3 * towers + (towers - 1 if towers > 1 else 0)
            iterator = strategy.distribute_dataset(lambda: numbers(count)).make_one_shot_iterator()
            step = step_on(strategy, variable)
            strategy.run_steps_on_dataset(step, iterator)
            with pytest.raises(tf.errors.OutOfRangeError):
                strategy.run_steps_on_dataset(step, iterator, iterations=5)
            assert variable.numpy() == total_of(strategy, 3)
            with pytest.raises(tf.errors.OutOfRangeError):
                strategy.run_steps_on_dataset(step, iterator, iterations=5)
            assert variable.numpy() == total_of(strategy, 3)

    def test_data_that_fail_leave_nothing_behind(self, two):
        def failing():
            return numbers(100).map(lambda x: checked(x))

        def checked(x):
            with tf.control_dependencies([tf.debugging.assert_less(x, 5.0)]):
                return tf.identity(x)

        with two.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            step = step_on(two, variable)
            iterator = two.distribute_dataset(failing).make_one_shot_iterator()
            with pytest.raises(tf.errors.InvalidArgumentError):
                two.run_steps_on_dataset(step, iterator, iterations=10)
            variable.assign(0.0)
            iterator = two.distribute_dataset(lambda: numbers(100)).make_one_shot_iterator()
            context = two.run_steps_on_dataset(step, iterator, iterations=2)
            check_outputs(two, context.last_step_outputs, 1)
            assert variable.numpy() == total_of(two, 2)

    def test_batches_of_changing_size(self, two):
        def step(context, x):
            def tower(x):
                return variable.assign_add(tf.reduce_sum(x)), tf.size(x)

            _, size = two.call_for_each_tower(tower, x)
            context.set_last_step_output("size", size, SUM)

        with two.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
            dataset = two.distribute_dataset(lambda: batches([4, 3, 2, 5, 1, 1]))
            iterator = dataset.make_one_shot_iterator()
            context = two.run_steps_on_dataset(step, iterator, iterations=2)
            assert context.last_step_outputs["size"] == 7
            assert variable.numpy() == 3 + 4 + 15
            with pytest.raises(tf.errors.OutOfRangeError):
                two.run_steps_on_dataset(step, iterator, iterations=3)
            assert variable.numpy() == 3 + 4 + 15 + 4 + 5

    def test_a_plain_iterator_and_structures(self, two):
        def step(context, x, labels):
            def tower(x, labels):
                return x + labels["y"]

            result = two.call_for_each_tower(tower, x, labels)
            context.set_last_step_output("result", result, SUM)

        dataset = tf.data.Dataset.zip((numbers(10), {"y": numbers(10)}))
        with two.scope():
            context = two.run_steps_on_dataset(step, iter(dataset), iterations=2)
        assert context.last_step_outputs["result"] == 2 * (2 + 3)

    def test_a_distributed_iterator_of_tensorflow_2(self, two):
        def step(context, x):
            result = two.call_for_each_tower(tf.reduce_sum, x)
            context.set_last_step_output("sum", result, SUM)

        iterator = iter(two.experimental_distribute_dataset(numbers(12).batch(4)))
        with two.scope():
            context = two.run_steps_on_dataset(step, iterator, iterations=2)
            assert context.last_step_outputs["sum"] == 4 + 5 + 6 + 7
            with pytest.raises(tf.errors.OutOfRangeError):
                two.run_steps_on_dataset(step, iterator, iterations=2)

    def test_merge_calls_in_steps(self, two, capfd):
        def step(context, x):
            def tower(x):
                def merge_fn(distribution, x):
                    tf.print("saw", distribution.unwrap(x))
                    return distribution.reduce(SUM, x, x)

                return get_tower_context().merge_call(merge_fn, x) + x

            context.set_last_step_output("result", two.call_for_each_tower(tower, x))

        with two.scope():
            iterator = iter(two.distribute_dataset(lambda: numbers(10)))
            context = two.run_steps_on_dataset(step, iterator, iterations=3)
        assert [float(x) for x in two.unwrap(context.last_step_outputs["result"])] == [13, 14]
        printed = capfd.readouterr().err
        assert [printed.count(f"saw [{2 * i}, {2 * i + 1}]") for i in range(4)] == [1, 1, 1, 0]

    def test_layers_and_optimizers_made_in_the_first_step(self, two):
        def step(context, x):
            def tower(x):
                if "w" not in made:
                    made["w"] = tf.Variable(1.0, aggregation=MEAN)
                return made["w"].assign_add(x)

            two.call_for_each_tower(tower, x)

        made: dict[str, Any] = {}
        with two.scope():
            iterator = iter(two.distribute_dataset(lambda: numbers(10)))
            two.run_steps_on_dataset(step, iterator, iterations=2)
        assert len(two.unwrap(made["w"])) == 2
        assert made["w"].numpy() == 1 + 0.5 + 2.5


class TestInGraphs:
    def test_in_a_function(self, strategy):
        with strategy.scope():
            variable = tf.Variable(0.0, aggregation=SUM)
        dataset = strategy.distribute_dataset(lambda: numbers(1000))
        iterator = dataset.make_one_shot_iterator()

        @tf.function
        def train(steps):
            with strategy.scope():
                context = strategy.run_steps_on_dataset(
                    step_on(strategy, variable), iterator, iterations=steps
                )
            return context.last_step_outputs

        for call, steps in enumerate((3, 3)):
            outputs = train(tf.constant(steps))
            check_outputs(strategy, outputs, 3 * call + 2)
        assert variable.numpy() == total_of(strategy, 6)

    def test_in_a_session(self, strategy):
        with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
            variable = v1.get_variable("v", initializer=0.0, aggregation=SUM)
            dataset = strategy.distribute_dataset(lambda: numbers(7 * strategy.num_towers))
            iterator = dataset.make_initializable_iterator()
            context = strategy.run_steps_on_dataset(
                step_on(strategy, variable), iterator, iterations=3
            )
            assert context.non_tensor_outputs == {"said": ["a word"], "object": step_on}
            outputs = context.last_step_outputs
            fetches = {**outputs, "each": tuple(strategy.unwrap(outputs["each"]))}
            initialize = v1.global_variables_initializer()
            session.run(strategy.initialize())
            session.run([initialize, iterator.initializer])
            session.run(context.run_op)
            assert session.run(variable) == total_of(strategy, 3)
            # An output alone runs the steps as well.
            check_outputs(strategy, session.run(fetches), 5)
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(context.run_op)
            assert session.run(variable) == total_of(strategy, 7)
            session.run(iterator.initializer)
            check_outputs(strategy, session.run([context.run_op, fetches])[1], 2)

    def test_batches_of_changing_size_in_a_session(self, two):
        with tf.Graph().as_default(), v1.Session() as session, two.scope():
            variable = v1.get_variable("v", initializer=0.0, aggregation=SUM)
            dataset = two.distribute_dataset(
                lambda: tf.data.Dataset.range(7).batch(2).map(lambda x: tf.cast(x, tf.float32))
            )
            iterator = dataset.make_initializable_iterator()

            def step(context, x):
                def tower(x):
                    return variable.assign_add(tf.reduce_sum(x), read_value=False), tf.size(x)

                added, size = two.call_for_each_tower(tower, x)
                context.set_last_step_output("sizes", size)
                return two.group(added)

            context = two.run_steps_on_dataset(step, iterator, iterations=2)
            sizes = two.unwrap(context.last_step_outputs["sizes"])
            initialize = v1.global_variables_initializer()
            session.run(two.initialize())
            session.run([initialize, iterator.initializer])
            assert session.run(sizes) == [2, 1]
            assert session.run(variable) == sum(range(7))

    @pytest.mark.parametrize("form", ["scalar", "list", "per_device"])
    def test_initial_values(self, two, form):
        def step(context, x):
            context.set_last_step_output("x", two.call_for_each_tower(lambda x: x, x))

        given = {"scalar": tf.constant(5.0), "list": [tf.constant(5.0), tf.constant(6.0)]}
        with two.scope():
            given["per_device"] = two.call_for_each_tower(
                lambda: tf.cast(get_tower_context().tower_id, tf.float32)
            )
            iterator = iter(two.distribute_dataset(lambda: numbers(8)))
            context = two.run_steps_on_dataset(
                step, iterator, iterations=2, initial_loop_values={"x": given[form]}
            )
            with pytest.raises(ValueError, match="expected the outputs that the function sets"):
                two.run_steps_on_dataset(step, iterator, 2, {"y": given["scalar"]})
            with pytest.raises(ValueError, match="expected 1, or one for each of 2 towers"):
                two.run_steps_on_dataset(step, iterator, 2, {"x": [1.0, 2.0, 3.0]})
        assert [float(x) for x in two.unwrap(context.last_step_outputs["x"])] == [2, 3]


class TestDistributeDataset:
    def test_each_tower_gets_its_own_elements(self, strategy):
        towers = strategy.num_towers
        dataset = strategy.distribute_dataset(lambda: numbers(3 * towers + towers // 2))
        assert dataset.element_spec == tf.TensorSpec([], tf.float32)
        seen = [[float(x) for x in strategy.unwrap(value)] for value in dataset]
        assert seen == np.arange(3 * towers, dtype=float).reshape(3, towers).tolist()
        iterator = dataset.make_one_shot_iterator()
        with strategy.scope():
            result = strategy.call_for_each_tower(lambda x: x * 2.0, iterator.get_next())
        np.testing.assert_array_equal(strategy.unwrap(result), 2.0 * np.arange(towers))

    def test_in_a_session(self, strategy):
        towers = strategy.num_towers
        with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
            one_shot = strategy.distribute_dataset(lambda: numbers(100)).make_one_shot_iterator()
            restarted = strategy.distribute_dataset(
                lambda: tf.data.Dataset.zip((numbers(100), numbers(100)))
            ).make_initializable_iterator()
            assert one_shot.output_types == tf.float32
            assert restarted.output_shapes == (tf.TensorShape([]), tf.TensorShape([]))
            assert restarted.output_classes == (tf.Tensor, tf.Tensor)
            product = strategy.call_for_each_tower(lambda x: x * 2.0, one_shot.get_next())
            pair = strategy.call_for_each_tower(lambda x, y: x + y, *restarted.get_next("next"))
            products, pairs = strategy.unwrap(product), strategy.unwrap(pair)
            session.run(strategy.initialize())
            for step in range(2):
                each = step * towers + np.arange(towers)
                np.testing.assert_array_equal(session.run(products), 2 * each)
            for _ in range(2):
                session.run(restarted.initializer)
                np.testing.assert_array_equal(session.run(pairs), 2 * np.arange(towers))

    def test_in_a_function(self, two):
        @tf.function
        def total():
            result = 0.0
            for x in two.distribute_dataset(lambda: numbers(7)):
                result += two.reduce("SUM", x, axis=None)
            return result

        with pytest.raises(RuntimeError, match=r"get_next\(\) in"):
            total()

        iterator = iter(two.distribute_dataset(lambda: numbers(7)))

        @tf.function
        def step():
            return two.reduce("SUM", iterator.get_next(), axis=None)

        assert [float(step()) for _ in range(3)] == [1, 5, 9]
        with pytest.raises(tf.errors.OutOfRangeError):
            step()

    def test_what_is_refused(self, two):
        with pytest.raises(ValueError, match=r"a function that returns a tf\.data\.Dataset"):
            two.distribute_dataset(lambda: 5)
        with pytest.raises(ValueError, match=r"a function that returns a tf\.data\.Dataset"):
            two.distribute_dataset(numbers(3))
        dataset = two.distribute_dataset(lambda: numbers(3))
        with pytest.raises(RuntimeError, match="make_one_shot_iterator"):
            dataset.make_initializable_iterator()
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="was iterated over"):
            iter(two.distribute_dataset(lambda: numbers(3)))


class TestErrors:
    def test_calls(self, two):
        iterator = iter(two.distribute_dataset(lambda: numbers(3)))
        with pytest.raises(RuntimeError, match="Need to be inside"):
            two.run_steps_on_dataset(lambda context, x: None, iterator)
        with two.scope():
            with pytest.raises(TypeError, match="expected an iterator of a dataset"):
                two.run_steps_on_dataset(lambda context, x: None, [1, 2])
            with pytest.raises(ValueError, match="a positive number of steps"):
                two.run_steps_on_dataset(lambda context, x: None, iterator, iterations=0)

    def test_outputs_of_a_tower_need_an_aggregation(self, two):
        def step(context, x):
            two.call_for_each_tower(lambda x: context.set_last_step_output("x", x), x)

        iterator = iter(two.distribute_dataset(lambda: numbers(8)))
        with two.scope(), pytest.raises(ValueError, match="without an aggregation"):
            two.run_steps_on_dataset(step, iterator)

    def test_a_context_of_one_s_own(self):
        context = tf_tpu_ext.towers.MultiStepContext()
        context.set_non_tensor_output("a", 5)
        assert context.non_tensor_outputs == {"a": [5]}
        assert context.last_step_outputs == {}
