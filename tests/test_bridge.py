"""The bridge runs for every TPU graph, and TensorFlow finds the compiler behind it by name."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.TPUStrategy:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


SWITCHED_OFF = """
import numpy as np
import tf_tpu_ext
import tensorflow as tf

tf.config.experimental.disable_mlir_bridge()
v1 = tf.compat.v1
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    total = tf.Variable([1.0, 2.0])

@tf.function
def step(x):
    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        host = v1.tpu.outside_compilation(lambda n: n * 2, tf.cast(number, tf.float32))
        total.assign_add(tf.distribute.get_replica_context().all_reduce("SUM", host * x))
        return total.read_value()
    return strategy.run(replica)

for times in (1, 2):
    for value in strategy.experimental_local_results(step(tf.constant([1.0, 0.5]))):
        np.testing.assert_array_equal(value, [1.0 + 12 * times, 2.0 + 6 * times])

plain = tf.function(lambda x: tf.sin(x) + 1)
np.testing.assert_allclose(plain(tf.constant(0.5)), np.sin(0.5) + 1, rtol=1e-6)
with tf.Graph().as_default(), v1.Session() as session:
    session.run(v1.tpu.initialize_system())
    sums = v1.tpu.replicate(lambda x: v1.tpu.cross_replica_sum(x), [[1.0], [2.0], [3.0], [4.0]])
    assert session.run(sums) == [[10.0]] * 4
print("done")
"""


def test_switched_off_by_the_program(run_python):
    # On a real TPU another bridge takes over then. Here there is none.
    out = run_python(SWITCHED_OFF, env={"TF_TPU_EXT_CORES": "4"}).stdout
    assert out.splitlines()[-1] == "done"


def test_switched_off_by_the_session():
    config = tf.compat.v1.ConfigProto()
    rollout = tf.compat.v1.ConfigProto.Experimental.MLIR_BRIDGE_ROLLOUT_DISABLED
    config.experimental.mlir_bridge_rollout = rollout
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        session.run(tf_tpu_ext.tpu.initialize_system())
        outputs = tf_tpu_ext.tpu.replicate(lambda x: x + 1.0, [[float(i)] for i in range(8)])
        assert session.run(outputs) == [[i + 1.0] for i in range(8)]


def test_switched_on_by_the_program(run_python):
    # TensorFlow's own pass runs then, and ours must not run again.
    code = SWITCHED_OFF.replace("disable_mlir_bridge", "enable_mlir_bridge")
    out = run_python(code, env={"TF_TPU_EXT_CORES": "4"}).stdout
    assert out.splitlines()[-1] == "done"


class TestCompilerIr:
    @pytest.mark.parametrize("stage", ["hlo", "hlo_no_metadata", "stablehlo"])
    def test_is_what_the_cpu_gets(self, stage):
        weights = tf.constant(np.eye(3, dtype=np.float32))

        @tf.function(jit_compile=True)
        def function(x):
            return tf.reduce_sum(tf.sin(x @ weights), axis=1)

        show = function.experimental_get_compiler_ir(tf.ones([2, 3]))
        text = show(stage=stage, platform_name="TPU")
        assert "sine" in text
        assert text == show(stage=stage, platform_name="CPU")

    def test_of_a_function_on_a_core(self):
        @tf.function(jit_compile=True)
        def function(x):
            return tf.exp(x) * 2.0

        with tf.device("/device:TPU:1"):
            x = tf.ones([4])
            text = function.experimental_get_compiler_ir(x)(stage="hlo")
        assert "exponential" in text
        assert "f32[4]" in text

    def test_op_that_no_compiler_has(self):
        @tf.function(jit_compile=True)
        def function(x):
            return tf.strings.length(tf.strings.as_string(x))

        with pytest.raises(ValueError, match="AsString"):
            function.experimental_get_compiler_ir(tf.ones([2]))(stage="hlo", platform_name="TPU")


class TestTensorsOfSeveralComputations:
    """In a graph, an Identity on the host may feed more than one computation."""

    def test_one_identity(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            count = tf.compat.v1.get_variable("count", initializer=0.0, use_resource=True)
            step = count.assign_add(1.0)
            with tf.control_dependencies([step]):
                rate = tf.identity(0.5, name="rate")
                chained = tf.identity(rate)
            computations = [
                tf.compat.v1.tpu.rewrite(lambda x: x + rate, [1.0]),
                tf.compat.v1.tpu.rewrite(lambda x: x * rate, [4.0]),
                tf.compat.v1.tpu.rewrite(lambda x: x - chained * rate, [1.0]),
            ]
            session.run(tf_tpu_ext.tpu.initialize_system())
            session.run(tf.compat.v1.global_variables_initializer())
            assert session.run([*computations, rate]) == [[1.5], [2.0], [0.75], 0.5]
            # The Identity still runs, once, after what it waits for.
            assert session.run(count) == 1.0
            assert session.run(computations[1]) == [2.0]
            assert session.run(count) == 2.0

    def test_between_computations(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            [first] = tf.compat.v1.tpu.rewrite(lambda x: x + 1.0, [2.0])
            passed = tf.identity(tf.identity(first))
            second = tf.compat.v1.tpu.rewrite(lambda: passed * 2.0)
            third = tf.compat.v1.tpu.rewrite(lambda: passed * 3.0)
            session.run(tf_tpu_ext.tpu.initialize_system())
            assert session.run([second, third, passed]) == [[6.0], [9.0], 3.0]

    def test_replicas(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            shared = tf.identity(tf.constant(2.0))
            inputs = [[tf.identity(tf.constant(float(i)))] for i in range(8)]
            sums = [
                tf.compat.v1.tpu.replicate(
                    lambda x: tf.compat.v1.tpu.cross_replica_sum(x * shared), inputs
                )
                for _ in range(2)
            ]
            session.run(tf_tpu_ext.tpu.initialize_system())
            assert session.run(sums) == [[[56.0]] * 8] * 2


class TestFunctionsThatNeedNotBeCompiled:
    """Inside a TPU computation `jit_compile=False` has no effect: all of it is compiled."""

    @staticmethod
    @tf.function(jit_compile=False)
    def double(x):
        return tf.function(tf.add, jit_compile=False)(x, x)

    def test_in_a_step(self, strategy):
        @tf.function
        def step(x):
            return strategy.run(self.double, (x,))

        result = step(tf.constant([1.0, 2.0]))
        for value in strategy.experimental_local_results(result):
            np.testing.assert_array_equal(value, [2.0, 4.0])

    def test_in_a_loop_of_the_host(self, strategy):
        with strategy.scope():
            total = tf.Variable(1.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

        @tf.function
        def steps():
            for _ in tf.range(3):
                strategy.run(lambda: total.assign(self.double(total)))

        steps()
        assert total.numpy() == 8.0

    def test_in_a_session(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            [doubled] = tf.compat.v1.tpu.rewrite(self.double, [4.0])
            session.run(tf_tpu_ext.tpu.initialize_system())
            assert session.run(doubled) == 8.0

    def test_in_outside_compilation(self, strategy):
        @tf.function
        def step(x):
            def replica(x):
                return tf.compat.v1.tpu.outside_compilation(self.double, x) + 1.0

            return strategy.run(replica, (x,))

        for value in strategy.experimental_local_results(step(tf.constant([1.0, 2.0]))):
            np.testing.assert_array_equal(value, [3.0, 5.0])


def test_session_whose_graph_grows():
    v1 = tf.compat.v1

    def replica(x):
        doubled = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [0, x])[1]
        return doubled + v1.tpu.outside_compilation(lambda x: x + 1.0, x)

    with tf.Graph().as_default():
        dataset = tf.data.Dataset.range(10).map(lambda x: tf.cast(x, tf.float32))
        iterator = v1.data.make_initializable_iterator(dataset)
        result = v1.tpu.replicate(replica, [[iterator.get_next()]])[0][0]
        with v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            session.run(iterator.initializer)
            # Each new op makes the session run all passes once more.
            for number in range(6):
                assert session.run(result + float(number)) == 9.0 * number + 1.0 + number
