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

    # Of `tf.distribute.TPUStrategy`.
    extended: Any
    parameter_devices: list[str]

    def update(self, var: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs `fn(copy, *args, **kwargs)` for each copy of a variable, on its device.

        Args:
            var: A variable made in `scope`.
            fn: Takes a copy of the variable first.
            *args: Arguments. Each device gets its own part of mirrored ones; per-device values
                are not accepted.
            **kwargs: Likewise. `grouped=False` returns the results of all devices as a list.

        Returns:
            The results, merged.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.
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
        """Runs `fn(*args, **kwargs)` on each of some devices.

        Args:
            colocate_with: What `non_slot_devices` returned, or other `destinations` of `reduce`.
            fn: What to run.
            *args: As in `update`. Each device gets its own copy of a mirrored variable.
            **kwargs: As in `update`.

        Returns:
            The results, merged.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.
            ValueError: A device is not of the strategy, or an argument is per-device.

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
        """Reads a variable, combining the towers' values of a tower-local one.

        Args:
            tower_local_var: A variable made in `scope`. With `VariableSynchronization.ON_READ` it
                is tower-local, and combined as its `aggregation` says.

        Returns:
            The value.

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
        """Puts the variables made in the returned context on the devices of another.

        Args:
            colocate_with_variable: A variable made in `scope`, or what `non_slot_devices` returned.

        Returns:
            A context manager.

        Raises:
            RuntimeError: Not called in the scope of this strategy.
            ValueError: There is no such device in the strategy.

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
        """Returns the devices of variables that belong to no single variable of a model.

        Args:
            var_list: The variables being optimized; not used.

        Returns:
            The names of the devices, for `colocate_vars_with` and `update_non_slot`.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> print([device[-5:] for device in strategy.non_slot_devices([])])
            ['TPU:0', 'TPU:1']
        """
        del var_list
        return list(self.parameter_devices)
