"""Replaces `tensorflow.python.tpu.tpu_embedding_gradient`.

An optimizer in a model function differentiates with respect to variables, but activations are not
variables. So they pass through ops with a dummy variable, whose gradient function stores the
gradients of the activations in a graph collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext.estimator._supplied.tpu_embedding import TPUEmbedding


def _places(embedding: TPUEmbedding) -> dict[str, tuple[int, int]]:
    """Returns, for each feature, the number of its table and its number within that table."""
    numbers = {name: number for number, name in enumerate(embedding.table_to_config_dict)}
    lookups = dict.fromkeys(numbers, 0)
    places = {}
    for name, feature in embedding.feature_to_config_dict.items():
        places[name] = (numbers[feature.table_id], lookups[feature.table_id])
        lookups[feature.table_id] += 1
    return places


def _gradients(table: int) -> list[Any]:
    # The name that the gradient function of TPUEmbeddingActivations knows.
    name = f"tpu_embedding_gradients_table_{table}"
    collection: list[Any] = tf.compat.v1.get_default_graph().get_collection_ref(name)
    return collection


def get_gradients_through_compute_gradients(
    optimizer: Any, loss: Any, activations: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the gradients of the activations by feature, as the optimizer computes them."""
    gradients = optimizer.compute_gradients(loss, list(activations.values()))
    return {name: gradient for name, (gradient, _) in zip(activations, gradients, strict=True)}


def create_dummy_table_variables(tpu_embedding: TPUEmbedding) -> tuple[dict[str, Any], Any]:
    """Creates a dummy variable for each table, and an op that initializes all of them."""
    variables = {
        name: tf.compat.v1.get_variable(
            f"tpu_embedding_dummy_table_variable_{name}",
            shape=[1],
            dtype=tf.float32,
            initializer=tf.compat.v1.zeros_initializer(),
            trainable=True,
            use_resource=True,
        )
        for name in tpu_embedding.table_to_config_dict
    }
    initializers = tf.compat.v1.variables_initializer(
        list(variables.values()), name="tpu_embedding_dummy_table_variables_init"
    )
    return variables, initializers


def hook_dummy_table_variables_to_activations(
    tpu_embedding: TPUEmbedding,
    activations: Mapping[str, Any],
    table_variables: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns activations that depend on the dummy variables of their tables."""
    places = _places(tpu_embedding)
    for table in {table for table, _ in places.values()}:
        gradients = _gradients(table)
        gradients[:] = [None for place in places.values() if place[0] == table]
    return {
        name: tpu_ops.tpu_embedding_activations(
            table_variables[tpu_embedding.feature_to_config_dict[name].table_id],
            activation,
            table_id=places[name][0],
            lookup_id=places[name][1],
        )
        for name, activation in activations.items()
    }


def get_gradients_through_dummy_table_variables(tpu_embedding: TPUEmbedding) -> dict[str, Any]:
    """Returns the gradients of the activations by feature, or zeros if the loss uses none."""
    gradients = {}
    for name, (table, lookup) in _places(tpu_embedding).items():
        gradient = _gradients(table)[lookup]
        if gradient is None:
            feature = tpu_embedding.feature_to_config_dict[name]
            shape = [tpu_embedding.batch_size_per_core]
            if feature.max_sequence_length > 0:
                shape.append(feature.max_sequence_length)
            dimension = tpu_embedding.table_to_config_dict[feature.table_id].dimension
            gradient = tf.zeros([*shape, dimension])
        gradients[name] = gradient
    return gradients
