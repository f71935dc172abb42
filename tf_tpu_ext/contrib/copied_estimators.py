"""What copies of TPUEstimator in programs, of TensorFlow 1.13 and before, call differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from tf_tpu_ext.patches._changes import Changes


def get_tpu_context(
    config: Any,
    train_batch_size: int | None,
    eval_batch_size: int | None,
    predict_batch_size: int | None,
    use_tpu: bool,
    eval_on_tpu: bool = True,
    embedding_config_spec: Any = None,
) -> Any:
    """Returns what a TPUEstimator knows of its TPU, which had no embeddings in TensorFlow 1.13."""
    from tensorflow_estimator.python.estimator.tpu import tpu_context

    return tpu_context._get_tpu_context(
        config,
        train_batch_size,
        eval_batch_size,
        predict_batch_size,
        use_tpu,
        eval_on_tpu,
        embedding_config_spec,
    )


def flush_resources(changes: Changes) -> None:
    """Lets the function that flushes summaries take the resource of a writer."""
    changes.wrap(summary_ops_v2, "flush", _flush_of)


def _flush_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    def flush(writer: Any = None, name: str | None = None) -> Any:
        if isinstance(writer, tf.Tensor):
            with tf.device("cpu:0"):
                return tf.raw_ops.FlushSummaryWriter(writer=writer, name=name)
        return stock(writer, name)

    return flush
