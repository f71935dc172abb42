"""Keras and estimators train on several workers as on one machine."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import imported_processes
import numpy as np
import pytest

FIT = """
import json
import sys
import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
tf.keras.utils.set_random_seed(1)
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
losses = model.fit(inputs, inputs[:, :1], epochs=3, batch_size=16, verbose=0, shuffle=False)
with open(sys.argv[1], "w") as file:
    json.dump([strategy.num_replicas_in_sync, losses.history["loss"],
               model.predict(inputs[:2], verbose=0).ravel().tolist()], file)
"""


def test_keras_trains_as_on_one_machine(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    out, report = tmp_path / "losses.json", tmp_path / "report.json"
    runs, reports = [], []
    for options in (["--cores=4"], ["--cores=2", "--workers=2"]):
        command = ["run", *options, f"--report={report}", script, out]
        done = imported_processes.tf_tpu(*command, timeout=300)
        assert done.returncode == 0, done.stderr
        # TensorFlow's end waits for the workers.
        assert "async_wait" not in done.stderr
        assert "Failed to remove function" not in done.stderr
        runs.append(json.loads(out.read_text()))
        reports.append(json.loads(report.read_text()))
    assert runs[0][0] == runs[1][0] == 4
    for one, other in zip(runs[0][1:], runs[1][1:], strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    one, other = reports
    assert one["cores"] == other["cores"] == 4
    # Each worker compiles and launches.
    assert other["launches"] == 2 * one["launches"]
    assert (one["workers"], other["workers"]) == (0, 2)
    assert one["messages_between_workers"] == one["bytes_between_workers"] == 0
    # Of each worker, at least the gradients of each step of training: 4 x 8 and 8 weights.
    assert other["messages_between_workers"] >= 2 * 12
    assert other["bytes_between_workers"] >= 2 * 12 * 40 * 4
    assert other["wait_seconds_between_workers"] > 0


ESTIMATE = """
import sys
import numpy as np
import tensorflow as tf
import tf_tpu_ext.estimator as te

def model_fn(features, labels, mode, params):
    v1 = tf.compat.v1
    weight = v1.get_variable("weight", [4, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return te.TPUEstimatorSpec(mode, loss=loss, train_op=train)

def input_fn(params):
    inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1]))
    # Each host reads its part.
    hosts, host = params["context"].num_hosts, params["context"].current_host
    return data.shard(hosts, host).repeat().batch(params["batch_size"], drop_remainder=True)

config = te.RunConfig(
    cluster=tf.distribute.cluster_resolver.TPUClusterResolver(),
    model_dir=sys.argv[1],
    tpu_config=te.TPUConfig(
        iterations_per_loop=5,
        per_host_input_for_training=te.InputPipelineConfig.PER_HOST_V2))
estimator = te.TPUEstimator(model_fn, config=config, train_batch_size=16, use_tpu=True)
estimator.train(input_fn, max_steps=10)
np.save(sys.argv[2], estimator.get_variable_value("weight"))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None,
    reason="tensorflow-estimator is not installed",
)
def test_an_estimator_trains_with_the_input_of_each_worker(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "estimate.py"
    script.write_text(ESTIMATE)
    weights = []
    pods = {"one": ["--cores=4", "--hosts=2"], "two": ["--cores=2", "--workers=2"]}
    for name, options in pods.items():
        out = str(tmp_path / f"{name}.npy")
        command = ["run", *options, script, tmp_path / name, out]
        done = imported_processes.tf_tpu(*command, timeout=300)
        assert done.returncode == 0, done.stderr
        weights.append(np.load(out))
    assert np.abs(weights[0]).max() > 0.1
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5, atol=1e-7)
