"""An encoder that does not fit in the memory of a TPU v5e at first, and the changes that fix it.

By default, each core needs several times its 16 GB for the attention scores of its sequences.
docs/verdict.md walks through what a TPU's compiler says and through the options below, which make
the changes. Nothing here refers to tf_tpu_ext: this is a program for a TPU.

    tf-tpu check --target v5e-8 --compile-only examples/fitting_encoder.py
    tf-tpu check --target v5e-8 --compile-only examples/fitting_encoder.py --bfloat16 --recompute
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

BATCH = 128  # sequences per core
LENGTH, WIDTH, HEADS, BLOCKS, WORDS = 2048, 256, 4, 2, 8192


class Block(tf.Module):
    """Attention and a dense layer, each with a residual connection."""

    def __init__(self, dtype: tf.DType) -> None:
        super().__init__()
        self.dtype = dtype
        make = tf.random_normal_initializer(stddev=0.02, seed=1)
        self.inward = tf.Variable(make([WIDTH, 3, HEADS, WIDTH // HEADS]))
        self.outward = tf.Variable(make([HEADS, WIDTH // HEADS, WIDTH]))
        self.dense = tf.Variable(make([WIDTH, WIDTH]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        inward, outward, dense = (
            tf.cast(variable, self.dtype) for variable in (self.inward, self.outward, self.dense)
        )
        query, key, value = tf.unstack(tf.einsum("blw,wkhd->kblhd", x, inward))
        scores = tf.einsum("bqhd,bkhd->bhqk", query, key, name="scores")
        weights = tf.nn.softmax(scores * (WIDTH / HEADS) ** -0.5)
        attended = tf.einsum("bhqk,bkhd->bqhd", weights, value)
        x += tf.einsum("bqhd,hdw->bqw", attended, outward)
        return x + tf.nn.relu(tf.matmul(x, dense))


def train(dtype: tf.DType, recompute: bool, steps: int) -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        table = tf.Variable(tf.random_normal_initializer(seed=2)([WORDS, WIDTH]))
        blocks = [Block(dtype) for _ in range(BLOCKS)]
    variables = [table, *(v for block in blocks for v in block.trainable_variables)]

    def loss_of(words: tf.Tensor) -> tf.Tensor:
        x = tf.gather(tf.cast(table, dtype), words)
        for block in blocks:
            # Not kept for the gradient, but recomputed.
            x = tf.recompute_grad(block)(x) if recompute else block(x)
        return tf.reduce_mean(tf.cast(x, tf.float32) ** 2)

    def replica(words: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(words)
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, variables)]
        gradients = tf.distribute.get_replica_context().all_reduce("MEAN", gradients)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def step(words: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica, args=(words,)), axis=None)

    words = tf.random.uniform([BATCH, LENGTH], maxval=WORDS, dtype=tf.int32, seed=3)
    for number in range(steps):
        print(f"step {number}: loss {step(words):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--recompute", action="store_true", help="recompute activations")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    train(tf.bfloat16 if options.bfloat16 else tf.float32, options.recompute, options.steps)
