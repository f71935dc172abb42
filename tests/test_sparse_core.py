"""TPUEmbeddingV2: tables divided over SparseCores, against NumPy."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.tpu import tpu_embedding_v3, tpu_embedding_v3_utils

import tf_tpu_ext

embedding = tf.tpu.experimental.embedding

BATCH = 16  # of one core
SPARSE_CORES = 4
VOCABULARY = {"users": 50, "items": 70, "words": 40}
WIDTH = {"users": 5, "items": 5, "words": 9}  # the first two are stacked
COMBINER = {"users": "mean", "items": "sqrtn", "words": "sum"}

# TensorFlow 2.19 asks whether they are true.
TAKES_RAGGED_WEIGHTS = not tf.__version__.startswith("2.19.")

OPTIMIZERS = {
    "sgd": embedding.SGD(learning_rate=0.25),
    "adagrad": embedding.Adagrad(learning_rate=0.25, initial_accumulator_value=0.1),
    "momentum": embedding.AdagradMomentum(
        learning_rate=0.25, momentum=0.5, use_nesterov=True, exponent=2.0, beta2=0.75, epsilon=0.01
    ),
    "adam": embedding.Adam(learning_rate=0.25, beta_1=0.5, beta_2=0.75, epsilon=0.01),
    "ftrl": embedding.FTRL(
        learning_rate=0.25,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        beta=0.5,
        initial_accumulator_value=0.1,
    ),
}
SLOTS = {
    "sgd": [],
    "adagrad": [0.1],
    "momentum": [0.0, 0.0],
    "adam": [0.0, 0.0],
    "ftrl": [0.1, 0.0],
}


@pytest.fixture(scope="module", autouse=True)
def sparse_cores() -> Iterator[None]:
    """The topology has them before any strategy of this file is made."""
    tf_tpu_ext.configure(sparse_cores=SPARSE_CORES)
    yield
    tf_tpu_ext.configure(sparse_cores=0)


@pytest.fixture
def chip_with(sparse_cores: None) -> Iterator[Callable[[int], Any]]:
    """Changes the number of SparseCores for one test."""
    yield lambda number: tf_tpu_ext.configure(sparse_cores=number)
    tf_tpu_ext.configure(sparse_cores=SPARSE_CORES)


def initial(table: str) -> np.ndarray:
    size = VOCABULARY[table] * WIDTH[table]
    return np.sin(np.arange(size, dtype=np.float32)).reshape(VOCABULARY[table], WIDTH[table])


def padded(values: np.ndarray) -> Any:
    """An initializer, of the shape that the layer asks for, with `values` in its corner."""

    def initialize(shape: Any, dtype: Any = None, **_: Any) -> tf.Tensor:
        rows, columns = (int(size) for size in shape)
        return tf.pad(values, [[0, rows - values.shape[0]], [0, columns - values.shape[1]]])

    return initialize


def in_layout(strategy: Any, initializer: Any) -> Any:
    """Converts to a SparseCore's layout what it makes; TensorFlow before 2.21 does so itself."""
    shard = getattr(tpu_embedding_v3_utils, "shard_initializer", None)
    return shard(strategy, initializer) if shard else initializer


def make_layer(strategy: Any, optimizer: Any, tables: Any = VOCABULARY, **options: Any) -> Any:
    def features() -> dict[str, Any]:
        return {
            name: embedding.FeatureConfig(
                embedding.TableConfig(
                    VOCABULARY[name],
                    WIDTH[name],
                    initializer=in_layout(strategy, padded(initial(name))),
                    combiner=COMBINER[name],
                    name=name,
                ),
                output_shape=[BATCH],
                name=name,
            )
            for name in tables
        }

    with strategy.scope():
        layer = embedding.TPUEmbeddingV2(features(), optimizer, **options)
        layer.build()
    return layer


class Ids:
    """Random ids, of the samples of all cores."""

    def __init__(self, seed: int, cores: int) -> None:
        random = np.random.default_rng(seed)
        self.lengths = random.integers(0, 4, size=cores * BATCH)
        total = int(self.lengths.sum())
        # Few different ones, so that samples and cores share rows.
        self.users = random.integers(0, 20, size=total)
        self.weights = random.uniform(0.5, 2.0, size=total).astype(np.float32)
        self.items = random.integers(0, VOCABULARY["items"], size=total)
        self.words = random.integers(0, VOCABULARY["words"], size=cores * BATCH)
        self.samples = np.repeat(np.arange(cores * BATCH), self.lengths)
        self.cores = cores

    def gains(self, table: str) -> list[tuple[int, int, float]]:
        """What to add up: sample, row, and the number to multiply the row by."""
        if table == "words":
            return [(sample, int(row), 1.0) for sample, row in enumerate(self.words)]
        weights = self.weights if table == "users" else np.ones_like(self.weights)
        power = 1 if table == "users" else 2
        sums = np.zeros(self.cores * BATCH)
        np.add.at(sums, self.samples, weights**power)
        rows = self.users if table == "users" else self.items
        return [
            (int(sample), int(row), float(weight / sums[sample] ** (1 / power)))
            for sample, row, weight in zip(self.samples, rows, weights, strict=True)
        ]

    def of_core(self, core: int) -> tuple[dict[str, Any], dict[str, Any]]:
        mine = self.samples // BATCH == core
        sample = self.samples[mine] % BATCH
        starts = np.concatenate([[0], np.cumsum(self.lengths[core * BATCH : (core + 1) * BATCH])])
        place = np.arange(len(sample)) - starts[sample]
        indices = np.stack([sample, place], axis=1).astype(np.int64).reshape(-1, 2)
        shape = [BATCH, 4]
        features = {
            "users": tf.SparseTensor(indices, self.users[mine], shape),
            "items": tf.RaggedTensor.from_row_splits(self.items[mine], starts),
            "words": tf.constant(self.words[core * BATCH : (core + 1) * BATCH]),
        }
        weights = {"users": tf.SparseTensor(indices, self.weights[mine], shape)}
        ones = tf.ones([len(sample)], tf.float32)
        weights["items"] = tf.RaggedTensor.from_row_splits(ones, starts)
        weights["words"] = tf.ones([BATCH], tf.float32)
        return features, weights


def look_up(ids: Ids, table: str, values: np.ndarray) -> np.ndarray:
    activations = np.zeros([ids.cores * BATCH, values.shape[1]], np.float32)
    for sample, row, gain in ids.gains(table):
        activations[sample] += gain * values[row]
    return activations


def update(
    name: str, ids: Ids, table: str, states: list[np.ndarray], gradients: np.ndarray
) -> None:
    """One update of each row that was looked up, by the sum of its gradients."""
    sums: dict[int, np.ndarray] = {}
    for sample, row, gain in ids.gains(table):
        sums[row] = sums.get(row, 0) + gain * gradients[sample]
    for row, g in sums.items():
        value, *slots = (state[row] for state in states)
        rate = 0.25
        if name == "sgd":
            value -= rate * g
        elif name == "adagrad":
            slots[0] += g * g
            value -= rate * g / np.sqrt(slots[0])
        elif name == "momentum":
            slots[0][:] = 0.75 * slots[0] + 0.25 * g * g
            scaled = g / np.sqrt(slots[0] + 0.01)
            slots[1][:] = 0.5 * slots[1] + scaled
            value -= rate * (0.5 * slots[1] + scaled)
        elif name == "adam":
            slots[0][:] = 0.5 * slots[0] + 0.5 * g
            slots[1][:] = 0.75 * slots[1] + 0.25 * g * g
            value -= rate * slots[0] / np.sqrt(slots[1] + 0.01**2)
        else:
            before = np.sqrt(slots[0])
            slots[0] += g * g
            after = np.sqrt(slots[0])
            slots[1] += g - (after - before) / rate * value
            limited = np.clip(slots[1], -0.01, 0.01)
            value[:] = (limited - slots[1]) / ((after + 0.5) / rate + 2 * 0.02)


def rows_of(layer: Any, table: str, state: str) -> np.ndarray:
    """A table as it was before it was divided."""
    layout = layer.embedding_layouts[table]
    variable = layer.variables[layout.stacked_table_name][state]
    stacked = np.concatenate([value.numpy() for value in variable.values])
    cores = len(variable.values) * SPARSE_CORES
    by_core = stacked.reshape(cores, -1, stacked.shape[1])
    rows = np.arange(VOCABULARY[table])
    core = (rows + layout.sparse_core_shard_rotation) % cores
    place = layout.sparse_core_shard_row_offset + rows // cores
    return by_core[core, place, : WIDTH[table]]


def distribute(strategy: Any, ids: Ids) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: ids.of_core(context.replica_id_in_sync_group)
    )


def train_step(strategy: Any, layer: Any) -> Any:
    """A step whose gradients are the activations."""

    @tf.function(reduce_retracing=True)
    def step(batch: Any) -> Any:
        def replica(batch: Any) -> Any:
            features, weights = batch
            if not TAKES_RAGGED_WEIGHTS:
                # They are all one, as if there were none.
                weights = {**weights, "items": None}
            activations, buffers = layer(features, weights)
            layer.apply_gradients(activations, buffers)
            return activations

        return strategy.run(replica, args=(batch,))

    return step


def word_lookup(strategy: Any, layer: Any) -> Any:
    """A step that looks the same words up on every core."""

    @tf.function
    def look_up_words(words: tf.Tensor) -> Any:
        def replica() -> Any:
            return layer({"words": words})[0]["words"]

        return strategy.run(replica)

    return look_up_words


# Rows are divided over the cores alike for every optimizer.
@pytest.mark.parametrize(
    ("strategy", "name"),
    [(1, "adam"), *((2, name) for name in OPTIMIZERS), (8, "adam")],
    indirect=["strategy"],
)
def test_training_matches_numpy(strategy: Any, name: str) -> None:
    cores = strategy.num_replicas_in_sync
    layer = make_layer(strategy, OPTIMIZERS[name])
    step = train_step(strategy, layer)
    states = {
        table: [initial(table), *(np.full_like(initial(table), slot) for slot in SLOTS[name])]
        for table in VOCABULARY
    }
    for seed in range(3):
        ids = Ids(seed, cores)
        results = step(distribute(strategy, ids))
        for table in VOCABULARY:
            expected = look_up(ids, table, states[table][0])
            got = np.concatenate(local(strategy, results[table]))
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
            update(name, ids, table, states[table], expected)
    slots = OPTIMIZERS[name]._slot_names()
    for table, expected_states in states.items():
        for state, expected in zip(["parameters", *slots], expected_states, strict=True):
            np.testing.assert_allclose(rows_of(layer, table, state), expected, rtol=1e-4, atol=1e-5)


def test_tables_of_the_same_width_are_stacked(strategy: Any) -> None:
    layer = make_layer(strategy, embedding.SGD(0.1))
    assert sorted(layer.embedding_tables) == ["items_users", "words"]


def test_ids_of_other_numbers_take_the_same_program(strategy: Any) -> None:
    layer = make_layer(strategy, embedding.SGD(0.1))
    step = train_step(strategy, layer)
    step(distribute(strategy, Ids(0, strategy.num_replicas_in_sync)))
    step(distribute(strategy, Ids(1, strategy.num_replicas_in_sync)))
    before = tf_tpu_ext.compilation_stats().compilations
    for seed in range(2, 5):
        step(distribute(strategy, Ids(seed, strategy.num_replicas_in_sync)))
    assert tf_tpu_ext.compilation_stats().compilations == before


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_pipelined_step_misses_the_update_before_it(strategy: Any, pipelined: bool) -> None:
    layer = make_layer(
        strategy,
        embedding.SGD(0.25),
        ["words"],
        pipeline_execution_with_tensor_core=pipelined,
    )
    words = tf.range(BATCH)

    @tf.function
    def train(steps: tf.Tensor) -> tf.Tensor:
        result = tf.zeros([BATCH, WIDTH["words"]])
        for _ in tf.range(steps):

            def replica() -> Any:
                activations, buffers = layer({"words": words})
                layer.apply_gradients({"words": tf.ones_like(activations["words"])}, buffers)
                return activations["words"]

            result = strategy.experimental_local_results(strategy.run(replica))[0]
        return result

    updates = 0
    for steps in (3, 4):
        seen = updates + steps - (2 if pipelined else 1)
        expected = initial("words")[:BATCH] - 0.25 * strategy.num_replicas_in_sync * seen
        np.testing.assert_allclose(train(tf.constant(steps)), expected, rtol=1e-5, atol=1e-5)
        updates += steps
    expected = initial("words")[:BATCH] - 0.25 * strategy.num_replicas_in_sync * updates
    np.testing.assert_allclose(
        rows_of(layer, "words", "parameters")[:BATCH], expected, rtol=1e-5, atol=1e-5
    )


def test_checkpoints_keep_tables_and_slots(strategy: Any, tmp_path: pathlib.Path) -> None:
    trained = make_layer(strategy, OPTIMIZERS["adagrad"])
    train_step(strategy, trained)(distribute(strategy, Ids(0, strategy.num_replicas_in_sync)))
    path = tf.train.Checkpoint(layer=trained).save(str(tmp_path / "tables"))
    restored = make_layer(strategy, OPTIMIZERS["adagrad"])
    tf.train.Checkpoint(layer=restored).restore(path)
    for table in VOCABULARY:
        for state in ("parameters", "accumulators"):
            values = rows_of(trained, table, state)
            np.testing.assert_array_equal(rows_of(restored, table, state), values)
        assert np.abs(rows_of(restored, table, "parameters") - initial(table)).max() > 0.01


def test_lookups_of_a_quantized_table(strategy: Any) -> None:
    table = embedding.TableConfig(
        VOCABULARY["words"],
        WIDTH["words"],
        initializer=in_layout(strategy, padded(initial("words"))),
        combiner="sum",
        quantization_config=embedding.QuantizationConfig(num_buckets=5, lower=-0.5, upper=0.5),
        name="words",
    )
    with strategy.scope():
        layer = embedding.TPUEmbeddingV2(
            {"words": embedding.FeatureConfig(table, output_shape=[BATCH])}, embedding.SGD(0.1)
        )
        layer.build()
    result = word_lookup(strategy, layer)(tf.range(BATCH))
    rounded = np.round(np.clip(initial("words")[:BATCH], -0.5, 0.5) * 4) / 4
    for part in local(strategy, result):
        np.testing.assert_allclose(part, rounded, atol=1e-6)


def test_statistics_are_those_of_the_ids() -> None:
    ids = Ids(0, 1)
    features, _ = ids.of_core(0)
    config = embedding.FeatureConfig(
        embedding.TableConfig(VOCABULARY["users"], WIDTH["users"], combiner="sum", name="users"),
        output_shape=[BATCH],
    )
    most, most_unique = tpu_embedding_v3.TPUEmbeddingV2.compute_sparse_core_stats(
        features["users"], config, num_tpu_chips=2, optimizer=embedding.SGD(0.1)
    )
    pairs = {(int(s), int(u)) for s, u in zip(ids.samples, ids.users, strict=True)}
    counts = np.zeros([SPARSE_CORES, 2 * SPARSE_CORES], int)
    unique = {core: {} for core in range(SPARSE_CORES)}
    for sample, user in pairs:
        counts[sample // (BATCH // SPARSE_CORES), user % (2 * SPARSE_CORES)] += 1
        unique[sample // (BATCH // SPARSE_CORES)].setdefault(user % 8, set()).add(user)
    assert int(most["users"]) == counts.max()
    assert int(most_unique["users"]) == max(
        len(users) for cores in unique.values() for users in cores.values()
    )


def test_the_topology_has_sparse_cores_if_asked(make_strategy: Any, chip_with: Any) -> None:
    chip_with(2)
    strategy = make_strategy(2)
    feature = strategy.extended.tpu_hardware_feature
    assert feature.embedding_feature == tf.tpu.experimental.HardwareFeature.EmbeddingFeature.V2
    assert feature.num_embedding_devices_per_chip == 2
    layer = make_layer(strategy, embedding.SGD(0.25), ["words"])
    result = word_lookup(strategy, layer)(tf.range(BATCH))
    for part in local(strategy, result):
        np.testing.assert_allclose(part, initial("words")[:BATCH], rtol=1e-6)


def test_by_default_the_topology_has_none(make_strategy: Any, chip_with: Any) -> None:
    chip_with(0)
    feature = make_strategy(1).extended.tpu_hardware_feature
    assert (
        feature.embedding_feature
        == tf.tpu.experimental.HardwareFeature.EmbeddingFeature.UNSUPPORTED
    )


def test_sparse_cores_out_of_range_are_an_error() -> None:
    for number in (-1, 3, 5):
        with pytest.raises(ValueError, match=f"sparse_cores={number}"):
            tf_tpu_ext.configure(sparse_cores=number)
    with pytest.raises(ValueError, match="sparse_cores"):
        tf_tpu_ext.configure(sparse_cores="4")  # type: ignore[arg-type]


def test_an_id_outside_of_the_tables_is_an_error(strategy: Any) -> None:
    layer = make_layer(strategy, embedding.SGD(0.1), ["words"])
    step = word_lookup(strategy, layer)
    step(tf.range(BATCH))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'words' have row \d{5}"):
        step(tf.range(BATCH) + 100_000 - BATCH + 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="id -1"):
        step(tf.range(BATCH) - 1)
    step(tf.range(BATCH))


def test_more_ids_than_a_core_may_get_are_an_error(strategy: Any) -> None:
    layer = make_layer(
        strategy,
        embedding.SGD(0.1),
        ["words"],
        sparse_core_embedding_config=embedding.SparseCoreEmbeddingConfig(
            max_ids_per_table={"words": 2}, max_unique_ids_per_table={"words": 2}
        ),
    )
    step = word_lookup(strategy, layer)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_ids_per_table"):
        step(tf.zeros([BATCH], tf.int32))


def test_replicas_of_two_cores_are_an_error() -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=2
    )
    strategy = tpu_strategy.TPUStrategyV2(resolver, experimental_device_assignment=assignment)
    layer = make_layer(strategy, embedding.SGD(0.1), ["words"])
    with pytest.raises(tf.errors.OpError, match="one core for each replica"):
        word_lookup(strategy, layer)(tf.range(BATCH))
