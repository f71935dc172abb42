"""Updates that run once for all replicas give what each replica would compute for itself."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from process_memory import resident_bytes

import tf_tpu_ext


@pytest.fixture(params=["shared", "own"])
def updates(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether updates are shared, or each replica computes its own."""
    shared = request.param == "shared"
    tf_tpu_ext.configure(share_updates=shared, stack_replicas=shared)
    yield request.param
    tf_tpu_ext.configure(share_updates=True, stack_replicas=True)


def copies(variable: Any) -> list[np.ndarray]:
    """The variable's value on each core."""
    return [component.numpy() for component in variable.values]


def rows(strategy: tf.distribute.TPUStrategy, width: int) -> tuple[np.ndarray, Any]:
    """Different data for each replica: all of it, and as a per-replica value."""
    replicas = strategy.num_replicas_in_sync
    data = np.random.default_rng(7).normal(size=(replicas, 4, width)).astype(np.float32)
    return data, strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(data[context.replica_id_in_sync_group])
    )


def step_of(
    strategy: tf.distribute.TPUStrategy, replica: Callable[..., Any], *arguments: Any
) -> Callable[[], Any]:
    @tf.function
    def step() -> Any:
        return strategy.run(replica, args=arguments)

    return step


def counter(strategy: tf.distribute.TPUStrategy, numbers: int) -> tuple[Any, Callable[[], Any]]:
    """A variable of `numbers` zeros, and a step that adds the number of replicas to each."""
    with strategy.scope():
        weights = tf.Variable(tf.zeros([numbers]))

    def replica() -> None:
        weights.assign_add(
            tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([numbers]))
        )

    return weights, step_of(strategy, replica)


def train(
    strategy: tf.distribute.TPUStrategy, make_optimizer: Callable[[], Any], steps: int
) -> list[list[np.ndarray]]:
    """Fits a small regression; the copies of its weights."""
    with strategy.scope():
        weights = tf.Variable(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
        bias = tf.Variable(tf.zeros([4]))
        optimizer = make_optimizer()
        optimizer.build([weights, bias])
    _, data = rows(strategy, 6)

    def replica(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ weights + bias) - 0.5))
        gradients = tape.gradient(loss, [weights, bias])
        optimizer.apply_gradients(zip(gradients, [weights, bias], strict=True))
        return loss

    @tf.function
    def step() -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica, args=(data,)), axis=None)

    losses = [float(step()) for _ in range(steps)]
    assert losses[-1] < losses[0]
    return [copies(weights), copies(bias), [np.float32(losses)]]


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: tf.keras.optimizers.Adam(0.05),
        lambda: tf.keras.optimizers.Adagrad(0.1, clipnorm=0.5),
    ],
    ids=["momentum", "adam", "clipped"],
)
def test_training_is_the_same_both_ways(
    strategy: tf.distribute.TPUStrategy, make_optimizer: Callable[[], Any]
) -> None:
    results = []
    for share in (True, False):
        tf_tpu_ext.configure(share_updates=share)
        try:
            results.append(train(strategy, make_optimizer, steps=6))
        finally:
            tf_tpu_ext.configure(share_updates=True)
    for shared, own in zip(*results, strict=True):
        for copy, reference in zip(shared, own, strict=True):
            np.testing.assert_allclose(copy, reference, rtol=1e-6, atol=1e-7)
        for copy in shared[1:]:
            np.testing.assert_array_equal(copy, shared[0])


def test_sums_products_and_extremes_follow_numpy(
    strategy: tf.distribute.TPUStrategy, updates: str
) -> None:
    with strategy.scope():
        total = tf.Variable(tf.zeros([4, 3]))
    values, data = rows(strategy, 3)

    def replica(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce("SUM", x)
        total.assign_add(summed * 2.0)
        return summed, context.all_reduce("MEAN", x) + 1.0, x * 3.0

    results = step_of(strategy, replica, data)()
    expected = (values.sum(0), values.mean(0) + 1)
    for result, reference in zip(results[:2], expected, strict=True):
        for copy in strategy.experimental_local_results(result):
            np.testing.assert_allclose(copy, reference, rtol=1e-5, atol=1e-6)
    for copy, own in zip(strategy.experimental_local_results(results[2]), values, strict=True):
        np.testing.assert_allclose(copy, own * 3, rtol=1e-6)
    for copy in copies(total):
        np.testing.assert_allclose(copy, values.sum(0) * 2, rtol=1e-5, atol=1e-5)


def test_variables_that_differ_stay_apart(
    strategy: tf.distribute.TPUStrategy, updates: str
) -> None:
    with strategy.scope():
        weights = tf.Variable(tf.zeros([40_000]))
    for number, component in enumerate(weights.values):
        component.assign(tf.fill([40_000], float(number)))
    values, data = rows(strategy, 3)

    def replica(x: tf.Tensor) -> None:
        weights.assign_add(
            tf.ones_like(weights)
            * tf.reduce_sum(tf.distribute.get_replica_context().all_reduce("SUM", x))
        )

    step = step_of(strategy, replica, data)
    step()
    step()
    for number, copy in enumerate(copies(weights)):
        np.testing.assert_allclose(copy, number + 2 * values.sum(), rtol=1e-4, atol=1e-4)


def test_a_value_that_was_read_does_not_change(
    strategy: tf.distribute.TPUStrategy, updates: str
) -> None:
    weights, step = counter(strategy, 100_000)
    step()
    before = [component.read_value() for component in weights.values]
    arrays = copies(weights)
    step()
    replicas = strategy.num_replicas_in_sync
    for kept in (before, arrays):
        for value in kept:
            np.testing.assert_array_equal(value, np.full(100_000, replicas, np.float32))
    for copy in copies(weights):
        np.testing.assert_array_equal(copy, np.full(100_000, 2 * replicas, np.float32))


def test_a_reader_sees_the_old_value_or_the_new_one(
    strategy: tf.distribute.TPUStrategy, updates: str
) -> None:
    weights, step = counter(strategy, 200_000)
    step()
    torn: list[tuple[float, float]] = []
    reads = 0
    ended = threading.Event()

    def read() -> None:
        nonlocal reads
        while not ended.is_set():
            value = weights.values[reads % strategy.num_replicas_in_sync].read_value()
            low, high = float(tf.reduce_min(value)), float(tf.reduce_max(value))
            reads += 1
            if low != high:
                torn.append((low, high))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(60):
        step()
    ended.set()
    thread.join(60)
    assert reads > 0
    assert not torn
    for copy in copies(weights):
        np.testing.assert_array_equal(copy, 61.0 * strategy.num_replicas_in_sync)


def test_a_failed_step_changes_nothing(strategy: tf.distribute.TPUStrategy, updates: str) -> None:
    with strategy.scope():
        weights = tf.Variable(tf.zeros([50_000]))
        fails = tf.Variable(False, trainable=False)

    def check(failing: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_equal(failing, False, message="fails on purpose")
        return tf.ones([50_000])

    def replica() -> None:
        value = tf_tpu_ext.tpu.outside_compilation(check, fails.read_value())
        weights.assign_add(tf.distribute.get_replica_context().all_reduce("SUM", value))

    step = step_of(strategy, replica)
    step()
    fails.assign(True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="fails on purpose"):
        step()
    replicas = strategy.num_replicas_in_sync
    for copy in copies(weights):
        np.testing.assert_array_equal(copy, np.full(50_000, replicas, np.float32))
    fails.assign(False)
    step()
    for copy in copies(weights):
        np.testing.assert_array_equal(copy, np.full(50_000, 2 * replicas, np.float32))


def test_a_mirrored_variable_has_one_buffer(
    strategy: tf.distribute.TPUStrategy, updates: str
) -> None:
    numbers = 1 << 24
    before = resident_bytes()
    with strategy.scope():
        weights = tf.Variable(tf.zeros([numbers]))

    def replica() -> None:
        weights.assign_add(
            tf.fill([numbers], tf.distribute.get_replica_context().all_reduce("SUM", 1.0))
        )

    step = step_of(strategy, replica)
    for _ in range(3):
        step()
    gc.collect()
    buffers = (resident_bytes() - before) / (numbers * 4)
    assert buffers < 2 if updates == "shared" else buffers > strategy.num_replicas_in_sync - 1
    for component in weights.values:
        assert float(component[-1]) == 3.0 * strategy.num_replicas_in_sync


# oneDNN's allocator, which TensorFlow takes on some processors, keeps freed buffers for itself.
_STEP_OF_ONE_CORE = """
import gc, os, pathlib, sys
import numpy as np
import tensorflow as tf
import tf_tpu_ext

def peak_bytes_of(function):
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    function()
    status = pathlib.Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 - pages * os.sysconf("SC_PAGE_SIZE")

tf_tpu_ext.configure(share_updates=sys.argv[1] == "shared")
numbers = 1 << 24
with tf.device("/device:TPU:0"):
    weights = tf.Variable(tf.zeros([numbers]))

@tf.function
def step():
    return tf_tpu_ext.tpu.rewrite(lambda: weights.assign_add(tf.fill([numbers], 2.0))[-1])[0]

step()
gc.collect()
print(peak_bytes_of(step) / (numbers * 4))
kept = weights.read_value()
assert float(step()) == 6.0
# Somebody had the old value: the step took another buffer.
np.testing.assert_array_equal(kept[:3], [4.0, 4.0, 4.0])
np.testing.assert_array_equal(weights[:3], [6.0, 6.0, 6.0])
"""


def test_a_step_of_one_core_writes_over_its_variables(run_python: Any, updates: str) -> None:
    done = run_python(
        _STEP_OF_ONE_CORE, updates, env={"TF_ENABLE_ONEDNN_OPTS": "0"}, interpreter=True
    )
    buffers = float(done.stdout)
    assert buffers < 0.5 if updates == "shared" else buffers > 0.5
