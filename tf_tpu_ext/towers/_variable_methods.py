"""The methods of `TPUStrategy` that read, update and place variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils

from tf_tpu_ext.towers import _placement, _state, _values, context, reduction


@_state.transparent_methods
class VariableMethods:
    """The methods of `TPUStrategy` that read, update and place variables."""

    # From `tf.distribute.TPUStrategy`.
    extended: Any
    parameter_devices: list[str]

    def update(self, var: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs `fn(copy, *args, **kwargs)` for each copy of a variable, on its device.

        Args:
            var: A variable created in `scope`.
            fn: The function. Its first argument is a copy of the variable.
            *args: Further arguments of `fn`. Each device gets its own copy of a mirrored value.
                Per-device values are not accepted.
            **kwargs: Keyword arguments of `fn`, likewise. `grouped=False` returns the results from
                all devices as a list.

        Returns:
            The results from all devices, merged into one per-device or mirrored value.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: `var` is not a variable of this strategy, or an argument is per-device.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            ...     _ = strategy.update(variable, lambda copy, x: copy.assign_add(x), 2)
            >>> print([int(copy) for copy in strategy.unwrap(variable)])
            [7, 7]
        """
        context.require_cross_tower_context(self, "update")
        _placement.check_variable(self, "update", var)
        _placement.check_mirrored("update", (args, kwargs))
        group = kwargs.pop("grouped", True)
        fn = _state.converted(fn, _state.conversion())
        return self.extended.update(var, fn, args=args, kwargs=kwargs, group=group)

    def update_non_slot(
        self, colocate_with: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Runs `fn(*args, **kwargs)` on each of several devices.

        Args:
            colocate_with: The result of `non_slot_devices`, or anything that `reduce` accepts as
                `destinations`.
            fn: The function.
            *args: As for `update`. Each device gets its own copy of a mirrored variable.
            **kwargs: As for `update`.

        Returns:
            The results from all devices, merged as in `update`.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: A device does not belong to the strategy, or an argument is per-device.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     devices = strategy.non_slot_devices([])
            ...     numbers = strategy.update_non_slot(devices, lambda x: x + 1, tf.constant(1))
            >>> print([int(x) for x in strategy.unwrap(numbers)])
            [2, 2]
        """
        context.require_cross_tower_context(self, "update_non_slot")
        _placement.check_mirrored("update_non_slot", (args, kwargs))
        devices = reduction.to_devices(self, "update_non_slot", colocate_with)
        group = kwargs.pop("grouped", True)
        fn = _state.converted(fn, _state.conversion())
        if _state.in_computation():
            result = fn(*args, **kwargs)
            return result if group else [result]
        results = []
        for number, device in enumerate(devices):
            with tf.device(device), distribute_lib.UpdateContext(number):
                of_device = _placement.on_device(self, device, number)
                own_args, own_kwargs = _values.map_leaves(of_device, (args, kwargs))
                results.append(fn(*own_args, **own_kwargs))
        return distribute_utils.update_regroup(self.extended, results, group)

    def read_var(self, tower_local_var: Any) -> tf.Tensor:
        """Reads a variable, combining the values of all towers if it is tower-local.

        Args:
            tower_local_var: A variable created in `scope`. With `VariableSynchronization.ON_READ`,
                it is tower-local, and its `aggregation` says how to combine the values.

        Returns:
            The value.

        Raises:
            ValueError: The argument is not a variable of this strategy, or, inside a computation,
                it is tower-local with the aggregation NONE.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     counted = tf.Variable(
            ...         1.0,
            ...         synchronization=tf.VariableSynchronization.ON_READ,
            ...         aggregation=tf.VariableAggregation.SUM,
            ...     )
            ...     _ = strategy.call_for_each_tower(lambda: counted.assign(2.0))
            >>> float(strategy.read_var(counted))
            4.0
        """
        _placement.check_variable(self, "read_var", tower_local_var)
        return _placement.read(tower_local_var)

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        """Returns a context that places new variables on the devices of another variable.

        Args:
            colocate_with_variable: A variable created in `scope`, or the result of
                `non_slot_devices`.

        Returns:
            A context manager.

        Raises:
            RuntimeError: The caller is not in the scope of this strategy.
            ValueError: A device does not belong to the strategy.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     variable = tf.Variable(5)
            ...     with strategy.colocate_vars_with(variable):
            ...         momentum = tf.Variable(0)
            >>> print(len(strategy.unwrap(momentum)))
            2
        """
        context.require_scope(self, "colocate_vars_with")
        devices = reduction.to_devices(self, "colocate_vars_with", colocate_with_variable)
        if isinstance(colocate_with_variable, _values.DistributedVariable):
            return self.extended.colocate_vars_with(colocate_with_variable)
        return _placement.variables_on(devices)

    def non_slot_devices(self, var_list: Any) -> list[str]:
        """Returns the devices for optimizer variables that belong to no single model variable.

        Args:
            var_list: The variables being optimized. Not used.

        Returns:
            The names of the devices, for `colocate_vars_with` and `update_non_slot`.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> print([device[-5:] for device in strategy.non_slot_devices([])])
            ['TPU:0', 'TPU:1']
        """
        del var_list
        return list(self.parameter_devices)
