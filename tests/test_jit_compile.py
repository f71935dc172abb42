"""Outside compilation in functions that XLA compiles for the CPU, with nothing of TPUs in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

outside_compilation = tf.compat.v1.tpu.outside_compilation


def compiled(function: Any) -> Any:
    return tf.function(function, jit_compile=True)


def to_string_and_back(x: Any) -> Any:
    """XLA has no strings."""
    number = tf.strings.to_number(tf.strings.join(["1", tf.strings.as_string(x, precision=2)]))
    number.set_shape([])
    return number


@pytest.mark.parametrize("call", [outside_compilation, tf_tpu_ext.tpu.outside_compilation])
def test_an_op_that_xla_does_not_have(call):
    @compiled
    def function(x):
        return tf.square(call(to_string_and_back, x + 1.0))

    assert function(tf.constant(1.5)).numpy() == 12.5**2
    assert function(tf.constant(2.0)).numpy() == 13.0**2
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"AsString|StringJoin|StringToNumber"):
        compiled(lambda x: to_string_and_back(x))(tf.constant(1.5))


def test_effects_happen_once_a_call_and_in_order():
    log: list[float] = []

    @compiled
    def function(x):
        for i in range(3):
            outside_compilation(tf.py_function, lambda v: log.append(float(v)), [x + float(i)], [])
        return x * 2.0

    for start in (0.0, 10.0):
        assert function(tf.constant(start)).numpy() == start * 2
    assert log == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]


def test_in_loops_and_branches():
    log: list[int] = []

    def note(i):
        log.append(int(i))
        return np.float32(int(i) ** 2)

    @compiled
    def function(n):
        total = tf.constant(0.0)
        for i in tf.range(n):
            if i % 2 == 0:
                value = outside_compilation(
                    lambda i=i: tf.ensure_shape(tf.numpy_function(note, [i], tf.float32), [])
                )
                total += value
        return total

    assert function(tf.constant(7)).numpy() == 0 + 4 + 16 + 36
    assert log == [0, 2, 4, 6]


def test_variables_of_both_sides():
    device = tf.Variable([1.0, 2.0])
    host = tf.Variable(5.0)

    @compiled
    def function(x):
        device.assign_add(tf.fill([2], outside_compilation(lambda v: host * v, x)))
        return tf.reduce_sum(device)

    assert function(tf.constant(2.0)).numpy() == 23.0
    np.testing.assert_array_equal(device.numpy(), [11.0, 12.0])
    host.assign(0.5)
    assert function(tf.constant(2.0)).numpy() == 25.0
    np.testing.assert_array_equal(device.numpy(), [12.0, 13.0])


@pytest.mark.parametrize("outside", [True, False])
def test_gradients(outside):
    def cube_of_sum(a, b):
        y = outside_compilation(lambda u, v: tf.sin(u) * v, a, b) if outside else tf.sin(a) * b
        return y**3

    @compiled
    def gradients(a, b):
        with tf.GradientTape() as second:
            second.watch([a, b])
            with tf.GradientTape() as first:
                first.watch([a, b])
                y = cube_of_sum(a, b)
            da, db = first.gradient(y, [a, b])
        return y, da, db, second.gradient(da, a)

    a, b = 0.7, 1.3
    s, c = np.sin(a), np.cos(a)
    expected = [
        (s * b) ** 3,
        3 * (s * b) ** 2 * c * b,
        3 * (s * b) ** 2 * s,
        6 * s * b * (c * b) ** 2 - 3 * (s * b) ** 2 * s * b,
    ]
    np.testing.assert_allclose(
        [r.numpy() for r in gradients(tf.constant(a), tf.constant(b))], expected, rtol=1e-5
    )


def test_gradient_of_a_compiled_function():
    @compiled
    def function(x):
        return outside_compilation(tf.sin, x) * x

    x = tf.constant(0.4)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    np.testing.assert_allclose(y.numpy(), np.sin(0.4) * 0.4, rtol=1e-6)
    expected = np.cos(0.4) * 0.4 + np.sin(0.4)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected, rtol=1e-6)


def test_host_error_has_its_name_and_the_next_call_works():
    @compiled
    def function(x):
        def check(value):
            with tf.control_dependencies([tf.debugging.Assert(value > 0.0, ["not positive"])]):
                return tf.identity(value)

        return outside_compilation(check, x) + 1.0

    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        function(tf.constant(-1.0))
    assert function(tf.constant(1.0)).numpy() == 2.0


def test_several_shapes():
    @compiled
    def function(x):
        return tf.reduce_sum(outside_compilation(lambda v: v * 2.0, x))

    for size in (1, 5, 3):
        assert function(tf.ones([size])).numpy() == 2.0 * size


def test_from_an_outer_function_and_an_inner_one():
    def on_host(x):
        return outside_compilation(to_string_and_back, x)

    inner = tf.function(on_host)
    # An eager call first: its trace must not be the one that is compiled.
    assert inner(tf.constant(2.0)).numpy() == 12.0
    middle = compiled(lambda x: inner(x) + on_host(x + 1.0))
    outer = tf.function(lambda x: middle(x) * 2.0)
    assert outer(tf.constant(2.0)).numpy() == 2.0 * (12.0 + 13.0)


def test_outside_of_compiled_code_it_just_calls():
    assert outside_compilation(lambda a, b: a + b, 1, b=2) == 3
    plain = tf.function(lambda x: outside_compilation(to_string_and_back, x))
    assert plain(tf.constant(3.0)).numpy() == 13.0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert session.run(outside_compilation(to_string_and_back, tf.constant(3.0))) == 13.0


def test_other_compiled_functions_take_the_stock_way():
    function = compiled(lambda x: tf.reduce_sum(x * x))
    before = tf_tpu_ext.compilation_stats()
    assert function(tf.constant([1.0, 2.0])).numpy() == 5.0
    assert tf_tpu_ext.compilation_stats() == before
