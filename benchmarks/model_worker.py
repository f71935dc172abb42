"""One peer of models.py with one number of replicas, in its own process.

Answers the requests of step_worker.py; a step is a step of Keras' `fit`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import step_worker
from keras_models import models

PEERS = ("ours", "mirrored", "plain", "jit_compile")


class Worker(step_worker.Worker):
    """Trains a model with `fit`."""

    def __init__(self, peer: str, replicas: int, smoke: bool) -> None:
        self._peer = peer
        self._strategy = (
            step_worker.make_strategy(peer, replicas) if peer in ("ours", "mirrored") else None
        )
        self._models = models(smoke)
        self._before = 0.0
        self._first_peak = 0.0
        self._model: Any = None
        self._dataset: Any = None

    def open(self, program: str) -> dict[str, Any]:
        import keras
        import tensorflow as tf

        step_worker.forget_peak()
        self._before = step_worker.megabytes("VmRSS")
        description = self._models[program]
        keras.utils.set_random_seed(1)
        keras.mixed_precision.set_dtype_policy(description.policy)
        with self._strategy.scope() if self._strategy else contextlib.nullcontext():
            self._model = description.make(keras)
            self._model.compile(
                keras.optimizers.Adam(description.rate),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                # Keras would choose XLA for the plain function by itself.
                jit_compile=self._peer == "jit_compile",
            )
        self._dataset = tf.data.Dataset.from_tensors(description.data()).repeat()
        return {"before_mb": self._before}

    def first(self) -> dict[str, Any]:
        start = time.perf_counter()
        _, losses = self._fit(1)
        seconds = time.perf_counter() - start
        self._first_peak = step_worker.megabytes("VmHWM")
        return {"seconds": seconds, "losses": losses}

    def steps(self, count: int) -> dict[str, Any]:
        return {"losses": [self._fit(1)[1][0] for _ in range(count)]}

    def block(self, steps: int) -> dict[str, Any]:
        # The first step of a call to `fit` also waits for a new iterator.
        times, _ = self._fit(steps + 1)
        return {"seconds": times[-1] - times[0]}

    def _fit(self, steps: int) -> tuple[list[float], list[float]]:
        """Runs steps; returns when each ended and the mean loss up to it."""
        import keras

        times, losses = [], []

        def end(_: int, logs: Any) -> None:
            losses.append(float(logs["loss"]))  # Waits for the step.
            times.append(time.perf_counter())

        callback = keras.callbacks.LambdaCallback(on_train_batch_end=end)
        self._model.fit(self._dataset, steps_per_epoch=steps, verbose=0, callbacks=[callback])
        return times, losses


if __name__ == "__main__":
    step_worker.main(Worker, PEERS)
