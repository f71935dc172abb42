"""`TowerContext`: what a function that runs on the towers knows of its tower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util, distribute_lib
from tensorflow.python.distribute import tpu_strategy as tf_tpu_strategy

from tf_tpu_ext.towers import _host_ops, _state, _values
from tf_tpu_ext.towers._tower_id import TowerId


class TowerReplicaContext(tf_tpu_strategy._TPUReplicaContext):
    """The replica context of a tower, which tells towers from replicas of `strategy.run`."""


@_state.transparent_methods
class TowerContext:
    """One tower, as seen by the function that runs on it; get it from `get_tower_context`.

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

    Defined at
    https://github.com/tensorflow/tensorflow/blob/v1.12.0/tensorflow/python/training/distribute.py
    """

    def __init__(self, replica_context: Any) -> None:
        """Shows a replica context of TensorFlow's as that of a tower."""
        self._replica_context = replica_context

    def merge_call(self, merge_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Pauses all towers and calls `merge_fn` once, in the cross-tower context.

        `merge_fn` gets a per-device value for each tensor among the arguments: `unwrap` lists the
        values of all towers, `reduce` combines them. Its ops become part of the computation, and
        every core computes them. What only a host can do, such as printing, calling Python or
        writing summaries, happens once a step, with the values of tower 0's core.

        Where it is called under conditions or in loops, all towers must come to the same calls.

        Args:
            merge_fn: Called as `merge_fn(distribution, *args, **kwargs)`.
            *args: Positional arguments of `merge_fn`. Tensors become per-device values, any other
                object is handed over as it is.
            **kwargs: Keyword arguments of `merge_fn`, likewise.

        Returns:
            What `merge_fn` returns, where each tower gets its own part of per-device values.

        Raises:
            RuntimeError: This is not the context of the tower that is being built.

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
        """Whether there is one tower only."""
        _require_tower_context(self, "is_single_tower")
        return self.num_towers == 1

    @property
    def num_towers(self) -> int:
        """The number of towers."""
        return int(self._replica_context.strategy.num_replicas_in_sync)

    @property
    def tower_id(self) -> int | TowerId:
        """The number of this tower, from 0 to `num_towers - 1`.

        In a computation it is a `TowerId`, which stands for another number on each tower. Outside
        of any strategy it is the integer 0.
        """
        _require_tower_context(self, "tower_id")
        replica_id = self._replica_context.replica_id_in_sync_group
        if _state.in_computation():
            return TowerId(replica_id)
        constant = tf.get_static_value(replica_id)
        return TowerId(replica_id) if constant is None else int(constant)

    @property
    def distribution_strategy(self) -> Any:
        """The strategy that the tower belongs to."""
        return self._replica_context.strategy

    @property
    def device(self) -> str:
        """The device of the tower.

        While several towers are built as one trace this is the name of a tower's core in
        replicated computations, which `tf.device` takes.
        """
        _require_tower_context(self, "device")
        if self.num_towers == 1 and hasattr(self.distribution_strategy, "call_for_each_tower"):
            return str(self.distribution_strategy.worker_devices[0])
        if isinstance(self._replica_context, tf_tpu_strategy._TPUReplicaContext):
            return str(self._replica_context.devices[0])
        return str(device_util.current())

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the context of the same tower."""
        return isinstance(other, TowerContext) and self._replica_context is other._replica_context

    def __hash__(self) -> int:
        """Is equal for contexts of the same tower."""
        return hash(id(self._replica_context))


@_state.transparent
def get_tower_context() -> TowerContext | None:
    """Returns the context of the tower that is being built.

    Outside of any strategy's scope this is a single tower of number 0, so that a function which
    asks for it works alone as well. In a strategy's cross-tower context there is none.

    Returns:
        The context, or None in a cross-tower context: in a strategy's `scope`, in a `merge_fn`, in
        the function of `run_steps_on_dataset`.

    Example:
        >>> get_tower_context().num_towers
        1
    """
    replica_context = tf.distribute.get_replica_context()
    return None if replica_context is None else TowerContext(replica_context)


@_state.transparent
def get_cross_tower_context() -> Any | None:
    """Returns the strategy in whose cross-tower context the caller is, or None.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> with strategy.scope():
        ...     print(get_cross_tower_context() is strategy)
        True
    """
    return tf.distribute.get_strategy() if tf.distribute.in_cross_replica_context() else None


@_state.transparent
def require_tower_context(tower_context: TowerContext) -> None:
    """Raises RuntimeError unless `tower_context` is the context of the tower being built.

    Example:
        >>> tower = get_tower_context()
        >>> require_tower_context(tower)
        >>> with tf_tpu_ext.TPUStrategy(None, steps_per_run=1).scope():
        ...     require_tower_context(tower)
        Traceback (most recent call last):
        RuntimeError: Need to be inside `call_for_each_tower()`: This was asked for in the ...
    """
    _require_tower_context(tower_context, "This")


def _require_tower_context(context: TowerContext, member: str) -> None:
    mode = distribute_lib._get_per_thread_mode()
    if mode.replica_context is context._replica_context:
        return
    if mode.replica_context is None:
        raise RuntimeError(
            f"Need to be inside `call_for_each_tower()`: {member} was asked for in the "
            "cross-tower context, expected in a tower. Call "
            "distribution.call_for_each_tower(fn) and get_tower_context() in fn."
        )
    if mode.strategy is context._replica_context.strategy:
        raise RuntimeError(
            f"Mismatching tower context: {member} was asked of the context of another call. Call "
            "get_tower_context() in the function that uses it."
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
    """Raises RuntimeError unless the caller is inside of `strategy.scope()`."""
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
        f"Leave the scope of the one before calling {method} of the other."
    )


def _current_computation(strategy: Any, replica_id: tf.Tensor) -> _state.Computation:
    """Returns the computation being traced; that of `strategy.run` is first met here."""
    try:
        return _state.computation()
    except RuntimeError:
        return _state.Computation(strategy, replica_id)
