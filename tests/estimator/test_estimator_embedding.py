"""`embedding_config_spec` of TPUEstimator: tables in the TPU's memory, against those on CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext
import tf_tpu_ext.estimator as te
from tf_tpu_ext.estimator._supplied import tpu_embedding

v1 = tf.compat.v1
BATCH, IDS, DIMENSION, STEPS = 32, 10, 4, 6
START = np.linspace(-1, 1, IDS * DIMENSION, dtype=np.float32).reshape(IDS, DIMENSION)
# By the parameters of the TPU's optimizer the CPU's own.
OPTIMIZERS = {
    "sgd": (
        v1.tpu.experimental.StochasticGradientDescentParameters(0.5),
        lambda: v1.train.GradientDescentOptimizer(0.5),
        "GradientDescent",
    ),
    "adagrad": (
        v1.tpu.experimental.AdagradParameters(0.5),
        lambda: v1.train.AdagradOptimizer(0.5, initial_accumulator_value=0.1),
        "Adagrad",
    ),
    "ftrl": (
        v1.tpu.experimental.FtrlParameters(0.5, l1_regularization_strength=0.01),
        lambda: v1.train.FtrlOptimizer(0.5, l1_regularization_strength=0.01),
        "Ftrl",
    ),
}


def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
    generator = np.random.default_rng(0)
    ids = generator.integers(1, IDS, size=(4 * BATCH, 2)).astype(np.int64)
    ids[::3, 1] = 0  # left out of the sparse tensor
    labels = ids.sum(axis=1, keepdims=True).astype(np.float32)
    data = ({"ids": tf.sparse.from_dense(ids)}, labels)
    dataset = tf.data.Dataset.from_tensor_slices(data).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)


def make(folder: str, optimizer: str, use_tpu: bool) -> Any:
    column = v1.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("ids", IDS),
        DIMENSION,
        combiner="mean",
        initializer=v1.constant_initializer(START),
    )
    parameters, make_optimizer, _ = OPTIMIZERS[optimizer]

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        activations = v1.feature_column.input_layer(features, [column])
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(activations, 1, keepdims=True) - labels))
        if mode == te.ModeKeys.EVAL:
            return te.TPUEstimatorSpec(mode, loss=loss)
        trainer = make_optimizer()
        if params["use_tpu"]:
            trainer = v1.tpu.CrossShardOptimizer(trainer)
        step = v1.train.get_global_step()
        return te.TPUEstimatorSpec(mode, loss=loss, train_op=trainer.minimize(loss, step))

    cores = tf_tpu_ext.machine().cores
    return te.TPUEstimator(
        model_fn,
        use_tpu=use_tpu,
        config=te.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any"),
            model_dir=folder,
            tpu_config=te.TPUConfig(
                iterations_per_loop=2,
                num_shards=cores,
                per_host_input_for_training=te.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        embedding_config_spec=te.EmbeddingConfigSpec(
            feature_columns=[column], optimization_parameters=parameters
        ),
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_trains_and_evaluates_as_on_cpu(tmp_path, optimizer):
    losses, values = {}, {}
    for use_tpu in (True, False):
        estimator = make(str(tmp_path / str(use_tpu)), optimizer, use_tpu)
        # The second call restores the table and its slots.
        estimator.train(input_fn, steps=STEPS // 2)
        estimator.train(input_fn, steps=STEPS // 2)
        losses[use_tpu] = estimator.evaluate(input_fn, steps=4)["loss"]
        values[use_tpu] = {
            name: estimator.get_variable_value(name)
            for name in estimator.get_variable_names()
            if "embedding_weights" in name
        }
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert values[True].keys() == values[False].keys()
    for name, value in values[False].items():
        np.testing.assert_allclose(values[True][name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def arguments(**changes: Any) -> dict[str, Any]:
    given = {
        "table_to_config_dict": {"words": tpu_embedding.TableConfig(IDS, DIMENSION)},
        "feature_to_config_dict": {"word": tpu_embedding.FeatureConfig("words")},
        "batch_size": BATCH,
        "mode": tpu_embedding.TRAINING,
        "optimization_parameters": tpu_embedding.AdagradParameters(0.5),
    }
    return {**given, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": 7}, "mode=7"),
        ({"batch_size": BATCH + 1}, f"batch_size={BATCH + 1}"),
        ({"partition_strategy": "rows"}, "partition_strategy='rows'"),
        ({"feature_to_config_dict": {}}, r"tables \['words'\], features of \[\]"),
        ({"optimization_parameters": None}, "'words' has no optimizer"),
        ({"optimization_parameters": 0.1}, "optimization_parameters=0.1"),
    ],
)
def test_wrong_arguments_are_told(changes, message):
    with pytest.raises(ValueError, match=message):
        tpu_embedding.TPUEmbedding(**arguments(**changes))


PARAMETERS: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (tpu_embedding.AdamParameters(0.1, beta1=0.5), "adam", lambda p: p.beta1),
    (tpu_embedding.MomentumParameters(0.1, 0.5), "momentum", lambda p: p.momentum),
    (tpu_embedding.AdagradMomentumParameters(0.1, 0.5), "adagrad_momentum", lambda p: p.momentum),
    (tpu_embedding.ProximalYogiParameters(0.1, 0.5), "proximal_yogi", lambda p: p.beta1),
    (tpu_embedding.RMSPropParameters(0.1, 0.5, 0.9, 0.1), "rms_prop", lambda p: p.rho),
    (
        tpu_embedding.ProximalAdagradParameters(0.1, l1_regularization_strength=0.5),
        "proximal_adagrad",
        lambda p: p.l1,
    ),
]


def test_a_frequency_estimator_takes_the_step_as_its_rate():
    parameters = tpu_embedding.FrequencyEstimatorParameters(0.5, 100, 3, 1)
    table = tpu_embedding.TableConfig(IDS, 1, learning_rate_fn=v1.train.get_global_step)
    embedding = tpu_embedding.TPUEmbedding(
        **arguments(table_to_config_dict={"words": table}, optimization_parameters=parameters)
    )
    described = embedding.config_proto.table_descriptor[0].optimization_parameters
    assert described.frequency_estimator.tau == 0.5
    assert described.learning_rate.dynamic.tag == 0
    with tf.Graph().as_default():
        created = embedding.create_variables_and_ops()
        [last] = created.slot_variables_by_table["words"]
        assert last.op.name == "words/FrequencyEstimator/part_0"
        assert len(created.load_ops()) == len(created.retrieve_ops()) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpu_embedding.FrequencyEstimatorParameters(1.0, 100, 3, 1), "tau=1.0"),
        (lambda: tpu_embedding.ProximalYogiParameters(beta2=1.0), "beta2=1.0"),
        (lambda: tpu_embedding.AdagradMomentumParameters(0.1, 0.9, beta2=0.0), "beta2=0.0"),
    ],
)
def test_wrong_parameters_are_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("parameters", "field", "value"), PARAMETERS)
def test_configuration_has_the_optimizers_parameters(parameters, field, value):
    embedding = tpu_embedding.TPUEmbedding(**arguments(optimization_parameters=parameters))
    [table] = embedding.config_proto.table_descriptor
    described = table.optimization_parameters
    assert described.WhichOneof("parameters") == field
    assert value(getattr(described, field)) == 0.5
    assert described.learning_rate.constant == np.float32(0.1)
