"""The ops of TPU embeddings by themselves: all ways to enqueue, to load and to configure."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu
from tensorflow.python.tpu.ops import tpu_ops

CORES = int(os.environ.get("TF_TPU_EXT_CORES", "8"))
ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
SLOTS = ROWS + 0.5


def configuration(features: int) -> Any:
    """One table, whose activations hold two samples of `features` features."""
    config = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration(
        mode=tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration.TRAINING,
        batch_size_per_tensor_core=2,
        num_hosts=1,
        num_tensor_cores=CORES,
    )
    table = config.table_descriptor.add(
        name="words", vocabulary_size=8, dimension=3, num_features=features
    )
    table.optimization_parameters.adagrad.SetInParent()
    table.optimization_parameters.learning_rate.constant = 0.5
    return config


@pytest.fixture
def strategy() -> Any:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def initialize(config: Any) -> None:
    @tf.function
    def run() -> None:
        tpu.initialize_system_for_tpu_embedding(config)

    run()


def configure(features: int) -> str:
    config = configuration(features)
    initialize(config)
    serialized: str = config.SerializeToString()
    tpu_ops.load_tpu_embedding_adagrad_parameters(
        ROWS, SLOTS, table_name="words", num_shards=1, shard_id=0
    )
    return serialized


INDICES = tf.constant([[0, 0], [0, 1], [1, 0]])
IDS = tf.constant([1, 2, 3])
ONES = tf.zeros([0])
# How two samples of ids [1, 2] and [3] are enqueued, and what comes back by rows.
WAYS = {
    "sparse tensor": (
        lambda core: tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
            [INDICES], [IDS], [ONES], [0], device_ordinal=core, mode_override="inference"
        ),
        [ROWS[1] + ROWS[2], ROWS[3]],
    ),
    "mean": (
        lambda core: tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
            [INDICES], [IDS], [ONES], [0], core, combiners=["mean"], mode_override="inference"
        ),
        [(ROWS[1] + ROWS[2]) / 2, ROWS[3]],
    ),
    "ragged tensor": (
        lambda core: tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
            [tf.constant([0, 2, 3])], [IDS], [ONES], [0], core, mode_override="inference"
        ),
        [ROWS[1] + ROWS[2], ROWS[3]],
    ),
    "sequence": (
        lambda core: tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
            [INDICES],
            [IDS],
            [ONES],
            [0],
            core,
            max_sequence_lengths=[2],
            mode_override="inference",
        ),
        [ROWS[1], ROWS[2], ROWS[3], 0 * ROWS[0]],
    ),
    "sparse": (
        lambda core: tpu_ops.enqueue_tpu_embedding_sparse_batch(
            [tf.constant([0, 0, 1])],
            [IDS],
            [tf.constant([1.0, 2.0, 3.0])],
            core,
            mode_override="inference",
        ),
        [ROWS[1] + 2 * ROWS[2], 3 * ROWS[3]],
    ),
    "integer": (
        lambda core: tpu_ops.enqueue_tpu_embedding_integer_batch(
            [tf.constant([4, 5])], core, mode_override="inference"
        ),
        [ROWS[4], ROWS[5]],
    ),
    "core as input": (
        lambda core: gen_tpu_ops.dynamic_enqueue_tpu_embedding_ragged_tensor_batch(
            [tf.constant([0, 2, 3])],
            [IDS],
            [ONES],
            "inference",
            tf.constant(core),
            table_ids=[0],
        ),
        [ROWS[1] + ROWS[2], ROWS[3]],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_enqueue(strategy, way):
    enqueue, rows = WAYS[way]
    config = configure(features=len(rows) // 2)

    @tf.function
    def enqueue_all() -> None:
        for core in range(CORES):
            enqueue(core)

    @tf.function
    def look_up() -> Any:
        return strategy.run(
            lambda: tpu_ops.recv_tpu_embedding_activations(num_outputs=1, config=config)[0]
        )

    enqueue_all()
    for activations in strategy.experimental_local_results(look_up()):
        np.testing.assert_allclose(activations, rows)


RATE = 0.5
GRADIENT = np.array([[1.0, -2.0, 3.0]], np.float32)


def yogi(rows: Any, v: Any, m: Any, gradient: Any) -> tuple[Any, ...]:
    v = v - 0.25 * np.sign(v - gradient**2) * gradient**2
    m = 0.5 * m + 0.5 * gradient
    rate = RATE / (np.sqrt(v) + 0.1)
    moved = rows - rate * m
    shrunk = np.sign(moved) * np.maximum(np.abs(moved) - rate * 0.125, 0)
    return shrunk / (1 + rate * 0.25), v, m


def steps_between(rows: Any, last: Any, gradient: Any) -> tuple[Any, ...]:
    since = np.minimum(RATE - last, 100)
    outlier = RATE - last >= 2 * rows
    return np.where(outlier, since, 0.75 * rows + 0.25 * since), 0 * last + RATE


YOGI = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.1, "l1": 0.125, "l2": 0.25}
ESTIMATOR = {"tau": 0.25, "max_delta": 100.0, "outlier_threshold": 2.0, "weight_exponent": 1.0}
# Options, the update, and the slots before it.
UPDATES: dict[str, tuple[dict[str, float], Any, list[Any]]] = {
    "proximal_yogi": (YOGI, yogi, [SLOTS, SLOTS / 8]),
    "frequency_estimator": (ESTIMATOR, steps_between, [-SLOTS]),
}


def train_once(strategy: Any, config: Any) -> None:
    """Makes a step in which the cores' gradients of rows 1 and 2 add up to GRADIENT."""
    text = config.SerializeToString()

    @tf.function
    def train() -> None:
        for core in range(CORES):
            tpu_ops.enqueue_tpu_embedding_integer_batch(
                [tf.constant([1, 2])], core, mode_override="train"
            )

        def step() -> None:
            [rows] = tpu_ops.recv_tpu_embedding_activations(num_outputs=1, config=text)
            gradients = tf.broadcast_to(GRADIENT / CORES, [2, 3]) + 0 * rows
            tpu_ops.send_tpu_embedding_gradients([gradients], text, [tf.constant(RATE)])

        strategy.run(step)

    train()


def check_update(states: list[Any], before: list[Any], update: Any) -> None:
    """Checks that rows 1 and 2, and no others, are what the update of `before` makes of them."""
    after = update(*(state[1:3] for state in before), GRADIENT)
    for actual, expected, unchanged in zip(states, after, before, strict=True):
        np.testing.assert_allclose(actual[1:3], expected, rtol=1e-5)
        np.testing.assert_array_equal(actual[3:], unchanged[3:])


@pytest.mark.parametrize("name", UPDATES)
def test_optimizers_that_only_ops_have(strategy, name):
    options, update, slots = UPDATES[name]
    config = configuration(features=1)
    optimizer = config.table_descriptor[0].optimization_parameters
    optimizer.learning_rate.dynamic.tag = 0
    for option, value in options.items():
        setattr(getattr(optimizer, name), option, value)
    shard = {"table_name": "words", "num_shards": 1, "shard_id": 0}
    initialize(config)
    getattr(tpu_ops, f"load_tpu_embedding_{name}_parameters")(ROWS, *slots, **shard)
    train_once(strategy, config)
    states = getattr(tpu_ops, f"retrieve_tpu_embedding_{name}_parameters")(**shard)
    check_update(states, [ROWS, *slots], update)


@tf.function(jit_compile=True)
def clipped_momentum(gradient: Any, rows: Any, momentum: Any, rate: Any) -> tuple[Any, ...]:
    momentum = tf.where(tf.abs(gradient) > 2.5, momentum / 2, momentum / 2 + gradient)
    return rows - rate * tf.tanh(momentum), momentum


def test_optimizer_written_as_a_function(strategy):
    value = tf.zeros([1, 1])
    program = clipped_momentum.experimental_get_compiler_ir(value, value, value, tf.constant(0.0))(
        stage="hlo_serialized"
    )
    config = configuration(features=1)
    optimizer = config.table_descriptor[0].optimization_parameters
    optimizer.learning_rate.dynamic.tag = 0
    optimizer.user_defined_program.program.ParseFromString(program)
    initialize(config)
    attributes = {
        "config": config.SerializeToString(),
        "num_shards": 1,
        "shard_id": 0,
        "NumTables": 1,
    }
    unused = [np.zeros([0, 0], np.float32)] * 6
    run_op("LoadAllTPUEmbeddingParameters", 0, [ROWS, SLOTS, *unused], **attributes)
    train_once(strategy, config)
    states = run_op("RetrieveAllTPUEmbeddingParameters", 8, [], **attributes)

    def update(rows: Any, momentum: Any, gradient: Any) -> tuple[Any, ...]:
        momentum = momentum / 2 + np.where(np.abs(gradient) > 2.5, 0, gradient)
        return rows - RATE * np.tanh(momentum), momentum

    check_update(states[:2], [ROWS, SLOTS], update)


def run_op(name: str, outputs: int, inputs: list[Any], **attributes: Any) -> list[Any]:
    """Runs an op that has no function in Python."""
    flat = tuple(part for attribute in attributes.items() for part in attribute)
    done: list[Any] = execute.execute(
        name.encode(), outputs, [tf.convert_to_tensor(x) for x in inputs], flat, context.context()
    )
    return done


def test_all_tables_load_and_retrieve_at_once(strategy):
    config = configure(features=1)
    attributes = {"config": config, "num_shards": 1, "shard_id": 0, "NumTables": 1}
    states = [2 * ROWS, 3 * SLOTS, *[np.zeros([0, 0], np.float32)] * 6]
    run_op("LoadAllTPUEmbeddingParameters", 0, states, **attributes)
    retrieved = run_op("RetrieveAllTPUEmbeddingParameters", 8, [], **attributes)
    for actual, expected in zip(retrieved, states, strict=True):
        np.testing.assert_allclose(actual, expected)


def test_hosts_have_their_rows(strategy):
    configure(features=1)
    rows = [
        tpu_ops.retrieve_tpu_embedding_adagrad_parameters(
            table_name="words", num_shards=3, shard_id=host
        )[0]
        for host in range(3)
    ]
    assert [len(of_host) for of_host in rows] == [3, 3, 2]
    np.testing.assert_allclose(np.concatenate(rows), ROWS)


def test_configuration_in_parts(strategy):
    config = configuration(features=1).SerializeToString()
    [common] = run_op("ExecuteTPUEmbeddingPartitioner", 1, [], config=config)
    [memory] = run_op("ConfigureTPUEmbeddingMemory", 1, [common])
    [merged] = run_op("CollateTPUEmbeddingMemory", 1, [memory], N=1)
    [host] = run_op("ConfigureTPUEmbeddingHost", 1, [common, merged], config=config)
    run_op("ConnectTPUEmbeddingHosts", 0, [host], N=1)
    run_op("FinalizeTPUEmbedding", 0, [common, merged])
    assert gen_tpu_ops.is_tpu_embedding_initialized(config=config)
    other = configuration(features=2).SerializeToString()
    assert not gen_tpu_ops.is_tpu_embedding_initialized(config=other)
    with pytest.raises(tf.errors.FailedPreconditionError, match="already configured"):
        run_op("ConfigureTPUEmbeddingHost", 1, [common, merged], config=config)


def test_unsupported_configurations_are_errors(strategy):
    config = configuration(features=1)
    parameters = config.table_descriptor[0].optimization_parameters
    parameters.mdl_adagrad_light.SetInParent()
    with pytest.raises(tf.errors.UnimplementedError, match="Supported are Adadelta"):
        gen_tpu_ops.configure_tpu_embedding(config=config.SerializeToString())
    for wrong in (b"", b"no proto"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="no serialized"):
            gen_tpu_ops.configure_tpu_embedding(config=wrong)
