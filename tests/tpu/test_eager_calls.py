"""Eager calls: traced once, captured objects live, nothing kept that the program has let go."""

from __future__ import annotations

import functools
import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu
from tf_tpu_ext.tpu import _eager


@pytest.fixture(autouse=True)
def system(cores):
    _eager.clear()
    return cores


class Counter:
    """A computation that counts how often it is traced."""

    def __init__(self, function=lambda x: x + 1):
        self.traces = 0
        self.function = function

    def __call__(self, *arguments):
        self.traces += 1
        return self.function(*arguments)


class TestTraces:
    def test_once_for_the_same_structure_types_and_shapes(self, cores):
        computation = Counter()
        for step in range(5):
            inputs = [[float(step + replica)] for replica in range(cores)]
            outputs = tpu.replicate(computation, inputs)
            assert [output.numpy() for [output] in outputs] == [x + 1 for [x] in inputs]
        assert computation.traces == 1

    @pytest.mark.parametrize(
        "other",
        [[np.float64(1)], [np.zeros(3, np.float32)], [[np.float32(1)]], [None]],
        ids=["type", "shape", "structure", "none"],
    )
    def test_again_for_another_signature(self, other):
        computation = Counter(lambda x: tf.constant(0))
        for inputs in ([np.float32(1)], other, [np.float32(2)], other):
            tpu.rewrite(computation, inputs)
        assert computation.traces == 2

    def test_once_for_all_sizes_of_a_padded_dimension(self, cores):
        computation = Counter(tf.reduce_sum)
        for size in range(1, 6):
            inputs = [[np.ones(size + replica, np.float32)] for replica in range(cores)]
            outputs = tpu.replicate(computation, inputs, maximum_shapes=[tf.TensorShape([None])])
            assert [output.numpy() for [output] in outputs] == [len(x) for [x] in inputs]
        assert computation.traces == 1

    def test_again_for_other_options(self):
        computation = Counter()
        tpu.rewrite(computation, [1.0])
        tpu.rewrite(computation, [1.0], xla_options=tpu.XLAOptions(False))
        tpu.shard(computation, [[1.0]])
        assert computation.traces == 3

    def test_lambda_in_a_loop_is_one_computation(self):
        traces = []
        for value in range(4):
            [output] = tpu.rewrite(lambda x: (traces.append(1), x * 2)[1], [float(value)])
            assert output.numpy() == 2 * value
        assert len(traces) == 1

    def test_globals_that_it_reads_are_part_of_the_computation(self):
        source = "def computation(x): return helper(x) * factor"
        namespace = {"helper": lambda x: x, "factor": 2.0}
        for change, expected in [({}, 6.0), ({"factor": 5.0}, 15.0), ({"helper": tf.square}, 45.0)]:
            namespace.update(change)
            exec(compile(source, "<cell>", "exec"), namespace)
            [output] = tpu.rewrite(namespace["computation"], [np.float32(3)])
            assert output.numpy() == expected

    def test_globals_that_it_writes_are_not(self):
        source = "def computation(x):\n  global traces\n  traces += 1\n  return x"
        namespace = {"traces": 0}
        exec(compile(source, "<cell>", "exec"), namespace)
        for _ in range(3):
            tpu.rewrite(namespace["computation"], [1.0])
        assert namespace["traces"] == 1

    def test_captured_numbers_are_part_of_the_computation(self):
        for value in (1, 2, 1.0, True):
            [output] = tpu.rewrite(lambda x, value=value: x * value, [np.float32(3)])
            assert output.numpy() == 3 * value

        def scaled(factor):
            return lambda x: x * factor

        for factor in (2.0, 3.0, (4.0)):
            assert tpu.rewrite(scaled(factor), [np.float32(3)])[0].numpy() == 3 * factor

    def test_partial_and_bound_method(self):
        class Model:
            def __init__(self, scale):
                self.scale = scale

            def step(self, x, power=1):
                return (x * self.scale) ** power

        two, three = Model(2.0), Model(3.0)
        for model in (two, three, two):
            assert tpu.rewrite(model.step, [1.0])[0].numpy() == model.scale
            squared = functools.partial(model.step, power=2)
            assert tpu.rewrite(squared, [1.0])[0].numpy() == model.scale**2

    def test_function_that_captures_itself(self):
        def factorial(x, n=3):
            return x if n == 0 else factorial(x, n - 1) * n

        assert tpu.rewrite(lambda x: factorial(x), [1.0])[0].numpy() == 6.0
        assert tpu.rewrite(factorial, [2.0])[0].numpy() == 12.0

    def test_run_functions_eagerly_does_not_matter(self):
        tf.config.run_functions_eagerly(True)
        try:
            assert tpu.rewrite(lambda x: x + 1, [1.0])[0].numpy() == 2.0
        finally:
            tf.config.run_functions_eagerly(False)

    def test_from_many_threads(self, cores):
        failures = []

        def call(thread):
            for step in range(10):
                inputs = [[float(thread + step + replica)] for replica in range(cores)]
                outputs = tpu.replicate(lambda x: tpu.cross_replica_sum(x), inputs)
                total = sum(x for [x] in inputs)
                if [output.numpy() for [output] in outputs] != [total] * cores:
                    failures.append((inputs, outputs))

        threads = [threading.Thread(target=call, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


class TestCaptures:
    def test_variables_are_read_and_written_on_every_call(self, cores):
        weight = tf.Variable([1.0, 2.0])
        total = tf.Variable(0.0)

        def computation(x):
            total.assign_add(tpu.cross_replica_sum(x))
            return tf.reduce_sum(weight) * x

        for scale in (1.0, 2.0, 3.0):
            weight.assign([scale, scale])
            before = total.numpy()
            outputs = tpu.replicate(computation, [[float(r)] for r in range(cores)])
            assert [x.numpy() for [x] in outputs] == [2 * scale * r for r in range(cores)]
            assert total.numpy() == before + sum(range(cores))

    def test_variables_of_the_first_call(self):
        model = tf.Module()

        def computation(x):
            if not hasattr(model, "weight"):
                model.weight = tf.Variable(2.0)
            return model.weight.assign_add(x)

        assert tpu.rewrite(computation, [1.0])[0].numpy() == 3.0
        assert tpu.rewrite(computation, [1.0])[0].numpy() == 4.0
        assert model.weight.numpy() == 4.0

    def test_tensor(self):
        for value in (1.0, 2.0):
            captured = tf.constant(value)
            assert tpu.rewrite(lambda x: x + captured, [0.0])[0].numpy() == value  # noqa: B023

    def test_objects_that_the_program_lets_go_are_freed(self):
        def call():
            weight = tf.Variable(tf.ones([1000]))
            tpu.rewrite(lambda x: tf.reduce_sum(weight) * x, [1.0])
            assert len(_eager._traced_calls) == 1
            return weakref.ref(weight)

        weight = call()
        gc.collect()
        assert weight() is None
        assert len(_eager._traced_calls) == 0

    def test_number_of_traces_kept_is_limited(self, monkeypatch):
        monkeypatch.setattr(_eager, "_MAXIMUM_KEPT", 3)
        computation = Counter()
        for value in range(5):
            tpu.rewrite(lambda x, value=value: computation(x) + value, [1.0])
        assert len(_eager._traced_calls) == 3
        assert tpu.rewrite(lambda x, value=0: computation(x) + value, [1.0])[0].numpy() == 2.0


class TestGradients:
    def test_inside_of_the_computation(self, cores):
        weight = tf.Variable([1.0, 2.0])

        def computation(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight**2 * x)
            return tape.gradient(loss, weight)

        outputs = tpu.replicate(computation, [[float(r)] for r in range(cores)])
        for replica, [gradient] in enumerate(outputs):
            np.testing.assert_allclose(gradient, np.array([2.0, 4.0]) * replica)

    def test_through_a_call_says_where_to_take_it(self):
        weight = tf.Variable(2.0)
        with tf.GradientTape() as tape:
            with pytest.raises(LookupError, match="inside the computation"):
                tpu.rewrite(lambda x: x * weight, [1.0])
            with tape.stop_recording():
                assert tpu.rewrite(lambda x: x * weight, [1.0])[0].numpy() == 2.0


class TestErrors:
    def test_error_of_the_computation_is_its_own(self):
        def computation(x):
            raise KeyError("mine")

        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                tpu.rewrite(computation, [1.0])

    def test_no_cores(self, monkeypatch):
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
        with pytest.raises(RuntimeError, match=r"without TPU cores.*Import tf_tpu_ext before"):
            tpu.rewrite(lambda x: x, [1.0])
