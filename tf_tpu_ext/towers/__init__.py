"""Towers: the strategy known in TensorFlow 1 as `tf.contrib.distribute.TPUStrategy`.

    >>> import tensorflow as tf
    >>> import tf_tpu_ext
    >>> resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    >>> strategy = tf_tpu_ext.TPUStrategy(resolver, steps_per_run=1)
    >>> def fn(value):
    ...     tower = tf_tpu_ext.towers.get_tower_context()
    ...     merge_fn = lambda distribution, values: sum(distribution.unwrap(values))
    ...     return tower.merge_call(merge_fn, value) + tower.tower_id
    >>> with strategy.scope():
    ...     results = strategy.unwrap(strategy.call_for_each_tower(fn, tf.constant(2)))
    >>> print([int(x) for x in results])
    [4, 5]

The examples in this package run on a machine with two cores. docs/towers.md compares this API with
TensorFlow 2's.
"""

from tf_tpu_ext.towers._tower_id import TowerId
from tf_tpu_ext.towers.context import (
    TowerContext,
    get_cross_tower_context,
    get_tower_context,
    require_tower_context,
)
from tf_tpu_ext.towers.datasets import PerDeviceDataset, PerDeviceIterator
from tf_tpu_ext.towers.reduction import VariableAggregation
from tf_tpu_ext.towers.steps import MultiStepContext
from tf_tpu_ext.towers.strategy import TPUStrategy

__all__ = [
    "MultiStepContext",
    "PerDeviceDataset",
    "PerDeviceIterator",
    "TPUStrategy",
    "TowerContext",
    "TowerId",
    "VariableAggregation",
    "get_cross_tower_context",
    "get_tower_context",
    "require_tower_context",
]
