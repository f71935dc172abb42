"""What a computation calls: sums over replicas, placement, host calls, optimizer, bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu


def replica_vectors(cores):
    return [[np.array([1.0 + r, 10.0 * r], np.float32)] for r in range(cores)]


def evaluate(run, cores, computation):
    return run(lambda: tpu.replicate(computation, replica_vectors(cores)))


class TestCrossReplicaSum:
    def test_over_all_replicas(self, run, cores):
        outputs = evaluate(run, cores, tpu.cross_replica_sum)
        total = sum(x for [x] in replica_vectors(cores))
        np.testing.assert_allclose([x for [x] in outputs], [total] * cores)

    @pytest.mark.parametrize("stride", [1, 2])
    def test_within_groups(self, run, cores, stride):
        if cores % 2:
            groups = [[replica] for replica in range(cores)]
        elif stride == 1:
            groups = [[replica, replica + 1] for replica in range(0, cores, 2)]
        else:
            groups = [list(range(0, cores, 2)), list(range(1, cores, 2))]
        outputs = evaluate(run, cores, lambda x: tpu.cross_replica_sum(x, groups, name="sum"))
        inputs = replica_vectors(cores)
        for group in groups:
            total = sum(inputs[replica][0] for replica in group)
            for replica in group:
                np.testing.assert_allclose(outputs[replica][0], total)

    def test_gradient_is_a_sum(self, run, cores):
        def computation(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tpu.cross_replica_sum(x) ** 2)
            return tape.gradient(loss, x)

        total = sum(x for [x] in replica_vectors(cores))
        for [gradient] in evaluate(run, cores, computation):
            np.testing.assert_allclose(gradient, 2 * total * cores)

    def test_outside_of_a_computation_is_the_sum_of_one(self, cores):
        np.testing.assert_array_equal(tpu.cross_replica_sum(tf.constant([1.0, 2.0])), [1.0, 2.0])

    @pytest.mark.parametrize("groups", [[[0], [1, 2]], [[0, 0]], [[0, 1], [1, 2]]], ids=str)
    def test_groups_that_are_none(self, groups):
        with pytest.raises(ValueError, match=r"expected groups of one size .* Write \[\[0, 1\]"):
            tpu.cross_replica_sum(tf.constant(1.0), groups)

    def test_graph_is_that_of_tensorflow(self, same_graph):
        same_graph(
            lambda: tpu.replicate(lambda x: tpu.cross_replica_sum(x, [[0], [1]]), [[1.0]] * 2),
            lambda: tf.compat.v1.tpu.replicate(
                lambda x: tf.compat.v1.tpu.cross_replica_sum(x, [[0], [1]]), [[1.0]] * 2
            ),
        )


class TestCore:
    def test_name(self):
        assert [tpu.core(num) for num in (0, 7)] == [
            "device:TPU_REPLICATED_CORE:0",
            "device:TPU_REPLICATED_CORE:7",
        ]

    def test_places_ops(self, run):
        def computation(x):
            with tf.device(tpu.core(0)):
                return x + 1

        assert run(lambda: tpu.rewrite(computation, [1.0])) == [2.0]

    def test_negative(self):
        with pytest.raises(ValueError, match="got num=-1, expected the number of a core"):
            tpu.core(-1)


class TestOutsideCompilation:
    def test_runs_on_the_host(self, run, cores):
        def on_host(x, prefix=""):
            return tf.strings.to_number(tf.strings.format(prefix + "{}", x))

        def computation(x):
            y = tpu.outside_compilation(on_host, tf.cast(x[0], tf.int32), prefix="1")
            return y * 2

        outputs = evaluate(run, cores, computation)
        assert outputs == [[2 * float(f"1{replica + 1}")] for replica in range(cores)]

    def test_outside_of_a_computation_calls_it(self):
        assert tpu.outside_compilation(lambda x, y: x + y, 1, y=2) == 3

    def test_graph_is_that_of_tensorflow(self, same_graph):
        def build(rewrite, outside_compilation):
            rewrite(lambda x: outside_compilation(lambda y: tf.strings.length("a") + y, x), [1])

        same_graph(
            lambda: build(tpu.rewrite, tpu.outside_compilation),
            lambda: build(tf.compat.v1.tpu.rewrite, tf.compat.v1.tpu.outside_compilation),
        )

    def test_something_else_than_a_function(self):
        with pytest.raises(TypeError, match="computation=3 of type int, expected a Python func"):
            tpu.outside_compilation(3)


class TestCrossShardOptimizer:
    @staticmethod
    def train(run, cores, optimizer, steps=1):
        """Minimizes the squared distance of a weight to a target for each replica."""
        variables = []

        def computation(x):
            loss = tf.reduce_sum((variables[0] - x) ** 2) / 2
            return optimizer.minimize(loss, var_list=[variables[0]])

        def build():
            if not variables:
                with tf.init_scope():
                    variables.append(tf.Variable([0.5, 0.5]))
            results = []
            for _ in range(steps):
                with tf.control_dependencies(results):
                    operations = tpu.replicate(computation, replica_vectors(cores))
                results = [operation for operation in operations if operation is not None]
            with tf.control_dependencies(results):
                return variables[0].read_value()

        return run(build)

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_gradients_of_all_replicas(self, run, cores, reduction):
        kind = getattr(tf.compat.v1.losses.Reduction, reduction.upper())
        sgd = tf.compat.v1.train.GradientDescentOptimizer(0.01)
        got = self.train(run, cores, tpu.CrossShardOptimizer(sgd, kind))
        gradients = [0.5 - x for [x] in replica_vectors(cores)]
        expected = 0.5 - 0.01 * getattr(np, reduction)(gradients, axis=0)
        np.testing.assert_allclose(got, expected, rtol=1e-5)

    def test_slots(self, run, cores):
        momentum = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
        got = self.train(run, cores, tpu.CrossShardOptimizer(momentum), steps=3)
        weight, velocity = np.full(2, 0.5), np.zeros(2)
        target = np.mean([x for [x] in replica_vectors(cores)], axis=0)
        for _ in range(3):
            velocity = 0.9 * velocity + (weight - target)
            weight = weight - 0.1 * velocity
        np.testing.assert_allclose(got, weight, rtol=1e-4)

    def test_groups(self, run, cores):
        if cores % 2:
            pytest.skip("groups of one size need an even number of cores")
        groups = [list(range(cores // 2)), list(range(cores // 2, cores))]

        class Recorder(tf.compat.v1.train.GradientDescentOptimizer):
            def apply_gradients(self, grads_and_vars, global_step=None, name=None):
                [(self.gradient, _)] = grads_and_vars
                return tf.no_op()

        recorder = Recorder(1.0)
        optimizer = tpu.CrossShardOptimizer(recorder, group_assignment=groups)

        def computation(x):
            gradients = optimizer.compute_gradients(tf.reduce_sum(x) * x[0], [x])
            optimizer.apply_gradients(gradients)
            return recorder.gradient

        inputs = np.array([x for [x] in replica_vectors(cores)])
        expected = np.stack([2 * inputs[:, 0] + inputs[:, 1], inputs[:, 0]], axis=1)
        outputs = evaluate(run, cores, computation)
        for group in groups:
            for replica in group:
                np.testing.assert_allclose(outputs[replica][0], expected[group].mean(0))

    def test_is_that_of_tensorflow(self):
        assert tpu.CrossShardOptimizer is tf.compat.v1.tpu.CrossShardOptimizer


class TestBfloat16Scope:
    def test_reads_as_bfloat16_and_keeps_float32(self):
        with tf.Graph().as_default():
            with tpu.bfloat16_scope("scope") as scope:
                read = tf.compat.v1.get_variable("v", [2], tf.bfloat16)
                other = tf.compat.v1.get_variable("w", [2], tf.int32)
            kept = {v.op.name: v.dtype.base_dtype for v in tf.compat.v1.global_variables()}
            assert scope.name == "scope"
        assert read.dtype == tf.bfloat16
        assert other.dtype.base_dtype == tf.int32
        assert kept == {"scope/v": tf.float32, "scope/w": tf.int32}

    def test_in_a_computation(self, run, cores):
        def computation(x):
            with tpu.bfloat16_scope():
                return tf.cast(x, tf.bfloat16) * 2

        outputs = evaluate(run, cores, computation)
        for [got], [x] in zip(outputs, replica_vectors(cores), strict=True):
            assert got.dtype == tf.bfloat16.as_numpy_dtype
            np.testing.assert_array_equal(got.astype(np.float32), 2 * x)

    def test_variable_in_a_session(self, cores):
        def computation(x):
            with tpu.bfloat16_scope():
                one = tf.compat.v1.ones_initializer()
                weight = tf.compat.v1.get_variable("w", [2], tf.bfloat16, one)
            return tf.cast(weight * tf.cast(x, tf.bfloat16), tf.float32)

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            outputs = tpu.replicate(computation, replica_vectors(cores))
            session.run(tf.compat.v1.global_variables_initializer())
            for [got], [x] in zip(session.run(outputs), replica_vectors(cores), strict=True):
                np.testing.assert_array_equal(got, x)
