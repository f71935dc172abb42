"""What the tests of estimators share: a small model, its data, and TPUEstimators of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

v1 = tf.compat.v1
BATCH, ROWS, FEATURES, CLASSES = 32, 256, 6, 3


@pytest.fixture(scope="session")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, (x @ rng.normal(size=(FEATURES, CLASSES))).argmax(axis=1).astype(np.int32)


@pytest.fixture(scope="session")
def input_fn(data: Any) -> Callable[..., Any]:
    """All rows in order, again and again, in whole batches."""

    def make(params: dict[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(data).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    return make


def logits_of(features: tf.Tensor) -> tf.Tensor:
    weights = v1.get_variable("w", [FEATURES, CLASSES], initializer=v1.zeros_initializer())
    bias = v1.get_variable("b", [CLASSES], initializer=v1.zeros_initializer())
    return tf.matmul(features, weights) + bias


def metric_fn(labels: tf.Tensor, logits: tf.Tensor) -> dict[str, Any]:
    return {
        "accuracy": v1.metrics.accuracy(labels, tf.argmax(logits, 1)),
        "mean_logit": v1.metrics.mean(logits),
    }


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """A softmax regression; `params` may have a `host_call` and a `change` of the loss."""
    import tf_tpu_ext.estimator as te

    logits = logits_of(features)
    predictions = {"probabilities": tf.nn.softmax(logits)}
    if mode == te.ModeKeys.PREDICT:
        outputs = {"serving_default": te.export.PredictOutput(predictions)}
        return te.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
    step = v1.train.get_global_step()
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = params.get("change", lambda loss, step: loss)(tf.reduce_mean(losses), step)
    if mode == te.ModeKeys.EVAL:
        return te.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    optimizer = v1.train.GradientDescentOptimizer(0.3)
    if params["use_tpu"]:
        optimizer = v1.tpu.CrossShardOptimizer(optimizer)
    host_call = None
    if "host_call" in params:
        host_call = (params["host_call"], [tf.reshape(step, [1]), tf.reshape(loss, [1])])
    return te.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step), host_call=host_call
    )


@pytest.fixture
def make_estimator(tmp_path: Any) -> Callable[..., Any]:
    """Makes a TPUEstimator of the model, on all cores or on CPU."""
    import tf_tpu_ext.estimator as te

    def make(
        use_tpu: bool = True,
        folder: str = "model",
        model: Any = model_fn,
        tpu_config: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        **params: Any,
    ) -> Any:
        settings = {"iterations_per_loop": 5, "num_shards": tf_tpu_ext.machine().cores}
        run_config = te.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any"),
            model_dir=str(tmp_path / folder),
            tpu_config=te.TPUConfig(**{**settings, **(tpu_config or {})}),
            **(config or {}),
        )
        warm_start = params.pop("warm_start_from", None)
        return te.TPUEstimator(
            model,
            use_tpu=use_tpu,
            config=run_config,
            params=params,
            train_batch_size=BATCH,
            eval_batch_size=BATCH,
            predict_batch_size=BATCH,
            warm_start_from=warm_start,
        )

    return make


def _stays(name: str) -> bool:
    """TensorFlow keeps its writers of summaries open, and the forkserver awaits more pipelines."""
    return "EventLogger" in name or name == "io:forkserver"


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 60
    while left := [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and not _stays(thread.name)
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def weights(estimator: Any) -> np.ndarray:
    return np.concatenate([estimator.get_variable_value(name).ravel() for name in ("w", "b")])
