"""Counts this process's training steps and measures their time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as estimator_lib

from tf_tpu_ext.patches._changes import Changes


@dataclasses.dataclass
class Totals:
    """Sums over all `train` calls of all estimators.

    Attributes:
        steps: Number of steps, as recorded in checkpoints.
        seconds: Seconds spent in the calls, including compilation.
    """

    steps: int = 0
    seconds: float = 0.0


totals = Totals()


def install(changes: Changes) -> None:
    """Starts counting."""
    changes.wrap(estimator_lib.Estimator, "train", _train_of)


def _train_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, start = _global_step(self), time.monotonic()
        try:
            return stock(self, *args, **kwargs)
        finally:
            totals.seconds += time.monotonic() - start
            totals.steps += max(0, _global_step(self) - before)

    return train


def _global_step(estimator: Any) -> int:
    checkpoint = tf.train.latest_checkpoint(estimator.model_dir)
    if checkpoint is None:
        return 0
    try:
        return int(tf.train.load_variable(checkpoint, "global_step"))
    except (tf.errors.OpError, ValueError, KeyError):
        # The program uses another name for its step, or removes its checkpoints.
        return 0
