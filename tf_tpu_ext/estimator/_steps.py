"""Two corrections of the steps that TPUEstimator makes of a model_fn.

What the host puts into the infeed for a step has to be taken out in that step. A graph leaves out
ops that nothing depends on: where the model uses nothing of its input, the program would take
nothing, and the host wait for room forever.

The loss of an evaluation is the mean over all replicas. tensorflow-estimator reports that of the
first one, which has seen a part of the data only, and differs from an evaluation on CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tf_tpu_ext.patches._changes import Changes


def install(changes: Changes) -> None:
    """Changes how tensorflow-estimator makes steps for training, evaluation and prediction."""
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
