"""TPUEmbedding: tables in the memory of the TPU, against variables of plain TensorFlow."""

from __future__ import annotations

import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local, strategy_of_all_cores
from tensorflow.python.eager.cancellation import CancellationManager
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext

CORES = int(os.environ.get("TF_TPU_EXT_CORES", "8"))
embedding = tf.tpu.experimental.embedding

BATCH = 2  # of one core
USERS = np.linspace(-1, 1, 20 * 4, dtype=np.float32).reshape(20, 4)
ITEMS = np.linspace(1, -1, 30 * 2, dtype=np.float32).reshape(30, 2)
HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)


@pytest.fixture
def strategy() -> Any:
    """A strategy of a new TPU system, which has no tables."""
    return strategy_of_all_cores()


@pytest.fixture
def short_limit() -> Iterator[None]:
    tf_tpu_ext.configure(wait_limit_seconds=1)
    yield
    tf_tpu_ext.configure(wait_limit_seconds=1800)


def table(values: np.ndarray, name: str, **options: Any) -> Any:
    return embedding.TableConfig(
        *values.shape, initializer=tf.constant_initializer(values), name=name, **options
    )


def one_table(strategy: Any, optimizer: Any = None, **options: Any) -> Any:
    """A TPUEmbedding of one feature, one id a sample, whose table has all rows different."""
    with strategy.scope():
        feature = embedding.FeatureConfig(table(USERS, "users", combiner="sum"), name="user")
        layer = embedding.TPUEmbedding(
            {"user": feature}, optimizer or embedding.SGD(learning_rate=0.5), **options
        )
    layer.build({"user": tf.TensorShape([BATCH])})
    return layer


def ids_of_cores(*first: int) -> list[np.ndarray]:
    """Ids for every core: `first`, and the same plus one for the next core, and so on."""
    return [np.array(first, np.int32) + core for core in range(CORES)]


@functools.lru_cache(maxsize=8)
def enqueuer(strategy: Any, layer: Any, training: bool) -> Callable[[list[Any]], None]:
    @tf.function
    def enqueue_all(ids: list[Any]) -> None:
        for core, device in enumerate(strategy.extended.worker_devices):
            layer.enqueue({"user": ids[core]}, training=training, device=device)

    return enqueue_all


def enqueue(strategy: Any, layer: Any, ids: list[np.ndarray], training: bool) -> None:
    enqueuer(strategy, layer, training)([tf.constant(of_core) for of_core in ids])


def programs(strategy: Any, layer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step that trains, with gradients of one, and one that only looks up."""

    @tf.function
    def train() -> Any:
        def replica() -> Any:
            activations = layer.dequeue()
            layer.apply_gradients(tf.nest.map_structure(tf.ones_like, activations))
            return activations["user"]

        return strategy.run(replica)

    @tf.function
    def look_up() -> Any:
        return strategy.run(lambda: layer.dequeue()["user"])

    return train, look_up


def assert_looks_up(strategy: Any, program: Callable[[], Any], *first: int) -> None:
    """Runs a program, which must return the initial rows of `ids_of_cores(*first)`."""
    np.testing.assert_allclose(
        local(strategy, program()), [USERS[ids] for ids in ids_of_cores(*first)]
    )


def rows_of(layer: Any, name: str = "users", slot: str = "parameters") -> np.ndarray:
    layer._retrieve_variables()
    return layer._variables[name][slot].variables[0].numpy()


# A recommendation model.


def features_of(step: int) -> tuple[Any, Any]:
    """One user a sample, and the items that the user has seen: none, one or two, weighted."""
    generator = np.random.RandomState(step)
    samples = BATCH * CORES
    users = generator.randint(len(USERS), size=samples).astype(np.int32)
    counts = np.arange(samples) % 3
    items = [generator.randint(len(ITEMS), size=count) for count in counts]
    return tf.constant(users), tf.ragged.constant(items, dtype=tf.int64)


def score(weights: Any, user: Any, items: Any) -> Any:
    return tf.reduce_sum(tf.square(tf.concat([user, items], axis=1) @ weights))


def train_on_tpu(strategy: Any, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    with strategy.scope():
        layer = embedding.TPUEmbedding(
            {
                "user": embedding.FeatureConfig(table(USERS, "users", combiner="sum")),
                "items": embedding.FeatureConfig(
                    table(ITEMS, "items", combiner="mean", optimizer=embedding.Adagrad(0.3))
                ),
            },
            embedding.SGD(learning_rate=0.05),
        )
        weights = tf.Variable(tf.ones([6, 1]))
    layer.build({"user": tf.TensorShape([BATCH]), "items": tf.TensorShape([BATCH, None])})
    data = tf.data.Dataset.from_tensor_slices(
        {
            "user": tf.concat([features_of(step)[0] for step in range(steps)], 0),
            "items": tf.concat([features_of(step)[1] for step in range(steps)], 0),
        }
    ).batch(BATCH * CORES, drop_remainder=True)
    batches = iter(strategy.experimental_distribute_dataset(data, HOST))

    @tf.function
    def train() -> Any:
        losses = tf.TensorArray(tf.float32, steps)

        def replica() -> Any:
            with tf.GradientTape() as tape:
                activations = layer.dequeue()
                tape.watch(activations)
                loss = score(weights, activations["user"], activations["items"])
            gradient, gradients = tape.gradient(loss, [weights, activations])
            layer.apply_gradients(gradients)
            gradient = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            weights.assign_sub(0.01 * gradient)
            return loss

        for step in tf.range(steps):
            layer.enqueue(next(batches), training=True)
            loss = strategy.reduce("SUM", strategy.run(replica), axis=None)
            losses = losses.write(step, loss)
        return losses.stack()

    losses = train().numpy().tolist()
    names = [("users", "parameters"), ("items", "parameters"), ("items", "accumulators")]
    tables = {f"{name}/{slot}": rows_of(layer, name, slot) for name, slot in names}
    return losses, tables


def train_on_host(steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    users, items = tf.Variable(USERS), tf.Variable(ITEMS)
    accumulators, weights = np.full_like(ITEMS, 0.1), tf.Variable(tf.ones([6, 1]))
    losses = []
    for step in range(steps):
        user, seen = features_of(step)
        with tf.GradientTape() as tape:
            mean = tf.nn.embedding_lookup_sparse(items, seen.to_sparse(), None, combiner="mean")
            # Samples at the end without ids are left out.
            mean = tf.pad(mean, [[0, len(user) - len(mean)], [0, 0]])
            loss = score(weights, tf.gather(users, user), mean)
        of_weights, of_users, of_items = map(
            tf.convert_to_tensor, tape.gradient(loss, [weights, users, items])
        )
        weights.assign_sub(0.01 * of_weights)
        users.assign_sub(0.05 * of_users)
        accumulators += of_items.numpy() ** 2
        items.assign_sub(0.3 * of_items / np.sqrt(accumulators))
        losses.append(float(loss))
    tables = {
        "users/parameters": users.numpy(),
        "items/parameters": items.numpy(),
        "items/accumulators": accumulators,
    }
    return losses, tables


def test_model_trains_as_with_variables(strategy):
    losses, tables = train_on_tpu(strategy, steps=5)
    expected_losses, expected_tables = train_on_host(steps=5)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for name, expected in expected_tables.items():
        np.testing.assert_allclose(tables[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.timeout(900)
def test_model_on_other_numbers_of_cores(run_tests_on_other_cores):
    names = "model_trains or step_sees or failed_step or optimizers"
    if os.environ.get("TF_TPU_EXT_EMBEDDING_INNER") is None:
        os.environ["TF_TPU_EXT_EMBEDDING_INNER"] = "1"
        try:
            run_tests_on_other_cores(CORES, [pathlib.Path(__file__)], "-k", names)
        finally:
            del os.environ["TF_TPU_EXT_EMBEDDING_INNER"]


# Steps.


def test_step_sees_the_updates_of_all_cores_before_it(strategy):
    layer = one_table(strategy)
    train, look_up = programs(strategy, layer)
    same = [np.array([3, 4], np.int32)] * CORES
    for _ in range(3):
        enqueue(strategy, layer, same, training=True)
        train()
    enqueue(strategy, layer, ids_of_cores(3, 5), training=False)
    expected = USERS.copy()
    expected[3:5] -= 3 * 0.5 * CORES
    np.testing.assert_allclose(
        local(strategy, look_up()), [expected[ids] for ids in ids_of_cores(3, 5)], rtol=1e-5
    )
    np.testing.assert_allclose(rows_of(layer), expected, rtol=1e-5)


def test_batches_may_be_queued_ahead(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    for step in range(3):
        enqueue(strategy, layer, ids_of_cores(step, 7), training=False)
    for step in range(3):
        assert_looks_up(strategy, look_up, step, 7)


def test_a_full_queue_holds_up_who_enqueues(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    for _ in range(32):
        enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    thread = threading.Thread(
        target=enqueue, args=(strategy, layer, ids_of_cores(3, 4), False), daemon=True
    )
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    look_up()
    for _ in range(32):
        last = look_up()
    thread.join(30)
    assert not thread.is_alive()
    np.testing.assert_allclose(local(strategy, last), [USERS[ids] for ids in ids_of_cores(3, 4)])


OPTIMIZERS = {
    "adam": embedding.Adam(learning_rate=0.1),
    "ftrl": embedding.FTRL(learning_rate=0.1),
    "dynamic": embedding.SGD(learning_rate=lambda: tf.constant(0.25)),
    "clipped": embedding.SGD(learning_rate=0.5, clipvalue=(-0.5, 0.5)),
    "decay": embedding.SGD(learning_rate=0.5, weight_decay_factor=0.1),
}


def expected_rows(name: str, rows: np.ndarray, gradient: float) -> np.ndarray:
    g = np.full_like(rows, gradient)
    if name == "adam":
        m, v = 0.1 * g, 0.001 * g**2
        return rows - 0.1 * m / np.sqrt(v + 1e-14)
    if name == "ftrl":
        accumulator = 0.1 + g**2
        linear = g - (np.sqrt(accumulator) - np.sqrt(0.1)) / 0.1 * rows
        return -linear / (np.sqrt(accumulator) / 0.1)
    if name == "dynamic":
        return rows - 0.25 * g
    if name == "clipped":
        return rows - 0.5 * np.clip(g, -0.5, 0.5)
    return rows * 0.9 - 0.5 * g


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_update_once_a_step(strategy, name):
    layer = one_table(strategy, OPTIMIZERS[name])
    train, _ = programs(strategy, layer)
    enqueue(strategy, layer, [np.array([3, 3], np.int32)] * CORES, training=True)
    train()
    expected = USERS.copy()
    expected[3] = expected_rows(name, USERS[3], 2.0 * CORES)
    np.testing.assert_allclose(rows_of(layer), expected, rtol=1e-4, atol=1e-6)


def test_pipelined_steps_miss_the_last_update(strategy):
    layer = one_table(strategy, pipeline_execution_with_tensor_core=True)
    train, _ = programs(strategy, layer)
    seen = []
    for _ in range(3):
        enqueue(strategy, layer, [np.array([3, 4], np.int32)] * CORES, training=True)
        seen.append(local(strategy, train())[0, 0])
    update = 0.5 * CORES
    np.testing.assert_allclose(seen, [USERS[3], USERS[3], USERS[3] - update], rtol=1e-5)
    np.testing.assert_allclose(rows_of(layer)[3], USERS[3] - 3 * update, rtol=1e-5)


# Checkpoints.


def test_checkpoint_keeps_tables_over_systems_and_opens_on_cpu(strategy, tmp_path):
    layer = one_table(strategy, embedding.Adagrad(learning_rate=0.5))
    train, _ = programs(strategy, layer)
    enqueue(strategy, layer, ids_of_cores(3, 4), training=True)
    train()
    saved, accumulators = rows_of(layer), rows_of(layer, slot="accumulators")
    assert not np.allclose(saved, USERS)
    path = tf.train.Checkpoint(layer=layer).save(str(tmp_path / "embedding"))

    strategy = strategy_of_all_cores()
    restored = one_table(strategy, embedding.Adagrad(learning_rate=0.5))
    np.testing.assert_allclose(rows_of(restored), USERS)
    tf.train.Checkpoint(layer=restored).restore(path)
    np.testing.assert_allclose(rows_of(restored), saved)
    np.testing.assert_allclose(rows_of(restored, slot="accumulators"), accumulators)

    feature = embedding.FeatureConfig(table(USERS, "users", combiner="sum"), name="user")
    on_cpu = embedding.TPUEmbedding({"user": feature}, embedding.Adagrad(learning_rate=0.5))
    tf.train.Checkpoint(layer=on_cpu).restore(path)
    [variable] = on_cpu.embedding_tables.values()
    np.testing.assert_allclose(variable.numpy(), saved)


# What goes wrong.


def test_wrong_ids_are_refused_before_they_are_queued(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    for wrong in (len(USERS), -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"has the id {wrong}; table"):
            enqueue(strategy, layer, [np.array([0, wrong], np.int32)] * CORES, training=False)
    for wrong, message in (
        ({"combiners": ["max"]}, "combiner is 'max'"),
        ({"combiners": ["sum", "sum"]}, "has 2 combiners for 1 tables"),
        ({"mode_override": "learn"}, "mode_override of op"),
        ({"device_ordinal": CORES}, f"names core {CORES}"),
    ):
        arguments = {"device_ordinal": 0, "mode_override": "inference", **wrong}
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
                [tf.zeros([0], tf.int32)],
                [tf.zeros([BATCH], tf.int64)],
                [tf.zeros([0])],
                **arguments,
            )
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    assert_looks_up(strategy, look_up, 1, 2)


def test_one_wrong_batch_takes_those_of_its_step_along(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    ids = ids_of_cores(3, 4)
    ids[-1] = np.array([3, 99], np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has the id 99"):
        enqueue(strategy, layer, ids, training=False)
    enqueue(strategy, layer, ids_of_cores(5, 6), training=False)
    for first in (1, 5):
        assert_looks_up(strategy, look_up, first, first + 1)


def test_failed_step_leaves_nothing_behind(strategy):
    layer = one_table(strategy)
    train, look_up = programs(strategy, layer)
    message = "sends embedding gradients, but took no training batch"
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        train()
    # A training batch without gradients: the next one reports it.
    enqueue(strategy, layer, ids_of_cores(1, 2), training=True)
    look_up()
    enqueue(strategy, layer, ids_of_cores(1, 2), training=True)
    enqueue(strategy, layer, ids_of_cores(5, 6), training=True)
    with pytest.raises(tf.errors.FailedPreconditionError, match="never sent the gradients"):
        train()

    np.testing.assert_allclose(rows_of(layer), USERS)
    enqueue(strategy, layer, ids_of_cores(1, 2), training=True)
    assert_looks_up(strategy, train, 1, 2)


def test_a_batch_that_never_comes_is_an_error(strategy, short_limit):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    message = r"RecvTPUEmbeddingActivations\S* waited \S+ on the embedding batches of core \d"
    with pytest.raises(tf.errors.DeadlineExceededError, match=message):
        look_up()
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    look_up()


def test_cancellation_ends_the_wait_for_a_batch(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)

    @tf.function
    def waiting() -> Any:
        def replica() -> Any:
            tpu_ops.outfeed_enqueue_tuple([True])
            return layer.dequeue()["user"]

        return strategy.run(replica)

    manager = CancellationManager()
    cancelled = manager.get_cancelable_function(waiting.get_concrete_function())

    def cancel_when_all_wait() -> None:
        for core in range(CORES):
            with tf.device("/device:CPU:0"):
                tpu_ops.outfeed_dequeue_tuple([tf.bool], [[]], device_ordinal=core)
        manager.start_cancel()

    threading.Thread(target=cancel_when_all_wait).start()
    with pytest.raises(tf.errors.CancelledError):
        cancelled()
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    assert_looks_up(strategy, look_up, 1, 2)


def test_a_new_system_has_no_tables(strategy):
    layer = one_table(strategy)
    _, look_up = programs(strategy, layer)
    enqueue(strategy, layer, ids_of_cores(1, 2), training=False)
    assert tpu_ops.is_tpu_embedding_initialized()
    with pytest.raises(RuntimeError, match="already initialized for embeddings"):
        one_table(strategy)

    strategy_of_all_cores()
    assert not tpu_ops.is_tpu_embedding_initialized()
    for call in (
        lambda: enqueue(strategy, layer, ids_of_cores(1, 2), training=False),
        layer._retrieve_variables,
        look_up,
    ):
        with pytest.raises(tf.errors.FailedPreconditionError, match="are not configured"):
            call()


def test_unknown_tables_and_optimizers_are_named(strategy):
    one_table(strategy)
    load = tpu_ops.load_tpu_embedding_stochastic_gradient_descent_parameters
    with pytest.raises(tf.errors.NotFoundError, match=r"no embedding table items; .* 'users'"):
        load(USERS, table_name="items", num_shards=1, shard_id=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \[3,4\]; .* \[20,4\]"):
        load(USERS[:3], table_name="users", num_shards=1, shard_id=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"retrieves 1 slots of .* has 0"):
        tpu_ops.retrieve_tpu_embedding_adagrad_parameters(
            table_name="users", num_shards=1, shard_id=0
        )
