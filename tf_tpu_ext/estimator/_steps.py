"""Two corrections to the steps that TPUEstimator makes from a model_fn.

Each step must dequeue what the host has enqueued for it. Graphs omit ops that nothing depends on,
so a model that does not use its input would dequeue nothing, and the host would wait forever for
room in the infeed.

The evaluation loss must be the mean over all replicas. tensorflow-estimator reports the loss of the
first replica, which has seen only part of the data; on a CPU, the result differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tf_tpu_ext.patches._changes import Changes


def install(changes: Changes) -> None:
    """Patches how tensorflow-estimator creates steps for training, evaluation and prediction."""
    wrapper = tpu_estimator._ModelFnWrapper
    changes.wrap(wrapper, "convert_to_single_tpu_train_step", _convert_of)
    mean_loss = functools.partial(_convert_of, mean_loss=True)
    changes.wrap(wrapper, "convert_to_single_tpu_eval_step", mean_loss)
    changes.wrap(wrapper, "convert_to_single_tpu_predict_step", _convert_of)


def _convert_of(stock: Callable[..., Any], mean_loss: bool = False) -> Callable[..., Any]:
    def convert(self: Any, dequeue_fn: Callable[[], Any]) -> Any:
        dequeues: list[tf.Operation] = []

        def dequeue() -> Any:
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            inputs = dequeue_fn()
            made = graph.get_operations()[before:]
            dequeues[:] = [op for op in made if op.type.startswith("InfeedDequeue")]
            return inputs

        step, *rest = stock(self, dequeue)

        def complete_step(state: Any) -> Any:
            result = step(state)
            if mean_loss:
                replicas = self._ctx.num_replicas
                result = tf.compat.v1.tpu.cross_replica_sum(result / replicas)
            with tf.control_dependencies(dequeues):
                return tf.identity(result)

        return (complete_step, *rest)

    return convert
