"""Distributed datasets on cores: one iterator deals each host's elements out to its cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as some
from tensorflow.python.eager import context

from tf_tpu_ext import patches

Dataset = tf.data.Dataset
MakeStrategy = Callable[[int], tf.distribute.TPUStrategy]


@pytest.fixture(autouse=True)
def patched(tensorflow_patches: None) -> None:
    del tensorflow_patches
    assert "dealt_iterators" in patches.applied()


@pytest.fixture(scope="module")
def two_replicas(make_strategy: MakeStrategy) -> tf.distribute.TPUStrategy:
    return make_strategy(2)


def parts(strategy: tf.distribute.Strategy, value: Any) -> list[list[Any]]:
    return [part.numpy().tolist() for part in strategy.experimental_local_results(value)]


def dealt(elements: int, batch: int, replicas: int) -> list[list[list[int]]]:
    """What each replica gets in each step from global batches of the numbers below `elements`."""
    steps = []
    for start in range(0, elements, batch):
        step = np.arange(start, min(start + batch, elements))
        size = -(-batch // replicas)
        steps.append([step[i * size : (i + 1) * size].tolist() for i in range(replicas)])
    return steps


def read_eagerly(strategy: tf.distribute.Strategy, dataset: Any) -> Iterator[Any]:
    for value in dataset:
        yield parts(strategy, value)


def read_in_function(strategy: tf.distribute.Strategy, dataset: Any) -> Iterator[Any]:
    @tf.function
    def step(iterator: Any) -> Any:
        # The sum tells the program's own values from those of the host.
        return strategy.run(lambda x: x + 0, args=(next(iterator),))

    iterator = iter(dataset)
    while True:
        try:
            value = step(iterator)
        except tf.errors.OutOfRangeError:
            return
        yield parts(strategy, value)


@pytest.mark.parametrize("read", [read_eagerly, read_in_function])
def test_devices_may_be_strict(
    two_replicas: tf.distribute.TPUStrategy,
    set_soft_placement: Callable[[bool], None],
    read: Any,
) -> None:
    distributed = two_replicas.experimental_distribute_dataset(Dataset.range(7).batch(4))
    set_soft_placement(False)
    assert list(read(two_replicas, distributed)) == dealt(7, 4, 2)


def test_a_function_returns_elements_on_their_cores(strategy: tf.distribute.TPUStrategy) -> None:
    replicas = strategy.num_replicas_in_sync
    elements = Dataset.range(4 * replicas).map(lambda x: {"x": x, "y": tf.cast(x, tf.float32)})

    @tf.function
    def get(iterator: Any) -> Any:
        return strategy.experimental_local_results(iterator.get_next())

    @tf.function
    def compute(iterator: Any) -> Any:
        element = next(iterator)
        sums = strategy.run(lambda element: element["y"] + 1.0, args=(element,))
        return strategy.experimental_local_results((element["x"], sums))

    iterator = iter(strategy.distribute_datasets_from_function(lambda _: elements))
    devices = list(strategy.extended.worker_devices)
    for i, element in enumerate(get(iterator)):
        assert element["x"].numpy() == element["y"].numpy() == i
        assert element["x"].backing_device == element["y"].backing_device == devices[i]
    for i, (x, y) in enumerate(compute(iterator)):
        assert (x.numpy(), y.numpy()) == (replicas + i, replicas + i + 1)
        assert x.backing_device == devices[i]


def test_elements_on_cores_are_not_enqueued(two_replicas: tf.distribute.TPUStrategy) -> None:
    table = tf.tpu.experimental.embedding.TableConfig(8, 2, name="table")
    feature = tf.tpu.experimental.embedding.FeatureConfig(table)
    with two_replicas.scope():
        embedding = tf.tpu.experimental.embedding.TPUEmbedding(
            {"seen": feature}, tf.tpu.experimental.embedding.SGD(0.1)
        )

    @tf.function
    def look_up(iterator: Any) -> Any:
        def replica(features: Any) -> Any:
            embedding.enqueue(features, training=False)
            return embedding.dequeue()

        return two_replicas.run(replica, args=(next(iterator),))

    numbers = Dataset.from_tensors({"seen": tf.zeros([2, 1], tf.int32)})
    embedding.build(tf.TensorShape([2, 1]))
    for on_host in (False, True):
        options = tf.distribute.InputOptions(experimental_fetch_to_device=not on_host)
        dataset = two_replicas.distribute_datasets_from_function(
            lambda _: numbers.repeat(2), options
        )
        if on_host:
            assert len(parts(two_replicas, look_up(iter(dataset))["seen"])) == 2
        else:
            with pytest.raises(ValueError, match="which is on a TPU input device"):
                look_up(iter(dataset))


@pytest.mark.parametrize("read", [read_eagerly, read_in_function])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_each_replica_gets_its_part(
    strategy: tf.distribute.TPUStrategy, read: Any, drop_remainder: bool
) -> None:
    replicas = strategy.num_replicas_in_sync
    batch = 2 * replicas
    elements = 3 * batch + replicas + 1  # the last batch has too few for all, or for one
    dataset = Dataset.range(elements).batch(batch, drop_remainder=drop_remainder)
    expected = dealt(elements, batch, replicas)
    if drop_remainder:
        expected = [step for step in expected if sum(map(len, step)) == batch]
    distributed = strategy.experimental_distribute_dataset(dataset)
    for _ in range(2):  # epochs
        assert list(read(strategy, distributed)) == expected


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(
    elements=some.integers(0, 40), batch=some.integers(1, 9), buffer_size=some.integers(0, 3)
)
def test_any_sizes(
    two_replicas: tf.distribute.TPUStrategy, elements: int, batch: int, buffer_size: int
) -> None:
    options = tf.distribute.InputOptions(experimental_per_replica_buffer_size=buffer_size)
    distributed = two_replicas.distribute_datasets_from_function(
        lambda _: Dataset.range(elements).batch(batch), options
    )
    # Each batch of the function is one replica's.
    batches = [list(range(k, min(k + batch, elements))) for k in range(0, elements, batch)]
    batches += [[]] * (len(batches) % 2)
    expected = [batches[k : k + 2] for k in range(0, len(batches), 2)]
    assert list(read_eagerly(two_replicas, distributed)) == expected


def test_a_loop_over_a_dataset_in_a_function(strategy: tf.distribute.TPUStrategy) -> None:
    distributed = strategy.experimental_distribute_dataset(Dataset.range(50).batch(16))

    @tf.function
    def total(dataset: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for value in dataset:
            sums = strategy.run(tf.reduce_sum, args=(value,))
            result += strategy.reduce("SUM", sums, axis=None)
        return result

    assert int(total(distributed)) == sum(range(50))
    assert int(total(distributed)) == sum(range(50))


def test_functions_and_eager_code_share_an_iterator(
    two_replicas: tf.distribute.TPUStrategy,
) -> None:
    batches = Dataset.range(12).batch(2, drop_remainder=True)
    iterator = iter(two_replicas.experimental_distribute_dataset(batches))

    @tf.function
    def two_steps(iterator: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(2):
            sums = two_replicas.run(lambda x: tf.reduce_sum(x), args=(next(iterator),))
            total += two_replicas.reduce("SUM", sums, axis=None)
        return total

    assert int(two_steps(iterator)) == 0 + 1 + 2 + 3
    assert parts(two_replicas, next(iterator)) == [[4], [5]]
    assert int(two_steps(iterator)) == 6 + 7 + 8 + 9
    assert parts(two_replicas, next(iterator)) == [[10], [11]]
    with pytest.raises(StopIteration):
        next(iterator)


def test_optionals(two_replicas: tf.distribute.TPUStrategy) -> None:
    iterator = iter(two_replicas.experimental_distribute_dataset(Dataset.range(3).batch(2)))
    values = []
    while (optional := iterator.get_next_as_optional()).has_value():
        values.append(parts(two_replicas, optional.get_value()))
    assert values == [[[0], [1]], [[2], []]]


def test_elements_are_on_the_cores(strategy: tf.distribute.TPUStrategy) -> None:
    structure = {"number": np.arange(16.0), "name": np.array([b"a"] * 16)}
    for drop_remainder in (False, True):
        batches = Dataset.from_tensor_slices(structure).batch(8, drop_remainder=drop_remainder)
        element = next(iter(strategy.experimental_distribute_dataset(batches)))
        for value in element.values():
            results = strategy.experimental_local_results(value)
            cores = [int(result.device.rpartition(":TPU:")[2]) for result in results]
            assert cores == list(range(strategy.num_replicas_in_sync))


def test_sparse_elements_stay_on_the_host(two_replicas: tf.distribute.TPUStrategy) -> None:
    rows = Dataset.from_tensor_slices(np.eye(4)).batch(2).map(tf.sparse.from_dense)
    options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    iterator = iter(two_replicas.distribute_datasets_from_function(lambda _: rows, options))
    results = two_replicas.experimental_local_results(next(iterator))
    dense = [tf.sparse.to_dense(result).numpy() for result in results]
    np.testing.assert_array_equal(np.concatenate(dense), np.eye(4))


def test_an_error_of_the_pipeline_is_told_and_the_next_element_follows(
    two_replicas: tf.distribute.TPUStrategy,
) -> None:
    def checked(numbers: Any) -> Any:
        are_right = tf.debugging.assert_none_equal(numbers, np.int64([2, 3]), message="no twos")
        with tf.control_dependencies([are_right]):
            return tf.identity(numbers)

    batches = Dataset.range(8).batch(2, drop_remainder=True).map(checked)
    iterator = iter(two_replicas.distribute_datasets_from_function(lambda _: batches))
    with pytest.raises(tf.errors.InvalidArgumentError, match="no twos"):
        next(iterator)
    assert parts(two_replicas, next(iterator)) == [[4, 5], [6, 7]]


@pytest.mark.parametrize("buffer_size", [0, 1, 3])
def test_no_more_elements_are_kept_ready_than_asked_for(
    two_replicas: tf.distribute.TPUStrategy, buffer_size: int
) -> None:
    produced = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            produced.append(number)
            yield number

    signature = tf.TensorSpec((), tf.int32)
    options = tf.distribute.InputOptions(experimental_per_replica_buffer_size=buffer_size)
    iterator = iter(
        two_replicas.distribute_datasets_from_function(
            lambda _: Dataset.from_generator(numbers, output_signature=signature), options
        )
    )
    assert parts(two_replicas, next(iterator)) == [0, 1]
    # The host and each core may keep as many; two more are in production.
    most = 2 + 2 * 2 * buffer_size + (2 if buffer_size else 0)
    end = time.monotonic() + 60
    while buffer_size and len(produced) < 2 + 2 * buffer_size and time.monotonic() < end:
        time.sleep(0.01)
    assert 2 + 2 * buffer_size <= len(produced) <= most


def test_cores_add_no_functions(make_strategy: MakeStrategy) -> None:
    """TensorFlow traces four functions for each core, each time."""
    made = []
    for replicas in (2, 8):
        strategy = make_strategy(replicas)
        batches = Dataset.range(64).batch(16, drop_remainder=True)
        distributed = strategy.experimental_distribute_dataset(batches)
        before = set(context.context().list_function_names())
        iterator = iter(distributed)
        made.append(set(context.context().list_function_names()) - before)
        next(iterator)
    assert made == [set(), set()]


def test_other_strategies_keep_their_iterators() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    iterator = iter(strategy.experimental_distribute_dataset(Dataset.range(4).batch(2)))
    (of_worker,) = iterator._iterators
    assert type(of_worker._iterator).__name__ == "OwnedMultiDeviceIterator"
    assert next(iterator).numpy().tolist() == [0, 1]


def test_without_the_patch_the_same_elements(two_replicas: tf.distribute.TPUStrategy) -> None:
    patches.undo("dealt_iterators")
    try:
        distributed = two_replicas.experimental_distribute_dataset(Dataset.range(7).batch(4))
        steps = list(read_in_function(two_replicas, distributed))
    finally:
        patches.apply()
    assert steps == dealt(7, 4, 2)
