"""Counts the training steps of the process, and the time that they took."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as estimator_lib


@dataclasses.dataclass
class Totals:
    """Sums over all `train` calls of all estimators.

    Attributes:
        steps: Steps that a checkpoint was written for.
        seconds: Time within the calls, compilations included.
    """

    steps: int = 0
    seconds: float = 0.0


totals = Totals()


def install() -> None:
    """Begins to count; may be called again."""
    stock = vars(estimator_lib.Estimator)["train"]
    if hasattr(stock, "_counts_steps"):
        return

    @functools.wraps(stock)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, start = _global_step(self), time.monotonic()
        try:
            return stock(self, *args, **kwargs)
        finally:
            totals.seconds += time.monotonic() - start
            totals.steps += max(0, _global_step(self) - before)

    train._counts_steps = True  # type: ignore[attr-defined]
    estimator_lib.Estimator.train = train


def _global_step(estimator: Any) -> int:
    checkpoint = tf.train.latest_checkpoint(estimator.model_dir)
    if checkpoint is None:
        return 0
    try:
        return int(tf.train.load_variable(checkpoint, "global_step"))
    except (tf.errors.OpError, ValueError, KeyError):
        # The program names its step otherwise, or removes its checkpoints.
        return 0
