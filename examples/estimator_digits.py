"""Trains a digit classifier with TPUEstimator on virtual TPU cores, in bfloat16.

This is how TensorFlow 1 programs for TPUs were written: a model_fn, an input_fn, a host call that
writes summaries while the cores keep running, and evaluation and prediction from the checkpoint.
The data set (1,797 handwritten digits) comes with scikit-learn.

    python examples/estimator_digits.py [--steps N] [--cores N] [--use_tpu 0] [--model_dir FOLDER]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_tpu_ext.estimator as te

v1 = tf.compat.v1
BATCH, HELD_OUT = 128, 389


def load() -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    return (digits.data[order] / 16.0).astype(np.float32), digits.target[order].astype(np.int32)


def train_input(params: dict[str, Any]) -> tf.data.Dataset:
    images, labels = (part[:-HELD_OUT] for part in load())
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(2000, seed=1).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)


def evaluation_input(params: dict[str, Any]) -> tf.data.Dataset:
    images, labels = (part[-HELD_OUT:] for part in load())
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.batch(params["batch_size"], drop_remainder=True)


def prediction_input(params: dict[str, Any]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(load()[0][-HELD_OUT:]).batch(params["batch_size"])


def dense(name: str, x: tf.Tensor, size: int) -> tf.Tensor:
    seed = {"hidden": 1, "logits": 2}[name]
    with v1.variable_scope(name):
        kernel = v1.get_variable(
            "kernel", [x.shape[1], size], initializer=v1.glorot_uniform_initializer(seed=seed)
        )
        bias = v1.get_variable("bias", [size], initializer=v1.zeros_initializer())
    return tf.matmul(x, kernel) + bias


def metrics(labels: tf.Tensor, logits: tf.Tensor) -> dict[str, Any]:
    return {"accuracy": v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}


def model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: dict[str, Any]) -> Any:
    # Within the scope, variables stay float32 and are used as bfloat16.
    with v1.tpu.bfloat16_scope():
        hidden = tf.nn.relu(dense("hidden", tf.cast(features, tf.bfloat16), 64))
        logits = tf.cast(dense("logits", hidden, 10), tf.float32)
    if mode == te.ModeKeys.PREDICT:
        return te.TPUEstimatorSpec(mode, predictions={"digit": tf.argmax(logits, axis=1)})
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    if mode == te.ModeKeys.EVAL:
        return te.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metrics, [labels, logits]))
    step = v1.train.get_global_step()
    optimizer = v1.train.AdamOptimizer(5e-3)
    if params["use_tpu"]:
        optimizer = v1.tpu.CrossShardOptimizer(optimizer)

    def host_call(step: tf.Tensor, losses: tf.Tensor) -> Any:
        """Runs on the host in every step, with one value from each core."""
        writer = tf.summary.create_file_writer(params["summaries"], flush_millis=1000)
        with writer.as_default(step=tf.cast(step[0], tf.int64)):
            tf.summary.scalar("loss", tf.reduce_mean(losses))
            tf.summary.scalar("spread", tf.reduce_max(losses) - tf.reduce_min(losses))
            return v1.summary.all_v2_summary_ops()

    train_op = optimizer.minimize(loss, step)
    arguments = [tf.reshape(step, [1]), tf.reshape(loss, [1])]
    return te.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=(host_call, arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--use_tpu", type=int, default=1)
    parser.add_argument("--model_dir", default=None)
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=options.cores)

    folder = options.model_dir or tempfile.mkdtemp()
    config = te.RunConfig(
        model_dir=folder,
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any-name"),
        tpu_config=te.TPUConfig(iterations_per_loop=50, num_shards=options.cores),
    )
    estimator = te.TPUEstimator(
        model,
        config=config,
        use_tpu=bool(options.use_tpu),
        params={"summaries": os.path.join(folder, "host_call")},
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
    )
    estimator.train(train_input, max_steps=options.steps)
    measured = estimator.evaluate(evaluation_input, steps=HELD_OUT // BATCH)
    predicted = np.array([row["digit"] for row in estimator.predict(prediction_input)])
    right = float(np.mean(predicted == load()[1][-HELD_OUT:]))
    print(
        f"Held-out accuracy after {measured['global_step']} steps: {measured['accuracy']:.4f} by "
        f"evaluation, {right:.4f} by prediction"
    )


if __name__ == "__main__":
    main()
