"""What tests under a TPUStrategy share: strategies, and values of the replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def strategy_of_all_cores() -> Any:
    """Returns a strategy of one replica for each core of the process, on a new TPU system."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def replica_id() -> Any:
    """Returns the number of the replica that runs."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def local(strategy: Any, value: Any) -> np.ndarray:
    """Returns the value of each replica, stacked."""
    return np.array([np.asarray(x) for x in strategy.experimental_local_results(value)])


def per_replica(strategy: Any, values: Any) -> Any:
    """Returns a distributed value, of which replica i has `values[i]`."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )


def spmd_pairs(replicas: int) -> tf.distribute.TPUStrategy:
    """A strategy of replicas of two cores each, over which XLA divides arrays."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=replicas
    )
    return tf.distribute.TPUStrategy(
        resolver,
        experimental_device_assignment=assignment,
        experimental_spmd_xla_partitioning=True,
    )
