"""Mends two things in the steps that TPUEstimator makes of a model_fn.

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

_TRAIN = "convert_to_single_tpu_train_step"
_EVALUATE = "convert_to_single_tpu_eval_step"
_PREDICT = "convert_to_single_tpu_predict_step"


def install() -> None:
    """Changes `_ModelFnWrapper` of tensorflow-estimator; may be called again."""
    wrapper = tpu_estimator._ModelFnWrapper
    for name in (_TRAIN, _EVALUATE, _PREDICT):
        stock = vars(wrapper)[name]
        if not hasattr(stock, "__wrapped__"):
            setattr(wrapper, name, _mended(stock, mean_loss=name == _EVALUATE))


def _mended(stock: Callable[..., Any], mean_loss: bool) -> Callable[..., Any]:
    @functools.wraps(stock)
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

        def mended_step(state: Any) -> Any:
            result = step(state)
            if mean_loss:
                replicas = self._ctx.num_replicas
                result = tf.compat.v1.tpu.cross_replica_sum(result / replicas)
            with tf.control_dependencies(dequeues):
                return tf.identity(result)

        return (mended_step, *rest)

    return convert
