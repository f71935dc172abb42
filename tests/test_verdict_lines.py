"""Verdicts name the op and the user's Python line, however the program came to a core."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from verdicts import compiled_only, needs_libtpu, own_cache  # noqa: F401

import tf_tpu_ext
from tf_tpu_ext.verdict import Answer, _table

pytestmark = needs_libtpu


def here(mark: str) -> str:
    """This file's line that ends with a comment of that text, as verdicts tell lines."""
    lines = pathlib.Path(__file__).read_text().splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}")]
    return f"{__file__}:{number}"


@tf.function
def attend(x):
    scores = tf.matmul(x, x, transpose_b=True, name="scores")  # line: scores
    return tf.nn.softmax(scores) * tf.sort(scores)  # line: sort


@pytest.mark.usefixtures("compiled_only")
def test_out_of_memory_in_a_function_that_a_strategy_runs(make_strategy):
    with tf_tpu_ext.compile_for("v3-8") as checked:
        strategy = make_strategy(8)
        with strategy.scope():
            variable = tf.Variable(tf.ones([64, 64]))

        @tf.function
        def step():
            def replica():
                x = tf.matmul(tf.random.stateless_normal([60000, 64], [1, 2]), variable)
                loss = tf.reduce_sum(attend(x))
                variable.assign_sub(variable * loss)
                return loss

            return strategy.run(replica)

        losses = step()
    np.testing.assert_array_equal(variable, np.ones([64, 64]))
    assert all(loss == 0 for loss in losses.values)
    [verdict] = [verdict for verdict in checked.verdicts() if "step" in verdict.program]
    assert verdict.answer is Answer.OUT_OF_MEMORY, verdict
    assert "bfloat16" in verdict.advice
    largest = {buffer.source for buffer in verdict.largest if "scores" in buffer.op}
    assert here("scores") in largest, verdict.largest
    assert all(buffer.source.startswith(__file__) for buffer in verdict.largest), verdict.largest


def test_padding_in_a_computation():
    def computation(x):
        kernel = tf.ones([3, 3, 3, 5])
        return tf.nn.conv2d(x, kernel, 1, "SAME", name="convolution")  # line: convolution

    with tf_tpu_ext.compile_for("v5e-8") as checked:
        tf_tpu_ext.tpu.rewrite(computation, [tf.ones([32, 64, 64, 3])])
    [verdict] = checked.verdicts()
    [made, argument] = verdict.padded
    # The last size takes tiles of 128: 5 of it are used, 3 of the argument's.
    assert made.shape == "f32[32,64,64,5]"
    assert made.op == "convolution"
    assert argument.op == "argument 0 of convolution"
    assert {made.source, argument.source} == {here("convolution")}
    assert made.padding == made.bytes - 4 * 32 * 64 * 64 * 5
    assert verdict.memory.padding == made.padding + argument.padding
    assert verdict.cost.padding_bytes >= verdict.memory.padding
    assert verdict.cost.padding_seconds == pytest.approx(verdict.cost.padding_bytes / 819e9)
    text = _table.to_text([verdict])
    assert f"f32[32,64,64,5], convolution at {here('convolution')}" in text
    assert "padding in all: 4.0 MiB of arguments and results" in text


def test_keras_fit(make_strategy):
    with tf_tpu_ext.compile_for("v3-8") as checked:
        with make_strategy(8).scope():
            import keras

            model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(3, name="top")])
            model.compile("sgd", "mse")
        x = np.ones([16, 16], np.float32)
        model.fit(x, x[:, :3], batch_size=16, verbose=0)  # line: fit
    verdict = max(checked.verdicts(), key=lambda verdict: verdict.memory.arguments)
    assert verdict.ok
    named = {buffer.source for buffer in verdict.largest if "top" in buffer.op}
    assert here("fit") in named, verdict.largest


def test_a_function_of_one_core():
    with tf_tpu_ext.compile_for("v5e-8") as checked, tf.device("TPU:0"):
        tf.function(attend.python_function, jit_compile=True)(tf.ones([512, 512]))
        tf.function(lambda x: attend(x) + 1.0, jit_compile=True)(tf.ones([512, 512]))  # line: jit
    for verdict in checked.verdicts():
        sources = {buffer.source for buffer in verdict.largest}
        assert sources & {here("scores"), here("sort")}, verdict.largest
        assert sources <= {here("scores"), here("sort"), here("jit")}, verdict.largest


def test_a_graph_that_a_session_runs():
    with tf_tpu_ext.compile_for("v3-8") as checked, tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [256, 256])
        [y] = tf_tpu_ext.tpu.rewrite(lambda x: tf.matmul(x, x, name="square"), [x])  # line: graph
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
            session.run(y, {x: np.ones([256, 256])})
    [verdict] = checked.verdicts()
    assert here("graph") in {buffer.source for buffer in verdict.largest}, verdict.largest


def test_an_error_of_the_compiler():
    def computation(x):
        return tf.signal.fft(tf.cast(x, tf.complex128))  # line: fft

    with tf_tpu_ext.compile_for("v5e-8") as checked:
        tf_tpu_ext.tpu.rewrite(computation, [tf.ones([8])])
    [verdict] = checked.verdicts()
    assert verdict.answer is Answer.REFUSED, verdict
    assert "Unexpected operand type for FFT: c128[8]" in verdict.error
    assert verdict.op == "FFT"
    assert verdict.source == here("fft")
    assert verdict.advice.endswith("Use complex64.")
