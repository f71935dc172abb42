"""TPUEstimator on all cores: the same weights, metrics, predictions and exports as on CPU."""

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

v1 = tf.compat.v1
IPC = te.InputPipelineConfig
FEATURES = 6


def weights(estimator: Any) -> np.ndarray:
    return np.concatenate([estimator.get_variable_value(name).ravel() for name in ("w", "b")])


@pytest.fixture
def on_cpu(make_estimator, input_fn):
    estimator = make_estimator(use_tpu=False, folder="cpu")
    estimator.train(input_fn, max_steps=12)
    return estimator


def expected_weights(data, steps=12, batch=32):
    x, labels = (part.astype(np.float64) for part in data)
    w, b = np.zeros((FEATURES, 3)), np.zeros(3)
    for step in range(steps):
        rows = np.arange(step * batch, (step + 1) * batch) % len(x)
        logits = x[rows] @ w + b
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p -= np.eye(3)[labels[rows].astype(int)]
        w, b = w - 0.3 * x[rows].T @ p / batch, b - 0.3 * p.mean(axis=0)
    return np.concatenate([w.ravel(), b])


def test_training_is_that_of_numpy_and_of_the_cpu(make_estimator, input_fn, data, on_cpu):
    estimator = make_estimator()
    # Two loops of five steps and one of two.
    estimator.train(input_fn, max_steps=12)
    assert estimator.get_variable_value("global_step") == 12
    np.testing.assert_allclose(weights(estimator), expected_weights(data), atol=1e-5)
    np.testing.assert_allclose(weights(estimator), weights(on_cpu), atol=1e-5)


def test_evaluation_and_prediction_are_those_of_the_cpu(make_estimator, input_fn, data, on_cpu):
    estimator = make_estimator(folder="cpu")
    measured = estimator.evaluate(input_fn, steps=4)
    assert measured == pytest.approx(on_cpu.evaluate(input_fn, steps=4), abs=1e-5)
    assert 0.5 < measured["accuracy"] < 1

    def some_rows(params: dict[str, Any]) -> tf.data.Dataset:
        # The last batch is not full.
        return tf.data.Dataset.from_tensor_slices(data[0][:70]).batch(params["batch_size"])

    predicted, expected = (
        np.stack([row["probabilities"] for row in model.predict(some_rows)])
        for model in (estimator, on_cpu)
    )
    assert predicted.shape == (70, 3)
    np.testing.assert_allclose(predicted, expected, atol=1e-6)


def test_checkpoints_and_exports_are_plain_tensorflow(make_estimator, input_fn, data, tmp_path):
    estimator = make_estimator()
    estimator.train(input_fn, max_steps=5)
    reader = tf.train.load_checkpoint(str(tmp_path / "model"))
    np.testing.assert_array_equal(reader.get_tensor("w"), estimator.get_variable_value("w"))

    def receive() -> Any:
        x = v1.placeholder(tf.float32, [None, FEATURES])
        return te.export.TensorServingInputReceiver(x, {"x": x})

    folder = estimator.export_saved_model(str(tmp_path / "export"), receive)
    rows = data[0][:3]
    expected = tf.nn.softmax(rows @ reader.get_tensor("w") + reader.get_tensor("b"))
    loaded = tf.saved_model.load(folder.decode(), tags=["serve"]).signatures["serving_default"]
    np.testing.assert_allclose(loaded(x=tf.constant(rows))["probabilities"], expected, atol=1e-6)
    # The same model for a TPU.
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.tpu.initialize_system())
        graph = v1.saved_model.load(session, ["serve", "tpu"], folder.decode())
        signature = graph.signature_def["serving_default"]
        served = session.run(
            signature.outputs["probabilities"].name, {signature.inputs["x"].name: rows}
        )
    np.testing.assert_allclose(served, expected, atol=1e-6)


@pytest.mark.parametrize("where", [False, True, IPC.PER_HOST_V1, IPC.PER_HOST_V2, IPC.BROADCAST])
def test_input_pipelines(make_estimator, data, where):
    """Each core gets its own rows, in whatever way the pipelines are laid out."""
    cores = tf_tpu_ext.machine().cores
    calls = []
    per_core = 32 // cores

    def input_of_core(params: dict[str, Any]) -> Any:
        _, index, total, _ = params["context"].current_input_fn_deployment()
        calls.append((params["batch_size"], index, total))
        rows = slice(index * per_core, (index + 1) * per_core)
        return tf.constant(data[0][rows]), tf.constant(data[1][rows])

    def input_of_host(params: dict[str, Any]) -> Any:
        _, index, total, _ = params["context"].current_input_fn_deployment()
        calls.append((params["batch_size"], index, total))
        dataset = tf.data.Dataset.from_tensor_slices(data).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    estimator = make_estimator(tpu_config={"per_host_input_for_training": where})
    estimator.train(input_of_core if where is False else input_of_host, max_steps=1)
    if where is False:
        assert calls == [(per_core, index, cores) for index in range(cores)]
    else:
        assert calls == [(per_core if where is IPC.PER_HOST_V2 else 32, 0, 1)]
    np.testing.assert_allclose(weights(estimator), expected_weights(data, steps=1), atol=1e-5)


@pytest.mark.parametrize("partition", [[2, 1], [1, 2]], ids=["rows", "columns"])
def test_input_split_over_the_cores_of_a_replica(make_estimator, input_fn, data, partition):
    cores = tf_tpu_ext.machine().cores
    estimator = make_estimator(
        tpu_config={
            "num_shards": cores // 2,
            "num_cores_per_replica": 2,
            "input_partition_dims": [partition, None],
            "per_host_input_for_training": IPC.PER_HOST_V2,
        }
    )
    estimator.train(input_fn, max_steps=12)
    np.testing.assert_allclose(weights(estimator), expected_weights(data), atol=1e-5)
    measured = estimator.evaluate(input_fn, steps=4)
    assert 0.5 < measured["accuracy"] < 1


def test_host_call_sees_every_step_of_every_core(make_estimator, input_fn):
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def host_call(step: tf.Tensor, loss: tf.Tensor) -> Any:
        def note(step: np.ndarray, loss: np.ndarray) -> np.ndarray:
            seen.append((step, loss))
            return loss

        return tf.numpy_function(note, [step, loss], tf.float32)

    make_estimator(host_call=host_call).train(input_fn, max_steps=7)
    assert len(seen) == 7
    assert all(step.shape == loss.shape == (8,) for step, loss in seen)
    np.testing.assert_array_equal([step for step, _ in seen], np.arange(7)[:, np.newaxis] + [0] * 8)
    assert np.ptp(seen[3][1]) > 0


def test_train_and_evaluate_warm_start_and_hooks(make_estimator, input_fn, data):
    first = make_estimator(config={"save_checkpoints_steps": 10})
    measured, _ = te.train_and_evaluate(
        first,
        te.TrainSpec(input_fn, max_steps=20),
        te.EvalSpec(input_fn, steps=2, throttle_secs=0, start_delay_secs=0),
    )
    assert measured["global_step"] == 20
    np.testing.assert_allclose(weights(first), expected_weights(data, 20), atol=1e-5)

    class Count(v1.train.SessionRunHook):
        runs = ended = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1

        def end(self, session: Any) -> None:
            self.ended += 1

    count = Count()
    warm = make_estimator(folder="warm", warm_start_from=te.WarmStartSettings(first.model_dir))
    warm.train(input_fn, max_steps=10, hooks=[count])
    assert (count.runs, count.ended) == (2, 1)
    assert warm.get_variable_value("global_step") == 10
    # The second begins with what the first has learned, and goes on.
    assert np.abs(weights(warm)).sum() > np.abs(weights(first)).sum()


def test_an_unused_input_is_consumed(make_estimator, input_fn):
    def model(features: Any, labels: Any, mode: str, params: Any) -> Any:
        del features, labels, params
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        b = v1.get_variable("b", [], initializer=v1.zeros_initializer())
        loss = (weight + b - 1.0) ** 2
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return te.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = make_estimator(model=model)
    # More steps than the infeed holds elements.
    estimator.train(input_fn, max_steps=80)
    np.testing.assert_allclose(weights(estimator), [0.5, 0.5], atol=1e-5)


def test_numbers_do_not_depend_on_the_number_of_cores(run_python):
    code = """
    import sys, tempfile
    import numpy as np, tensorflow as tf
    import tf_tpu_ext, tf_tpu_ext.estimator as te
    sys.path.insert(0, "estimator")
    import conftest as shared

    x = np.linspace(-1, 1, 256 * 6, dtype=np.float32).reshape(256, 6)
    y = (np.arange(256) % 3).astype(np.int32)

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    config = te.RunConfig(
        model_dir=tempfile.mkdtemp(),
        tpu_config=te.TPUConfig(iterations_per_loop=4, num_shards=tf_tpu_ext.machine().cores),
    )
    estimator = te.TPUEstimator(
        shared.model_fn, config=config, train_batch_size=32, eval_batch_size=32, params={}
    )
    estimator.train(input_fn, max_steps=8)
    print(shared.weights(estimator).sum(dtype=np.float64), np.abs(shared.weights(estimator)).sum())
    print(estimator.evaluate(input_fn, steps=8)["loss"])
    """
    numbers = [
        np.array(run_python(code, env={"TF_TPU_EXT_CORES": cores}).stdout.split(), float)
        for cores in ("1", "2")
    ]
    np.testing.assert_allclose(numbers[0], numbers[1], atol=1e-5)
