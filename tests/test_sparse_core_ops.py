"""The ops under TPUEmbeddingV2 that it does not use itself, against NumPy; and damaged inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import gen_xla_ops as ops

import tf_tpu_ext

SAMPLES = 16
CORES = 4  # SparseCores of the one chip
ROWS = 16384
WIDTH = 3


def random_ids(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    samples = np.sort(random.integers(0, SAMPLES, size=number)).astype(np.int32)
    ids = random.integers(0, ROWS, size=number).astype(np.int32)
    return samples, ids, random.uniform(0.5, 2, size=number).astype(np.float32)


def plan(samples: Any, ids: Any, gains: Any) -> Any:
    return ops.get_minibatch_splits_with_physical_replica(
        program_key=[""],
        row_ids=samples,
        col_ids=ids,
        gains=gains,
        sample_count=SAMPLES,
        num_replica=1,
        table_vocab_size=ROWS,
        feature_width=WIDTH,
        num_sc_per_chip=CORES,
        table_name="words",
        mini_batch_splits="",
    )


def pack(planned: Any, **changed: Any) -> Any:
    inputs: dict[str, Any] = {
        "row_ids": planned.sorted_row_ids,
        "col_ids": planned.sorted_col_ids,
        "gains": planned.sorted_gains,
        "splits": tf.reshape(planned.splits, [1]),
        "id_counts": planned.id_counts,
        "max_minibatches_per_sc": 8,
        **changed,
    }
    return ops.get_minibatches_in_csr_with_physical_replica(
        program_key=[""],
        sample_count=SAMPLES,
        num_replica=1,
        max_ids_per_chip_per_sample=1024,
        table_vocab_size=ROWS,
        feature_width=WIDTH,
        num_sc_per_chip=CORES,
        table_name="words",
        mini_batch_in_csr="",
        **inputs,
    )


def divided(table: np.ndarray) -> np.ndarray:
    """The rows in the order of SparseCores."""
    return table.reshape(-1, CORES, table.shape[1]).swapaxes(0, 1).reshape(table.shape)


def joined(parts: np.ndarray) -> np.ndarray:
    return parts.reshape(CORES, -1, parts.shape[1]).swapaxes(0, 1).reshape(parts.shape)


def on_core(function: Callable[..., Any], *inputs: Any) -> Any:
    return tf_tpu_ext.tpu.rewrite(function, list(inputs))


def buffers_of(packed: Any) -> list[Any]:
    return [
        packed.row_pointers,
        packed.sorted_sample_ids,
        packed.sorted_token_ids,
        packed.sorted_gains,
        packed.num_minibatches_per_physical_sparse_core,
    ]


def look_up(pointers: Any, samples: Any, ids: Any, gains: Any, minibatches: Any, table: Any) -> Any:
    return ops.xla_sparse_dense_matmul_with_csr_input(
        row_pointers=pointers,
        sorted_sample_ids=samples,
        sorted_token_ids=ids,
        sorted_gains=gains,
        embedding_table=table,
        num_minibatches_per_physical_sparse_core=minibatches,
        input_size=SAMPLES,
        quantization_config_low=0,
        quantization_config_high=0,
        quantization_config_num_buckets=0,
        table_name="words",
    )


TABLE = np.sin(np.arange(ROWS * WIDTH, dtype=np.float32)).reshape(ROWS, WIDTH)


@pytest.mark.parametrize("number", [0, 100, 8000])
def test_lookups_in_minibatches_match_numpy(number: int) -> None:
    samples, ids, gains = random_ids(number)
    planned = plan(samples, ids, gains)
    packed = pack(planned)
    [activations] = on_core(look_up, *buffers_of(packed), divided(TABLE))
    expected = np.zeros([SAMPLES, WIDTH], np.float32)
    np.add.at(expected, samples, gains[:, None] * TABLE[ids])
    np.testing.assert_allclose(activations, expected, rtol=1e-4, atol=1e-3)
    # 256 ids of a SparseCore are what another one takes in one minibatch.
    counts = np.zeros([CORES, CORES], int)
    for sample, row in {(int(s), int(i)) for s, i in zip(samples, ids, strict=True)}:
        counts[sample // (SAMPLES // CORES), row % CORES] += 1
    assert int(planned.max_ids) == counts.max()
    minibatches = int(packed.num_minibatches_per_physical_sparse_core)
    assert (minibatches > 1) == (counts.max() > 256)


def test_minibatches_that_all_replicas_need_are_made() -> None:
    planned = plan(*random_ids(100))
    # Replica 0 needs no split, replica 1 those in the middle of all rows and of the first half.
    packed = pack(planned, splits=[0, 0b11])
    assert int(packed.num_minibatches_per_physical_sparse_core) == 3
    [activations] = on_core(look_up, *buffers_of(packed), divided(TABLE))
    [expected] = on_core(look_up, *buffers_of(pack(planned)), divided(TABLE))
    np.testing.assert_allclose(activations, expected, rtol=1e-5, atol=1e-5)


def test_more_minibatches_than_allowed_are_an_error() -> None:
    planned = plan(*random_ids(100))
    with pytest.raises(tf.errors.InvalidArgumentError, match="3 minibatches; expected at most"):
        pack(planned, splits=[0b11], max_minibatches_per_sc=2)


def test_splits_that_are_none_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits of minibatches are -1"):
        pack(plan(*random_ids(10)), splits=[-1])


@tf.function
def halve_distance(gradient: Any, table: Any, count: Any, rate: Any) -> tuple[Any, Any]:
    """An optimizer of one row: steps of the gradient's sign, and their number."""
    return table - rate * tf.sign(gradient), count + 1


def test_an_optimizer_of_the_users_updates_rows() -> None:
    samples, ids, gains = random_ids(500)
    packed = pack(plan(samples, ids, gains))
    gradients = np.cos(np.arange(SAMPLES * WIDTH, dtype=np.float32)).reshape(SAMPLES, WIDTH)
    row = tf.TensorSpec([1, WIDTH], tf.float32)
    optimizer = halve_distance.get_concrete_function(row, row, row, row)

    def update(*inputs: Any) -> Any:
        *buffers, minibatches, table, counts, rate = inputs
        optimizer.add_to_graph(tf.compat.v1.get_default_graph())
        return ops.xla_sparse_dense_matmul_grad_with_csr_input(
            row_pointers=buffers[0],
            sorted_sample_ids=buffers[1],
            sorted_token_ids=buffers[2],
            sorted_gains=buffers[3],
            activation_gradients=gradients,
            tables=[table, counts],
            hyperparameters=[rate],
            num_minibatches_per_physical_sparse_core=minibatches,
            custom_computation=optimizer,
            table_name="words",
        )

    counts = np.zeros_like(TABLE)
    table, counts = on_core(update, *buffers_of(packed), divided(TABLE), counts, 0.25)
    sums = np.zeros_like(TABLE)
    np.add.at(sums, ids, gains[:, None] * gradients[samples])
    np.testing.assert_allclose(joined(table.numpy()), TABLE - 0.25 * np.sign(sums), atol=1e-6)
    np.testing.assert_array_equal(
        joined(counts.numpy())[:, 0], np.isin(np.arange(ROWS), ids).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("buffer", "place", "value", "reason"),
    [
        (0, 0, -5, "row pointer -5"),
        (0, 3, 1 << 30, "row pointer"),
        (1, 0, 4, "sample 4"),
        (2, 0, ROWS // CORES, f"row {ROWS // CORES}"),
        (2, 0, -1, "row -1"),
        (4, None, 9, "number of minibatches 9"),
        (4, None, 0, "number of minibatches 0"),
    ],
)
def test_damaged_buffers_are_an_error(
    buffer: int, place: int | None, value: int, reason: str
) -> None:
    buffers = [np.array(part) for part in buffers_of(pack(plan(*random_ids(1000))))]
    if place is None:
        buffers[buffer] = np.array(value, np.int32)
    else:
        buffers[buffer][place] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"table 'words'.*{reason}"):
        on_core(look_up, *buffers, divided(TABLE))


def test_buffers_of_another_size_are_an_error() -> None:
    buffers = [np.array(part) for part in buffers_of(pack(plan(*random_ids(10))))]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row pointers"):
        on_core(look_up, buffers[0][:8], *buffers[1:], divided(TABLE))
    with pytest.raises(tf.errors.InvalidArgumentError, match="4 SparseCores"):
        on_core(look_up, *buffers, divided(TABLE)[: ROWS - 1])


@pytest.mark.parametrize(
    ("indices", "values", "weights", "reason"),
    [
        (np.array([[1, 0], [0, 0]]), [1, 2], 1.0, "ascending order"),
        (np.array([[0, 0], [16, 0]]), [1, 2], 1.0, "sample 16"),
        (np.array([[0, 0]]), [1, 2], 1.0, "1 indices for 2 ids"),
        (np.array([[0, 0, 0]]), [1], 1.0, "indices of 3 numbers"),
        (np.arange(5), [1, 2], 1.0, "5 row splits"),
        (np.zeros(0), [1, 2], 1.0, "dense feature has 2 ids"),
        (np.array([[0, 0]]), [-3], 1.0, "id -3"),
        (np.array([[0, 0], [1, 0]]), [1, 2], [1.0, 2.0, 3.0], "3 weights for 2 ids"),
        (np.zeros([1, 1, 1]), [1], 1.0, "expected a vector of values"),
    ],
)
def test_features_that_make_no_sense_are_an_error(
    indices: np.ndarray, values: list[int], weights: Any, reason: str
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"ConvertToCooTensor.*{reason}"):
        ops.convert_to_coo_tensor(
            indices_or_row_splits=indices.astype(np.int32),
            values=values,
            weights=weights,
            sample_count=SAMPLES,
            combiner="sum",
        )


def test_coordinates_of_a_feature() -> None:
    samples, ids, gains = ops.convert_to_coo_tensor(
        indices_or_row_splits=np.array([0, 2, 2, 3], np.int32),
        values=[7, 7, 5],
        weights=[1.0, 3.0, 5.0],
        sample_count=3,
        combiner="mean",
    )
    np.testing.assert_array_equal(samples, [0, 2])
    np.testing.assert_array_equal(ids, [7, 5])
    np.testing.assert_allclose(gains, [1.0, 1.0])


def test_statistics_may_be_stored() -> None:
    ops.store_minibatch_statistics_in_fdo(
        program_key=[""],
        max_ids=3,
        max_uniques=2,
        sample_count=SAMPLES,
        num_replica=1,
        feature_width=WIDTH,
        num_sc_per_chip=CORES,
        table_name="words",
        mini_batch_splits="",
    )


def test_buffers_reach_a_core_whole() -> None:
    words = tf.range(8)
    [copied] = ops.tpu_copy_with_dynamic_shape([words], [3])
    np.testing.assert_array_equal(copied, words)
    for size in (-1, 9):
        with pytest.raises(tf.errors.InvalidArgumentError, match="unpadded size"):
            ops.tpu_copy_with_dynamic_shape([words], [size])


def test_steps_outside_of_loops_are_step_zero() -> None:
    assert int(tf.raw_ops.GlobalIterId()) == 0
