"""The models that models.py trains: common ones, in sizes for a machine without a TPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Model:
    """A Keras model with the batch that it is trained on.

    Attributes:
        name: What `--models` calls it.
        batch: Number of examples in a step, over all replicas.
        make: Makes the model from a Keras module; called in the strategy's scope.
        make_data: Makes the examples and their labels.
        rate: Adam's learning rate.
        policy: Keras' policy of types.
    """

    name: str
    batch: int
    make: Callable[[Any], Any]
    make_data: Callable[[np.random.Generator, int], Arrays]
    rate: float = 1e-4
    policy: str = "float32"

    def data(self) -> Arrays:
        return self.make_data(np.random.default_rng(1), self.batch)


def _images(size: int) -> Callable[[np.random.Generator, int], Arrays]:
    def make(random: np.random.Generator, batch: int) -> Arrays:
        labels = random.integers(0, 10, batch)
        return random.random((batch, size, size, 3), np.float32), labels.astype(np.int32)

    return make


def _segments(size: int) -> Callable[[np.random.Generator, int], Arrays]:
    def make(random: np.random.Generator, batch: int) -> Arrays:
        images = random.random((batch, size, size, 3), np.float32)
        return images, (images.sum(-1) > 1.5).astype(np.int32)

    return make


def _sentences(length: int, words: int) -> Callable[[np.random.Generator, int], Arrays]:
    def make(random: np.random.Generator, batch: int) -> Arrays:
        tokens = random.integers(0, words, (batch, length))
        return tokens.astype(np.int32), (tokens[:, 0] % 2).astype(np.int32)

    return make


def _application(name: str, size: int) -> Callable[[Any], Any]:
    def make(keras: Any) -> Any:
        return getattr(keras.applications, name)(
            weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None
        )

    return make


def _unet(size: int, widths: tuple[int, ...]) -> Callable[[Any], Any]:
    def make(keras: Any) -> Any:
        layers = keras.layers

        def block(x: Any, convolution: Any) -> Any:
            return layers.ReLU()(layers.BatchNormalization()(convolution(x)))

        x = inputs = keras.Input((size, size, 3))
        skipped = []
        for width in widths:
            for _ in range(2):
                x = block(x, layers.Conv2D(width, 3, padding="same", use_bias=False))
            skipped.append(x)
            x = layers.MaxPooling2D()(x)
        x = block(x, layers.Conv2D(2 * widths[-1], 3, padding="same", use_bias=False))
        for width, skip in zip(reversed(widths), reversed(skipped), strict=True):
            up = layers.Conv2DTranspose(width, 4, strides=2, padding="same", use_bias=False)
            x = layers.Concatenate()([block(x, up), skip])
            x = block(x, layers.Conv2D(width, 3, padding="same", use_bias=False))
        return keras.Model(inputs, layers.Conv2D(2, 1)(x))

    return make


def _bert(length: int, words: int, width: int, depth: int) -> Callable[[Any], Any]:
    def make(keras: Any) -> Any:
        layers = keras.layers
        inputs = keras.Input((length,), dtype="int32")
        places = keras.ops.arange(length)
        x = layers.Embedding(words, width)(inputs) + layers.Embedding(length, width)(places)
        x = layers.Dropout(0.1)(layers.LayerNormalization()(x))
        for _ in range(depth):
            attention = layers.MultiHeadAttention(width // 64, 64, dropout=0.1)
            x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attention(x, x)))
            inner = layers.Dense(4 * width, activation="gelu")(x)
            x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.Dense(width)(inner)))
        first = layers.Dense(width, activation="tanh")(x[:, 0])
        return keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.1)(first)))

    return make


def models(smoke: bool) -> dict[str, Model]:
    """Returns the models by name, in tiny sizes for a smoke run."""
    size, length = (32, 8) if smoke else (64, 128)
    batch = 16 if smoke else 64
    widths = (4, 8) if smoke else (32, 64, 128)
    bert = _bert(length, 64, 64, 1) if smoke else _bert(length, 8192, 256, 4)
    sentences = _sentences(length, 64 if smoke else 8192)
    every = (
        Model("bert", batch // 2, bert, sentences),
        Model("bert_bfloat16", batch // 2, bert, sentences, policy="mixed_bfloat16"),
        Model("resnet50", batch, _application("ResNet50", size), _images(size)),
        Model("efficientnet", batch, _application("EfficientNetB0", size), _images(size)),
        Model("unet", batch // 2, _unet(size, widths), _segments(size)),
    )
    return {model.name: model for model in every}
