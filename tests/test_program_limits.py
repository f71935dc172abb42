"""Compiled programs are kept up to the limits of `configure`, and come back when needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext


@pytest.fixture
def limit_programs() -> Iterator[Callable[..., None]]:
    before = tf_tpu_ext.machine()
    yield tf_tpu_ext.configure
    tf_tpu_ext.configure(
        max_programs=before.max_programs, max_program_bytes=before.max_program_bytes
    )


def _compilations() -> int:
    return tf_tpu_ext.compilation_stats().compilations


def _squares(strategy: Any) -> Callable[[int], None]:
    @tf.function(reduce_retracing=False)
    def step(x: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(tf.square, [x]), axis=None)

    def check(size: int) -> None:
        x = np.arange(size, dtype=np.float32)
        expected = strategy.num_replicas_in_sync * np.square(x)
        np.testing.assert_array_equal(step(tf.constant(x)), expected)

    return check


@pytest.mark.parametrize("replicas", [1, 2])
def test_programs_beyond_the_limit_are_compiled_again(
    make_strategy: Callable[[int], Any], limit_programs: Callable[..., None], replicas: int
) -> None:
    check = _squares(make_strategy(replicas))
    limit_programs(max_programs=3)
    before = _compilations()
    for size in [2, 3, 4, 2, 3, 4]:
        check(size)
    assert _compilations() - before == 3
    check(5)  # in the place of the program for 2
    check(3)
    check(4)
    assert _compilations() - before == 4
    check(2)
    assert _compilations() - before == 5


def test_the_size_of_programs_counts(
    make_strategy: Callable[[int], Any], limit_programs: Callable[..., None]
) -> None:
    check = _squares(make_strategy(1))
    check(7)
    size = tf_tpu_ext.compilation_stats().programs[-1].program_bytes
    assert size > 1000
    limit_programs(max_program_bytes=1)
    before = _compilations()
    for _ in range(3):
        check(8)
        check(9)
    assert _compilations() - before == 6


def test_a_program_that_is_given_up_while_it_runs(
    make_strategy: Callable[[int], Any], limit_programs: Callable[..., None]
) -> None:
    strategy = make_strategy(2)
    check = _squares(strategy)
    limit_programs(max_programs=1)
    reached, go_on = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        reached.set()
        assert go_on.wait(60)
        return x

    def waiting(x: tf.Tensor) -> tf.Tensor:
        on_host = tf.compat.v1.tpu.outside_compilation(
            lambda y: tf.numpy_function(wait, [y], tf.float32), x
        )
        on_host.set_shape(x.shape)
        return on_host + 1.0

    @tf.function
    def step() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(waiting, [tf.ones([3])]), axis=None)

    results: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: results.append(step().numpy()))
    thread.start()
    try:
        assert reached.wait(60)
        for size in range(10, 15):
            check(size)
    finally:
        go_on.set()
        thread.join()
    np.testing.assert_array_equal(results[0], np.full([3], 4.0))


def test_threads_whose_programs_drive_each_other_out(
    make_strategy: Callable[[int], Any], limit_programs: Callable[..., None]
) -> None:
    check = _squares(make_strategy(2))
    limit_programs(max_programs=1)
    errors: list[BaseException] = []

    def call(sizes: range) -> None:
        try:
            for _ in range(5):
                for size in sizes:
                    check(size)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=[range(20 + i, 22 + i)]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_compiled_functions_on_a_core(limit_programs: Callable[..., None]) -> None:
    @tf.function(jit_compile=True, reduce_retracing=False)
    def double(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    limit_programs(max_programs=2)
    before = _compilations()
    with tf.device("/device:TPU:0"):
        for _ in range(2):
            for size in [2, 3, 4]:
                np.testing.assert_array_equal(double(tf.ones([size])), np.full([size], 2.0))
    assert _compilations() - before == 6
