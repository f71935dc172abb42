"""Pre-trains a small BERT-like encoder on virtual TPU cores: it learns to fill in masked words.

The text is below. One word in six is masked; the encoder sees the sentence around it and predicts
the word. At the end, it fills in sentences that give their answer only by their meaning.

    python examples/encoder_pretraining.py [--epochs N] [--cores N]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import keras
import numpy as np
import tensorflow as tf

TEXT = """
monday comes before tuesday
tuesday comes before wednesday
wednesday comes before thursday
thursday comes before friday
friday comes before saturday
saturday comes before sunday
tuesday comes after monday
wednesday comes after tuesday
thursday comes after wednesday
friday comes after thursday
saturday comes after friday
sunday comes after saturday
two comes after one
three comes after two
four comes after three
five comes after four
six comes after five
one comes before two
two comes before three
three comes before four
four comes before five
five comes before six
in winter the lake is frozen and the children skate
in summer the lake is warm and the children swim
in autumn the leaves are red and the wind is cold
in spring the leaves are green and the birds build nests
the baker bakes bread in the oven before the sun is up
the fisher catches fish in the lake before the sun is up
the farmer sows wheat in the field in spring
the farmer cuts wheat in the field in summer
the miller grinds wheat to flour for the baker
the baker sells bread on the market on saturday
the fisher sells fish on the market on friday
"""
LENGTH, WIDTH, HEADS, LAYERS = 12, 48, 4, 2
PAD, MASK = 0, 1
QUESTIONS = {
    "friday comes before [MASK]": "saturday",
    "four comes after [MASK]": "three",
    "in winter the lake is [MASK] and the children skate": "frozen",
    "the miller grinds wheat to [MASK] for the baker": "flour",
}


def vocabulary() -> list[str]:
    return ["[PAD]", "[MASK]", *sorted(set(TEXT.split()))]


def encode(sentence: str) -> np.ndarray:
    words = vocabulary()
    ids = [words.index(word) for word in sentence.split()]
    return np.array(ids + [PAD] * (LENGTH - len(ids)), np.int32)


def examples(copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns masked sentences, the words that they hide, and 1 where a word is hidden."""
    rng = np.random.default_rng(0)
    sentences = np.stack([encode(line) for line in TEXT.strip().splitlines()])
    words = np.tile(sentences, (copies, 1))
    hidden = (rng.random(words.shape) < 1 / 6) & (words != PAD)
    return np.where(hidden, MASK, words), words, hidden.astype(np.float32)


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    ids = keras.Input([LENGTH], dtype="int32")
    positions = keras.layers.Embedding(LENGTH, WIDTH)(np.arange(LENGTH)[np.newaxis])
    x = keras.layers.Embedding(len(vocabulary()), WIDTH)(ids) + positions
    for _ in range(LAYERS):
        attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        inner = keras.layers.Dense(4 * WIDTH, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(WIDTH)(inner))
    model = keras.Model(ids, keras.layers.Dense(len(vocabulary()))(x))
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=8,
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cores", type=int, default=8)
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=options.cores)

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        model = build()
    batches = tf.data.Dataset.from_tensor_slices(examples(copies=32))
    batches = batches.shuffle(2000, seed=1).batch(64, drop_remainder=True)
    losses = model.fit(batches, epochs=options.epochs, verbose=2).history["loss"]

    logits = model.predict(np.stack([encode(q) for q in QUESTIONS]), batch_size=8, verbose=0)
    right = 0
    for (question, answer), row in zip(QUESTIONS.items(), logits, strict=True):
        found = vocabulary()[row[question.split().index("[MASK]")].argmax()]
        right += found == answer
        print(f"{question} -> {found}")
    print(f"Loss {losses[0]:.3f} -> {losses[-1]:.3f}, {right} of {len(QUESTIONS)} words right")


if __name__ == "__main__":
    main()
