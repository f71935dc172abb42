"""`TowerContext`: the tower on which a function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util, distribute_lib
from tensorflow.python.distribute import tpu_strategy as tf_tpu_strategy

from tf_tpu_ext.towers import _host_ops, _state, _values
from tf_tpu_ext.towers._tower_id import TowerId


class TowerReplicaContext(tf_tpu_strategy._TPUReplicaContext):
    """The replica context of a tower, as opposed to that of a replica in `strategy.run`."""


@_state.transparent_methods
class TowerContext:
    """The context of a tower. `get_tower_context` returns it inside a function run on the towers.

    Example:
        >>> def mean_of_all(value):
        ...     def merge_fn(distribution, values):
        ...         return tf.add_n(distribution.unwrap(values)) / distribution.num_towers
        ...
        ...     return tf_tpu_ext.towers.get_tower_context().merge_call(merge_fn, value)
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> with strategy.scope():
        ...     means = strategy.call_for_each_tower(mean_of_all, tf.constant(3.0))
        >>> print([float(x) for x in strategy.unwrap(means)])  # On two cores.
        [3.0, 3.0]

    Defined by TensorFlow 1 at
    https://github.com/tensorflow/tensorflow/blob/v1.12.0/tensorflow/python/training/distribute.py
    """

    def __init__(self, replica_context: Any) -> None:
        """Wraps a TensorFlow replica context."""
        self._replica_context = replica_context

    def merge_call(self, merge_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `merge_fn` once for all towers, in the cross-tower context.

        In place of each tensor argument, `merge_fn` gets a per-device value. `unwrap` lists the
        values of all towers, and `reduce` combines them. The ops of `merge_fn` become part of the
        computation, and every core runs them. Ops that only a host can run, such as printing,
        calling Python or writing summaries, run once per step, with the values from tower 0's core.

        In loops and conditionals, all towers must make the same calls.

        Args:
            merge_fn: Called as `merge_fn(distribution, *args, **kwargs)`.
            *args: Arguments of `merge_fn`. Tensors become per-device values; other objects are
                passed unchanged.
            **kwargs: Keyword arguments of `merge_fn`, likewise.

        Returns:
            What `merge_fn` returns. Each tower gets its own part of per-device values.

        Raises:
            RuntimeError: This is not the context of the tower that is being traced.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def total(x):
            ...     sum_up = lambda distribution, values: sum(distribution.unwrap(values))
            ...     return get_tower_context().merge_call(sum_up, x)
            >>> with strategy.scope():
            ...     totals = strategy.call_for_each_tower(total, tf.constant(3))
            >>> print([int(x) for x in strategy.unwrap(totals)])
            [6, 6]
        """
        _require_tower_context(self, "merge_call")
        strategy = self._replica_context.strategy
        convert = _state.conversion()
        if not _state.in_computation() or not hasattr(strategy, "call_for_each_tower"):
            return self._replica_context.merge_call(merge_fn, args=args, kwargs=kwargs)
        replica_id = self._replica_context.replica_id_in_sync_group
        computation = _current_computation(strategy, replica_id)
        with _state.tracing(computation):
            args, kwargs = _values.map_leaves(_values.from_tower, (args, kwargs))
            with _state.cross_tower(strategy), _host_ops.once_a_step(computation):
                result = _state.converted(merge_fn, convert)(strategy, *args, **kwargs)
            return _values.map_leaves(_values.in_tower, result)

    @property
    def is_single_tower(self) -> bool:
        """Whether there is only one tower.

        Raises:
            RuntimeError: This is not the context of the tower that is being traced.

        Example:
            >>> get_tower_context().is_single_tower  # Outside of any strategy.
            True
        """
        _require_tower_context(self, "is_single_tower")
        return self.num_towers == 1

    @property
    def num_towers(self) -> int:
        """The number of towers.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def share(x):
            ...     return x / get_tower_context().num_towers
            >>> with strategy.scope():
            ...     shares = strategy.call_for_each_tower(share, tf.constant(6.0))
            >>> print([float(x) for x in strategy.unwrap(shares)])
            [3.0, 3.0]
        """
        return int(self._replica_context.strategy.num_replicas_in_sync)

    @property
    def tower_id(self) -> int | TowerId:
        """The number of this tower, from 0 to `num_towers - 1`.

        Inside a computation, which is one trace for all towers, it is a `TowerId`. Outside any
        strategy, it is the integer 0.

        Raises:
            RuntimeError: This is not the context of the tower that is being traced.

        Example:
            >>> get_tower_context().tower_id
            0
        """
        _require_tower_context(self, "tower_id")
        replica_id = self._replica_context.replica_id_in_sync_group
        if _state.in_computation():
            return TowerId(replica_id)
        constant = tf.get_static_value(replica_id)
        return TowerId(replica_id) if constant is None else int(constant)

    @property
    def distribution_strategy(self) -> Any:
        """The strategy that the tower belongs to.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def fn():
            ...     print(get_tower_context().distribution_strategy is strategy)
            >>> with strategy.scope():
            ...     strategy.call_for_each_tower(fn)
            True
        """
        return self._replica_context.strategy

    @property
    def device(self) -> str:
        """The name of the tower's device, for `tf.device`.

        While several towers share a trace, it is the name of a logical core of the replicated
        computation.

        Raises:
            RuntimeError: This is not the context of the tower that is being traced.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def fn():
            ...     print(get_tower_context().device)
            >>> with strategy.scope():
            ...     strategy.call_for_each_tower(fn)
            device:TPU_REPLICATED_CORE:0
        """
        _require_tower_context(self, "device")
        if self.num_towers == 1 and hasattr(self.distribution_strategy, "call_for_each_tower"):
            return str(self.distribution_strategy.worker_devices[0])
        if isinstance(self._replica_context, tf_tpu_strategy._TPUReplicaContext):
            return str(self._replica_context.devices[0])
        return str(device_util.current())

    def __eq__(self, other: object) -> bool:
        """Returns whether `other` is the context of the same tower."""
        return isinstance(other, TowerContext) and self._replica_context is other._replica_context

    def __hash__(self) -> int:
        """Returns the same hash for contexts of the same tower."""
        return hash(id(self._replica_context))


@_state.transparent
def get_tower_context() -> TowerContext | None:
    """Returns the context of the tower that is being traced.

    Outside any strategy's scope, it is the context of a single tower with the number 0, so a
    function for the towers also works without a strategy.

    Returns:
        The context, or None in a cross-tower context: directly in a strategy's `scope`, in a
        `merge_fn`, or in the function passed to `run_steps_on_dataset`.

    Example:
        >>> get_tower_context().num_towers
        1
    """
    replica_context = tf.distribute.get_replica_context()
    return None if replica_context is None else TowerContext(replica_context)


@_state.transparent
def get_cross_tower_context() -> Any | None:
    """Returns the strategy if the caller is in its cross-tower context, and None otherwise.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> with strategy.scope():
        ...     print(get_cross_tower_context() is strategy)
        True
    """
    return tf.distribute.get_strategy() if tf.distribute.in_cross_replica_context() else None


@_state.transparent
def require_tower_context(tower_context: TowerContext) -> None:
    """Checks that `tower_context` is the context of the tower that is being traced.

    Args:
        tower_context: A context returned by `get_tower_context`.

    Raises:
        RuntimeError: It is not.

    Example:
        >>> tower = get_tower_context()
        >>> require_tower_context(tower)
        >>> with tf_tpu_ext.TPUStrategy(None, steps_per_run=1).scope():
        ...     require_tower_context(tower)
        Traceback (most recent call last):
        RuntimeError: Need to be inside `call_for_each_tower()`: This was used in the ...
    """
    _require_tower_context(tower_context, "This")


def _require_tower_context(context: TowerContext, member: str) -> None:
    mode = distribute_lib._get_per_thread_mode()
    if mode.replica_context is context._replica_context:
        return
    if mode.replica_context is None:
        raise RuntimeError(
            f"Need to be inside `call_for_each_tower()`: {member} was used in the cross-tower "
            "context, expected inside a tower. Call distribution.call_for_each_tower(fn), and "
            "get_tower_context() inside fn."
        )
    if mode.strategy is context._replica_context.strategy:
        raise RuntimeError(
            f"Mismatching tower context: {member} was used with the context of another call. Call "
            "get_tower_context() inside the function that uses it."
        )
    raise RuntimeError(
        f"Mismatching DistributionStrategy objects: {mode.strategy} is not "
        f"{context._replica_context.strategy}. Call get_tower_context() again."
    )


def require_cross_tower_context(strategy: Any, method: str) -> None:
    """Raises RuntimeError unless the caller is in the cross-tower context of `strategy`."""
    mode = distribute_lib._get_per_thread_mode()
    if mode.cross_replica_context is strategy:
        return
    if mode.strategy is strategy:
        raise RuntimeError(
            "Method requires being in cross-tower context, use get_tower_context().merge_call(): "
            f"{method} was called in a tower. Write "
            f"get_tower_context().merge_call(lambda distribution: distribution.{method}(...))."
        )
    require_scope(strategy, method)


def require_scope(strategy: Any, method: str) -> None:
    """Raises RuntimeError unless the caller is inside `strategy.scope()`."""
    mode = distribute_lib._get_per_thread_mode()
    if mode.strategy is strategy:
        return
    if not tf.distribute.has_strategy():
        raise RuntimeError(
            f'Need to be inside "with distribution_strategy.scope()" for {strategy}: {method} was '
            "called outside. Write `with strategy.scope():` around the call."
        )
    raise RuntimeError(
        f"Mixing different DistributionStrategy objects: {mode.strategy} is not {strategy}. "
        f"Leave the scope of the first before you call {method} of the second."
    )


def _current_computation(strategy: Any, replica_id: tf.Tensor) -> _state.Computation:
    """Returns the computation being traced, creating one for a replica of `strategy.run`."""
    try:
        return _state.computation()
    except RuntimeError:
        return _state.Computation(strategy, replica_id)
