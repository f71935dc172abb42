"""What lies under tensorflow-estimator: supplied modules and names."""

from __future__ import annotations

import importlib
import importlib.util
import json

import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext.estimator as te
from tf_tpu_ext import contrib
from tf_tpu_ext.estimator import _install
from tf_tpu_ext.estimator._supplied import (
    estimator_training,
    session_support,
    tpu_embedding,
    tpu_embedding_gradient,
)

v1 = tf.compat.v1


def test_tf_estimator_is_there_on_request(run_python):
    run_python(
        """
        import tensorflow as tf
        import tf_tpu_ext.estimator as te

        assert not hasattr(tf, "estimator")
        te.install()
        te.install()
        import tensorflow.compat.v1 as v1
        from tensorflow.compat.v1 import estimator

        assert v1.estimator is tf.compat.v1.estimator is estimator
        assert estimator.tpu.TPUEstimator is te.TPUEstimator
        assert tf.estimator.ModeKeys.TRAIN == "train"
        assert v1.tpu.experimental.AdamParameters(0.1).beta1 == 0.9
        from tensorflow.python.tpu import tpu_config, tpu_context, util
        from tensorflow.python.tpu.tpu_estimator import *

        assert TPUEstimator is te.TPUEstimator and tpu_config.RunConfig is te.RunConfig
        assert tpu_context.TPUContext is te.TPUContext and callable(util.check_positive_integer)
        """
    )


def test_every_name_is_there():
    for name in te.__all__:
        assert getattr(te, name) is not None


def test_copies_of_tpu_estimator(make_estimator, input_fn):
    """Those of TensorFlow 1.13 in programs know of no embeddings."""
    contrib.install()
    from tensorflow.contrib.tpu.python.tpu import tpu_context

    estimator = make_estimator()
    settings = (estimator.config, 32, 32, 32, True, True)
    estimator._ctx = tpu_context._get_tpu_context(*settings)
    estimator.train(input_fn, steps=5)
    assert estimator.get_variable_value("global_step") == 5
    # TensorFlow 1.15's name it.
    assert tpu_context._get_tpu_context(*settings, embedding_config_spec=None) is not None


def test_gradients_by_an_optimizer_and_ids_by_core():
    with tf.Graph().as_default(), v1.Session() as session:
        activations = {"a": tf.constant([2.0]), "b": tf.constant([3.0])}
        loss = tf.reduce_sum(activations["a"] ** 2 + 5 * activations["b"])
        gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
            v1.train.GradientDescentOptimizer(0.1), loss, activations
        )
        assert session.run(gradients) == {"a": [4.0], "b": [5.0]}
    ids = tf.sparse.from_dense([[0, 7], [8, 9]])
    cores = tpu_embedding.get_enqueue_datas_list_from_sparse_tensors_list([{"f": ids}, {"f": ids}])
    assert [core["f"].embedding_indices.numpy().tolist() for core in cores] == [[7, 8, 9]] * 2


def test_missing_package_is_told(run_python):
    done = run_python(
        """
        import sys

        sys.modules["tensorflow_estimator"] = None
        import tf_tpu_ext.estimator
        """,
        check=False,
    )
    assert done.returncode == 1
    assert "tf_tpu_ext.estimator needs the package tensorflow-estimator" in done.stderr
    assert "pip install" in done.stderr


def test_what_tensorflow_has_is_not_replaced(monkeypatch):
    monkeypatch.setitem(_install.SUPPLIED, "tensorflow.python.tpu.tpu_feed", "session_support")
    before = importlib.import_module("tensorflow.python.tpu.tpu_feed")
    _install.load()
    assert importlib.import_module("tensorflow.python.tpu.tpu_feed") is before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpu_embedding.TableConfig(0, 4), "vocabulary_size=0"),
        (lambda: tpu_embedding.TableConfig(3, 4, initializer=1), "initializer=1"),
        (lambda: tpu_embedding.TableConfig(3, 4, combiner="max"), "combiner='max'"),
        (
            lambda: tpu_embedding.TableConfig(3, 4, learning_rate=1.0, learning_rate_fn=len),
            "Received: both",
        ),
        (lambda: tpu_embedding.AdagradParameters(0.1, 0.0), "initial_accumulator=0.0"),
        (lambda: tpu_embedding.AdamParameters(0.1, beta2=1.0), "beta2=1.0"),
        (
            lambda: tpu_embedding.AdamParameters(
                0.1, lazy_adam=False, use_gradient_accumulation=False
            ),
            "lazy_adam=False",
        ),
        (lambda: tpu_embedding.FtrlParameters(0.1, 0.5), "learning_rate_power=0.5"),
        (
            lambda: tpu_embedding.StochasticGradientDescentParameters(
                0.1, use_gradient_accumulation=False, clip_gradient_min=-1.0
            ),
            "clip_gradient_min=-1.0",
        ),
    ],
)
def test_wrong_parameters_are_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_sparse_ids_are_taken_apart():
    ids = tf.sparse.from_dense([[1, 0], [2, 3]])
    data = tpu_embedding.EnqueueData.from_sparse_tensor(ids, weights=ids)
    assert data.embedding_indices.numpy().tolist() == [1, 2, 3]
    assert data.sample_indices.numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert data.aggregation_weights.numpy().tolist() == [1, 2, 3]


def test_a_strategy_of_one_process_is_taken(tmp_path, data):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    def model_fn(features, labels, mode):
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(weight * features)
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_global_step())
        return te.EstimatorSpec(mode, loss=loss, train_op=train_op)

    te.install()
    config = v1.estimator.RunConfig(str(tmp_path), train_distribute=strategy)
    estimator = te.Estimator(model_fn, config=config)
    estimator.train(lambda: tf.data.Dataset.from_tensors((2.0, 0.0)).repeat(), steps=3)
    assert estimator.get_variable_value("w") == pytest.approx(-6.0)


def test_a_cluster_with_a_strategy_is_refused(tmp_path, monkeypatch):
    cluster = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    te.install()
    with pytest.raises(ValueError, match=r"Expected no cluster in TF_CONFIG.*a:1"):
        v1.estimator.RunConfig(
            str(tmp_path), train_distribute=tf.distribute.OneDeviceStrategy("/cpu:0")
        )
    for refuse in (
        lambda: estimator_training.train_and_evaluate(None, None, None, None),
        lambda: estimator_training.estimator_train(None, print, None),
        lambda: estimator_training.estimator_evaluate(None, print, None),
    ):
        with pytest.raises(ValueError, match="run in one process"):
            refuse()


def test_care_of_workers_is_not_needed(caplog):
    session_support.GracefulShutdownHook("prefix", on_shutdown_hooks=[])
    session_support.ResetComputation()(None, None, None)
    # As TensorFlow before 1.15 called them.
    session_support.RestartComputation(timeout_ms=1000)(None, None, None)
    session_support.ShutdownLameWorkers(timeout_ms=1000)(None, None, None)
    with caplog.at_level("INFO", logger="tf_tpu_ext"):
        session_support.start_worker_watchdog(None)
    assert "no effect" in caplog.text
