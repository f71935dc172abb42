"""Lists of variables, as in `tf.contrib.framework`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = "variables"
) -> list[Any]:
    """Returns the variables of the default graph.

    Args:
        scope: A variable scope, or a prefix of the names. None means no restriction.
        suffix: The end of the names, without the output number. None means no restriction.
        collection: The collection to search.

    Example:
        >>> with tf.Graph().as_default():
        ...     with tf.compat.v1.variable_scope("layer"):
        ...         _ = tf.compat.v1.get_variable("weight", [2])
        ...     _ = tf.compat.v1.get_variable("other", [2])
        ...     print([variable.name for variable in get_variables("layer")])
        ['layer/weight:0']

    Today: https://www.tensorflow.org/api_docs/python/tf/compat/v1/get_collection
    """
    prefix = scope.name if isinstance(scope, v1.VariableScope) else scope
    if suffix is not None:
        if ":" not in suffix:
            suffix += ":"
        prefix = f"{prefix or ''}.*{suffix}"
    return list(v1.get_collection(collection, prefix))


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the trainable variables of the default graph.

    Args:
        scope: As for `get_variables`.
        suffix: As for `get_variables`.

    Example:
        >>> with tf.Graph().as_default():
        ...     _ = tf.compat.v1.get_variable("weight", [2])
        ...     _ = tf.compat.v1.get_variable("step", [], trainable=False)
        ...     print([variable.name for variable in get_trainable_variables()])
        ['weight:0']

    Today: https://www.tensorflow.org/api_docs/python/tf/compat/v1/trainable_variables
    """
    return get_variables(scope, suffix, v1.GraphKeys.TRAINABLE_VARIABLES)
