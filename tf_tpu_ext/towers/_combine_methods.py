"""The methods of `TPUStrategy` that combine, copy and list the towers' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _state, _values, context, reduction
from tf_tpu_ext.towers.reduction import VariableAggregation

# The default for arguments for which None is a valid value.
_LEFT_OUT: Any = object()


@_state.transparent_methods
class CombineMethods:
    """The methods of `TPUStrategy` that combine, copy and list the towers' values."""

    worker_devices: list[str]

    def reduce(
        self,
        aggregation: Any = _LEFT_OUT,
        value: Any = _LEFT_OUT,
        destinations: Any = _LEFT_OUT,
        *,
        reduce_op: Any = _LEFT_OUT,
        axis: Any = _LEFT_OUT,
    ) -> Any:
        """Combines the values of all towers.

        With `axis` (`None` or an integer) instead of `destinations`, this is TensorFlow 2's
        `reduce`.

        Args:
            aggregation: `VariableAggregation.SUM`, `MEAN` or `ONLY_FIRST_TOWER`.
            value: A per-device value.
            destinations: Where to put the result: a device, a list of devices, or a variable or
                per-device value whose devices are used. Pass `value` itself for an all-reduce.
            reduce_op: TensorFlow 2's name for `aggregation`.
            axis: As in TensorFlow 2, a dimension of each tower's value to reduce as well, or None.

        Returns:
            The result, mirrored to `destinations`; a tensor if there is only one device.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: The aggregation or a destination is invalid, or `value` is the same on all
                towers and can't be summed.
            TypeError: An argument is missing, or MEAN is applied to integers.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     index = strategy.worker_device_index
            ...     numbers = strategy.call_for_each_tower(lambda i: i + 1, index)
            ...     total = strategy.reduce("SUM", numbers, destinations="/device:CPU:0")
            >>> int(total)
            3
        """
        if aggregation is _LEFT_OUT:
            aggregation = reduce_op
        if value is _LEFT_OUT or aggregation is _LEFT_OUT:
            raise TypeError(
                "reduce got too few arguments, expected reduce(aggregation, value, destinations), "
                "or reduce(reduce_op, value, axis=None) as in TensorFlow 2."
            )
        if destinations is None or isinstance(destinations, int):
            axis = destinations
        if axis is not _LEFT_OUT:
            return self._reduce_as_in_tensorflow_2(aggregation, value, axis)
        context.require_cross_tower_context(self, "reduce")
        if destinations is _LEFT_OUT:
            raise TypeError(
                "reduce got neither destinations nor axis. Pass a device, a list of devices or a "
                "variable as destinations, or axis=None for the reduce of TensorFlow 2."
            )
        aggregation = reduction.to_aggregation("reduce", aggregation)
        return reduction.reduce(self, "reduce", aggregation, value, destinations)

    def _reduce_as_in_tensorflow_2(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        if not isinstance(value, _values.PerTower):
            return tf.distribute.TPUStrategy.reduce(self, reduce_op, value, axis)
        local = value.local
        aggregation = reduction.to_aggregation("reduce", reduce_op)
        if axis is not None:
            mean = aggregation == VariableAggregation.MEAN
            local = (tf.reduce_mean if mean else tf.reduce_sum)(local, axis)
        return reduction.reduce_in_computation(aggregation, local)

    def batch_reduce(
        self, aggregation: Any, value_destination_pairs: Sequence[tuple[Any, Any]]
    ) -> list[Any]:
        """Calls `reduce` for several values.

        Args:
            aggregation: As for `reduce`.
            value_destination_pairs: Pairs of a value and its destinations.

        Returns:
            A list with the result of `reduce` for each pair.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: As for `reduce`, or an entry is not a pair.
            TypeError: As for `reduce`.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     index = strategy.worker_device_index
            ...     numbers = strategy.call_for_each_tower(lambda i: i + 1, index)
            ...     totals = strategy.batch_reduce("SUM", [(numbers, "/device:CPU:0")] * 2)
            >>> print([int(total) for total in totals])
            [3, 3]
        """
        context.require_cross_tower_context(self, "batch_reduce")
        aggregation = reduction.to_aggregation("batch_reduce", aggregation)
        pairs = [tuple(pair) for pair in value_destination_pairs]
        wrong = next((pair for pair in pairs if len(pair) != 2), None)
        if wrong is not None:
            raise ValueError(
                f"batch_reduce got {wrong!r}, expected pairs of a value and its destinations. "
                "Write [(value, destinations), ...]."
            )
        return [
            reduction.reduce(self, "batch_reduce", aggregation, value, destinations)
            for value, destinations in pairs
        ]

    def broadcast(self, tensor: Any, destinations: Any = None) -> Any:
        """Copies a tensor to several devices.

        Args:
            tensor: The value.
            destinations: As for `reduce`. None means the worker devices.

        Returns:
            The mirrored value; a tensor if there is only one destination.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: `tensor` is a per-device value, or a destination does not belong to the
                strategy.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     copies = strategy.unwrap(strategy.broadcast(tf.constant(7)))
            >>> print([int(x) for x in copies])
            [7, 7]
        """
        context.require_cross_tower_context(self, "broadcast")
        if _values.is_per_device(tensor):
            raise ValueError(
                f"broadcast got {tensor!r}, which has a value for each tower, expected one tensor. "
                "Combine the values with reduce(aggregation, value, destinations), which mirrors "
                "the result."
            )
        if destinations is None:
            destinations = list(self.worker_devices)
        devices = reduction.to_devices(self, "broadcast", destinations)
        if _values.is_mirrored(tensor):
            tensor = tensor.values[0]
        tensor = tf.convert_to_tensor(tensor)
        if _state.in_computation():
            return tensor
        return reduction.copy_to(devices, tensor)

    def unwrap(self, value: Any) -> list[Any]:
        """Returns a list of the values of all towers, or of all copies.

        Inside a computation, such as in a `merge_fn`, each core gathers the values from all cores.

        Args:
            value: A result of `call_for_each_tower`, or a variable created in `scope`.

        Returns:
            The values in the order of the towers; `[value]` if there is only one.

        Raises:
            TypeError: Inside a computation, the value is not a dense tensor of numbers or booleans.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            >>> print([int(copy) for copy in strategy.unwrap(variable)])
            [5, 5]
        """
        return _values.unwrap(value)

    def value_container(self, value: Any) -> Any:
        """Returns the per-device value or variable that has `value` as a component.

        Args:
            value: A component from the list that `unwrap` returns.

        Returns:
            The container, or `value` itself if the container no longer exists.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            >>> strategy.value_container(strategy.unwrap(variable)[1]) is variable
            True
        """
        return _values.container_of(value)
