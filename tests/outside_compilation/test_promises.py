"""What docs/outside_compilation.md promises of every cluster, a test for each row."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

v1 = tf.compat.v1
outside = v1.tpu.outside_compilation


def call(function: Any, *inputs: Any, dtype: tf.DType = tf.float32, shape: Any = ()) -> tf.Tensor:
    """Calls a Python function on the host, with the replica's number first."""

    def host(*inputs):
        y = tf.py_function(function, [tf_tpu_ext.tpu.replica_id(), *inputs], dtype)
        return tf.ensure_shape(y, shape)

    return outside(host, *inputs)


def stepper(strategy: Any, computation: Any) -> Any:
    @tf.function
    def step(*inputs):
        return strategy.run(computation, args=inputs)

    return step


def local(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(x).tolist() for x in strategy.experimental_local_results(value)]


@pytest.fixture
def wait_limit():
    """Sets the limit of waits for one test."""
    before = tf_tpu_ext.machine().wait_limit_seconds
    yield lambda seconds: tf_tpu_ext.configure(wait_limit_seconds=seconds)
    tf_tpu_ext.configure(wait_limit_seconds=before)


class Log:
    """A Python function of the host that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float]] = []

    def __call__(self, replica: Any, x: Any) -> Any:
        self.calls.append((int(replica), float(x)))
        return x + 1

    def of(self, replica: int) -> list[float]:
        return [x for number, x in self.calls if number == replica]


@pytest.fixture
def cores(strategy, mode):
    return strategy.num_replicas_in_sync


class TestCalls:
    def test_exactly_once_for_each_replica_and_step(self, strategy, cores):
        log = Log()
        step = stepper(strategy, lambda x: call(log, x * 2) * 2)
        for number in range(50):
            assert local(strategy, step(tf.constant(float(number)))) == [4.0 * number + 2] * cores
        for replica in range(cores):
            assert log.of(replica) == [2.0 * number for number in range(50)]

    def test_unused_result_does_not_remove_the_call(self, strategy, cores):
        log = Log()

        def computation(x):
            call(log, x * 2)
            return x

        stepper(strategy, computation)(tf.constant(1.0))
        assert sorted(log.calls) == [(replica, 2.0) for replica in range(cores)]

    def test_equal_calls_are_all_made(self, strategy, cores):
        log = Log()
        step = stepper(strategy, lambda x: call(log, x) + call(log, x) + call(log, x))
        assert local(strategy, step(tf.constant(1.0))) == [6.0] * cores
        assert sorted(log.calls) == [(n, 1.0) for n in range(cores) for _ in range(3)]

    def test_program_order_across_loop_iterations(self, strategy, cores):
        log = Log()

        def computation(x):
            def body(number, x):
                # Neither needs the other: only the order of the program orders them.
                value = tf.cast(number, tf.float32)
                call(log, value * 10)
                call(log, value * 10 + 1)
                return number + 1, x + 1

            y = tf.while_loop(lambda number, _: number < 20, body, [0, x])[1]
            call(log, y * 1000)
            return y

        stepper(strategy, computation)(tf.constant(0.0))
        expected = [10.0 * number + place for number in range(20) for place in (0, 1)]
        for replica in range(cores):
            assert log.of(replica) == [*expected, 20000.0]

    def test_effects_are_visible_before_the_step_returns(self, strategy, cores):
        done = []
        release = threading.Event()

        def slow(replica):
            release.wait()
            done.append(int(replica))

        def computation(x):
            outside(lambda: tf.py_function(slow, [tf_tpu_ext.tpu.replica_id()], []))
            return x

        step = stepper(strategy, computation)
        with ThreadPoolExecutor(1) as pool:
            for number in range(1, 4):
                release.clear()
                stepped = pool.submit(step, tf.constant(1.0))
                # That nothing happens shows only in time: however long this is, no step may end.
                assert not wait([stepped], timeout=0.1).done
                release.set()
                stepped.result()
                assert sorted(done) == sorted(list(range(cores)) * number)

    def test_replicas_may_wait_for_each_other_on_the_host(self, strategy, cores):
        """A call of the host may take long: the other replicas go on."""
        barrier = threading.Barrier(min(cores, 2))

        def meet(replica, x):
            # Python functions share TensorFlow's threads, of which this machine may have two.
            if replica < 2:
                barrier.wait(timeout=60)
            return x

        step = stepper(strategy, lambda x: call(meet, x * 2))
        assert local(strategy, step(tf.constant(2.0))) == [4.0] * cores


class TestFailures:
    @pytest.mark.parametrize("place", ["first", "in_a_loop", "last"])
    def test_error_stops_all_replicas(self, strategy, cores, place):
        def python(replica, x, bad):
            if replica == bad:
                raise ValueError(f"replica {int(replica)} gave up")
            return x

        def computation(x, bad):
            context = tf.distribute.get_replica_context()

            def host(y):
                return call(python, y, bad)

            if place == "first":
                return context.all_reduce("SUM", host(x))
            if place == "last":
                return host(context.all_reduce("SUM", x * 2)) / 2
            body = lambda number, y: (number + 1, context.all_reduce("MEAN", host(y)))  # noqa: E731
            y = tf.while_loop(lambda number, _: number < 3, body, [0, x])[1]
            return y * cores

        step = stepper(strategy, computation)
        none = tf.constant(-1)
        assert local(strategy, step(tf.constant(1.0), none)) == [cores] * cores
        for bad in (0, cores - 1):
            # TensorFlow's own while op may report its cancellation first, in a few of a hundred.
            for _ in range(5 if place == "in_a_loop" else 1):
                with pytest.raises(tf.errors.OpError) as error:
                    step(tf.constant(1.0), tf.constant(bad))
                if not isinstance(error.value, tf.errors.CancelledError):
                    break
            message = str(error.value)
            assert f"ValueError: replica {bad} gave up" in message
            # Python's traceback, and the op that ran the function.
            assert "test_promises.py" in message
            assert "in python" in message
            assert "EagerPyFunc" in message
            assert local(strategy, step(tf.constant(1.0), none)) == [cores] * cores

    def test_error_of_a_host_op_has_its_name_and_message(self, strategy, cores):
        def host(x):
            return tf.strings.to_number(tf.strings.as_string(x) + "?", name="parse_the_text")

        step = stepper(strategy, lambda x: outside(host, x * 2))
        with pytest.raises(tf.errors.InvalidArgumentError, match="parse_the_text") as error:
            step(tf.constant(1.0))
        assert "StringToNumberOp could not correctly convert string: 2.000000?" in str(error.value)
        assert "test_promises.py" in str(error.value)

    def test_cancellation_reaches_a_waiting_host(self, mode):
        """Cancelling a session's run ends a cluster that waits in a queue."""
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            queue = v1.FIFOQueue(10, [tf.float32], shapes=[[]])
            enqueue = queue.enqueue(5.0)
            (output,) = v1.tpu.rewrite(lambda x: outside(lambda: queue.dequeue()) * x, [2.0])
            session.run(enqueue)
            assert session.run(output) == 10.0
            options = v1.RunOptions(timeout_in_ms=300)
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(output, options=options)
            session.run(enqueue)
            assert session.run(output) == 10.0

    def test_error_reaches_a_waiting_host(self, strategy, cores):
        """When one replica fails, the host calls of the others that wait end, too."""
        if cores == 1:
            pytest.skip("there is one replica")
        queue = tf.queue.FIFOQueue(100, [tf.float32], shapes=[[]])

        def computation(x, bad):
            def host(x):
                number = tf_tpu_ext.tpu.replica_id()

                def fail():
                    with tf.control_dependencies([tf.debugging.Assert(False, ["one failed"])]):
                        return tf.identity(x)

                return tf.cond(tf.equal(number, bad), fail, lambda: queue.dequeue() + x)

            return outside(host, x * 2)

        step = stepper(strategy, computation)
        # Both branches are functions: TensorFlow reports the one that ends first, the failed one
        # or the one that is cancelled for it.
        with pytest.raises(tf.errors.OpError, match=r"one failed|Dequeue operation was cancelled"):
            step(tf.constant(1.0), tf.constant(0))
        # What a cancelled wait has taken is not lost.
        assert queue.size().numpy() == 0
        for _ in range(cores):
            queue.enqueue(3.0)
        assert local(strategy, step(tf.constant(1.0), tf.constant(-1))) == [5.0] * cores

    def test_wait_limit(self, strategy, cores, wait_limit, mode):
        """The error names who waits, and for what."""
        release = threading.Event()

        def stuck(replica, x):
            if replica == cores - 1:
                release.wait()
            return x

        step = stepper(strategy, lambda x: call(stuck, x * 2) + 1)
        wait_limit(1.0)
        # TensorFlow's executor can't leave a Python function of the host's graph: the call ends
        # with it, whatever it waited for.
        timer = threading.Timer(4.0, release.set)
        timer.start()
        with pytest.raises(tf.errors.OpError, match="waited") as error:
            step(tf.constant(1.0))
        timer.cancel()
        waits_for = "test_promises.py" if mode == "folded" else "host_compute_channel"
        assert waits_for in str(error.value)
        release.set()
        wait_limit(60.0)
        assert local(strategy, step(tf.constant(1.0))) == [3.0] * cores


class TestMemory:
    def test_no_tensor_is_kept_after_the_step(self, strategy, cores):
        alive = []

        class Tracked(np.ndarray):
            pass

        def python(replica, x):
            array = np.full(1 << 16, float(x), np.float32).view(Tracked)
            alive.append(weakref.ref(array))
            return array

        def computation(x):
            def host(x):
                y = tf.numpy_function(python, [tf_tpu_ext.tpu.replica_id(), x], tf.float32)
                return tf.ensure_shape(y, [1 << 16])

            return tf.reduce_sum(outside(host, x * 2))

        step = stepper(strategy, computation)
        for _ in range(5):
            step(tf.constant(1.0))
        gc.collect()
        assert len(alive) == 5 * cores
        assert sum(reference() is not None for reference in alive) == 0

    @pytest.mark.parametrize("size", [1, 1 << 14])
    def test_what_a_host_function_keeps_is_not_overwritten(self, strategy, cores, size):
        kept: dict[str, list[Any]] = {"tensors": [], "arrays": []}

        def keep_tensor(x):
            kept["tensors"].append(x)
            return x * 2

        def keep_array(x):
            kept["arrays"].append(x)
            return x * 2

        def computation(x):
            def body(number, x):
                def host(x):
                    y = tf.py_function(keep_tensor, [x], tf.float32)
                    y = tf.numpy_function(keep_array, [y], tf.float32)
                    return tf.ensure_shape(y, [size])

                return number + 1, outside(host, x + 1.0) / 4

            return tf.while_loop(lambda number, _: number < 4, body, [0, x])[1]

        step = stepper(strategy, computation)
        for number in range(3):
            step(tf.fill([size], 10.0 * number))
        expected = [10.0 * number + place + 1 for number in range(3) for place in range(4)]
        for name, factor in (("tensors", 1), ("arrays", 2)):
            values = sorted(float(np.asarray(x)[-1]) for x in kept[name])
            assert values == sorted(factor * x for x in expected for _ in range(cores))
            assert all(len(set(np.asarray(x).tolist())) == 1 for x in kept[name])

    def test_queue_keeps_what_it_got(self, strategy, cores):
        queue = tf.queue.FIFOQueue(1000, [tf.float32], shapes=[[3]])

        def computation(x):
            def body(number, x):
                outside(queue.enqueue, x)
                return number + 1, x + 1

            return tf.while_loop(lambda number, _: number < 5, body, [0, x])[1]

        step = stepper(strategy, computation)
        step(tf.zeros([3]))
        step(tf.fill([3], 100.0))
        values = queue.dequeue_many(10 * cores).numpy()
        expected = [base + place for base in (0, 100) for place in range(5)]
        assert sorted(values[:, 0].tolist()) == sorted(expected * cores)
        assert (values == values[:, :1]).all()
