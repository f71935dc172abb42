"""Variables: what a cluster may use, and what it must leave alone."""

from __future__ import annotations

import pathlib
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1
outside = v1.tpu.outside_compilation

# Updates by ones. What is wide takes long enough for another replica to come in between.
UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda variable, _: variable.assign_add(tf.ones_like(variable)),
    "add_row": lambda variable, _: variable.scatter_add(
        tf.IndexedSlices(tf.ones_like(variable[:1]), [0])
    ),
    "subtract_row": lambda variable, _: variable.scatter_sub(
        tf.IndexedSlices(-tf.ones_like(variable[:1]), [0])
    ),
    "set_row": lambda variable, replica: variable.scatter_update(
        tf.IndexedSlices(variable[replica] + 1.0, replica)
    ),
    "descend": lambda variable, _: tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=1.0, delta=-tf.ones_like(variable)
    ),
}


def local(strategy: Any, value: Any) -> list[float]:
    return [float(x) for x in strategy.experimental_local_results(value)]


@pytest.fixture
def device_variable(strategy):
    with strategy.scope():
        return tf.Variable(2.0, name="on_the_cores")


@pytest.fixture
def host_variable(strategy):
    return tf.Variable(3.0, name="on_the_host")


def run(strategy: Any, computation: Any, *inputs: Any) -> Any:
    @tf.function
    def step(*inputs):
        return strategy.run(computation, args=inputs)

    return step(*inputs)


class TestDeviceVariable:
    @pytest.mark.parametrize("how", ["read", "convert", "assign", "assign_add", "gather"])
    def test_is_refused(self, strategy, mode, device_variable, how):
        uses = {
            "read": lambda: device_variable.read_value(),
            "convert": lambda: device_variable + 1.0,
            "assign": lambda: tf.identity(device_variable.assign(5.0)),
            "assign_add": lambda: tf.identity(device_variable.assign_add(5.0)),
            "gather": lambda: tf.reshape(device_variable, [1])[0],
        }

        def computation():
            y = outside(uses[how])
            return tf.constant(1.0) if y is None else y * 2.0

        with pytest.raises(ValueError, match="which is on the TPU cores") as error:
            run(strategy, computation)
        message = str(error.value)
        assert "cluster '0'" in message
        assert "'on_the_cores:0'" in message
        line = next(
            number
            for number, text in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1)
            if f'"{how}": lambda' in text
        )
        assert f"{__file__}:{line}" in message
        assert device_variable.numpy() == 2.0

    @pytest.mark.parametrize("nested", ["while", "cond", "host_cond", "function"])
    def test_is_found_anywhere(self, strategy, mode, device_variable, nested):
        function = tf.function(lambda: device_variable + 1.0)

        def computation(x):
            def read():
                return device_variable + 1.0

            if nested == "while":
                return tf.while_loop(lambda y: y < 9.0, lambda y: [y + outside(read)], [x])[0]
            if nested == "cond":
                return tf.cond(x > 0.0, lambda: outside(read), lambda: x)
            if nested == "host_cond":
                return outside(lambda: tf.cond(x > 0.0, read, lambda: x))
            return outside(function)

        with pytest.raises(ValueError, match="'on_the_cores:0'"):
            run(strategy, computation, tf.constant(1.0))

    def test_value_may_be_passed(self, strategy, mode, device_variable):
        def computation():
            new = outside(lambda value: value * 10.0, device_variable.read_value())
            device_variable.assign(new)
            return device_variable + 1.0

        assert set(local(strategy, run(strategy, computation))) == {21.0}

    def test_in_a_session(self):
        with tf.Graph().as_default():
            with tf.device("/device:TPU:0"):
                variable = v1.get_variable("placed", [], use_resource=True)
            with pytest.raises(ValueError, match=r"'placed'.*which is on the TPU cores"):
                v1.tpu.rewrite(lambda: outside(lambda: variable + 1.0) * 2.0, [])


class TestHostVariable:
    def test_tracing_leaves_the_objects_of_other_threads_alone(self, strategy, host_variable):
        stop, failures = threading.Event(), []

        def count():
            host_variable.assign_add(1.0)

        def make_tuples():
            while not stop.is_set():
                try:
                    tuple(number for number in range(1000))
                except SystemError as error:  # Someone else holds the unfinished tuple.
                    failures.append(error)

        other = threading.Thread(target=make_tuples)
        other.start()
        try:
            for _ in range(10):
                run(strategy, lambda: outside(count))
        finally:
            stop.set()
            other.join()
        assert not failures

    def test_used_in_one_cluster(self, strategy, mode, host_variable):
        def computation(x):
            return outside(lambda y: y + host_variable, x * 2.0) * 10.0

        @tf.function
        def step(x):
            return strategy.run(computation, args=(x,))

        for value in (3.0, 4.0):
            host_variable.assign(value)
            got = local(strategy, step(tf.constant(1.0)))
            assert set(got) == {(2.0 + value) * 10.0}

    def test_written_by_every_replica(self, strategy, mode, host_variable):
        def computation(x):
            def host(y):
                host_variable.assign_add(y)

            outside(host, x * 2.0)
            return x

        run(strategy, computation, tf.constant(1.0))
        assert host_variable.numpy() == 3.0 + 2.0 * strategy.num_replicas_in_sync

    def test_updates_of_several_clusters_and_replicas_all_count(
        self, strategy, mode, host_variable
    ):
        rows = tf.Variable([1.0, 1.0])

        def computation(x):
            def update(y):
                host_variable.assign_add(y)
                rows.scatter_sub(tf.IndexedSlices(y, 1))

            outside(update, x * 2.0)
            y = outside(lambda y: y + 1.0, x)
            outside(update, y)
            return outside(lambda y: y * 2.0, y + 1.0)

        for _ in range(5):
            run(strategy, computation, tf.constant(1.0))
        total = 5 * 4.0 * strategy.num_replicas_in_sync
        assert host_variable.numpy() == 3.0 + total
        assert rows.numpy().tolist() == [1.0, 1.0 - total]

    @pytest.mark.parametrize("update", UPDATES)
    def test_updates_at_the_same_time_all_count(self, strategy, mode, update):
        rounds, replicas, width = 10, strategy.num_replicas_in_sync, 40000
        variable = tf.Variable(tf.zeros([replicas, width]))

        def computation():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group

            def body(i):
                def host(replica):
                    UPDATES[update](variable, replica)
                    return 1

                return [i + outside(host, replica)]

            return tf.while_loop(lambda i: i < rounds, body, [0])[0]

        run(strategy, computation)
        expected = np.zeros([replicas, width])
        if update == "set_row":
            expected[:] = rounds
        elif update.endswith("row"):
            expected[0] = rounds * replicas
        else:
            expected[:] = rounds * replicas
        np.testing.assert_array_equal(variable.numpy(), expected)

    def test_assigned_in_a_branch_that_one_replica_takes(self, strategy, mode, host_variable):
        def host(x):
            host_variable.assign(x)
            return tf.identity(x)

        def computation(chosen):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.cond(
                tf.equal(replica, chosen),
                lambda: outside(host, 10.0 + tf.cast(replica, tf.float32)),
                lambda: 0.0,
            )

        for chosen in reversed(range(strategy.num_replicas_in_sync)):
            run(strategy, computation, tf.constant(chosen))
            assert host_variable.numpy() == 10.0 + chosen

    def test_used_in_two_clusters(self, strategy, mode, host_variable):
        def computation(x):
            def write(x):
                host_variable.assign(8.0)
                return x

            y = outside(write, x * 2.0)
            return outside(lambda y: y + host_variable, y + 1.0)

        assert set(local(strategy, run(strategy, computation, tf.constant(4.0)))) == {17.0}

    def test_in_a_loop(self, strategy, mode, host_variable):
        def computation(x):
            def host(x):
                host_variable.assign_add(1.0)
                return x * 2.0

            return tf.while_loop(lambda x: x < 100.0, lambda x: [outside(host, x)], [x])[0]

        assert set(local(strategy, run(strategy, computation, tf.constant(1.0)))) == {128.0}
        assert host_variable.numpy() == 3.0 + 7 * strategy.num_replicas_in_sync

    @pytest.mark.parametrize("where", ["branch", "loop", "function", "function of a function"])
    def test_updates_below_a_cluster_all_count(self, strategy, mode, host_variable, where):
        """Replicas update the variable side by side, many times."""
        rounds = 40

        @tf.function
        def add():
            host_variable.assign_add(1.0)

        @tf.function
        def call_add():
            add()

        def host(x):
            if where == "branch":
                tf.cond(x > 0.0, lambda: (host_variable.assign_add(1.0), 0)[1], lambda: 0)
            elif where == "loop":
                tf.while_loop(
                    lambda i: i < 1, lambda i: (host_variable.assign_add(1.0), i + 1)[1], [0]
                )
            elif where == "function":
                add()
            else:
                call_add()
            return x * 1.0

        def computation(x):
            return tf.while_loop(
                lambda i, _: i < rounds, lambda i, x: (i + 1, outside(host, x + 1.0)), (0, x)
            )[1]

        run(strategy, computation, tf.constant(1.0))
        assert host_variable.numpy() == 3.0 + rounds * strategy.num_replicas_in_sync

    @pytest.mark.parametrize("order", ["cluster_first", "cores_first"])
    @pytest.mark.parametrize("nested", [False, True])
    def test_used_on_both_sides_is_refused(self, strategy, mode, host_variable, order, nested):
        def computation(x):
            def cores():
                return host_variable * 2.0

            def host():
                return outside(lambda: host_variable + 1.0)

            first, second = (host, cores) if order == "cluster_first" else (cores, host)
            if nested:
                return tf.cond(x > 0.0, first, lambda: x) + tf.cond(x > 0.0, second, lambda: x)
            return first() + second()

        with pytest.raises(ValueError, match="so does the rest of the computation") as error:
            run(strategy, computation, tf.constant(1.0))
        message = str(error.value)
        assert "'on_the_host:0'" in message
        assert "would wait forever" in message
        assert len(set(re.findall(rf"{re.escape(__file__)}:(\d+)", message))) >= 2

    def test_result_of_an_assignment_is_read_on_the_cores(self, strategy, mode, host_variable):
        def computation():
            return outside(lambda: host_variable.assign_add(1.0)) * 2.0

        with pytest.raises(ValueError, match=r"with read_value\(\) after an assignment"):
            run(strategy, computation)

        def corrected():
            return outside(lambda: host_variable.assign(7.0).read_value()) * 2.0

        assert set(local(strategy, run(strategy, corrected))) == {14.0}

    def test_in_a_session(self):
        with tf.Graph().as_default(), v1.Session() as session:
            variable = v1.get_variable("host", initializer=5.0, use_resource=True)
            session.run(v1.global_variables_initializer())
            (output,) = v1.tpu.rewrite(lambda x: outside(lambda: variable + x) * 2.0, [2.0])
            assert session.run(output) == 14.0
            with pytest.raises(ValueError, match=r"'host'.*so does the rest"):
                v1.tpu.rewrite(lambda x: outside(lambda: variable + x) * variable, [2.0])
            # The graph is not left within the refused computation.
            assert session.run(tf.constant(3.0) * variable) == 15.0


class TestWhatCannotCross:
    def test_string(self, strategy, mode):
        def computation(x):
            return tf.strings.length(outside(tf.strings.as_string, x * 2.0)) + 1

        with pytest.raises(TypeError, match="makes a string") as error:
            run(strategy, computation, tf.constant(1.0))
        assert "tf.strings.to_number" in str(error.value)
        assert f"StringLength 'StringLength' at {__file__}" in str(error.value)

    def test_string_as_a_loop_variable(self, strategy, mode):
        def computation():
            def body(number, text):
                return number + 1, outside(lambda text: text + "a", text)

            return tf.while_loop(lambda number, _: number < 3, body, [0, tf.constant("b")])[0]

        with pytest.raises(TypeError, match="makes a string"):
            run(strategy, computation)

    def test_string_of_a_branch(self, strategy, mode):
        def computation(x):
            text = tf.cond(
                x > 0.0,
                lambda: outside(lambda: tf.strings.as_string(x)),
                lambda: outside(lambda: tf.constant("")),
            )
            return outside(tf.strings.length, text) + 1

        with pytest.raises(TypeError, match="makes a string"):
            run(strategy, computation, tf.constant(1.0))

    def test_variant(self, strategy, mode):
        def computation(x):
            optional = outside(lambda x: tf.experimental.Optional.from_value(x), x * 2.0)
            return optional.get_value() + 1.0

        with pytest.raises(TypeError, match=r"makes a variant.*get_value\(\) of an optional"):
            run(strategy, computation, tf.constant(1.0))

    def test_ragged_tensor_of_unknown_size(self, strategy, mode):
        def computation(x):
            def host(x):
                count = tf.cast(x, tf.int32)
                return tf.RaggedTensor.from_row_lengths(tf.ones([count]), [count])

            return tf.reduce_sum(outside(host, x * 2.0).values)

        with pytest.raises(tf.errors.InvalidArgumentError, match="needs its static shape"):
            run(strategy, computation, tf.constant(1.0))

    def test_ragged_tensor_of_known_sizes_crosses(self, strategy, mode):
        def computation(x):
            def host(x):
                return tf.RaggedTensor.from_row_splits(tf.stack([x, x + 1, x + 2]), [0, 1, 3])

            return tf.reduce_sum(outside(host, x * 2.0) * 2.0, axis=1)

        for got in strategy.experimental_local_results(
            run(strategy, computation, tf.constant(1.0))
        ):
            np.testing.assert_array_equal(got, [4.0, 14.0])

    def test_list_of_tensors_crosses(self, strategy, mode):
        def computation(x):
            array = tf.TensorArray(tf.float32, 2, element_shape=[])
            array = outside(lambda x: array.write(0, x).write(1, x * 2.0), x * 3.0)
            return array.stack() * 2.0

        for got in strategy.experimental_local_results(
            run(strategy, computation, tf.constant(1.0))
        ):
            np.testing.assert_array_equal(got, [6.0, 12.0])

    def test_unknown_shape(self, strategy, mode):
        def computation(x):
            return tf.reduce_sum(outside(lambda x: tf.range(tf.cast(x, tf.int32)), x * 2.0))

        with pytest.raises(tf.errors.InvalidArgumentError, match=r"tf\.ensure_shape"):
            run(strategy, computation, tf.constant(1.0))

    def test_next_step_is_right(self, strategy, mode):
        got = local(
            strategy, run(strategy, lambda x: outside(lambda y: y + 1.0, x), tf.constant(1.0))
        )
        assert set(got) == {2.0}


class TestDynamicShapes:
    def test_into_a_cluster(self, strategy, mode):
        """The host gets as many rows as there are."""

        def computation(x):
            rows = tf.where(x > 1.0)[:, 0]
            return outside(lambda rows: tf.size(rows) * 100 + tf.cast(rows[-1], tf.int32), rows) + 1

        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                [2.0 * (n < 2 + context.replica_id_in_sync_group) for n in range(10)]
            )
        )

        @tf.function
        def step(x):
            return strategy.run(computation, args=(x,))

        expected = [(2 + n) * 100 + 1 + n + 1 for n in range(strategy.num_replicas_in_sync)]
        assert local(strategy, step(values)) == expected

    def test_at_the_head(self, strategy, mode):
        """What the host knows before the program starts may be of any size."""

        def computation(x):
            return tf.reduce_sum(outside(lambda x: tf.range(x), x)) * 2

        for count in (3, 5):
            got = local(strategy, run(strategy, computation, tf.constant(count)))
            assert set(got) == {count * (count - 1)}
