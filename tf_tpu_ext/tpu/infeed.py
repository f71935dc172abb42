"""`InfeedQueue`: feeds data from the host to a running computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu_feed, tpu_sharding

# TensorFlow assumes eight cores per host.
_LEAST_CORES_PER_HOST = 8


class _ShardingPolicy(tpu_sharding.ShardingPolicy):
    """A policy that keeps the shape of scalars, which TensorFlow's policy loses."""

    def __init__(self, policy: tpu_sharding.ShardingPolicy) -> None:
        super().__init__()
        self.__dict__.update(policy.__dict__)

    def get_unpartitioned_shape(self, shape: Any) -> tf.TensorShape | None:
        if shape is not None and tf.TensorShape(shape).rank == 0:
            return tf.TensorShape([])
        return super().get_unpartitioned_shape(shape)


class InfeedQueue(tpu_feed.InfeedQueue):
    """A queue of tuples of tensors, from the host to each replica.

    The host enqueues a tuple for each shard, and each replica dequeues its own. If you pass the
    queue to `replicate` as `infeed_queue`, the elements of a tuple follow the other arguments of
    the computation. `tuple_shapes` are the shapes of all shards concatenated along dimension 0, or
    along `shard_dimensions`.

    This class extends TensorFlow's and adds the same ops to a graph. In addition, the methods that
    enqueue can be called eagerly, any number of times. They then enqueue immediately: core i gets
    the tuple of shard i, unless `tpu_ordinal_function` says otherwise. Enqueue before you run the
    computation, because an eager call to it waits for its tuple.

    >>> queue = InfeedQueue(tuple_types=[tf.float32], tuple_shapes=[[2]])
    >>> _ = queue.generate_enqueue_ops([[tf.constant([1.0, 2.0])]])
    >>> rewrite(lambda x: x * 2, infeed_queue=queue)[0].numpy()
    array([2., 4.], dtype=float32)

    Defined at
    https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/tpu/tpu_feed.py
    """

    def generate_dequeue_op(self, tpu_device: int | None = 0) -> list[tf.Tensor]:
        """Dequeues one tuple. Call it inside the computation.

        Args:
            tpu_device: The replica's logical core that dequeues. None leaves the choice to the
                enclosing device scope.

        Returns:
            The elements, with the types and shapes of one shard.

        Raises:
            ValueError: The types or shapes are not set, or the queue already has a dequeue op.

        Example:
            >>> queue = InfeedQueue(tuple_types=[tf.float32], tuple_shapes=[[2]])
            >>> _ = queue.generate_enqueue_ops([[tf.constant([1.0, 2.0])]])
            >>> rewrite(lambda: queue.generate_dequeue_op()[0] * 2)[0].numpy()
            array([2., 4.], dtype=float32)
        """
        self._sharding_policies: list[Any] = [
            _ShardingPolicy(policy) for policy in self._sharding_policies
        ]
        elements: list[tf.Tensor] = super().generate_dequeue_op(tpu_device)
        return elements

    def generate_enqueue_ops(
        self,
        sharded_inputs: Sequence[Sequence[Any]],
        tpu_ordinal_function: Callable[[int], int] | None = None,
        placement_function: Callable[[int], str] | None = None,
    ) -> list[Any]:
        """Enqueues one tuple for each shard.

        Args:
            sharded_inputs: The tensors, `[shard][element]`, with the queue's types and shapes.
            tpu_ordinal_function: Maps a shard's number to the number of its core on its host.
            placement_function: Maps a shard's number to the device of its host.

        Returns:
            A list with one op per shard that enqueues its tuple; a list of None when called
            eagerly.

        Raises:
            ValueError: The shapes differ between shards or from the queue's.
            TypeError: The types differ from the queue's.

        Example:
            >>> queue = InfeedQueue(tuple_types=[tf.int32], tuple_shapes=[[2]])
            >>> queue.set_number_of_shards(2)
            >>> _ = queue.generate_enqueue_ops([[tf.constant([7])], [tf.constant([8])]])
            >>> outputs = replicate(lambda x: x + 1, inputs=[[], []], infeed_queue=queue)
            >>> [x.numpy().tolist() for [x] in outputs]
            [[8], [9]]
        """
        if tf.executing_eagerly():
            self._generated_enqueue_ops = False
            sharded_inputs = [
                [tf.convert_to_tensor(element) for element in shard] for shard in sharded_inputs
            ]
            if tpu_ordinal_function is None:
                ordinals = [
                    -1 if "TPU" in shard[0].device else index
                    for index, shard in enumerate(sharded_inputs)
                ]
                tpu_ordinal_function = ordinals.__getitem__
        operations: list[Any] = super().generate_enqueue_ops(
            sharded_inputs, tpu_ordinal_function, placement_function
        )
        return operations

    def split_inputs_and_generate_enqueue_ops(
        self,
        inputs: Sequence[Any],
        device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
        placement_function: Callable[[int], str] | None = None,
        tpu_ordinal_function: Callable[[int], int] | None = None,
    ) -> list[Any]:
        """Splits each tensor along its shard dimension and enqueues the pieces.

        Args:
            inputs: The tensors, with the queue's types and shapes.
            device_assignment: Which cores to feed. None feeds the first ones.
            placement_function: Maps a shard's number to the device of its host.
            tpu_ordinal_function: Maps a shard's number to the number of its core on its host.

        Returns:
            A list with one op per shard that enqueues its tuple; a list of None when called
            eagerly.

        Raises:
            ValueError: The number of shards is not set, or the shapes differ from the queue's.
            TypeError: The types differ from the queue's.

        Example:
            >>> queue = InfeedQueue(tuple_types=[tf.int32], tuple_shapes=[[2]])
            >>> queue.set_number_of_shards(2)
            >>> _ = queue.split_inputs_and_generate_enqueue_ops([tf.constant([7, 8])])
            >>> outputs = replicate(lambda x: x + 1, inputs=[[], []], infeed_queue=queue)
            >>> [x.numpy().tolist() for [x] in outputs]
            [[8], [9]]
        """
        if self.number_of_shards is None:
            raise ValueError(
                "split_inputs_and_generate_enqueue_ops got a queue without a number of shards, "
                "expected it to be known. Call set_number_of_shards(n) first."
            )
        if tf.executing_eagerly():
            self._generated_enqueue_ops = False
            inputs = [tf.convert_to_tensor(element) for element in inputs]
        operations: list[Any] = super().split_inputs_and_generate_enqueue_ops(
            inputs, device_assignment, placement_function, tpu_ordinal_function
        )
        return operations

    def _default_placement_function(self, index: int) -> str:
        return f"/task:{index // _cores_per_host()}/device:CPU:0"

    def _default_ordinal_function(self, index: int) -> int:
        return index % _cores_per_host()


def _cores_per_host() -> int:
    """Returns the number of cores per host, which may be more than eight here."""
    devices = [
        tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices("TPU")
    ]
    hosts = {(device.job, device.task) for device in devices}
    return max(_LEAST_CORES_PER_HOST, len(devices) // max(1, len(hosts)))
