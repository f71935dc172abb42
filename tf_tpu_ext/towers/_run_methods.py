"""The methods of `TPUStrategy` that run functions on the towers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _calls, _state, _values, context, datasets, steps


@_state.transparent_methods
class RunMethods:
    """The methods of `TPUStrategy` that run functions on the towers."""

    # From `tf.distribute.TPUStrategy`.
    extended: Any

    def call_for_each_tower(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs `fn` on each tower.

        `fn` is traced and compiled once for all towers. Eager calls reuse a trace if the code of
        `fn`, the objects that it captures, and the types and shapes of its arguments are the same.
        Python side effects happen only during tracing.

        Args:
            fn: The function. It may call `get_tower_context()`.
            *args: Arguments of `fn`. Each tower gets its own part of per-device values, such as
                those from a distributed iterator, `call_for_each_tower` or `worker_device_index`.
            **kwargs: Keyword arguments of `fn`, likewise. `run_concurrently` is accepted and
                ignored, since towers always run concurrently.

        Returns:
            What `fn` returns, with a per-device value in place of each tensor; `unwrap` returns its
            components. An operation becomes one operation for each tower, or None in eager code,
            where it has already run.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            ValueError: The number of an argument's components differs from the number of towers.

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
        """Calls `fn` on the host for each element of `map_over`.

        Args:
            map_over: The elements.
            fn: Called as `fn(element, *args, **kwargs)`.
            *args: Further arguments of `fn`.
            **kwargs: Keyword arguments of `fn`.

        Returns:
            The results, as an argument for `unwrap` and `reduce`.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.

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
        """Runs `fn` for several steps, each with the next elements of `iterator`.

        The loop is part of the program on the cores, which get the data through infeed. If the
        elements do not have static shapes, the loop runs on the host. Neither loop returns to
        Python between steps.

        If the data ends early, the steps that got their data are completed, and the call raises
        OutOfRangeError. Called eagerly, this runs the steps immediately.

        Args:
            fn: Called as `fn(context, *inputs)` in the cross-tower context. `context` is a
                `MultiStepContext`, and `inputs` are what `iterator.get_next()` returns.
            iterator: An iterator over the result of `distribute_dataset`, or over any dataset. Each
                tower takes one element per step. The caller must initialize it.
            iterations: The number of steps.
            initial_loop_values: A value for each output that `fn` sets, used if no step runs. May
                be omitted.

        Returns:
            The `MultiStepContext`, with `run_op`, `last_step_outputs` and `non_tensor_outputs`.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.
            TypeError: `iterator` is not an iterator over a dataset.
            ValueError: `iterations` is not positive, or `initial_loop_values` does not match the
                outputs.
            tf.errors.OutOfRangeError: The data has ended. Raised when the operation runs.

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
        """Returns a dataset that gives different elements to each tower.

        Args:
            dataset_fn: Returns the `tf.data.Dataset`, with batches sized for one tower. In step s,
                tower t gets element `s * num_towers + t`.

        Returns:
            The dataset. Create an iterator with `make_one_shot_iterator`,
            `make_initializable_iterator` or, in eager code, `iter`.

        Raises:
            ValueError: `dataset_fn` is not a function that returns a `tf.data.Dataset`.

        Example:
            >>> strategy = TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> print([[int(x) for x in strategy.unwrap(step)] for step in dataset])
            [[0, 1], [2, 3]]
        """
        return datasets.distribute_dataset(self, dataset_fn)

    def group(self, value: Any, name: str | None = None) -> tf.Operation | None:
        """Returns an operation that waits for all of `unwrap(value)`.

        Args:
            value: A per-device value, an operation, or a structure of them.
            name: The name of the operation.

        Returns:
            The operation, or None in eager code, where everything has already run.

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


def _to_wait_for(leaf: Any) -> list[Any]:
    """Returns the tensors and operations of a leaf for `group` to wait for."""
    if isinstance(leaf, _values.PerTower):
        return list(tf.nest.flatten(leaf.local, expand_composites=True))
    found = [x for x in _values.unwrap(leaf) if x is not None]
    return list(tf.nest.flatten(found, expand_composites=True))
