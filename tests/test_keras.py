"""Keras on the cores: losses, metrics and predictions equal plain CPU's to 1e-5 over an epoch."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy_of_all_cores

layers = keras.layers

BATCH = 32
ROWS = 3 * BATCH


@pytest.fixture(scope="module")
def strategy() -> Any:
    return strategy_of_all_cores()


@pytest.fixture(scope="module")
def two(make_strategy) -> Any:
    """Two replicas: every core that takes part makes Keras's iterators and graphs slower."""
    return make_strategy(2)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, *shape)).astype(np.float32)


def tokens(length: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, 50, size=(ROWS, length)).astype(np.int32)


def classes() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 4, size=ROWS).astype(np.int32)


def dense() -> Any:
    return keras.Sequential(
        [layers.Dense(16, activation="relu"), layers.LayerNormalization(), layers.Dense(4)]
    )


def convolutional() -> Any:
    return keras.Sequential(
        [
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, padding="same", strides=2),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )


def recurrent() -> Any:
    return keras.Sequential([layers.LSTM(8), layers.Dense(4)])


def embedding() -> Any:
    return keras.Sequential(
        [layers.Embedding(50, 8), layers.GlobalAveragePooling1D(), layers.Dense(4)]
    )


def attention() -> Any:
    ids = keras.Input([6], dtype="int32")
    x = layers.Embedding(50, 8)(ids)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(4)(x))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], np.ndarray]]] = {
    "dense": (dense, lambda: numbers(10)),
    "convolutional": (convolutional, lambda: numbers(12, 12, 1)),
    "recurrent": (recurrent, lambda: numbers(7, 5)),
    "embedding": (embedding, lambda: tokens(9)),
    "attention": (attention, lambda: tokens(6)),
}


def compiled(
    build: Callable[[], Any],
    strategy: Any,
    optimizer: Callable[[], Any] | None = None,
    **arguments: Any,
) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(11)
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        # Keras would have XLA compile for the CPU, too.
        arguments["jit_compile"] = False
    with strategy.scope():
        model = build()
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.1, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **arguments,
        )
    return model


def everything(build: Callable[[], Any], x: np.ndarray, strategy: Any, **arguments: Any) -> Any:
    """Losses and accuracies of two epochs, the evaluation and the predictions after them."""
    model = compiled(build, strategy, **arguments)
    y = classes()
    # Between epochs, Keras 3 logs what the first replica has seen.
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    # The last batch of these two is short: rows for all replicas of two, and for only one.
    evaluation = model.evaluate(x[:75], y[:75], batch_size=BATCH, verbose=0)
    predictions = model.predict(x[: BATCH + 1], batch_size=BATCH, verbose=0)
    return [*history["loss"], *history["accuracy"]], evaluation, predictions


def assert_same(mine: Any, plain: Any) -> None:
    for got, expected, name in zip(mine, plain, ["loss", "evaluation", "prediction"], strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * scale, err_msg=name)


@functools.cache
def plain_everything(name: str) -> Any:
    build, data = MODELS[name]
    return everything(build, data(), tf.distribute.get_strategy())


@pytest.mark.parametrize("name", list(MODELS))
def test_equals_plain_cpu(request, name):
    build, data = MODELS[name]
    # Programs of other models are divided no differently.
    strategy = request.getfixturevalue("strategy" if name == "dense" else "two")
    mine = everything(build, data(), strategy)
    assert_same(mine, plain_everything(name))
    # A model that learns nothing would pass, too.
    assert mine[0][1] < mine[0][0]


def test_steps_per_execution(two):
    mine = everything(dense, numbers(10), two, steps_per_execution=2)
    assert_same(mine, plain_everything("dense"))


def test_adam(two):
    results = [
        everything(dense, numbers(10), where, optimizer=lambda: keras.optimizers.Adam(0.01))
        for where in (tf.distribute.get_strategy(), two)
    ]
    assert_same(results[1], results[0])


def test_partial_last_batch_of_a_fit(strategy):
    """The rows that are left over for some replicas only count once."""
    x, y = numbers(10)[:70], classes()[:70]
    losses = []
    for where in (tf.distribute.get_strategy(), strategy):
        model = compiled(dense, where)
        history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
        assert np.isfinite(losses[-1]).all()
    # The first epoch ends before the partial batch's update has any effect on the loss.
    np.testing.assert_allclose(losses[1][0], losses[0][0], rtol=1e-5)


def test_dataset(two):
    dataset = tf.data.Dataset.from_tensor_slices((numbers(10), classes())).batch(BATCH).repeat()
    losses = []
    for where in (tf.distribute.get_strategy(), two):
        history = compiled(dense, where).fit(dataset, steps_per_epoch=3, epochs=2, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer:UserWarning")
def test_callbacks(two, tmp_path):
    model = compiled(dense, two)
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.ModelCheckpoint(tmp_path / "whole.keras"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
    ]
    x, y = numbers(10), classes()
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(history["learning_rate"], [0.1, 0.05])

    expected = model.predict(x, verbose=0)
    plain = compiled(dense, tf.distribute.get_strategy())
    plain.build([None, 10])
    plain.load_weights(tmp_path / "2.weights.h5")
    np.testing.assert_allclose(plain.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)
    loaded = keras.models.load_model(tmp_path / "whole.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)
    model.load_weights(tmp_path / "1.weights.h5")
    assert not np.allclose(model.predict(x, verbose=0), expected)


def test_tensorboard(two, tmp_path):
    """Losses of the epochs and of each batch are in the event files, as fit reports them."""
    pytest.importorskip("tensorboard")
    model = compiled(dense, two)
    callback = keras.callbacks.TensorBoard(tmp_path, update_freq=1, histogram_freq=1)
    history = model.fit(
        numbers(10), classes(), batch_size=BATCH, epochs=2, verbose=0, callbacks=[callback]
    )
    scalars: dict[str, list[float]] = {}
    histograms = set()
    for file in tmp_path.rglob("*tfevents*"):
        for record in tf.data.TFRecordDataset([str(file)]):
            for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
                if value.metadata.plugin_data.plugin_name == "histograms":
                    histograms.add(value.tag)
                elif value.metadata.plugin_data.plugin_name == "scalars":
                    scalars.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    np.testing.assert_allclose(scalars["epoch_loss"], history.history["loss"], rtol=1e-6)
    assert len(scalars["batch_loss"]) == 2 * -(-len(classes()) // BATCH)
    assert histograms


class OwnTrainStep(keras.Model):
    """Computes its own gradients and metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(4)
        self.mean_loss = keras.metrics.Mean(name="mean_loss")

    def call(self, x: Any) -> Any:
        return self.layer(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        # Keras has divided the loss by the number of replicas, for the sum of the gradients.
        self.mean_loss.update_state(loss * tf.distribute.get_strategy().num_replicas_in_sync)
        return {"mean_loss": self.mean_loss.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self.mean_loss]


def test_own_train_step(two):
    x, y = numbers(10), classes()
    weights, histories = [], []
    for where in (tf.distribute.get_strategy(), two):
        keras.utils.set_random_seed(3)
        with where.scope():
            model = OwnTrainStep()
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1), loss)
        histories.append(
            model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
        )
        weights.append(model.get_weights())
    np.testing.assert_allclose(histories[1]["mean_loss"], histories[0]["mean_loss"], rtol=1e-5)
    for mine, plain in zip(weights[1], weights[0], strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)


def test_training_loop_of_the_user(strategy):
    """Keras layers and optimizers in a loop that Keras does not run."""
    x, y = numbers(10), classes()
    losses = []
    for where in (tf.distribute.get_strategy(), strategy):
        model = compiled(dense, where)
        with where.scope():
            model.build([None, 10])
            model.optimizer.build(model.trainable_variables)

        def replica(batch, model=model):
            inputs, targets = batch
            with tf.GradientTape() as tape:
                each = keras.losses.sparse_categorical_crossentropy(
                    targets, model(inputs, training=True), from_logits=True
                )
                loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def step(batch, where=where, replica=replica):
            return where.reduce("SUM", where.run(replica, args=(batch,)), axis=None)

        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        batches = where.experimental_distribute_dataset(dataset)
        losses.append([float(step(batch)) for batch in batches])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_process_of_one_core(run_python):
    """The losses do not depend on how many cores share a batch."""
    code = """
    import tf_tpu_ext
    import keras
    import numpy as np
    import tensorflow as tf

    def losses(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
        history = model.fit(x, x[:, :1], batch_size=16, epochs=2, shuffle=False, verbose=0)
        return history.history["loss"], model.predict(x[:30], verbose=0)

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    mine = losses(tf.distribute.TPUStrategy(resolver))
    plain = losses(tf.distribute.get_strategy())
    np.testing.assert_allclose(mine[0], plain[0], rtol=1e-5)
    np.testing.assert_allclose(mine[1], plain[1], rtol=1e-4, atol=1e-5)
    """
    run_python(code, env={"TF_TPU_EXT_CORES": "1"}, timeout=150)


@pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None,
    reason="tf_keras is not installed: pip install --no-deps tf_keras of TensorFlow's minor",
)
def test_legacy_keras(run_python):
    code = """
    import tf_tpu_ext
    import numpy as np
    import tensorflow as tf

    assert tf.keras.Model.__module__.startswith("tf_keras"), tf.keras.Model
    layers = tf.keras.layers

    def run(strategy):
        tf.keras.utils.set_random_seed(1)
        with strategy.scope():
            model = tf.keras.Sequential([
                layers.Embedding(20, 8, input_length=6), layers.LSTM(8), layers.Dense(1)])
            model.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=["mae"],
                          steps_per_execution=2)
        x = np.random.default_rng(0).integers(0, 20, size=(64, 6))
        y = np.sin(x.sum(axis=1)).astype(np.float32)
        history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return (history.history["loss"], model.evaluate(x[:40], y[:40], batch_size=16, verbose=0),
                model.predict(x[:27], batch_size=16, verbose=0))

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    mine = run(tf.distribute.TPUStrategy(resolver))
    plain = run(tf.distribute.get_strategy())
    for got, expected in zip(mine, plain):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    """
    env = {"TF_USE_LEGACY_KERAS": "1", "TF_TPU_EXT_CORES": "2"}
    run_python(code, env=env, timeout=200, interpreter=True)
