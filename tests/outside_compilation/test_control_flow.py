"""Clusters inside of loops and branches, and control flow inside of clusters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


def scalar(replica: int) -> np.float32:
    return np.float32(replica + 1)


def triple(x):
    """Triples a number by way of its text, which no core could do."""
    return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(x * 3)), x.shape)


def repeat(times, function, x):
    return tf.while_loop(
        lambda number, _: number < times, lambda number, x: (number + 1, function(x)), [0, x]
    )[1]


def choose(x, function, other):
    return tf.cond(tf.equal(tf.cast(x, tf.int32) % 2, 0), lambda: function(x), lambda: other(x))


def test_while(way):
    way.check(lambda outside, x: repeat(4, lambda y: outside(triple, y) - x, x), scalar)


def test_while_whose_times_differ_between_replicas(way):
    def computation(outside, x):
        return repeat(tf.cast(x, tf.int32), lambda y: outside(triple, y) - 1, x)

    way.check(computation, lambda replica: np.float32(replica % 5))


def test_while_condition(way):
    def computation(outside, x):
        def condition(y):
            return outside(lambda y: tf.strings.length(tf.strings.as_string(y)) < 12, y)

        return tf.while_loop(condition, lambda y: [y * 2], [x])[0]

    way.check(computation, scalar)


def test_while_of_no_iterations(way):
    way.check(lambda outside, x: repeat(0, lambda y: outside(triple, y), x) + 1, scalar)


def test_cond(way):
    def computation(outside, x):
        return choose(x, lambda y: outside(triple, y), lambda y: y - 1) + 1

    way.check(computation, scalar)


def test_cond_with_clusters_in_both_branches(way):
    def computation(outside, x):
        return choose(
            x, lambda y: outside(triple, y), lambda y: outside(lambda y: y - triple(y), y)
        )

    way.check(computation, scalar)


def test_cond_whose_predicate_is_of_a_cluster(way):
    def computation(outside, x):
        even = outside(
            lambda x: tf.strings.regex_full_match(tf.strings.as_string(x), "[2468].*"), x
        )
        return tf.cond(even, lambda: outside(triple, x), lambda: x)

    way.check(computation, scalar)


@pytest.mark.parametrize("kinds", ["www", "ccc", "wcw", "cwc"])
def test_depth_of_three(way, kinds):
    def level(outside, rest, x):
        if not rest:
            return outside(triple, x) - x

        def inner(y):
            return level(outside, rest[1:], y + 1)

        if rest[0] == "w":
            return repeat(2, inner, x)
        return choose(x, inner, lambda y: outside(lambda z: -triple(z), y))

    way.check(lambda outside, x: level(outside, kinds, x), scalar)


def test_clusters_before_inside_and_after_a_loop(way):
    def computation(outside, x):
        x = outside(triple, x + 1)
        y = repeat(3, lambda y: outside(lambda a, b: triple(a) - b, y, x), x)
        return outside(triple, y) + x

    way.check(computation, scalar)


def test_loops_one_after_the_other(way):
    def computation(outside, x):
        for _ in range(3):
            x = repeat(2, lambda y: outside(triple, y) - 1, x)
        return x

    way.check(computation, scalar)


class TestHostControlFlow:
    """Loops and branches that run on the host, as a part of a cluster."""

    def test_while(self, way):
        def host(x):
            return repeat(tf.cast(x, tf.int32), triple, x)

        way.check(
            lambda outside, x: outside(host, x + 1) - 1, lambda replica: np.float32(replica % 3)
        )

    def test_cond(self, way):
        def host(x):
            return choose(x, triple, lambda y: y - 1)

        way.check(lambda outside, x: outside(host, x + 1) - 1, scalar)

    def test_nested(self, way):
        def host(x):
            return repeat(2, lambda y: choose(y, triple, lambda z: repeat(2, triple, z)), x)

        way.check(lambda outside, x: outside(host, x + 1) - 1, scalar)

    def test_in_a_loop_of_the_program(self, way):
        def host(x):
            return repeat(2, lambda y: choose(y, lambda z: z / 2, lambda z: z + 1), x)

        way.check(lambda outside, x: repeat(3, lambda y: outside(host, y) + 1, x), scalar)


def test_python_loops_by_autograph(strategy, mode):
    @tf.function
    def step(x):
        def replica(x):
            total = x
            for number in tf.range(4):
                if number % 2 == 0:
                    total = v1.tpu.outside_compilation(triple, total)
                else:
                    total -= 1.0
            while total > 10.0:
                total = v1.tpu.outside_compilation(lambda y: triple(y) / 9, total)
            return total

        return strategy.run(replica, args=(x,))

    def plain(x):
        for number in range(4):
            x = 3 * x if number % 2 == 0 else x - 1
        while x > 10:
            x /= 3
        return x

    for value in (1.0, 2.5, -3.0):
        for got in strategy.experimental_local_results(step(tf.constant(value))):
            assert float(got) == pytest.approx(plain(value), rel=1e-5)


def test_host_loop_around_the_program(strategy, mode):
    @tf.function
    def steps(x):
        for _ in tf.range(5):
            x = strategy.run(lambda x: v1.tpu.outside_compilation(triple, x) - 1, args=(x,))
            x = strategy.reduce("MEAN", x, axis=None)
        return x

    expected = 1.0
    for _ in range(5):
        expected = 3 * expected - 1
    assert float(steps(tf.constant(1.0))) == pytest.approx(expected)


@pytest.mark.parametrize("times", [1, 100])
def test_many_iterations(way, times):
    def computation(outside, x):
        return repeat(times, lambda y: outside(lambda y: y + 1, y), x)

    for replica, result in enumerate(way.run(computation, scalar)):
        assert result == replica + 1 + times


def test_branch_with_a_python_function_before_another_cluster_of_a_loop(way):
    """In the host graph, nothing of a loop's body depends on such a branch."""

    def log(x):
        return tf.ensure_shape(tf.numpy_function(lambda x: x + np.float32(1), [x], tf.float32), [])

    def computation(outside, x):
        def body(number, x):
            x = tf.cond(x > 3.0, lambda: outside(log, x), lambda: outside(log, x * 2.0))
            return number + 1, outside(lambda x: x + 0.5, x)

        return tf.while_loop(lambda number, _: number < 3, body, (0, x))[1]

    way.check(computation, scalar)
