"""The methods of `TPUStrategy` that run functions on the towers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _calls, _state, _values, context, datasets, steps


@_state.transparent_methods
class RunMethods:
    """The methods of `TPUStrategy` that run functions on the towers."""

    # Of `tf.distribute.TPUStrategy`.
    extended: Any

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


def _to_wait_for(leaf: Any) -> list[Any]:
    """Returns the tensors and operations of a leaf, for `group`."""
    if isinstance(leaf, _values.PerTower):
        return list(tf.nest.flatten(leaf.local, expand_composites=True))
    found = [x for x in _values.unwrap(leaf) if x is not None]
    return list(tf.nest.flatten(found, expand_composites=True))
