"""Ops that only the host has: strings, printing, Python functions, summaries, and by themselves."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

v1 = tf.compat.v1


def scalar(replica: int) -> np.float32:
    return np.float32(replica + 1)


def vector(replica: int) -> np.ndarray:
    return np.arange(4, dtype=np.float32) + replica


class TestStrings:
    def test_join_split_and_parse(self, way):
        def host(x):
            text = tf.strings.join([tf.strings.as_string(x, precision=2), "00"], separator="")
            parts = tf.strings.split(text, ".").flat_values
            return tf.ensure_shape(tf.strings.to_number(parts), [8])

        way.check(lambda outside, x: outside(host, x * 1.5) + 1, vector)

    def test_hash(self, way):
        def host(x):
            return tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 1000)

        way.check(lambda outside, x: outside(host, x + 1) * 2, vector)

    def test_lookup_table(self, strategy, mode):
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["1", "2", "3"], [10.0, 20.0, 30.0]), -1.0
        )

        @tf.function
        def step(x):
            def replica(x):
                def host(x):
                    return tf.ensure_shape(table.lookup(tf.strings.as_string(x)), [3])

                return v1.tpu.outside_compilation(host, x + 1) * 2

            return strategy.run(replica, args=(x,))

        for got in strategy.experimental_local_results(step(tf.constant([0, 1, 5]))):
            assert got.numpy().tolist() == [20.0, 40.0, -2.0]


class TestPythonFunctions:
    def test_py_function(self, way):
        def host(x):
            y = tf.py_function(lambda x: tf.constant(np.sort(x.numpy())[::-1].copy()), [x], x.dtype)
            return tf.ensure_shape(y, x.shape)

        way.check(lambda outside, x: outside(host, x * 2) + 1, vector)

    def test_numpy_function(self, way):
        def host(x):
            low, high = tf.numpy_function(
                lambda x: (x.min(), x.max()), [x], (tf.float32, tf.float32), stateful=False
            )
            return tf.ensure_shape(low, []), tf.ensure_shape(high, [])

        def computation(outside, x):
            low, high = outside(host, x * 2)
            return high - low, low

        way.check(computation, vector)

    def test_py_func(self, way):
        def host(x):
            return tf.ensure_shape(v1.py_func(lambda x: x[::2].sum(), [x], x.dtype), [])

        way.check(lambda outside, x: outside(host, x + 1) * 2, vector)

    def test_in_a_loop(self, way):
        calls = []

        def python(number, x):
            calls.append(int(number))
            return x + number.numpy()

        def body(outside):
            def run(number, x):
                def host(number, x):
                    y = tf.py_function(python, [number, x], tf.int32)
                    return tf.ensure_shape(y, [])

                return number + 1, outside(host, number, x)

            return run

        def computation(outside, x):
            return tf.while_loop(lambda number, _: number < 5, body(outside), [0, x])[1]

        results = way.run(computation, lambda replica: np.int32(replica))
        assert [int(x) for x in results] == [10 + replica for replica in range(way.cores)]
        assert sorted(calls) == sorted(list(range(5)) * way.cores)


@pytest.mark.parametrize("nested", ["while", "cond"])
def test_two_python_functions_in_one_block(strategy, mode, nested):
    @tf.function
    def step(x):
        def replica(x):
            def host(x):
                y = tf.py_function(lambda x: x + 1.0, [x], tf.float32)
                return tf.ensure_shape(y, [])

            def twice(x):
                outside = v1.tpu.outside_compilation
                return outside(host, x) + outside(host, x * 2.0)

            if nested == "cond":
                return tf.cond(x > 0.0, lambda: twice(x), lambda: x)
            return tf.while_loop(lambda x: x < 9.0, lambda x: [twice(x)], [x])[0]

        return strategy.run(replica, args=(x,))

    expected = {"cond": 5.0, "while": 17.0}[nested]
    for got in strategy.experimental_local_results(step(tf.constant(1.0))):
        assert float(got) == expected


def test_print(way, capfd):
    def computation(outside, x):
        outside(lambda y: tf.print("printed", y, {"twice": y * 2}), x + 1)
        return x

    way.run(computation, scalar)
    lines = [line for line in capfd.readouterr().err.splitlines() if "printed" in line]
    expected = [
        f"printed {replica + 2} {{'twice': {2 * replica + 4}}}" for replica in range(way.cores)
    ]
    assert sorted(lines) == sorted(expected)


def test_print_in_a_branch_that_is_not_taken(way, capfd):
    def computation(outside, x):
        def taken():
            # A v1 graph runs only what its results depend on.
            printed = outside(lambda y: tf.print("taken", y), x)
            with tf.control_dependencies([] if printed is None else [printed]):
                return tf.identity(x)

        return tf.cond(x > 1.5, taken, lambda: -x)

    way.run(computation, scalar)
    lines = [line for line in capfd.readouterr().err.splitlines() if "taken" in line]
    assert sorted(lines) == sorted(f"taken {replica + 1}" for replica in range(1, way.cores))


def events(folder: pathlib.Path) -> list[tuple[str, int, float]]:
    found = []
    for path in sorted(folder.rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.HasField("tensor"):
                    found.append((value.tag, event.step, float(tf.make_ndarray(value.tensor))))
    return found


class TestSummaries:
    """A strategy lets one replica alone write summaries."""

    def test_scalar(self, strategy, mode, tmp_path):
        writer = tf.summary.create_file_writer(str(tmp_path))

        @tf.function
        def step(number, x):
            def replica(number, x):
                def host(number, x):
                    with writer.as_default():
                        tf.summary.write("loss", x, step=tf.cast(number, tf.int64))

                v1.tpu.outside_compilation(host, number, x * 2)
                return x * 3

            return strategy.run(replica, args=(number, x))

        for number in range(3):
            step(tf.constant(number), tf.constant(float(number)))
        writer.flush()
        found = [event for event in events(tmp_path) if event[0] == "loss"]
        assert found == [("loss", n, 2.0 * n) for n in range(3)]

    def test_in_a_loop(self, strategy, mode, tmp_path):
        writer = tf.summary.create_file_writer(str(tmp_path))

        @tf.function
        def step():
            def replica():
                def host(number, x):
                    with writer.as_default(), tf.summary.record_if(number % 2 == 0):
                        tf.summary.write("x", x, step=tf.cast(number, tf.int64))

                x = tf.constant(1.0)
                for number in tf.range(5):
                    x *= 2.0
                    v1.tpu.outside_compilation(host, number, x)
                return x

            return strategy.run(replica)

        step()
        writer.flush()
        found = [event for event in events(tmp_path) if event[0] == "x"]
        assert found == [("x", n, 2.0 ** (n + 1)) for n in (0, 2, 4)]


class TestAutomatic:
    """Under soft placement the ops that the cores can't do move to the host by themselves."""

    pytestmark = pytest.mark.usefixtures("soft_placement")

    def test_strings(self, strategy, mode):
        @tf.function
        def step(x):
            def replica(x):
                y = tf.strings.to_number(tf.strings.as_string(x * 2))
                return tf.ensure_shape(y, [3]) + 1

            return strategy.run(replica, args=(x,))

        for got in strategy.experimental_local_results(step(tf.constant([1.0, 2.5, -3.0]))):
            np.testing.assert_allclose(got, [3.0, 6.0, -5.0])

    def test_print_in_a_loop(self, strategy, mode, capfd):
        @tf.function
        def step(x):
            def replica(x):
                for number in tf.range(3):
                    x *= 2.0
                    tf.print("looped", number, x)
                return x

            return strategy.run(replica, args=(x,))

        for got in strategy.experimental_local_results(step(tf.constant(1.0))):
            assert float(got) == 8.0
        lines = [line for line in capfd.readouterr().err.splitlines() if "looped" in line]
        expected = ["looped 0 2", "looped 1 4", "looped 2 8"] * strategy.num_replicas_in_sync
        assert sorted(lines) == sorted(expected)

    def test_beside_an_explicit_cluster(self, strategy, mode):
        @tf.function
        def step(x):
            def replica(x):
                text = v1.tpu.outside_compilation(lambda y: tf.strings.as_string(y), x * 2)
                return tf.strings.length(text) + 1

            return strategy.run(replica, args=(x,))

        for got in strategy.experimental_local_results(step(tf.constant(10))):
            assert int(got) == 3

    def test_summary(self, strategy, mode, tmp_path):
        writer = tf.summary.create_file_writer(str(tmp_path))

        @tf.function
        def step(x):
            def replica(x):
                x = x * 2
                with writer.as_default():
                    tf.summary.write("x", x, step=7)
                return x + 1

            return strategy.run(replica, args=(x,))

        for got in strategy.experimental_local_results(step(tf.constant(1.5))):
            assert float(got) == 4.0
        writer.flush()
        found = [event for event in events(tmp_path) if event[0] == "x"]
        assert found == [("x", 7, 3.0)]


class TestReplicaId:
    def test_in_clusters(self, way):
        def computation(outside, x):
            x = outside(lambda x: x + tf.cast(tf_tpu_ext.tpu.replica_id(), tf.float32), x * 2)
            return outside(lambda x: x + 10 * tf.cast(tf_tpu_ext.tpu.replica_id(), tf.float32), x)

        results = way.run(computation, lambda _: np.float32(1))
        assert [float(x) for x in results] == [2.0 + 11 * n for n in range(way.cores)]

    def test_in_loops_and_branches(self, way):
        def computation(outside, x):
            def host(x):
                return x + tf.cast(tf_tpu_ext.tpu.replica_id(), tf.float32)

            def body(number, x):
                return number + 1, tf.cond(x >= 0.0, lambda: outside(host, x), lambda: x)

            return tf.while_loop(lambda number, _: number < 3, body, [0, x])[1]

        results = way.run(computation, lambda _: np.float32(0))
        assert [float(x) for x in results] == [3.0 * n for n in range(way.cores)]

    def test_on_the_cores(self, way):
        results = way.run(lambda outside, x: x + tf_tpu_ext.tpu.replica_id(), lambda _: np.int32(5))
        assert [int(x) for x in results] == [5 + n for n in range(way.cores)]

    def test_as_an_argument_of_a_python_function(self, way):
        seen = []

        def computation(outside, x):
            def host(x):
                def python(n, x):
                    seen.append((int(n), float(x)))

                tf.py_function(python, [tf_tpu_ext.tpu.replica_id(), x], [])

            outside(host, x * 2)
            return x

        way.run(computation, scalar)
        assert sorted(seen) == [(n, 2.0 * (n + 1)) for n in range(way.cores)]

    def test_within_a_running_python_function(self, strategy, mode):
        @tf.function
        def step():
            def replica():
                def host():
                    tf.py_function(lambda: tf_tpu_ext.tpu.replica_id(), [], tf.int32)

                v1.tpu.outside_compilation(host)
                return tf.constant(0)

            return strategy.run(replica)

        with pytest.raises(tf.errors.OpError, match=r"Pass the number as an argument"):
            step()

    def test_outside_of_a_computation(self):
        assert int(tf_tpu_ext.tpu.replica_id()) == 0
        assert int(tf.function(tf_tpu_ext.tpu.replica_id)()) == 0
        with tf.Graph().as_default(), v1.Session() as session:
            assert session.run(tf_tpu_ext.tpu.replica_id()) == 0
