"""Lists of variables, as `tf.contrib.framework` had them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = "variables"
) -> list[Any]:
    """Returns the variables of a graph.

    Args:
        scope: A variable scope or a prefix of names, or None for all.
        suffix: What the names end with, or None for any.
        collection: The collection to look in.
    """
    prefix = scope.name if isinstance(scope, v1.VariableScope) else scope
    if suffix is not None:
        if ":" not in suffix:
            suffix += ":"
        prefix = f"{prefix or ''}.*{suffix}"
    return list(v1.get_collection(collection, prefix))


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the trainable variables of a graph; see `get_variables`."""
    return get_variables(scope, suffix, v1.GraphKeys.TRAINABLE_VARIABLES)
