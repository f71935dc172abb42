"""Input pipelines of TPUEstimator: sliced, broadcast, and those of several hosts."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext
import tf_tpu_ext.estimator as te
from tf_tpu_ext.estimator import _hosts

v1 = tf.compat.v1
IPC = te.InputPipelineConfig
BATCH, FEATURES, CLASSES = 32, 6, 3


@pytest.fixture
def two_hosts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Divides the cores among two hosts; returns how many each has."""
    monkeypatch.setattr(_hosts, "_hosts", None)
    te.set_input_hosts(2)
    return tf_tpu_ext.machine().cores // 2


def gradient(data: Any, rows: np.ndarray) -> np.ndarray:
    """The change of zero weights by a step of 0.3 on these rows."""
    x, labels = data[0][rows].astype(np.float64), data[1][rows]
    p = np.full((len(rows), CLASSES), 1 / CLASSES) - np.eye(CLASSES)[labels]
    w, b = -0.3 * x.T @ p / len(rows), -0.3 * p.mean(axis=0)
    return np.concatenate([w.ravel(), b])


def weights(estimator: Any) -> np.ndarray:
    return np.concatenate([estimator.get_variable_value(name).ravel() for name in ("w", "b")])


class Calls:
    """An input_fn that notes its calls; part i of n gets every n-th batch of its own size."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.seen: list[tuple[int, int | None, int, int, int]] = []
        self.core_rows: list[np.ndarray] = []

    def __call__(self, params: dict[str, Any]) -> tf.data.Dataset:
        context, size = params["context"], params["batch_size"]
        _, index, total, replicas = context.current_input_fn_deployment()
        self.seen.append((size, context.current_host, index, total, replicas))
        whole = tf.data.Dataset.from_tensor_slices(self.data).repeat()
        return whole.batch(size, drop_remainder=True).shard(total, index)


@pytest.mark.parametrize("where", [IPC.PER_SHARD_V1, IPC.PER_HOST_V1, IPC.PER_HOST_V2])
def test_each_host_has_its_pipeline(make_estimator, data, two_hosts, where):
    cores = 2 * two_hosts
    calls = Calls(data)
    input_fn: Any = calls
    if where is IPC.PER_SHARD_V1:

        def input_fn(params: dict[str, Any]) -> Any:
            # Per core TensorFlow takes tensors.
            return v1.data.make_one_shot_iterator(calls(params)).get_next()

    estimator = make_estimator(tpu_config={"per_host_input_for_training": where})
    assert estimator.config.tpu_config.per_host_input_for_training is where
    estimator.train(input_fn, max_steps=1)
    per_core, hosts = BATCH // cores, range(2)
    if where is IPC.PER_SHARD_V1:
        expected = [(per_core, core // two_hosts, core, cores, 1) for core in range(cores)]
    else:
        size = BATCH // 2 if where is IPC.PER_HOST_V1 else per_core
        expected = [(size, host, host, 2, two_hosts) for host in hosts]
    assert calls.seen == expected
    # However it is divided, the first step takes the first rows.
    np.testing.assert_allclose(weights(estimator), gradient(data, np.arange(BATCH)), atol=1e-6)


def test_what_a_host_delivers_goes_to_its_own_cores(make_estimator, two_hosts):
    """The hosts' numbers come back in the order of the cores."""
    seen: list[np.ndarray] = []

    def model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> Any:
        weight = v1.get_variable("w", [])
        step = v1.train.get_global_step()
        loss = tf.reduce_mean(features) * weight

        def note(value: tf.Tensor) -> tf.Tensor:
            return tf.numpy_function(lambda x: seen.append(x) or x, [value], tf.float32)

        return te.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=v1.assign_add(step, 1),
            host_call=(note, [features]),
        )

    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        host = params["context"].current_host
        first = 1000.0 * host
        rows = tf.data.Dataset.range(params["batch_size"]).repeat()
        both = rows.map(lambda row: (first + tf.cast(row, tf.float32), 0))
        return both.batch(params["batch_size"], drop_remainder=True)

    make_estimator(model=model).train(input_fn, max_steps=2)
    half = np.arange(BATCH // 2, dtype=np.float32)
    assert len(seen) == 2
    for step in seen:
        np.testing.assert_array_equal(step, np.concatenate([half, 1000 + half]))


def test_broadcast_gives_every_core_all_rows(make_estimator, input_fn, data, two_hosts):
    calls = Calls(data)
    estimator = make_estimator(tpu_config={"per_host_input_for_training": IPC.BROADCAST})
    estimator.train(calls, max_steps=1)
    assert calls.seen == [(BATCH, 0, 0, 1, 2 * two_hosts)]
    np.testing.assert_allclose(weights(estimator), gradient(data, np.arange(BATCH)), atol=1e-6)
    on_cpu = make_estimator(use_tpu=False)
    measured = estimator.evaluate(input_fn, steps=3)
    assert measured == pytest.approx(on_cpu.evaluate(input_fn, steps=3), abs=1e-5)
    rows = [row["probabilities"] for row in estimator.predict(predicted_rows(data))]
    logits = data[0][:40] @ weights(estimator)[:18].reshape(6, 3) + weights(estimator)[18:]
    np.testing.assert_allclose(rows, tf.nn.softmax(logits), atol=1e-6)


def predicted_rows(data: Any) -> Any:
    def rows(params: dict[str, Any]) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(data[0][:40]).batch(params["batch_size"])

    return rows


@pytest.mark.parametrize("hosts", [1, 2])
def test_sliced_evaluation_gives_every_core_its_rows(make_estimator, data, monkeypatch, hosts):
    monkeypatch.setattr(_hosts, "_hosts", hosts)
    cores = tf_tpu_ext.machine().cores
    calls, sizes = Calls(data), []

    def model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> Any:
        sizes.append((params["batch_size"], features.shape[0]))
        weight = v1.get_variable("w", [FEATURES], initializer=v1.ones_initializer())
        loss = tf.reduce_mean(tf.linalg.matvec(features, weight))
        metrics = (lambda x: {"first": v1.metrics.mean(x[0, 0])}, [features])
        return te.TPUEstimatorSpec(
            mode, loss=loss, train_op=v1.train.get_global_step().assign_add(1), eval_metrics=metrics
        )

    estimator = make_estimator(
        model=model, tpu_config={"eval_training_input_configuration": IPC.SLICED}
    )
    estimator.train(lambda params: Calls(data)(params), max_steps=1)
    sizes.clear()
    measured = estimator.evaluate(calls, steps=4)
    assert calls.seen == [(BATCH, 0, 0, 1, cores)]
    assert sizes == [(BATCH // cores, BATCH // cores)]
    rows = data[0][: 4 * BATCH].astype(np.float64)
    assert measured["loss"] == pytest.approx(rows.sum(axis=1).mean(), abs=1e-5)
    # Slices come together again in the order of their cores.
    assert measured["first"] == pytest.approx(rows[::BATCH, 0].mean(), abs=1e-6)


def test_hosts_that_cannot_be_are_refused(make_estimator, input_fn, monkeypatch):
    with pytest.raises(ValueError, match="expected at least 1 host"):
        te.set_input_hosts(0)
    monkeypatch.setattr(_hosts, "_hosts", 3)
    with pytest.raises(ValueError, match="3 hosts, which does not divide the 8 cores"):
        make_estimator().train(input_fn, max_steps=1)
    monkeypatch.setattr(_hosts, "_hosts", 2)
    estimator = make_estimator(tpu_config={"num_shards": 4, "num_cores_per_replica": 2})
    with pytest.raises(ValueError, match="num_cores_per_replica"):
        estimator.train(input_fn, max_steps=1)
    monkeypatch.setattr(_hosts, "_hosts", None)
    monkeypatch.setenv(_hosts.VARIABLE, "many")
    with pytest.raises(ValueError, match="'many'"):
        make_estimator().train(input_fn, max_steps=1)
