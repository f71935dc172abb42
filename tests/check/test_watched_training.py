"""A model that is trained watched."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from watching import found_by

import tf_tpu_ext


def test_training_is_the_same_watched(make_strategy):
    """Findings and values of a model with normalization and a metric."""

    def weights(watch: bool) -> list[np.ndarray]:
        strategy = make_strategy(2)
        tf.keras.utils.set_random_seed(1)
        with tf_tpu_ext.Options(check=watch), strategy.scope():
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Dense(16, activation="relu"),
                    tf.keras.layers.LayerNormalization(),
                    tf.keras.layers.Dense(3),
                ]
            )
            model.compile(
                "adam",
                loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
            random = np.random.default_rng(0)
            images = random.normal(size=[64, 8]).astype(np.float32)
            labels = random.integers(0, 3, size=[64])
            model.fit(images, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()

    trained: list[np.ndarray] = []
    assert found_by(lambda: trained.extend(weights(watch=True))) == []
    for watched, plain in zip(trained, weights(watch=False), strict=True):
        np.testing.assert_allclose(watched, plain, rtol=2e-4, atol=2e-5)
