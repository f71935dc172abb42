"""What goes wrong on one core ends the step on all of them, with its message, and nothing hangs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local, replica_id, strategy_of_all_cores
from tensorflow.python.eager import cancellation

import tf_tpu_ext

v1 = tf.compat.v1
CORES = 8


@pytest.fixture(scope="module")
def strategy() -> Any:
    return strategy_of_all_cores()


def all_sum(x: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce("SUM", x)


class TestHostComputation:
    @pytest.mark.parametrize("where", ["before", "after"])
    def test_assertion_of_one_replica(self, strategy, where):
        def host(replica, x, bad):
            tf.debugging.Assert(replica != bad, ["replica gave up:", replica])
            return x + 1.0

        @tf.function
        def step(bad):
            def replica():
                outside = v1.tpu.outside_compilation
                x = tf.cast(replica_id(), tf.float32)
                if where == "before":
                    return all_sum(outside(host, replica_id(), x, bad))
                return outside(host, replica_id(), all_sum(x), bad)

            return strategy.run(replica)

        none, bad = tf.constant(-1), tf.constant(5)
        expected = {"before": 36.0, "after": 29.0}[where]
        np.testing.assert_allclose(local(strategy, step(none)), [expected] * CORES)
        for _ in range(3):
            with pytest.raises(tf.errors.OpError, match=r"replica gave up:\] \[5\]"):
                step(bad)
            np.testing.assert_allclose(local(strategy, step(none)), [expected] * CORES)

    def test_python_function_that_raises(self, strategy):
        rows = threading.Event()
        rows.set()

        def python(replica, x):
            if replica == 3 and not rows.is_set():
                raise ValueError("no more rows on the host")
            return x * 2

        @tf.function
        def step():
            def replica():
                def host(replica, x):
                    y = tf.py_function(python, [replica, x], tf.float32)
                    return tf.ensure_shape(y, [])

                return all_sum(v1.tpu.outside_compilation(host, replica_id(), 1.0))

            return strategy.run(replica)

        np.testing.assert_array_equal(local(strategy, step()), [16.0] * CORES)
        rows.clear()
        with pytest.raises(tf.errors.OpError, match="ValueError: no more rows on the host"):
            step()
        rows.set()
        np.testing.assert_array_equal(local(strategy, step()), [16.0] * CORES)

    def test_error_names_the_python_line(self, strategy):
        @tf.function
        def step():
            def replica():
                v1.tpu.outside_compilation(lambda: tf.debugging.Assert(False, ["never true"]))
                return tf.constant(1.0)

            return strategy.run(replica)

        with pytest.raises(tf.errors.InvalidArgumentError, match=r"never true") as error:
            step()
        assert "test_failures.py" in str(error.value)

    def test_in_a_session(self):
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            divisor = v1.placeholder(tf.int32, [])

            def computation(x):
                y = v1.tpu.outside_compilation(lambda x: x // divisor, x)
                return v1.tpu.cross_replica_sum(y)

            outputs = v1.tpu.replicate(computation, [[i] for i in range(CORES)])
            for _ in range(2):
                with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
                    session.run(outputs, {divisor: 0})
                assert np.ravel(session.run(outputs, {divisor: 1})).tolist() == [28] * CORES


class TestCompilation:
    def test_string_op_without_outside_compilation(self, strategy):
        @tf.function
        def step(x):
            return strategy.run(
                lambda y: tf.strings.length(tf.strings.as_string(y, name="as_text")), args=(x,)
            )

        with pytest.raises(tf.errors.InvalidArgumentError, match="AsString") as error:
            step(tf.ones([2]))
        message = str(error.value)
        assert message.count("AsString as_text (") == 1
        assert "test_failures.py" in message
        assert "outside_compilation" in message

    def test_string_op_in_a_session(self):
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())

            def computation(x):
                return tf.strings.length(tf.strings.as_string(x, name="made_here"))

            outputs = v1.tpu.replicate(computation, [[1.0]] * CORES)
            with pytest.raises(tf.errors.InvalidArgumentError, match="made_here") as error:
                session.run(outputs)
        assert "test_failures.py" in str(error.value)
        assert "allow_soft_placement=True" in str(error.value)

    def test_errors_are_told_once(self, strategy):
        @tf.function
        def step(shape):
            return strategy.run(lambda s: tf.fill(s * replica_id(), 1.0), args=(shape,))

        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            step(tf.constant([2]))
        assert str(error.value).count("must be a compile-time constant") == 1

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            ([[0, 0]], "replica 0 more than once"),
            ([[0, 1, 2, 99]], "99"),
        ],
    )
    def test_wrong_groups(self, strategy, groups, message):
        @tf.function
        def wrong_groups(x):
            return strategy.run(
                lambda y: v1.tpu.cross_replica_sum(y, groups, name="summed_here"), args=(x,)
            )

        with pytest.raises(tf.errors.InvalidArgumentError, match=message) as error:
            wrong_groups(tf.ones([2]))
        assert "summed_here" in str(error.value)
        assert "test_failures.py" in str(error.value)
        failed = tf_tpu_ext.compilation_stats().programs[-1]
        assert "wrong_groups" in failed.name
        assert message in failed.error

    def test_shape_that_is_not_known(self, strategy):
        @tf.function
        def step(shape):
            return strategy.run(
                lambda s: tf.reshape(tf.ones([4]), s * replica_id(), name="reshaped_here"),
                args=(shape,),
            )

        with pytest.raises(tf.errors.InvalidArgumentError, match="compile-time constant") as error:
            step(tf.constant([2, 2]))
        assert "reshaped_here" in str(error.value)

    def test_next_program_compiles(self, strategy):
        @tf.function
        def step(x):
            return strategy.run(lambda y: all_sum(y), args=(x,))

        np.testing.assert_array_equal(local(strategy, step(tf.constant(2.0))), [16.0] * CORES)


@pytest.mark.parametrize("use", ["a result", "intermediate values"])
def test_memory_that_is_not_there(use):
    """More than a process can address: an error, where a null pointer ended the process."""

    def replica(x: tf.Tensor) -> tf.Tensor:
        square = x[:, tf.newaxis] * x
        return square if use == "a result" else tf.reduce_sum(tf.sort(square, axis=1), axis=1)

    with pytest.raises(tf.errors.ResourceExhaustedError, match=f"bytes of memory for {use}"):
        tf_tpu_ext.tpu.rewrite(replica, [tf.ones([1 << 23])])
    # The next step starts clean.
    assert tf_tpu_ext.tpu.rewrite(lambda x: x + 1.0, [1.0])[0].numpy() == 2


def test_uninitialized_variable():
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.tpu.initialize_system())
        variable = v1.get_variable("never_set", shape=[2], use_resource=True)
        outputs = v1.tpu.replicate(lambda: v1.tpu.cross_replica_sum(variable + 0.0), [[]] * CORES)
        with pytest.raises(tf.errors.FailedPreconditionError, match="never_set"):
            session.run(outputs)
        session.run(variable.assign([1.0, 2.0]))
        np.testing.assert_array_equal(session.run(outputs), [[[8.0, 16.0]]] * CORES)


def test_programs_of_two_threads_do_not_deadlock(run_python):
    run_python(
        """
        import threading
        import numpy as np
        import tf_tpu_ext
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)

        def program(factor):
            @tf.function
            def step(x):
                def replica(x):
                    context = tf.distribute.get_replica_context()
                    for _ in range(3):
                        x = context.all_reduce("MEAN", x * factor) / factor
                    return x + 1.0
                return strategy.run(replica, args=(x,))
            return step

        def work(number, errors):
            try:
                step = program(float(number + 1))
                x = tf.constant(0.0)
                for _ in range(200):
                    x = strategy.experimental_local_results(step(x))[number]
                np.testing.assert_allclose(x, 200.0)
            except BaseException as error:
                errors.append(error)
                raise

        errors = []
        threads = [threading.Thread(target=work, args=(n, errors)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        """,
        env={"TF_TPU_EXT_CORES": "4"},
        timeout=150,
    )


def test_sessions_of_two_threads_do_not_deadlock():
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = v1.tpu.replicate(
                lambda x: v1.tpu.cross_replica_sum(x * (number + 1)), [[1.0]] * CORES
            )
            for _ in range(50):
                results[number] = np.ravel(session.run(outputs)).tolist()

    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.tpu.initialize_system())
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert results == {number: [CORES * (number + 1.0)] * CORES for number in range(3)}


def test_64_replicas_on_two_processors(run_python):
    run_python(
        """
        import os
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        import numpy as np
        import tf_tpu_ext
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
        assert strategy.num_replicas_in_sync == 64

        @tf.function
        def step(x):
            def replica(x):
                context = tf.distribute.get_replica_context()
                def host(x):
                    return x + 3.0
                x = tf.compat.v1.tpu.outside_compilation(host, x)
                for _ in range(3):
                    x = context.all_reduce("MEAN", x)
                return x
            return strategy.run(replica, args=(x,))

        for number in range(5):
            got = strategy.experimental_local_results(step(tf.constant(float(number))))
            assert [float(x) for x in got] == [number + 3.0] * 64
        """,
        env={"TF_TPU_EXT_CORES": "64"},
        timeout=150,
    )


class TestStepsAtOnce:
    """A core runs one program that updates variables at a time; the others wait."""

    @pytest.fixture
    def steps(self, strategy):
        with strategy.scope():
            count = tf.Variable(0.0)

        def hold():
            tf.raw_ops.OutfeedEnqueueTuple(inputs=[tf.constant(0.0)])
            fed = tf.raw_ops.InfeedDequeueTuple(dtypes=[tf.float32], shapes=[[]])[0]
            count.assign_add(fed)
            return all_sum(fed)

        def add():
            return count.assign_add(1.0)

        @tf.function
        def holding():
            return strategy.run(hold)

        @tf.function
        def counting():
            return strategy.run(add)

        # Compiled, they are soon where they wait.
        self.feed(0.0)
        holding()
        self.wait_until_held()
        counting()
        count.assign(0.0)
        return holding, counting, count

    @staticmethod
    def feed(value):
        for core in range(CORES):
            with tf.device("/device:CPU:0"):
                tf.raw_ops.InfeedEnqueueTuple(
                    inputs=[tf.constant(value)], shapes=[[]], device_ordinal=core
                )

    @staticmethod
    def wait_until_held():
        """Returns when `holding` runs on all cores."""
        for core in range(CORES):
            with tf.device("/device:CPU:0"):
                tf.raw_ops.OutfeedDequeueTuple(
                    dtypes=[tf.float32], shapes=[[]], device_ordinal=core
                )

    @staticmethod
    def started(function, errors):
        def call():
            try:
                function()
            except tf.errors.OpError as error:
                errors.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        return thread

    def holder(self, function, errors):
        thread = self.started(function, errors)
        self.wait_until_held()
        return thread

    def waiting(self, function, errors):
        """Starts a step that does not end while the holder runs."""
        thread = self.started(function, errors)
        # That nothing happens shows only in time: however long this is, no step may end in it.
        thread.join(timeout=0.2)
        assert thread.is_alive()
        return thread

    def test_later_step_sees_what_the_earlier_leaves(self, strategy, steps):
        holding, counting, count = steps
        errors = []
        threads = [self.holder(holding, errors), self.waiting(counting, errors)]
        assert float(count.read_value()) == 0.0
        self.feed(10.0)
        for thread in threads:
            thread.join()
        assert not errors
        np.testing.assert_allclose(local(strategy, count), [11.0] * CORES)

    def test_cancelled_step_gives_up_its_place(self, strategy, steps):
        holding, counting, _ = steps
        errors, manager = [], cancellation.CancellationManager()
        cancelable = manager.get_cancelable_function(counting.get_concrete_function())
        holder = self.holder(holding, errors)
        waiting = self.waiting(cancelable, errors)
        manager.start_cancel()
        waiting.join()
        assert [type(error) for error in errors] == [tf.errors.CancelledError]
        self.feed(10.0)
        holder.join()
        np.testing.assert_allclose(local(strategy, counting()), [11.0] * CORES)
        assert len(errors) == 1

    def test_failed_step_lets_the_next_one_run(self, strategy, steps):
        holding, counting, _ = steps
        errors = []
        # Each with a manager of its own: TensorFlow gives a call without one that of other threads.
        managers = [cancellation.CancellationManager() for _ in range(2)]
        holding, cancelable = (
            manager.get_cancelable_function(step.get_concrete_function())
            for manager, step in zip(managers, (holding, counting), strict=True)
        )
        holder, waiting = self.holder(holding, errors), self.waiting(cancelable, errors)
        managers[0].start_cancel()
        holder.join()
        waiting.join()
        assert [type(error) for error in errors] == [tf.errors.CancelledError]
        np.testing.assert_allclose(local(strategy, counting()), [2.0] * CORES)

    def test_endless_wait_names_the_cores(self, strategy, steps):
        holding, counting, count = steps
        errors = []
        threads = [self.holder(holding, errors), self.waiting(counting, errors)]
        before = tf_tpu_ext.machine().wait_limit_seconds
        # The two that wait already have the limit of before.
        tf_tpu_ext.configure(wait_limit_seconds=1)
        try:
            message = r"cores \[0, 1, 2, 3, 4, 5, 6, 7\] are held by another program"
            with pytest.raises(tf.errors.OpError, match=message):
                counting()
        finally:
            tf_tpu_ext.configure(wait_limit_seconds=before)
        self.feed(10.0)
        for thread in threads:
            thread.join()
        assert not errors
        np.testing.assert_allclose(local(strategy, count), [11.0] * CORES)
