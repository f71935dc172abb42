"""Random numbers on `/device:TPU:i` outside of compiled programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

CORE = "/device:TPU:0"
PHILOX, THREEFRY = 1, 2

Draw = Callable[[tf.random.Generator], tf.Tensor]


def _draw_twice(draw: Draw, algorithm: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    with tf.device(device):
        generator = tf.random.Generator.from_seed(7, alg=algorithm)
        numbers = [draw(generator), draw(generator)]
    return np.stack([value.numpy() for value in numbers]), generator.state.numpy()


class TestThreefry:
    """An algorithm that the CPU's kernels do not have."""

    @pytest.mark.parametrize(
        "draw",
        [
            lambda generator: generator.uniform([5]),
            lambda generator: generator.normal([5]),
            lambda generator: generator.truncated_normal([5]),
            lambda generator: generator.uniform([5], 0, 100, tf.int32),
            lambda generator: generator.uniform_full_int([5], tf.uint64),
        ],
        ids=["uniform", "normal", "truncated", "integers", "all integers"],
    )
    def test_numbers_and_state(self, draw: Draw) -> None:
        found, state = _draw_twice(draw, THREEFRY, CORE)
        expected, expected_state = _draw_twice(
            tf.function(draw, jit_compile=True, reduce_retracing=True), THREEFRY, "/CPU:0"
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        np.testing.assert_array_equal(state, expected_state)
        assert not np.array_equal(found[0], found[1])

    def test_skip(self) -> None:
        with tf.device(CORE):
            generator = tf.random.Generator.from_seed(7, alg=THREEFRY)
            before = generator.state.numpy()
            tf.raw_ops.RngSkip(
                resource=generator.state.handle,
                algorithm=tf.constant(THREEFRY, tf.int64),
                delta=tf.constant(3, tf.int64),
            )
        # A skipped number takes 256 of the counter.
        np.testing.assert_array_equal(generator.state.numpy() - before, [3 * 256, 0])

    def test_in_a_session(self) -> None:
        def numbers() -> tf.Tensor:
            return tf.raw_ops.StatelessRandomUniformV2(
                shape=[4],
                key=tf.constant([5], tf.uint64),
                counter=tf.constant([1], tf.uint64),
                alg=THREEFRY,
            )

        with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device(CORE):
            found = session.run(numbers())
        with tf.device("/CPU:0"):
            expected = tf.function(numbers, jit_compile=True)().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6)


class TestGeneratorOps:
    @pytest.mark.parametrize("op", ["StatefulUniform", "StatefulStandardNormalV2"])
    def test_numbers_of_another_type_than_the_state(self, op: str) -> None:
        def draw(device: str) -> tuple[np.ndarray, np.ndarray]:
            with tf.device(device):
                state = tf.Variable([1, 2, 3], dtype=tf.int64)
                numbers = getattr(tf.raw_ops, op)(
                    resource=state.handle,
                    algorithm=tf.constant(PHILOX, tf.int64),
                    shape=[4],
                    dtype=tf.float32,
                )
            return numbers.numpy(), state.numpy()

        for found, expected in zip(draw(CORE), draw("/CPU:0"), strict=True):
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("algorithm", [PHILOX, THREEFRY, 123])
    @pytest.mark.parametrize("state", [np.zeros(3, np.uint32), np.zeros([2, 3], np.int64)])
    def test_a_bad_state_is_an_error(self, state: np.ndarray, algorithm: int) -> None:
        with tf.device(CORE):
            variable = tf.Variable(state)
            for op in ("StatefulUniform", "StatefulTruncatedNormal"):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    getattr(tf.raw_ops, op)(
                        resource=variable.handle,
                        algorithm=tf.constant(algorithm, tf.int64),
                        shape=[4],
                        dtype=tf.float32,
                    )
            with pytest.raises(tf.errors.InvalidArgumentError):
                tf.raw_ops.RngReadAndSkip(
                    resource=variable.handle, alg=algorithm, delta=tf.constant(1, tf.uint64)
                )
            np.testing.assert_array_equal(variable, state)

    def test_an_unknown_algorithm_is_an_error_and_the_state_stays(self) -> None:
        with tf.device(CORE):
            state = tf.Variable([1, 2, 3], dtype=tf.int64)
            with pytest.raises(tf.errors.InvalidArgumentError, match="algorithm id: 123"):
                tf.raw_ops.RngReadAndSkip(
                    resource=state.handle, alg=123, delta=tf.constant(1, tf.uint64)
                )
            state.assign_add([1, 1, 1])
        np.testing.assert_array_equal(state, [2, 3, 4])
