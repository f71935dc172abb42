"""Groups of replicas that run as one program give what each replica gives by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext
from tf_tpu_ext import _native

REPLICAS = 8


def group_size(replicas: int = REPLICAS) -> int:
    """How many replicas run as one on this machine."""
    groups = max(2, _native.library().TfTpuExt_ComputeThreads())
    while groups < replicas and replicas % groups:
        groups += 1
    return replicas // groups if groups < replicas else 1


pytestmark = pytest.mark.skipif(
    group_size() == 1, reason="the machine has as many processors as there are replicas"
)


@pytest.fixture(scope="module")
def strategy(make_strategy: Callable[[int], Any]) -> tf.distribute.TPUStrategy:
    return make_strategy(REPLICAS)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    tf_tpu_ext.configure(stack_replicas=True)


def run(
    strategy: tf.distribute.TPUStrategy, function: Callable[..., Any], *arguments: Any
) -> list[list[np.ndarray]]:
    """The flat results of each replica."""

    def replica(*inputs: Any) -> Any:
        return tf.nest.flatten(function(*inputs))

    @tf.function
    def step(*inputs: Any) -> Any:
        return strategy.run(replica, inputs)

    results = [strategy.experimental_local_results(x) for x in step(*arguments)]
    return [[array.numpy() for array in replica] for replica in zip(*results, strict=True)]


def stacked_replicas() -> int:
    return tf_tpu_ext.compilation_stats().programs[-1].stacked_replicas


RNG = np.random.default_rng(3)
WEIGHTS = RNG.normal(size=(6, 5)).astype(np.float32)
IMAGES = RNG.normal(size=(REPLICAS, 4, 9, 9, 3)).astype(np.float32)
ROWS = RNG.normal(size=(REPLICAS, 4, 6)).astype(np.float32)
NUMBERS = RNG.integers(0, 6, size=(REPLICAS, 4)).astype(np.int32)

# Of rows [4, 6] and numbers [4] of the replica, and weights [6, 5] of all.
Function = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Any]


def countdown(x: tf.Tensor, rounds: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(
        lambda i, _: i > 0, lambda i, x: (i - 1, tf.sin(x) + tf.cast(i, tf.float32)), (rounds, x)
    )[1]


def recurrent(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """A loop with an array of its rounds, and its gradient."""
    steps = tf.TensorArray(tf.float32, 6, element_shape=[4, 6])

    def body(i: tf.Tensor, state: tf.Tensor, steps: tf.TensorArray) -> Any:
        state = tf.tanh(state @ w[:, :1] @ tf.transpose(w[:, 1:2]) + tf.gather(x, [i], axis=1))
        return i + 1, state, steps.write(i, state)

    _, state, steps = tf.while_loop(lambda i, *_: i < 6, body, (0, x, steps), maximum_iterations=6)
    return tf.reduce_sum(steps.stack()) + tf.reduce_sum(state)


def gradients(function: Callable[..., tf.Tensor], *inputs: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
    return [value, *tape.gradient(value, inputs)]


FUNCTIONS: dict[str, Function] = {
    "elementwise": lambda x, i, w: (tf.tanh(x) * 2.0 + w[0, 0], x > 0.3, tf.cast(i, tf.float32)),
    "select": lambda x, i, w: (tf.where(x > 0, x, 0.5), tf.where(x[0, 0] > 0, x, -x)),
    "clip": lambda x, i, w: (tf.clip_by_value(x, -0.2, 0.2), tf.clip_by_value(x, x[0, 0], 2.0)),
    "types": lambda x, i, w: (
        tf.cast(x, tf.bfloat16) * tf.constant(3.0, tf.bfloat16),
        tf.bitwise.left_shift(tf.cast(i, tf.int64), 3),
        tf.bitcast(x, tf.int32),
        tf.complex(x, -x) * tf.complex(x, x),
    ),
    "matmul": lambda x, i, w: (x @ w, tf.transpose(w) @ tf.transpose(x)),
    "matmul of two": lambda x, i, w: x @ tf.transpose(x * 2.0),
    "batches": lambda x, i, w: (
        tf.einsum("bi,cij->bcj", x, tf.reshape(w[:, :4], [2, 6, 2])),
        tf.einsum("abi,aij->abj", tf.reshape(x, [2, 2, 6]), tf.reshape(w[:, :4], [2, 6, 2])),
        tf.einsum("aij,abi->abj", tf.reshape(w[:, :4], [2, 6, 2]), tf.reshape(x, [2, 2, 6])),
        tf.matmul(tf.reshape(x, [2, 2, 6]), tf.reshape(x, [2, 6, 2])),
    ),
    "reductions": lambda x, i, w: (
        tf.reduce_sum(x),
        tf.reduce_max(x, axis=0),
        tf.argmax(x, axis=1),
        tf.math.cumsum(x, axis=1),
        tf.reduce_all(x > -9.0),
    ),
    "softmax": lambda x, i, w: tf.nn.sparse_softmax_cross_entropy_with_logits(i, x @ tf.eye(6)),
    "sort": lambda x, i, w: (tf.sort(x, axis=1), tf.argsort(x, axis=0), tf.math.top_k(x, 2)),
    "gather": lambda x, i, w: (
        tf.gather(w, i),
        tf.gather(x, [3, 1], axis=1),
        tf.gather(x, i, axis=1),
        tf.gather(x, tf.reshape(i, [4, 1]), axis=1, batch_dims=1),
    ),
    "scatter": lambda x, i, w: (
        tf.tensor_scatter_nd_add(w, i[:, None], tf.ones([4, 5]) * x[:, :1]),
        tf.tensor_scatter_nd_update(tf.transpose(x), [[2], [5]], tf.ones([2, 4])),
        tf.math.unsorted_segment_sum(x, i, 6),
        tf.math.unsorted_segment_max(x, i, 6),
    ),
    "one hot": lambda x, i, w: tf.one_hot(i, 6) @ w,
    "pieces": lambda x, i, w: (
        x[1:3, ::2],
        tf.pad(x, [[1, 0], [2, 1]], constant_values=3.0),
        tf.reverse(x, [1]),
        tf.concat([x, tf.transpose(w)[:4]], 1),
        tf.stack([x, tf.ones_like(x)]),
        tf.tile(x[:, :1], [1, 3]),
        tf.roll(x, 2, 1),
    ),
    "dynamic slices": lambda x, i, w: (
        tf.slice(x, [0, i[0]], [4, 1]),
        tf.slice(x, [tf.reduce_sum(i) * 0, 1], [2, 3]),
    ),
    "loop": lambda x, i, w: countdown(x, tf.constant(5)),
    "loop of its own": lambda x, i, w: countdown(x, i[0]),
    "loop inside": lambda x, i, w: tf.while_loop(
        lambda j, _: j < 3, lambda j, x: (j + 1, countdown(x, j) * 0.5), (0, x)
    ),
    "a loop that becomes different": lambda x, i, w: tf.while_loop(
        lambda j, *_: j < 4,
        lambda j, a, b: (j + 1, b, b * 0.5 + x[0, 0]),
        (0, tf.zeros([]), tf.ones([])),
    ),
    "recurrent": lambda x, i, w: gradients(recurrent, x, w),
    "branch": lambda x, i, w: tf.cond(w[0, 0] > 0.0, lambda: x * 2.0, lambda: tf.zeros_like(x)),
    "branch of its own": lambda x, i, w: tf.cond(x[0, 0] > 0.0, lambda: x, lambda: x - 5.0),
    "switch": lambda x, i, w: tf.switch_case(
        i[0], [lambda: tf.ones([6]), lambda: x[0], lambda: x[1], lambda: w[:, 0]]
    ),
    "recomputed": lambda x, i, w: gradients(
        tf.recompute_grad(lambda x, w: tf.reduce_sum(tf.tanh(x @ w) ** 2)), x, w
    ),
    "linear algebra": lambda x, i, w: (
        tf.linalg.cholesky(x @ tf.transpose(x) + 9.0 * tf.eye(4)),
        tf.linalg.triangular_solve(tf.eye(4) * 3.0 + tf.ones([4, 4]), x),
        tf.signal.fft(tf.complex(x, x)),
    ),
    "gradients": lambda x, i, w: gradients(
        lambda x, w: tf.reduce_mean(tf.nn.gelu(tf.nn.relu(x @ w) @ tf.transpose(w)) ** 2), x, w
    ),
}

IMAGE_FUNCTIONS: dict[str, Callable[[tf.Tensor, tf.Tensor], Any]] = {
    "conv": lambda x, f: tf.nn.conv2d(x, f, 1, "SAME"),
    "conv gradients": lambda x, f: gradients(
        lambda x, f: tf.reduce_sum(tf.nn.conv2d(x, f, 2, "VALID") ** 2), x, f
    ),
    "conv of its own filter": lambda x, f: tf.nn.conv2d(x, f * x[0, 0, 0, 0], 1, "SAME"),
    "depthwise": lambda x, f: gradients(
        lambda x, f: tf.reduce_sum(tf.nn.depthwise_conv2d(x, f, [1, 1, 1, 1], "SAME") ** 2), x, f
    ),
    "pools": lambda x, f: gradients(
        lambda x: (
            tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "VALID") ** 2)
            + tf.reduce_sum(tf.nn.avg_pool2d(x, 3, 1, "SAME") ** 3)
        ),
        x,
    ),
    "windows": lambda x, f: tf.nn.max_pool2d(-x, 3, 1, "SAME"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_follows_plain_tensorflow(strategy: tf.distribute.TPUStrategy, name: str) -> None:
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)
    results = run(
        strategy,
        lambda x, i: FUNCTIONS[name](x, i, weights + 0.0),
        per_replica(strategy, ROWS),
        per_replica(strategy, NUMBERS),
    )
    assert stacked_replicas() == group_size()
    for replica, rows, numbers in zip(results, ROWS, NUMBERS, strict=True):
        expected = FUNCTIONS[name](tf.constant(rows), tf.constant(numbers), tf.constant(WEIGHTS))
        compare(replica, expected)


@pytest.mark.parametrize(
    ("name", "batch", "kernels"),
    [
        (name, batch, kernels)
        for batch, kernels in ((4, True), (12, True), (12, False))
        for name in IMAGE_FUNCTIONS
    ]
    + [("conv gradients", 64, True), ("conv gradients", 64, False)],
)
def test_images_follow_plain_tensorflow(
    strategy: tf.distribute.TPUStrategy, name: str, batch: int, kernels: bool
) -> None:
    """Larger batches are worth the kernels' calls."""
    images = np.tile(IMAGES, [1, batch // 4, 1, 1, 1])
    filters = np.linspace(-1, 1, 3 * 3 * 3 * 8, dtype=np.float32).reshape(3, 3, 3, 8)
    tf_tpu_ext.configure(tensorflow_kernels=kernels)
    try:
        with strategy.scope():
            variable = tf.Variable(filters)
        results = run(
            strategy,
            lambda x: IMAGE_FUNCTIONS[name](x, variable + 0.0),
            per_replica(strategy, images),
        )
    finally:
        tf_tpu_ext.configure(tensorflow_kernels=True)
    assert stacked_replicas() == group_size()
    for replica, own in zip(results, images, strict=True):
        compare(replica, IMAGE_FUNCTIONS[name](tf.constant(own), tf.constant(filters)), 1e-3)


def compare(got: list[np.ndarray], expected: Any, tolerance: float = 2e-5) -> None:
    for array, reference in zip(got, tf.nest.flatten(expected), strict=True):
        reference = np.asarray(reference)
        assert array.dtype == reference.dtype
        if array.dtype.kind in "fcV":
            array, reference = (np.asarray(a, np.complex128) for a in (array, reference))
            scale = max(1.0, float(np.abs(reference).max(initial=0.0)))
            np.testing.assert_allclose(array, reference, rtol=tolerance, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(array, reference)


def test_sums_over_the_replicas(strategy: tf.distribute.TPUStrategy) -> None:
    """Of gradients, through what may come between a product and its sum."""
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)
        table = tf.Variable(WEIGHTS)

    def replica(x: tf.Tensor, i: tf.Tensor) -> Any:
        context = tf.distribute.get_replica_context()
        hidden = tf.tanh(x @ weights)
        product = tf.matmul(x, hidden, transpose_a=True)
        rows = tf.math.unsorted_segment_sum(tf.gather(table, i) * 2.0, i, 6)
        bias = tf.reduce_sum(hidden, axis=0)
        values = [
            product,
            tf.transpose(product) * 0.5,
            tf.reshape(-product, [30]) / 3.0,
            rows,
            bias,
            product + 1.0,
            x,
            weights * 2.0,
        ]
        sums = context.all_reduce("SUM", values)
        return [*sums, product, context.all_reduce("MEAN", x), context.replica_id_in_sync_group]

    results = run(strategy, replica, per_replica(strategy, ROWS), per_replica(strategy, NUMBERS))
    assert stacked_replicas() == group_size()
    hidden = np.tanh(ROWS @ WEIGHTS)
    products = np.einsum("rbi,rbj->rij", ROWS, hidden)
    rows = np.zeros([6, 5], np.float32)
    np.add.at(rows, NUMBERS.ravel(), WEIGHTS[NUMBERS.ravel()] * 2)
    expected = [
        products.sum(0),
        products.sum(0).T * 0.5,
        -products.sum(0).ravel() / 3,
        rows,
        hidden.sum((0, 1)),
        products.sum(0) + REPLICAS,
        ROWS.sum(0),
        WEIGHTS * 2 * REPLICAS,
    ]
    for number, result in enumerate(results):
        compare(result, [*expected, products[number], ROWS.mean(0), np.int32(number)])


def train(strategy: tf.distribute.TPUStrategy, steps: int) -> tuple[list[float], list[Any]]:
    tf.keras.utils.set_random_seed(5)
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)
        seen = tf.Variable(
            tf.zeros([]),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        rounds = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        optimizer = tf.keras.optimizers.Adam(0.05)
        optimizer.build([weights])
    rows = per_replica(strategy, ROWS)

    def replica(x: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        loss, _, gradient = gradients(
            lambda x, w: tf.reduce_mean((tf.tanh(x @ w) - 0.5) ** 2), x, weights.read_value()
        )
        optimizer.apply_gradients([(gradient * rate, weights)])
        seen.assign_add(loss)
        rounds.assign_add(1)
        return loss

    @tf.function
    def step(rate: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica, args=(rows, rate)), axis=None)

    losses = [float(step(tf.constant(0.5))) for _ in range(steps)]
    copies = [variable.numpy() for variable in weights.values]
    assert all(np.array_equal(copies[0], copy) for copy in copies)
    assert rounds.numpy() == steps
    return losses, [copies[0], seen.numpy(), optimizer.iterations.numpy()]


def test_training_is_the_same_both_ways(strategy: tf.distribute.TPUStrategy) -> None:
    """With a variable for each replica, and a rate that only its value shows to be one for all."""
    losses, state = train(strategy, 6)
    assert losses[-1] < losses[0]
    assert any(p.stacked_replicas > 1 for p in tf_tpu_ext.compilation_stats().programs[-2:])
    tf_tpu_ext.configure(stack_replicas=False)
    plain_losses, plain_state = train(strategy, 6)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    compare(state, plain_state)


@pytest.mark.parametrize("share", [True, False])
def test_a_loop_of_steps_trains_alike(strategy: tf.distribute.TPUStrategy, share: bool) -> None:
    tf_tpu_ext.configure(share_updates=share)
    try:
        results = []
        for stack in (True, False):
            tf_tpu_ext.configure(stack_replicas=stack)
            with strategy.scope():
                weights = tf.Variable(WEIGHTS)

            def replica(x: tf.Tensor, weights: Any = weights) -> tf.Tensor:
                def body(i: tf.Tensor) -> tf.Tensor:
                    _, _, gradient = gradients(
                        lambda x, w: tf.reduce_mean(tf.tanh(x @ w) ** 2), x, weights.read_value()
                    )
                    total = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
                    weights.assign_sub(0.1 * total)
                    return i + 1

                tf.while_loop(lambda i: i < 5, body, [0])
                return tf.reduce_sum(tf.tanh(x @ weights))

            results.append(run(strategy, replica, per_replica(strategy, ROWS)))
            assert stacked_replicas() == (group_size() if stack else 1)
            results.append([[variable.numpy()] for variable in weights.values])
        for ours, reference in zip(results[0] + results[1], results[2] + results[3], strict=True):
            compare(ours, reference)
    finally:
        tf_tpu_ext.configure(share_updates=True)


def test_every_replica_has_its_own_feeds(strategy: tf.distribute.TPUStrategy) -> None:
    """A loop whose rounds meet takes from the infeed and gives to the outfeed of each core."""
    rounds = 3
    for number in range(rounds):
        for core in range(REPLICAS):
            value = tf.constant(core + 100.0 * number)
            tpu_ops.infeed_enqueue_tuple([value], [[]], device_ordinal=core)

    def replica(factor: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> Any:
            [fed] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])
            total += tf.compat.v1.tpu.cross_replica_sum(fed)
            with tf.control_dependencies([tpu_ops.outfeed_enqueue_tuple([fed * factor, total])]):
                return i + 1, total + 0.0

        return tf.while_loop(lambda i, _: i < rounds, body, (0, 0.0))[1]

    outputs = tf_tpu_ext.tpu.replicate(replica, [[float(core)] for core in range(REPLICAS)])
    assert stacked_replicas() == group_size()
    totals = np.cumsum([sum(range(REPLICAS)) + 100.0 * REPLICAS * i for i in range(rounds)])
    assert [float(total) for [total] in outputs] == [totals[-1]] * REPLICAS
    for core in range(REPLICAS):
        for number in range(rounds):
            scaled, total = tpu_ops.outfeed_dequeue_tuple(
                [tf.float32] * 2, [[], []], device_ordinal=core
            )
            assert float(scaled) == core * (core + 100.0 * number)
            assert float(total) == totals[number]


def test_copies_of_a_variable_that_differ_are_seen(strategy: tf.distribute.TPUStrategy) -> None:
    """A value that is expected to be one for all, and is not: each replica runs for itself."""
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)

    @tf.function
    def step(x: tf.Tensor) -> Any:
        def replica(x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(x @ weights)

        return strategy.run(replica, args=(x,))

    rows = per_replica(strategy, ROWS)

    def results() -> list[float]:
        return [float(x) for x in strategy.experimental_local_results(step(rows))]

    np.testing.assert_allclose(results(), (ROWS @ WEIGHTS).sum((1, 2)), rtol=1e-4)
    assert stacked_replicas() == group_size()
    for number, variable in enumerate(weights.values):
        variable.assign(WEIGHTS * number)
    expected = (ROWS @ WEIGHTS).sum((1, 2)) * np.arange(REPLICAS)
    np.testing.assert_allclose(results(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results(), expected, rtol=1e-4, atol=1e-4)


def test_random_numbers_differ_between_replicas(strategy: tf.distribute.TPUStrategy) -> None:
    results = run(strategy, lambda: tf.random.uniform([100]))
    assert stacked_replicas() == group_size()
    assert len({tuple(values) for (values,) in results}) == REPLICAS


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: tf.random.stateless_uniform([3], [1, 2]) + x[0, :3],
        lambda x, i: tf.random.stateless_normal([3], tf.stack([i[0], 7])),
        lambda x, i: tf.distribute.get_replica_context().all_gather(x, axis=0),
        lambda x, i: tf.linalg.qr(x),
    ],
    ids=["random numbers", "random numbers of its own", "gather of all", "linear algebra"],
)
def test_is_the_same_both_ways(
    strategy: tf.distribute.TPUStrategy, function: Callable[..., Any]
) -> None:
    """Where plain TensorFlow gives other numbers, or none."""
    arguments = [per_replica(strategy, ROWS), per_replica(strategy, NUMBERS)]
    results = run(strategy, function, *arguments)
    assert stacked_replicas() == group_size()
    tf_tpu_ext.configure(stack_replicas=False)
    compare_all(results, run(strategy, function, *arguments))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.compat.v1.tpu.outside_compilation(lambda x: x * 2.0, x) + 1.0,
        lambda x: tf.reduce_sum(tf.boolean_mask(x, x > 0.5)),
    ],
    ids=["host call", "dynamic size"],
)
def test_what_cannot_be_stacked_runs_alone(
    strategy: tf.distribute.TPUStrategy, function: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    tf_tpu_ext.configure(stack_replicas=False)
    try:
        reference = run(strategy, function, per_replica(strategy, np.abs(ROWS)))
        tf_tpu_ext.configure(stack_replicas=True)
        compare_all(run(strategy, function, per_replica(strategy, np.abs(ROWS))), reference)
    finally:
        tf_tpu_ext.configure(stack_replicas=True)
    assert stacked_replicas() == 1


def compare_all(results: list[list[np.ndarray]], references: list[list[np.ndarray]]) -> None:
    for result, reference in zip(results, references, strict=True):
        compare(result, reference)
