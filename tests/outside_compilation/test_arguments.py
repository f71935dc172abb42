"""What goes into a cluster and what comes out: arguments, keywords, structures, dtypes."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

v1 = tf.compat.v1
Point = collections.namedtuple("Point", ["x", "y"])


def vector(replica: int) -> np.ndarray:
    return np.arange(3, dtype=np.float32) + 10 * replica


def test_positional_arguments(way):
    def computation(outside, x, y):
        return outside(lambda a, b: a - 2 * b, x * 2, y + 1) + 1

    way.check(computation, vector, lambda replica: np.float32(replica))


def test_keyword_arguments(way):
    def host(a, *, b, c=5.0):
        return a - 2 * b + c

    def computation(outside, x):
        return outside(host, x * 2, b=x + 1) + outside(host, a=x, b=x, c=x * 3)

    way.check(computation, vector)


def test_python_values_are_handed_on_as_they_are(way):
    seen = []

    def host(x, text, number, nothing, *, flag):
        seen.append((text, number, nothing, flag))
        return x * number

    def computation(outside, x):
        return outside(host, x + 1, "text", 3, None, flag=True)

    way.check(computation, vector)
    assert set(seen) == {("text", 3, None, True)}


def test_nested_structures(way):
    def host(tree, *, point):
        return {
            "sum": tree["a"] + tree["b"][0],
            "more": [point.x, (point.y, tree["b"][1])],
            "point": Point(tree["a"], point.y * 2),
        }

    def computation(outside, x):
        tree = {"a": x, "b": [x * 2, x * 3]}
        out = outside(host, tree, point=Point(x + 1, x + 2))
        assert isinstance(out["point"], Point)
        assert isinstance(out["more"][1], tuple)
        more = out["more"]
        return tf.stack([out["sum"], more[0], more[1][0], more[1][1], *out["point"]]) * 2

    way.check(computation, vector)


def test_no_inputs(way):
    def computation(outside, x):
        return x + outside(lambda: tf.strings.to_number("2.5"))

    way.check(computation, vector)


def test_no_outputs(way, capfd):
    def computation(outside, x):
        assert outside(lambda y: tf.print("no outputs:", y) and None, tf.reduce_sum(x)) is None
        return x

    way.run(computation, vector)
    expected = [f"no outputs: {3 + 30 * replica}" for replica in range(way.cores)]
    lines = [line for line in capfd.readouterr().err.splitlines() if "no outputs" in line]
    assert sorted(lines) == sorted(expected)


def test_neither_inputs_nor_outputs(way):
    calls = []

    def host():
        tf.py_function(lambda: calls.append(1), [], [])

    def computation(outside, x):
        outside(host)
        return x

    way.check(computation, vector)
    # Plain TensorFlow calls once for each replica, too.
    assert len(calls) == 2 * way.cores


def test_output_that_is_an_input(way):
    way.check(lambda outside, x: outside(lambda y: y, x * 2) + 1, vector)


def test_output_twice(way):
    def computation(outside, x):
        a, b = outside(lambda y: [y + 1] * 2, x * 2)
        return a * b

    way.check(computation, vector)


def test_captured_tensors(way):
    def computation(outside, x):
        y = x * 2
        return outside(lambda: tf.reduce_sum(y) + x) - 1

    way.check(computation, vector)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_dtypes(strategy, mode, dtype):
    values = tf.cast([0, 1, 1, 0, 3], dtype)

    @tf.function
    def step(x):
        def replica(x):
            y = v1.tpu.outside_compilation(lambda x: tf.reverse(x, [0]), tf.concat([x, x], axis=0))
            return tf.concat([y, x], axis=0)

        return strategy.run(replica, args=(x,))

    expected = tf.concat([values[::-1], values[::-1], values], axis=0)
    for got in strategy.experimental_local_results(step(values)):
        assert got.dtype == values.dtype
        assert got.numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1, 1, 1), (7, 5, 3)])
def test_shapes(way, shape):
    def value(replica):
        size = int(np.prod(shape))
        return np.arange(size, dtype=np.float32).reshape(shape) + replica

    def computation(outside, x):
        y = outside(lambda x: tf.ensure_shape(x * 2, shape), x + 1)
        return y, tf.shape(y)

    way.check(computation, value)


def test_large_tensors_are_whole(way):
    def value(replica):
        return np.random.default_rng(replica).integers(0, 1 << 30, 1 << 18, dtype=np.int64)

    way.check(lambda outside, x: outside(tf.bitwise.invert, x + 1) - 1, value)


class TestOutsideOfAComputation:
    """Where nothing is replicated the computation's result comes back."""

    def host(self, x, *, prefix):
        output = tf.strings.format(prefix + "{}", x)
        return tf.strings.to_number(output)

    @pytest.mark.parametrize(
        "outside", [v1.tpu.outside_compilation, tf_tpu_ext.tpu.outside_compilation]
    )
    def test_eagerly(self, outside):
        assert float(outside(self.host, tf.constant(1), prefix="1")) == 11.0

    @pytest.mark.parametrize(
        "outside", [v1.tpu.outside_compilation, tf_tpu_ext.tpu.outside_compilation]
    )
    def test_in_a_function(self, outside):
        assert float(tf.function(lambda: outside(self.host, tf.constant(1), prefix="1"))()) == 11.0

    @pytest.mark.parametrize(
        "outside", [v1.tpu.outside_compilation, tf_tpu_ext.tpu.outside_compilation]
    )
    def test_in_a_session(self, outside):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            assert session.run(outside(self.host, tf.constant(1), prefix="1")) == 11.0
            for op in graph.get_operations():
                assert "_xla_outside_compilation" not in op.node_def.attr

    def test_in_a_strategy_of_other_devices(self):
        strategy = tf.distribute.MirroredStrategy(["CPU:0"])

        @tf.function
        def step():
            return strategy.run(
                lambda: v1.tpu.outside_compilation(self.host, tf.constant(1), prefix="1")
            )

        assert float(step()) == 11.0


def test_string_ops_of_the_documentation(way):
    def computation_with_string_ops(x):
        output = tf.strings.format("1{}", x)
        return tf.strings.to_number(output)

    def computation(outside, unused):
        return outside(computation_with_string_ops, tf.constant(1)) + 0 * unused

    for result in way.run(computation, np.float32):
        assert result == 11.0
