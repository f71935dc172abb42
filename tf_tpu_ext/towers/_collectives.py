"""Sums, gathers and first values over the towers, inside a computation."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext.towers import _state

# The types that XLA's all-reduce can sum.
_SUMMED = frozenset(
    {tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.uint32},
)


def all_towers(value: Any) -> list[tf.Tensor]:
    """Returns the values of all towers, on each tower.

    Args:
        value: The tower's own tensor, with the same static shape on all towers and any dtype that
            cores can hold.

    Raises:
        TypeError: `value` is not a dense tensor, or has a type that cores can't hold.
    """
    if not isinstance(value, tf.Tensor):
        raise TypeError(
            f"The values of all towers can't be listed: got {value!r}, expected a dense tensor. "
            "Convert it in the tower, for example by tf.convert_to_tensor or to_tensor()."
        )
    if value.dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(
            f"The values of all towers can't be listed: got {value.name} of type "
            f"{value.dtype.name}, expected numbers or booleans. Cores can't hold anything else."
        )
    towers = _state.computation().strategy.num_towers
    if towers == 1:
        return [value]
    copies = tf.tile(value[tf.newaxis], [towers] + [1] * value.shape.rank)
    gathered = tpu_ops.all_to_all(copies, concat_dimension=0, split_dimension=0, split_count=towers)
    return list(tf.unstack(gathered, num=towers))


def total(value: Any) -> Any:
    """Returns the sum over all towers, on each tower, for any numeric dtype."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat(all_towers(value.values), 0),
            tf.concat(all_towers(value.indices), 0),
            value.dense_shape,
        )
    if value.dtype in _SUMMED:
        return tpu_ops.cross_replica_sum(value)
    if value.dtype == tf.bool:
        raise TypeError(
            f"SUM got {value.name} of type bool, expected numbers. Write "
            "tf.cast(value, tf.int32) in the tower."
        )
    return tf.add_n(all_towers(value))


def first(value: Any) -> Any:
    """Returns the value of tower 0, on each tower."""
    value = tf.convert_to_tensor(value)
    if value.dtype not in _SUMMED:
        return all_towers(value)[0]
    # Not multiplied by 0, because the values of other towers may be infinite.
    here = tf.equal(_state.computation().tower_id, 0)
    return tpu_ops.cross_replica_sum(tf.where(here, value, tf.zeros_like(value)))
