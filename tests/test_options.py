"""`Options`: what a program is traced with, wherever and whenever it is compiled."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import Options, tpu

# The other position of each.
OTHERS = {
    field.name: {"check": True, "matmul_precision": "tpu"}.get(field.name, False)
    for field in dataclasses.fields(Options)
}
USUAL = {**{name: not other for name, other in OTHERS.items()}, "matmul_precision": "full"}
# Large enough for TensorFlow's kernels, and small enough for replicas to be stacked.
IMAGE, KERNEL = tf.ones([8, 16, 16, 32]), tf.ones([3, 3, 32, 32])
SMALL_IMAGE, SMALL_KERNEL = tf.ones([1, 8, 8, 3]), tf.ones([3, 3, 3, 4])


@pytest.fixture(scope="module")
def all_cores(make_strategy) -> tf.distribute.TPUStrategy:
    return make_strategy(len(tf.config.list_logical_devices("TPU")))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = tf_tpu_ext.machine().options
    yield
    tf_tpu_ext.configure(options=before)


def convolution(strategy: tf.distribute.TPUStrategy) -> tf.types.experimental.PolymorphicFunction:
    """Runs a convolution on every core; each call gives a function that was not traced."""

    @tf.function
    def step(image, kernel):
        return strategy.run(lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), args=(image, kernel))

    return step


def compiled(run: Callable[[], Any]) -> tf_tpu_ext.Compilation:
    """The program that a call compiles."""
    before = {program.program_id for program in tf_tpu_ext.compilation_stats().programs}
    run()
    programs = tf_tpu_ext.compilation_stats().programs
    [program] = [program for program in programs if program.program_id not in before]
    return program


def is_stacked(step: Callable[..., Any]) -> bool:
    """Compiles the function, or its trace, and tells whether replicas run as one program."""
    return compiled(lambda: step(SMALL_IMAGE, SMALL_KERNEL)).stacked_replicas > 1


class TestContext:
    def test_holds_for_programs_that_are_compiled_later(self, all_cores):
        inside, outside = convolution(all_cores), convolution(all_cores)
        with Options(stack_replicas=False):
            traced = inside.get_concrete_function(SMALL_IMAGE, SMALL_KERNEL)
        assert not is_stacked(traced)
        assert is_stacked(outside)

    def test_does_not_hold_for_programs_that_were_traced_before(self, all_cores):
        traced = convolution(all_cores).get_concrete_function(SMALL_IMAGE, SMALL_KERNEL)
        with Options(stack_replicas=False):
            assert is_stacked(traced)

    def test_leaves_the_machine_as_it_is(self):
        before = tf_tpu_ext.machine()
        with Options(stack_replicas=False):
            assert tf_tpu_ext.machine() == before

    def test_nested_ones_leave_out_what_stays(self, all_cores):
        traces = []

        def trace() -> None:
            large, small = convolution(all_cores), convolution(all_cores)
            traces.append(
                [
                    large.get_concrete_function(IMAGE, KERNEL),
                    small.get_concrete_function(SMALL_IMAGE, SMALL_KERNEL),
                ]
            )

        with Options(stack_replicas=False):
            with Options(tensorflow_kernels=False):
                trace()
                with Options(stack_replicas=True):
                    trace()
            trace()
        found = []
        for large, small in traces:
            program = compiled(lambda large=large: large(IMAGE, KERNEL))
            found.append((program.tensorflow_kernels > 0, is_stacked(small)))
        assert found == [(False, False), (False, True), (True, False)]

    def test_may_be_entered_again(self, all_cores):
        options = Options(stack_replicas=False)
        with options:
            with options:
                pass
            assert not is_stacked(convolution(all_cores))
        assert is_stacked(convolution(all_cores))

    def test_prevails_over_configure(self, all_cores):
        tf_tpu_ext.configure(stack_replicas=False)
        with Options(stack_replicas=True):
            traced = convolution(all_cores).get_concrete_function(SMALL_IMAGE, SMALL_KERNEL)
        assert is_stacked(traced)
        assert not is_stacked(convolution(all_cores))

    def test_is_that_of_its_thread(self, all_cores):
        inside, outside = convolution(all_cores), convolution(all_cores)

        def in_thread(run: Callable[..., Any]) -> None:
            thread = threading.Thread(target=run, args=(SMALL_IMAGE, SMALL_KERNEL))
            thread.start()
            thread.join()

        with Options(stack_replicas=False):
            inside.get_concrete_function(SMALL_IMAGE, SMALL_KERNEL)
            in_thread(outside.get_concrete_function)
        assert compiled(lambda: in_thread(inside)).stacked_replicas == 1
        assert compiled(lambda: in_thread(outside)).stacked_replicas > 1

    def test_ends_with_an_error(self, all_cores):
        with pytest.raises(KeyError), Options(stack_replicas=False):
            raise KeyError
        assert is_stacked(convolution(all_cores))

    def test_of_a_graph(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
            image, kernel = tf.ones(IMAGE.shape), tf.ones(KERNEL.shape)
            with Options(tensorflow_kernels=False):
                [result] = tpu.rewrite(lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), [image, kernel])
            assert compiled(lambda: session.run(result)).tensorflow_kernels == 0

    def test_of_a_call_without_a_function(self):
        def run() -> None:
            tpu.rewrite(lambda x, y: tf.nn.conv2d(x, y, 1, "SAME") * 3.0, [IMAGE, KERNEL])

        assert compiled(run).tensorflow_kernels > 0
        with Options(tensorflow_kernels=False):
            assert compiled(run).tensorflow_kernels == 0

    @pytest.mark.parametrize("switch", OTHERS)
    def test_other_options_are_another_program(self, all_cores, switch):
        step = convolution(all_cores)
        step(IMAGE, KERNEL)
        with Options(**{switch: OTHERS[switch]}):
            other = convolution(all_cores)
            compiled(lambda: other(IMAGE, KERNEL))


class TestJitCompile:
    @staticmethod
    def convolution() -> Any:
        return tf.function(lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), jit_compile=True)

    def test_on_a_core(self):
        inside, outside = self.convolution(), self.convolution()
        with tf.device("/device:TPU:0"):
            with Options(tensorflow_kernels=False):
                inside.get_concrete_function(IMAGE, KERNEL)
            assert compiled(lambda: inside(IMAGE, KERNEL)).tensorflow_kernels == 0
            assert compiled(lambda: outside(IMAGE, KERNEL)).tensorflow_kernels > 0

    def test_with_a_cluster(self):
        def function(x, y):
            x = tpu.outside_compilation(lambda x: x + 1.0, x)
            return tf.nn.conv2d(x, y, 1, "SAME")

        inside, outside = (tf.function(function, jit_compile=True) for _ in range(2))
        with Options(tensorflow_kernels=False):
            inside.get_concrete_function(IMAGE, KERNEL)
        assert compiled(lambda: inside(IMAGE, KERNEL)).tensorflow_kernels == 0
        assert compiled(lambda: outside(IMAGE, KERNEL)).tensorflow_kernels > 0

    def test_with_a_gradient(self):
        inside = self.convolution()
        with tf.device("/device:TPU:0"), tf.GradientTape() as tape:
            tape.watch(KERNEL)
            with Options(tensorflow_kernels=False):
                result = inside(IMAGE, KERNEL)
        assert tape.gradient(result, KERNEL).shape == KERNEL.shape


class TestTracing:
    def test_clusters_stay_on_the_host(self, all_cores):
        def step() -> Any:
            return all_cores.run(lambda: tpu.outside_compilation(tf.sin, 1.0) * 2.0)

        before = len(tf_tpu_ext.transfer_stats().clusters)
        with Options(fold_host_calls=False):
            inside = tf.function(step)
            inside.get_concrete_function()
        inside()
        tf.function(step)()
        clusters = tf_tpu_ext.transfer_stats().clusters[before:]
        assert [cluster.folded for cluster in clusters] == [False, True]

    @pytest.mark.parametrize("by_default", [True, False])
    def test_cores_have_executors(self, all_cores, program_devices, by_default):
        def step():
            results = all_cores.run(lambda: tf.constant(1.0) * 2.0)
            return all_cores.reduce("MEAN", results, axis=None)

        tf_tpu_ext.configure(launch_from_host=by_default)
        for chosen in (True, False, None):
            function = tf.function(step)
            with Options(launch_from_host=chosen):
                function.get_concrete_function()
            from_host = by_default if chosen is None else chosen
            assert program_devices(function) == ({"CPU"} if from_host else {"CPU", "TPU"})


class TestSettings:
    def test_of_the_process(self):
        machine = tf_tpu_ext.configure(options=Options(stack_replicas=False, share_updates=False))
        assert not machine.options.stack_replicas
        assert tf_tpu_ext.configure(stack_replicas=True).options == Options(
            **{**USUAL, "share_updates": False}
        )

    def test_one_by_one_prevail(self):
        machine = tf_tpu_ext.configure(options=Options(stack_replicas=False), stack_replicas=True)
        assert machine.options.stack_replicas

    @pytest.mark.parametrize("wrong", [1, 0, "yes", []])
    def test_that_is_no_switch(self, wrong):
        with pytest.raises(TypeError, match=r"`stack_replicas` must be True, False, or None"):
            Options(stack_replicas=wrong)

    def test_that_does_not_exist(self):
        with pytest.raises(TypeError, match=r"configure got speed, expected.*stack_replicas"):
            tf_tpu_ext.configure(speed=True)


class TestWithoutComputing:
    def test_variables_stay_and_other_results_are_zeros(self):
        with tf.device("/device:TPU:0"):
            first, second = tf.Variable(tf.range(6.0)), tf.Variable(tf.ones([3]))
            with Options(compute=False):

                @tf.function(jit_compile=True)
                def update(x):
                    first.assign_add(first * 2.0)
                    second.assign(x * second)
                    return tf.reduce_sum(first), x + 1.0

                results = update(tf.fill([3], 5.0))
        assert first.numpy().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert second.numpy().tolist() == [1.0, 1.0, 1.0]
        assert [result.numpy().tolist() for result in results] == [0.0, [0.0, 0.0, 0.0]]

    def test_what_meets_the_host_computes(self):
        with Options(compute=False):
            [result] = tpu.rewrite(
                lambda x: tpu.outside_compilation(tf.sin, x) + 1.0, [tf.zeros([2])]
            )
        assert result.numpy().tolist() == [1.0, 1.0]
