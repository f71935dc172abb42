"""`tf.contrib.data` transformations that have become arguments of `tf.data` methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util import nest

Transformation = Callable[[tf.data.Dataset], tf.data.Dataset]


def batch_and_drop_remainder(batch_size: int) -> Transformation:
    """Returns a transformation for `Dataset.apply` that makes only full batches.

    Args:
        batch_size: The number of elements in a batch.

    Example:
        >>> dataset = tf.data.Dataset.range(5).apply(batch_and_drop_remainder(2))
        >>> [batch.numpy().tolist() for batch in dataset]
        [[0, 1], [2, 3]]

    Today: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#batch
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: int, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Returns a transformation for `Dataset.apply` that makes only full, padded batches.

    Args:
        batch_size: The number of elements in a batch.
        padded_shapes: The shape to pad each component to; None pads a dimension to the largest size
            in the batch.
        padding_values: The values to pad with; None means 0 or the empty string.

    Example:
        >>> rows = tf.data.Dataset.range(1, 4).map(lambda n: tf.fill([n], n))
        >>> [batch] = rows.apply(padded_batch_and_drop_remainder(2, [None]))
        >>> batch.numpy().tolist()
        [[1, 0], [2, 2]]

    Today: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#padded_batch
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Returns a transformation for `Dataset.apply` that checks and sets the shapes of elements.

    Args:
        expected_shapes: The `tf.TensorShape` of each component. An element with a different shape
            raises `tf.errors.InvalidArgumentError` during iteration, or ValueError if its shape is
            already known.

    Example:
        >>> dataset = tf.data.Dataset.range(6).batch(3).apply(assert_element_shape([3]))
        >>> print(dataset.element_spec.shape)
        (3,)

    Today: https://www.tensorflow.org/api_docs/python/tf/ensure_shape
    """

    def check(*element: Any) -> Any:
        given = element[0] if len(element) == 1 else element
        return nest.map_structure_up_to(given, tf.ensure_shape, given, expected_shapes)

    return lambda dataset: dataset.map(check)
