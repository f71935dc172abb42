"""Transformations of `tf.contrib.data` that are arguments of `tf.data` today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util import nest

Transformation = Callable[[tf.data.Dataset], tf.data.Dataset]


def batch_and_drop_remainder(batch_size: int) -> Transformation:
    """Returns a transformation for `Dataset.apply` that makes full batches only."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: int, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Returns a transformation for `Dataset.apply` that makes full, padded batches only."""
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Returns a transformation for `Dataset.apply` that checks and sets the shapes of elements."""

    def check(*element: Any) -> Any:
        given = element[0] if len(element) == 1 else element
        return nest.map_structure_up_to(given, tf.ensure_shape, given, expected_shapes)

    return lambda dataset: dataset.map(check)
