"""Infeed for replicas with several cores, whose input is split over the cores.

The whole element goes into the infeed of the replica's first core, and the program splits it. All
cores share one memory, so splitting it on the host would gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.compiler.xla.experimental import xla_sharding
from tensorflow.python.tpu import tpu_feed
from tensorflow.python.tpu.ops import tpu_ops

Partition = Sequence[int] | None


def enqueue_ops(queue: Any, sharded_inputs: Sequence[Sequence[tf.Tensor]]) -> list[tf.Operation]:
    """Returns a list with one op per replica that enqueues its input.

    Args:
        queue: The `_PartitionedInfeedQueue`.
        sharded_inputs: The tensors of each replica.

    Raises:
        ValueError: A partition does not fit its tensor or the number of cores.
    """
    queue.set_configuration_from_sharded_input_tensors(sharded_inputs)
    assignment, host = queue._device_assignment, queue._host_id
    replicas = assignment.lookup_replicas(task_id=host, logical_core=0)
    operations = []
    for index, tensors in enumerate(sharded_inputs):
        for tensor, partition in zip(tensors, queue._input_partition_dims, strict=True):
            queue._check_input_partition_dims(tensor, partition)
        replica = replicas[index]
        with tf.device(assignment.host_device(replica=replica, logical_core=0)):
            operations.append(
                tpu_ops.infeed_enqueue_tuple(
                    inputs=list(tensors),
                    shapes=[tensor.shape for tensor in tensors],
                    name=f"enqueue/replica_{index}",
                    device_ordinal=assignment.tpu_ordinal(replica=replica, logical_core=0),
                )
            )
    return operations


def dequeue_op(queue: Any, tpu_device: int = 0) -> list[tf.Tensor]:
    """Returns a replica's tensors, split over its cores. Call it in the computation.

    Raises:
        ValueError: The types or shapes are unknown, or the queue already has a dequeue op.
    """
    tensors = tpu_feed.InfeedQueue.generate_dequeue_op(queue, tpu_device)
    partitions = queue._input_partition_dims
    return [_split(tensor, dims) for tensor, dims in zip(tensors, partitions, strict=True)]


def _split(tensor: tf.Tensor, partition: Partition) -> tf.Tensor:
    if partition is None or np.prod(partition) == 1:
        return xla_sharding.replicate(tensor, use_sharding_op=True)
    cores = np.arange(np.prod(partition)).reshape(partition)
    return xla_sharding.tile(tensor, cores, use_sharding_op=True)
