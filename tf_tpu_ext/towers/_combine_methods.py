"""The methods of `TPUStrategy` that combine, copy and list values of the towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _state, _values, context, reduction
from tf_tpu_ext.towers.reduction import VariableAggregation

# The default of arguments for which None is a value.
_LEFT_OUT: Any = object()


@_state.transparent_methods
class CombineMethods:
    """The methods of `TPUStrategy` that combine, copy and list values of the towers."""

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

        Called with `axis` in place of `destinations` (`None` or an integer), it is the `reduce` of
        TensorFlow 2.

        Args:
            aggregation: `VariableAggregation.SUM`, `MEAN` or `ONLY_FIRST_TOWER`.
            value: A per-device value.
            destinations: Where the result goes: a variable or per-device value for its devices, a
                device, or a list of devices. Pass `value` itself for an all-reduce.
            reduce_op: As in TensorFlow 2, in place of `aggregation`.
            axis: As in TensorFlow 2: which dimension of each tower's value to reduce as well.

        Returns:
            The result, mirrored to `destinations`; a tensor if that is one device.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.
            ValueError: An argument is none of the above.
            TypeError: The mean of integers is asked for.

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
            aggregation: As in `reduce`.
            value_destination_pairs: Pairs of a value and its destinations.

        Returns:
            For each pair what `reduce` returns.

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
            tensor: One value for all.
            destinations: As in `reduce`; None for the worker devices.

        Returns:
            The mirrored value; a tensor if there is one destination.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.
            ValueError: `tensor` is a per-device value, or a destination is not of the strategy.

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
                "Combine it first: reduce(aggregation, value, destinations) mirrors the result."
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
        """Returns the values of all towers, or all copies, as a list.

        In a computation, for example in a `merge_fn`, the values come from the other cores, and
        every core gets all of them.

        Args:
            value: What `call_for_each_tower` returned, or a variable made in `scope`.

        Returns:
            The values in the order of the towers; `[value]` if there is one.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            >>> print([int(copy) for copy in strategy.unwrap(variable)])
            [5, 5]
        """
        return _values.unwrap(value)

    def value_container(self, value: Any) -> Any:
        """Returns the per-device value or variable of which `value` is a component.

        Args:
            value: A component, as in the list that `unwrap` returns.

        Returns:
            The container, or `value` itself if there is none any more.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            >>> strategy.value_container(strategy.unwrap(variable)[1]) is variable
            True
        """
        return _values.container_of(value)
