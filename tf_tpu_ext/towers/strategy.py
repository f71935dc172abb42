"""`TPUStrategy`: the strategy of `tf.contrib.distribute` and of TensorFlow 2 in one class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils

from tf_tpu_ext.towers import (
    _calls,
    _members,
    _placement,
    _state,
    _values,
    context,
    datasets,
    reduction,
    steps,
)
from tf_tpu_ext.towers.reduction import VariableAggregation

# Tells `axis=None` from an argument that was left out.
_LEFT_OUT: Any = object()


@_state.transparent_methods
class TPUStrategy(_members.Members, tf.distribute.TPUStrategy):
    """Runs a function on every TPU core: each core is a tower.

    This is the strategy that TensorFlow 1 had as `tf.contrib.distribute.TPUStrategy`, with all its
    members, and a `tf.distribute.TPUStrategy` as well: Keras, `run`, distributed datasets and
    checkpoints work as with that one. It may be used eagerly, in a `tf.function` and in graphs for
    a Session.

    `call_for_each_tower` traces its function once for all towers and compiles it once. Within it,
    `get_tower_context()` knows the tower: `tower_id` is its number, and `merge_call` pauses all
    towers and goes on with the values of all of them.

    >>> strategy = TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver(), steps_per_run=1)
    >>> def merge_fn(distribution, three_plus_tower_id):
    ...     return sum(distribution.unwrap(three_plus_tower_id))
    >>> def fn(three):
    ...     tower = tf_tpu_ext.towers.get_tower_context()
    ...     v = three + tower.tower_id
    ...     return tower.merge_call(merge_fn, v) + v
    >>> with strategy.scope():
    ...     merged = strategy.call_for_each_tower(fn, 3)
    >>> print([int(x) for x in strategy.unwrap(merged)])  # On two cores.
    [10, 11]

    docs/towers.md has the old API beside the new one, call by call.

    Defined at
    https://github.com/tensorflow/tensorflow/blob/v1.12.0/tensorflow/contrib/distribute/python/tpu_strategy.py
    """

    def __init__(
        self,
        tpu_cluster_resolver: Any = None,
        steps_per_run: int = 1,
        num_cores: int | None = None,
        *,
        experimental_device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
    ) -> None:
        """Makes a strategy for the cores of a TPU.

        Args:
            tpu_cluster_resolver: A `TPUClusterResolver`; None for the TPU of this machine.
            steps_per_run: How many steps tf_keras runs in graphs of TensorFlow 1 before it returns
                to the host. Nothing else reads it: see `iterations` of `run_steps_on_dataset`,
                `steps_per_execution` of Keras and `iterations_per_loop` of TPUEstimator.
            num_cores: How many cores to use, the first ones; None for all.
            experimental_device_assignment: Which core each tower is, as for
                `tf.distribute.TPUStrategy`. By keyword only: that class takes it where this one
                takes `steps_per_run`.

        Raises:
            ValueError: `num_cores` is not between 1 and the number of cores, `steps_per_run` is
                not positive, the assignment has several cores for a tower, or comes together with
                `num_cores`.
        """
        if not isinstance(steps_per_run, int) or steps_per_run < 1:
            advice = "Pass 1 to return to the host after every step."
            if isinstance(steps_per_run, tf.tpu.experimental.DeviceAssignment):
                advice = "Pass the assignment by keyword: experimental_device_assignment=..."
            raise ValueError(
                f"TPUStrategy got steps_per_run={steps_per_run!r}, expected a positive integer. "
                f"{advice}"
            )
        if tpu_cluster_resolver is None:
            tpu_cluster_resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        if experimental_device_assignment is None:
            assignment = _placement.first_cores(tpu_cluster_resolver, num_cores)
        else:
            assignment = experimental_device_assignment
            _placement.check_assignment(assignment, num_cores)
        extended = _placement.TowersExtended(self, tpu_cluster_resolver, steps_per_run, assignment)
        # TensorFlow's own constructor takes no `extended`.
        distribute_lib.Strategy.__init__(self, extended)
        self._enable_packed_variable_in_eager_mode = True
        self.steps_per_run = steps_per_run

    # Of the towers.

    def call_for_each_tower(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs `fn` once on each tower.

        `fn` is traced once for all towers and compiled. Called eagerly, the trace is kept for the
        code of `fn`, the objects that it captured, and the types and shapes of its arguments;
        Python's side effects happen while tracing.

        Args:
            fn: May call `get_tower_context()` for its tower.
            *args: Arguments of `fn`. Each tower gets its own value of a per-device one, as made by
                a distributed iterator, `call_for_each_tower` or `worker_device_index`.
            **kwargs: Likewise; `run_concurrently` is accepted and does nothing: towers always
                run concurrently.

        Returns:
            What `fn` returns, with per-device values for its tensors: `unwrap` lists them. An
            operation becomes one for each tower; called eagerly it has run and gives None.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     double = strategy.call_for_each_tower(lambda x: x * 2, tf.constant(21))
            >>> print([int(x) for x in strategy.unwrap(double)])
            [42, 42]
        """
        context.require_cross_tower_context(self, "call_for_each_tower")
        kwargs.pop("run_concurrently", None)
        return _calls.call_for_each_tower(self, fn, args, kwargs)

    def map(
        self, map_over: Iterable[Any], fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> _values.MapOutput:
        """Calls `fn` on each element of `map_over`, on the host.

        Args:
            map_over: The elements.
            fn: Called as `fn(element, *args, **kwargs)`.
            *args: Positional arguments.
            **kwargs: Keyword arguments.

        Returns:
            The results, for `unwrap` and `reduce`.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     lengths = strategy.map(["a", "bc"], tf.strings.length)
            >>> print([int(x) for x in strategy.unwrap(lengths)])
            [1, 2]
        """
        context.require_cross_tower_context(self, "map")
        with tf.device(None if _state.in_computation() else self.extended._host_device):
            return _values.MapOutput([fn(element, *args, **kwargs) for element in map_over])

    def run_steps_on_dataset(
        self,
        fn: Callable[..., Any],
        iterator: Any,
        iterations: int = 1,
        initial_loop_values: Any = None,
    ) -> steps.MultiStepContext:
        """Runs `fn` on the next elements of `iterator`, several times before it returns.

        The loop runs on the cores and is fed by infeed. Elements whose shapes are not static are
        given to a loop on the host instead, which also runs without returning to Python.

        When the data ends early, the steps that had their data have been done in full, and an
        OutOfRangeError says so. Called eagerly this runs the steps at once.

        Args:
            fn: Called as `fn(context, *inputs)` in the cross-tower context, where `context` is a
                `MultiStepContext` and `inputs` are what `iterator.get_next()` gives.
            iterator: Of `distribute_dataset`, or of any dataset, of which each tower takes one
                element a step. The caller initializes it.
            iterations: How many steps to run.
            initial_loop_values: For each output that `fn` sets, its value where no step ran.
                May be left out.

        Returns:
            The `MultiStepContext` with `run_op`, `last_step_outputs` and `non_tensor_outputs`.

        Raises:
            RuntimeError: Not called in the cross-tower context of this strategy.
            ValueError: `initial_loop_values` do not fit the outputs.
            tf.errors.OutOfRangeError: The data ended; raised when the operation runs.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> def step(context, x):
            ...     total = strategy.call_for_each_tower(lambda x: x * 10, x)
            ...     context.set_last_step_output("total", total, "SUM")
            >>> with strategy.scope():
            ...     iterator = iter(strategy.distribute_dataset(lambda: tf.data.Dataset.range(100)))
            ...     context = strategy.run_steps_on_dataset(step, iterator, iterations=2)
            >>> int(context.last_step_outputs["total"])  # Elements 2 and 3.
            50
        """
        context.require_cross_tower_context(self, "run_steps_on_dataset")
        return steps.run_steps_on_dataset(self, fn, iterator, iterations, initial_loop_values)

    def distribute_dataset(
        self, dataset_fn: Callable[[], tf.data.Dataset]
    ) -> datasets.PerDeviceDataset:
        """Returns a dataset of which each tower gets other elements.

        Args:
            dataset_fn: Returns the `tf.data.Dataset`. Step s gives element `s * num_towers + t` to
                tower t: its batches are those of one tower.

        Returns:
            A dataset for `make_one_shot_iterator`, `make_initializable_iterator` and, eagerly,
            `iter`.

        Raises:
            ValueError: `dataset_fn` returns something else.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> print([[int(x) for x in strategy.unwrap(step)] for step in dataset])
            [[0, 1], [2, 3]]
        """
        return datasets.distribute_dataset(self, dataset_fn)

    # Between towers and devices.

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
            return super().reduce(reduce_op, value, axis)
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

    def group(self, value: Any, name: str | None = None) -> tf.Operation | None:
        """Returns an operation that waits for all of `unwrap(value)`.

        Args:
            value: A per-device value, an operation, or a structure of them.
            name: The name of the operation.

        Returns:
            The operation; None eagerly, where everything has run.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> with tf.Graph().as_default(), strategy.scope():
            ...     variable = tf.Variable(5)
            ...     print(strategy.group(variable.initializer, name="init").name)
            init
        """
        leaves = [x for leaf in tf.nest.flatten(value) for x in _to_wait_for(leaf)]
        if tf.executing_eagerly():
            return None
        if len(leaves) == 1 and name is None:
            return leaves[0] if isinstance(leaves[0], tf.Operation) else leaves[0].op
        return tf.group(*leaves, name=name)

    # Variables.

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

    # TensorFlow's v1 optimizers ask this to scale the loss to a mean over the towers.

    @property
    def _scale_loss_for_estimator(self) -> bool:
        return self.__dict__.get("_scales_loss", False) or isinstance(
            tf.distribute.get_replica_context(), context.TowerReplicaContext
        )

    @_scale_loss_for_estimator.setter
    def _scale_loss_for_estimator(self, value: bool) -> None:
        self.__dict__["_scales_loss"] = value


def _to_wait_for(leaf: Any) -> list[Any]:
    """Returns the tensors and operations of a leaf, for `group`."""
    if isinstance(leaf, _values.PerTower):
        return list(tf.nest.flatten(leaf.local, expand_composites=True))
    found = [x for x in _values.unwrap(leaf) if x is not None]
    return list(tf.nest.flatten(found, expand_composites=True))
