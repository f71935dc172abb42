"""Watched programs: what they do wrong is found, by op, line, replica and step."""

from __future__ import annotations

import inspect
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica, replica_id
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import tf_tpu_ext

v1 = tf.compat.v1
PACKAGE = pathlib.Path(tf_tpu_ext.__file__).parent


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    with tf_tpu_ext.Options(check=True):
        yield


def found_by(run: Callable[[], Any]) -> list[tf_tpu_ext.Finding]:
    """What is found while something runs."""
    before = {(each.kind, each.program, each.op) for each in tf_tpu_ext.findings()}
    run()
    return [
        each for each in tf_tpu_ext.findings() if (each.kind, each.program, each.op) not in before
    ]


def line_of(function: Callable[..., Any], text: str) -> str:
    """The place of the first line of a function that holds a text, as `file:line`."""
    lines, first = inspect.getsourcelines(function)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"{__file__}:{first + offset}"


class TestNumbersThatAreNotFinite:
    def test_located_by_op_line_replica_and_step(self, strategy):
        def step(x):
            scaled = x * 3.0
            logarithm = tf.math.log(scaled)
            return tf.reduce_sum(logarithm * 2.0)

        @tf.function
        def run(x):
            return strategy.run(step, args=(x,))

        last = strategy.num_replicas_in_sync - 1

        def three_steps():
            for number in range(3):
                bad = -3.0 if number == 2 else 3.0
                run(per_replica(strategy, [3.0] * last + [bad]))

        [finding] = found_by(three_steps)
        assert (finding.kind, finding.op, finding.replica, finding.step) == ("nan", "Log", last, 3)
        assert finding.source == line_of(step, "math.log")
        assert finding.instruction == "log f32[]"
        assert finding.arrives == "a result"
        assert finding.count == 1

    def test_what_is_masked_is_no_finding(self, strategy):
        @tf.function
        def run(x):
            def step(x):
                safe = tf.where(x > 0.0, tf.math.log(x), tf.zeros_like(x))
                probabilities = tf.nn.softmax(tf.where(x > 0.0, x, float("-inf")))
                return tf.reduce_sum(safe), tf.reduce_sum(probabilities)

            return strategy.run(step, args=(x,))

        values = [np.float32([-1.0, 0.0, 2.0])] * strategy.num_replicas_in_sync
        assert found_by(lambda: run(per_replica(strategy, values))) == []

    def test_infinity_before_nan(self):
        @tf.function
        def run(x):
            def step(x):
                large = tf.exp(x)
                return large - large

            return tf_tpu_ext.tpu.rewrite(step, [x])

        [finding] = found_by(lambda: run(tf.constant(200.0)))
        assert (finding.kind, finding.op) == ("infinity", "Exp")
        assert finding.source == line_of(run.python_function, "tf.exp")

    def test_in_the_iteration_of_a_loop(self):
        @tf.function
        def run(x):
            def step(x):
                def body(i, x):
                    root = tf.sqrt(x)
                    return i + 1, root - 1.0

                return tf.while_loop(lambda i, x: i < 5, body, (0, x))[1]

            return tf_tpu_ext.tpu.rewrite(step, [x])

        # 16 -> 3 -> 0.73 -> -0.15 -> NaN
        [finding] = found_by(lambda: run(tf.constant(16.0)))
        assert (finding.kind, finding.op.rsplit("/", 1)[-1]) == ("nan", "Sqrt")
        assert finding.source == line_of(run.python_function, "tf.sqrt")

    def test_in_a_branch(self):
        @tf.function
        def run(x):
            def step(x):
                return tf.cond(x > 0.0, lambda: x, lambda: 1.0 / (x - x))

            return tf_tpu_ext.tpu.rewrite(step, [x])

        assert found_by(lambda: run(tf.constant(1.0))) == []
        [finding] = found_by(lambda: run(tf.constant(-1.0)))
        assert (finding.kind, finding.instruction) == ("infinity", "divide f32[]")

    def test_arrives_in_a_variable(self, strategy):
        with strategy.scope():
            weights = tf.Variable(tf.ones([3]), name="weights")

        @tf.function
        def run(x):
            def step(x):
                context = tf.distribute.get_replica_context()
                weights.assign_add(context.all_reduce("sum", tf.sqrt(x)))

            strategy.run(step, args=(x,))

        values = [np.float32([1.0, 2.0, -1.0])] * strategy.num_replicas_in_sync
        finding = found_by(lambda: run(per_replica(strategy, values)))[0]
        assert (finding.kind, finding.op, finding.arrives) == ("nan", "Sqrt", "'weights'")
        assert "Sqrt" in finding.message
        assert "'weights'" in finding.message

    def test_goes_to_the_host(self):
        @tf.function
        def run(x):
            def step(x):
                v1.tpu.outside_compilation(
                    lambda y: tf.print(y, output_stream="file:///dev/null"), tf.sqrt(x)
                )
                return x

            return tf_tpu_ext.tpu.rewrite(step, [x])

        [finding] = found_by(lambda: run(tf.constant(-1.0)))
        assert (finding.kind, finding.op, finding.arrives) == ("nan", "Sqrt", "the host")

    def test_of_a_function_compiled_on_a_core(self):
        @tf.function(jit_compile=True)
        def run(x):
            return tf.sqrt(x) + 1.0

        def on_a_core():
            with tf.device("/device:TPU:0"):
                run(tf.constant([4.0, -4.0]))

        [finding] = found_by(on_a_core)
        assert (finding.kind, finding.op) == ("nan", "Sqrt")
        assert finding.source == line_of(run.python_function, "tf.sqrt")

    def test_of_a_session(self):
        def computation(x):
            return tf.math.log(x, name="my_log")

        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [2])
            result = v1.tpu.rewrite(computation, [x])
            session.run(v1.tpu.initialize_system())
            feed = {x: [-1.0, 1.0]}
            [finding] = found_by(lambda: session.run(result, feed))
        assert (finding.kind, finding.op, finding.replica) == ("nan", "my_log", 0)
        assert finding.source == line_of(computation, "my_log")

    @pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16, tf.float16, tf.complex64])
    def test_of_other_types(self, dtype):
        @tf.function
        def run(x):
            return tf_tpu_ext.tpu.rewrite(lambda x: x / (x - x), [x])

        [finding] = found_by(lambda: run(tf.cast([1.0, 2.0], dtype)))
        assert finding.kind in ("nan", "infinity")
        assert finding.instruction.startswith("divide ")

    @hypothesis.given(
        st.lists(
            st.sampled_from(["sqrt", "negative", "square", "reciprocal", "log1p"]),
            min_size=1,
            max_size=5,
        ),
        st.sampled_from([-4.0, -1.0, 0.0, 1.0, 4.0]),
    )
    @hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
    def test_first_op_as_numpy_has_it(self, names, start):
        value, expected = np.float32(start), None
        with np.errstate(all="ignore"):
            for number, name in enumerate(names):
                value = getattr(np, name)(value)
                if expected is None and not np.isfinite(value):
                    expected = f"op{number}"
        ends_finite = np.isfinite(value)

        @tf.function
        def run(x):
            def step(x):
                for number, name in enumerate(names):
                    x = getattr(tf.math, name)(x, name=f"op{number}")
                return x

            return tf_tpu_ext.tpu.rewrite(step, [x])

        found = found_by(lambda: run(tf.constant(start)))
        if expected is None or ends_finite:
            assert found == []
        else:
            assert found[0].op.split("/")[0] == expected


class TestReplicasThatDiffer:
    def test_first_op_and_variable(self, make_strategy):
        strategy = make_strategy(4)
        with strategy.scope():
            weights = tf.Variable(tf.ones([4]), name="kernel")

        def step(x):
            doubled = x * 2.0
            update = doubled + 1.0
            # What a custom optimizer does that forgets to sum gradients.
            tf.raw_ops.AssignSubVariableOp(resource=weights.handle, value=update)

        @tf.function
        def run(x):
            strategy.run(step, args=(x,))

        values = [np.float32([1.0, 2.0, 3.0, number]) for number in range(4)]

        def two_steps():
            run(per_replica(strategy, values))
            run(per_replica(strategy, values))

        [finding] = found_by(two_steps)
        assert (finding.kind, finding.step) == ("replicas-differ", 1)
        assert finding.arrives == "'kernel'"
        assert finding.source == line_of(step, "x * 2.0")
        assert finding.argument.startswith("input ")
        assert finding.other_source == line_of(step, "AssignSubVariableOp")

    def test_before_the_first_step(self, make_strategy):
        strategy = make_strategy(2)
        with strategy.scope():
            weights = tf.Variable(1.0, name="restored")
        weights.values[1].assign(2.0)

        @tf.function
        def run():
            return strategy.run(lambda: weights * 2.0)

        [finding] = found_by(run)
        assert (finding.kind, finding.op, finding.arrives) == ("replicas-differ", "", "'restored'")
        assert "before step 1" in finding.message

    def test_summed_gradients_and_own_variables_are_fine(self, strategy):
        with strategy.scope():
            weights = tf.Variable(tf.ones([4]))
            mean = tf.Variable(
                0.0,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )
            optimizer = tf.keras.optimizers.SGD(0.1)

        @tf.function
        def run(x):
            def step(x):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(weights * x)
                mean.assign(loss)
                optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
                return loss

            return strategy.run(step, args=(x,))

        count = strategy.num_replicas_in_sync
        values = [np.float32([1.0, 2.0, 3.0, number]) for number in range(count)]
        assert found_by(lambda: run(per_replica(strategy, values))) == []
        gradient = np.sum(values, axis=0)
        np.testing.assert_allclose(weights.values[0].numpy(), 1.0 - 0.1 * gradient, rtol=1e-6)

    def test_statistics_of_keras_normalization(self, make_strategy):
        """Keras 3 gives each core statistics of its own, and never brings them together."""
        strategy = make_strategy(2)
        with strategy.scope():
            layer = tf.keras.layers.BatchNormalization()
            layer.build([None, 3])

        @tf.function
        def run(x):
            strategy.run(lambda x: layer(x, training=True), args=(x,))

        values = [np.float32([[1.0, 2.0, 3.0]]), np.float32([[3.0, 4.0, 5.0]])]
        found = found_by(lambda: run(per_replica(strategy, values)))
        assert {each.kind for each in found} == {"replicas-differ"}
        assert any("moving_mean" in each.arrives for each in found)


class TestUnwrittenMemory:
    @pytest.fixture
    def two_cores(self):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=2)

    def test_padding_that_is_read(self, two_cores):
        @tf.function
        def run(x, y):
            def step(x):
                # Takes the padding for true elements.
                whole = gen_xla_ops.xla_set_dynamic_dimension_size(x, 0, 8)
                return tf.reduce_sum(whole * 2.0)

            return v1.tpu.replicate(
                step,
                [[x], [y]],
                maximum_shapes=[tf.TensorShape([8])],
                device_assignment=two_cores,
            )

        [finding] = found_by(lambda: run(tf.ones([3]), tf.ones([8])))
        assert (finding.kind, finding.replica) == ("unwritten", 0)
        assert finding.source == line_of(run.python_function, "set_dynamic_dimension_size")
        assert "padding" in finding.message
        assert "padding" in finding.on_a_tpu

    def test_padding_that_is_not_read(self, two_cores):
        @tf.function
        def run(x, y):
            def step(x):
                return tf.reduce_mean(x), tf.nn.softmax(x), tf.reduce_max(tf.sort(x))

            return v1.tpu.replicate(
                step,
                [[x], [y]],
                maximum_shapes=[tf.TensorShape([8])],
                device_assignment=two_cores,
            )

        x, y = np.float32([1.0, 2.0, 6.0]), np.float32([1.0, 5.0])
        results: list[Any] = []
        assert found_by(lambda: results.extend(run(tf.constant(x), tf.constant(y)))) == []
        for value, (mean, probabilities, largest) in zip((x, y), results, strict=True):
            np.testing.assert_allclose(mean, value.mean(), rtol=1e-6)
            np.testing.assert_allclose(
                probabilities, np.exp(value) / np.exp(value).sum(), rtol=1e-5
            )
            assert largest == value.max()


class TestHost:
    def test_calls_of_cores_come_in_changing_orders(self, make_strategy):
        strategy = make_strategy(4)
        calls: list[tuple[int, int]] = []

        def note(replica, number):
            calls.append((int(replica), int(number)))

        @tf.function
        def run():
            def step():
                for number in range(4):
                    v1.tpu.outside_compilation(
                        lambda replica, number=number: tf.py_function(note, [replica, number], []),
                        replica_id(),
                    )

            strategy.run(step)

        orders = set()
        for _ in range(6):
            calls.clear()
            run()
            orders.add(tuple(calls))
            for replica in range(4):
                assert [number for each, number in calls if each == replica] == [0, 1, 2, 3]
        assert len(orders) > 1

    def test_races(self, make_strategy):
        strategy = make_strategy(2)
        last = tf.Variable(0.0)
        count = tf.Variable(0.0)

        def host(x):
            last.assign(x)
            count.assign_add(1.0)
            return x + 1.0

        @tf.function
        def run(x):
            def step(x):
                return v1.tpu.outside_compilation(host, x)

            return strategy.run(step, args=(x,))

        [finding] = found_by(lambda: run(per_replica(strategy, [1.0, 2.0])))
        assert finding.kind == "race"
        assert finding.source == finding.other_source == line_of(host, "last.assign")
        # Sums come out right in any order.
        assert count.numpy() == 2.0

    def test_race_of_a_read_in_a_loop(self, make_strategy):
        strategy = make_strategy(2)
        count = tf.Variable(0.0)

        def host(x):
            seen = count.read_value()
            count.assign_add(1.0)
            return x + seen

        @tf.function
        def run(x):
            def step(x):
                def body(i, x):
                    return i + 1, v1.tpu.outside_compilation(host, x)

                return tf.while_loop(lambda i, x: i < 2, body, (0, x))[1]

            return strategy.run(step, args=(x,))

        [finding] = found_by(lambda: run(per_replica(strategy, [1.0, 2.0])))
        assert finding.kind == "race"
        assert finding.source == line_of(host, "assign_add")
        assert finding.other_source == line_of(host, "read_value")

    def test_no_race_of_one_replica(self, make_strategy):
        strategy = make_strategy(1)
        last = tf.Variable(0.0)

        @tf.function
        def run(x):
            def step(x):
                v1.tpu.outside_compilation(last.assign, x)
                return x

            return strategy.run(step, args=(x,))

        assert found_by(lambda: run(per_replica(strategy, [3.0]))) == []
        assert last.numpy() == 3.0

    def test_race_with_a_branch(self, make_strategy):
        strategy = make_strategy(2)
        best = tf.Variable(0.0)

        @tf.function
        def run(x):
            def step(x):
                def better():
                    return v1.tpu.outside_compilation(keep, x)

                x = tf.cond(x > 1.5, better, lambda: x)
                return x + v1.tpu.outside_compilation(best.read_value)

            def keep(x):
                best.assign(x)
                return tf.identity(x)

            return strategy.run(step, args=(x,))

        [finding] = found_by(lambda: run(per_replica(strategy, [2.0, 1.0])))
        assert finding.kind == "race"
        assert finding.source == line_of(run.python_function, "best.assign(x)")
        assert finding.other_source == line_of(run.python_function, "best.read_value")
        assert best.numpy() == 2.0

    def test_no_race_of_branches(self, make_strategy):
        strategy = make_strategy(2)
        last = tf.Variable(0.0)

        @tf.function
        def run(x):
            def step(x):
                def note(y):
                    last.assign(y)
                    return tf.identity(y)

                return tf.cond(
                    replica_id() < 1,
                    lambda: v1.tpu.outside_compilation(note, x),
                    lambda: x,
                )

            return strategy.run(step, args=(x,))

        assert found_by(lambda: run(per_replica(strategy, [2.0, 1.0]))) == []
        assert last.numpy() == 2.0

    def test_no_race_with_a_branch_before_a_sum(self, make_strategy):
        strategy = make_strategy(2)
        shared = tf.Variable(0.0)

        @tf.function
        def run(x):
            def step(x):
                def note(y):
                    shared.assign(y)
                    return tf.identity(y)

                x = tf.cond(
                    replica_id() < 1, lambda: v1.tpu.outside_compilation(note, x), lambda: x
                )
                total = tf.distribute.get_replica_context().all_reduce("SUM", x)
                return v1.tpu.outside_compilation(lambda y: y + shared, total)

            return strategy.run(step, args=(x,))

        assert found_by(lambda: run(per_replica(strategy, [2.0, 1.0]))) == []

    @pytest.mark.parametrize("control_flow", ["v1", "v2"])
    @pytest.mark.parametrize("others_read", [False, True])
    def test_race_with_a_branch_in_a_session(self, control_flow, others_read):
        def step(x):
            def keep(x):
                with tf.control_dependencies([best.assign(x)]):
                    return tf.identity(x)

            x = v1.cond(x > 1.5, lambda: v1.tpu.outside_compilation(keep, x), lambda: x)
            return x + v1.tpu.outside_compilation(best.read_value) if others_read else x

        was_v2 = v1.control_flow_v2_enabled()
        (v1.enable_control_flow_v2 if control_flow == "v2" else v1.disable_control_flow_v2)()
        try:
            with tf.Graph().as_default(), v1.Session() as session:
                best = v1.get_variable("best", initializer=0.0, use_resource=True)
                feeds = [v1.placeholder(tf.float32, []) for _ in range(8)]
                results = v1.tpu.replicate(step, [[feed] for feed in feeds])

                def run():
                    session.run([v1.tpu.initialize_system(), best.initializer])
                    session.run(results, dict.fromkeys(feeds, 1.0))

                found = found_by(run)
        finally:
            (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()
        if not others_read:
            assert found == []
            return
        [finding] = found
        assert finding.kind == "race"
        assert finding.source == line_of(step, "best.assign(x)")
        assert finding.other_source == line_of(step, "best.read_value")


def test_training_is_the_same_watched(make_strategy):
    """Findings and values of a model with normalization and a metric."""

    def weights(watch: bool) -> list[np.ndarray]:
        strategy = make_strategy(2)
        tf.keras.utils.set_random_seed(1)
        with tf_tpu_ext.Options(check=watch), strategy.scope():
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Dense(16, activation="relu"),
                    tf.keras.layers.LayerNormalization(),
                    tf.keras.layers.Dense(3),
                ]
            )
            model.compile(
                "adam",
                loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
            random = np.random.default_rng(0)
            images = random.normal(size=[64, 8]).astype(np.float32)
            labels = random.integers(0, 3, size=[64])
            model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()

    trained: list[np.ndarray] = []
    assert found_by(lambda: trained.extend(weights(watch=True))) == []
    for watched, plain in zip(trained, weights(watch=False), strict=True):
        np.testing.assert_allclose(watched, plain, rtol=2e-4, atol=2e-5)


SCRIPT = """
import sys
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)

@tf.function
def run(x):
    return strategy.run(lambda x: tf.math.log(x), args=(x,))

if sys.argv[1] != "nothing":
    run(tf.constant(float(sys.argv[1])))
"""


class TestCommand:
    def check(self, folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        (folder / "script.py").write_text(SCRIPT)
        return subprocess.run(
            [sys.executable, str(PACKAGE / "cli"), "check", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=280,
        )

    def test_finding(self, tmp_path):
        done = self.check(tmp_path, "--json", "found.json", "script.py", "-1.0")
        assert done.returncode == 1, done.stderr
        assert "1 finding in 1 checked steps" in done.stderr
        assert "Log (script.py:12) makes NaN" in done.stderr.replace(f"{tmp_path}/", "")
        [found] = json.loads((tmp_path / "found.json").read_text())
        assert found["kind"] == "nan"
        assert found["on_a_tpu"].startswith("A TPU computes NaN")

    def test_page(self, tmp_path):
        pytest.importorskip("jinja2")
        done = self.check(tmp_path, "--report", "out.html", "script.py", "-1.0")
        assert done.returncode == 1, done.stderr
        page = (tmp_path / "out.html").read_text()
        assert "What the checks have found" in page
        assert "makes NaN of finite numbers" in page

    def test_nothing_found(self, tmp_path):
        done = self.check(tmp_path, "--seed", "7", "script.py", "1.0")
        assert done.returncode == 0, done.stderr
        assert "0 findings in 1 checked steps" in done.stderr

    def test_nothing_watched(self, tmp_path):
        done = self.check(tmp_path, "script.py", "nothing")
        assert done.returncode == 1
        assert "so nothing was checked" in done.stderr

    @pytest.mark.parametrize(
        "arguments",
        [("missing.py",), ("--compile-only", "script.py"), ("--seed", "-1", "script.py")],
    )
    def test_refused(self, tmp_path, arguments):
        done = self.check(tmp_path, *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("tf-tpu check: ")
