"""Training on 8 cores from a pipeline gives the numbers of the same data from NumPy."""

from __future__ import annotations

import wave

import keras
import numpy as np
import pytest

import tf_tpu_ext  # before TensorFlow's first operation

import tensorflow as tf  # isort: skip

WAVES, SAMPLES, BATCH = 64, 32, 16

PIPELINE = f"""
    import tensorflow_io as tfio

    def make(paths, labels):
        def read(path, label):
            samples = tfio.audio.decode_wav(tf.io.read_file(path), dtype=tf.int16)[:, 0]
            return tf.ensure_shape(tf.cast(samples, tf.float32) / 32768.0, [{SAMPLES}]), label
        return tf.data.Dataset.from_tensor_slices((paths, labels)).map(read)
"""


@pytest.fixture(scope="module")
def strategy(make_strategy):
    return make_strategy(8)


@pytest.fixture
def tones(tmp_path):
    """WAV files of low and high tones; their samples and classes."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, WAVES)
    time = np.arange(SAMPLES) / SAMPLES
    tones = np.sin(2 * np.pi * (2 + 5 * labels[:, None]) * time + generator.random((WAVES, 1)))
    samples = (tones * 20000).astype("<i2")
    paths = []
    for number, wave_samples in enumerate(samples):
        paths.append(str(tmp_path / f"{number}.wav"))
        with wave.open(paths[-1], "wb") as file:
            file.setparams((1, 2, 8000, SAMPLES, "NONE", ""))
            file.writeframes(wave_samples.tobytes())
    return paths, samples.astype(np.float32) / 32768, labels


# Keras says so of any dataset whose size is not known beforehand.
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_fit_loses_as_with_numpy(pipeline, strategy, tones):
    paths, samples, labels = tones
    losses = []
    for dataset in (
        tf.data.Dataset.from_tensor_slices((samples, labels)),
        pipeline(PIPELINE, paths, labels),
    ):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.5), loss)
        batches = dataset.batch(BATCH, drop_remainder=True)
        losses.append(model.fit(batches, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("how", ["dataset", "function"])
def test_every_element_reaches_a_core_once(pipeline, strategy, tones, how):
    paths, samples, labels = tones
    dataset = pipeline(PIPELINE, paths, labels)
    cores = strategy.num_replicas_in_sync
    if how == "dataset":
        batches = strategy.experimental_distribute_dataset(
            dataset.batch(BATCH, drop_remainder=True)
        )
    else:
        batches = strategy.distribute_datasets_from_function(
            lambda context: dataset.batch(
                context.get_per_replica_batch_size(BATCH), drop_remainder=True
            )
        )

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(lambda x, _: tf.reduce_sum(x), batch), None)

    totals = [float(step(batch)) for batch in batches]
    assert len(totals) == WAVES // BATCH
    assert cores == 8
    expected = samples.reshape(WAVES // BATCH, -1).sum(axis=1)
    np.testing.assert_allclose(totals, expected, atol=1e-4)


def test_towers_train_as_numpy_does(pipeline, tones):
    paths, samples, labels = tones
    strategy = tf_tpu_ext.TPUStrategy()
    assert strategy.num_towers == 8
    dataset = pipeline(PIPELINE, paths, labels)
    per_tower = dataset.batch(BATCH // strategy.num_towers, drop_remainder=True)

    def tower(samples, labels):
        scores = tf.linalg.matvec(samples, weights)
        errors = tf.sigmoid(scores) - tf.cast(labels, tf.float32)
        gradient = tf.linalg.matvec(samples, errors, transpose_a=True) / BATCH
        # The variable adds up what all towers add.
        return weights.assign_add(-0.5 * gradient, read_value=False)

    def step(context, samples, labels):
        del context
        return strategy.call_for_each_tower(tower, samples, labels)

    with strategy.scope():
        weights = tf.Variable(
            tf.zeros([SAMPLES]), aggregation=tf_tpu_ext.towers.VariableAggregation.SUM
        )
        iterator = strategy.distribute_dataset(lambda: per_tower).make_one_shot_iterator()
        strategy.run_steps_on_dataset(step, iterator, iterations=WAVES // BATCH)
    expected = np.zeros(SAMPLES)
    for start in range(0, WAVES, BATCH):
        batch = samples[start : start + BATCH].astype(np.float64)
        errors = 1 / (1 + np.exp(-batch @ expected)) - labels[start : start + BATCH]
        expected -= 0.5 * batch.T @ errors / BATCH
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4, atol=1e-6)
