"""`distribute_dataset`: a dataset of which every tower gets elements of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _state, _values


@_state.transparent_methods
class PerDeviceDataset:
    """Gives each tower an element a step: tower t gets element `step * num_towers + t`.

    The elements are those of `tf.data`, of any structure; their shapes may differ from tower to
    tower. A last group with fewer elements than towers is not given out.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(5))
        >>> for numbers in dataset:  # On two cores.
        ...     print([int(x) for x in strategy.unwrap(numbers)])
        [0, 1]
        [2, 3]
    """

    def __init__(self, strategy: Any, dataset: tf.data.Dataset) -> None:
        """Distributes `dataset` over the towers of `strategy`."""
        self._strategy = strategy
        self._dataset = dataset

    @property
    def element_spec(self) -> Any:
        """The types and shapes of one tower's element."""
        return self._dataset.element_spec

    def make_one_shot_iterator(self) -> PerDeviceIterator:
        """Returns an iterator that needs no initializing."""
        if tf.executing_eagerly() or tf.inside_function():
            return PerDeviceIterator(self._strategy, iter(self._dataset))
        iterator = tf.compat.v1.data.make_one_shot_iterator(self._dataset)
        return PerDeviceIterator(self._strategy, iterator)

    def make_initializable_iterator(self, shared_name: str | None = None) -> PerDeviceIterator:
        """Returns an iterator whose `initializer` has to be run first, in a graph.

        Args:
            shared_name: Shares the iterator's state under this name between sessions of a server.

        Raises:
            RuntimeError: Called eagerly.
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                "make_initializable_iterator was called eagerly, where iterators need no "
                "initializing. Call make_one_shot_iterator(), or iter() of the dataset."
            )
        iterator = tf.compat.v1.data.make_initializable_iterator(self._dataset, shared_name)
        return PerDeviceIterator(self._strategy, iterator)

    def __iter__(self) -> PerDeviceIterator:
        """Returns an iterator, in eager code."""
        _check_eager()
        return self.make_one_shot_iterator()


def _check_eager() -> None:
    # Python's loop would be traced without end.
    if not tf.executing_eagerly():
        raise RuntimeError(
            "A PerDeviceDataset was looped over in a graph or a tf.function, expected eager code. "
            "Call make_one_shot_iterator() or make_initializable_iterator(), and get_next() in "
            "tf.while_loop or `for _ in tf.range(steps)`, or run_steps_on_dataset."
        )


@_state.transparent_methods
class PerDeviceIterator:
    """Gives out the elements of a `PerDeviceDataset`.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(100))
        >>> iterator = dataset.make_one_shot_iterator()
        >>> _ = iterator.get_next()
        >>> print([int(x) for x in strategy.unwrap(iterator.get_next())])  # On two cores.
        [2, 3]
    """

    def __init__(self, strategy: Any, iterator: Any) -> None:
        """Distributes what `iterator` gives over the towers of `strategy`."""
        self._strategy = strategy
        self._iterator = iterator

    @property
    def initializer(self) -> tf.Operation:
        """The operation that (re)starts the iterator, in a graph."""
        return self._iterator.initializer

    @property
    def element_spec(self) -> Any:
        """The types and shapes of one tower's element."""
        return self._iterator.element_spec

    @property
    def output_shapes(self) -> Any:
        """The shapes of one tower's element."""
        return tf.compat.v1.data.get_output_shapes(self._iterator)

    @property
    def output_types(self) -> Any:
        """The types of one tower's element."""
        return tf.compat.v1.data.get_output_types(self._iterator)

    @property
    def output_classes(self) -> Any:
        """The classes of one tower's element."""
        return tf.compat.v1.data.get_output_classes(self._iterator)

    def get_next(self, name: str | None = None) -> Any:
        """Returns the next element, with a per-device value for each of its tensors.

        Args:
            name: A name for the operations.

        Raises:
            tf.errors.OutOfRangeError: There are fewer elements left than towers.
        """
        elements: list[Any] = []
        with tf.name_scope(name or "per_device_get_next"):
            taken: list[Any] = []
            for _ in range(self._strategy.num_towers):
                # Which tower gets which element must not depend on the order of execution.
                with tf.control_dependencies(taken):
                    element = self._next()
                taken = tf.nest.flatten(element, expand_composites=True)
                elements.append(element)
        return _values.regroup(elements)

    def _next(self) -> Any:
        # TensorFlow 2's iterator would return tensors on a device scope of the caller.
        with tf.device(None):
            return self._iterator.get_next()

    def __iter__(self) -> Iterator[Any]:
        """Returns itself, in eager code."""
        _check_eager()
        return self

    def __next__(self) -> Any:
        """Returns the next element; eagerly, ends a loop where `get_next` raises."""
        if not tf.executing_eagerly():
            return self.get_next()
        try:
            return self.get_next()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None


def distribute_dataset(
    strategy: Any, dataset_fn: Callable[[], tf.data.Dataset]
) -> PerDeviceDataset:
    """Returns the dataset of `dataset_fn` for all towers; see `TPUStrategy.distribute_dataset`."""
    dataset = dataset_fn() if callable(dataset_fn) else dataset_fn
    if not callable(dataset_fn) or not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"distribute_dataset got {dataset!r}, expected a function that returns a "
            "tf.data.Dataset. Write distribute_dataset(lambda: dataset)."
        )
    return PerDeviceDataset(strategy, dataset)
