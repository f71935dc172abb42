"""Takes an element from the infeed in each step, also where the model uses nothing of it.

What the host puts into the infeed for a step has to be taken out in that step. A graph leaves out
ops that nothing depends on; without its dequeue op the program takes nothing, and the host waits
for room forever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

_METHODS = (
    "convert_to_single_tpu_train_step",
    "convert_to_single_tpu_eval_step",
    "convert_to_single_tpu_predict_step",
)


def install() -> None:
    """Changes `_ModelFnWrapper` of tensorflow-estimator; may be called again."""
    wrapper = tpu_estimator._ModelFnWrapper
    for name in _METHODS:
        stock = vars(wrapper)[name]
        if not hasattr(stock, "__wrapped__"):
            setattr(wrapper, name, _always_dequeuing(stock))


def _always_dequeuing(stock: Callable[..., Any]) -> Callable[..., Any]:
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

        def step_after_dequeue(state: Any) -> Any:
            result = step(state)
            with tf.control_dependencies(dequeues):
                return tf.identity(result)

        return (step_after_dequeue, *rest)

    return convert
