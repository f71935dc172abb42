"""`distribute_dataset`: a dataset that gives different elements to each tower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _state, _values


@_state.transparent_methods
class PerDeviceDataset:
    """A dataset that gives each tower one element per step.

    In step s, tower t gets element `s * num_towers + t` of the underlying `tf.data.Dataset`.
    Elements may have any structure, and their shapes may differ between towers. If fewer elements
    than towers remain at the end, they are dropped.

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
        """The `tf.TypeSpec` of one tower's element.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> print(dataset.element_spec.dtype.name, dataset.element_spec.shape)
            int64 ()
        """
        return self._dataset.element_spec

    def make_one_shot_iterator(self) -> PerDeviceIterator:
        """Returns an iterator that needs no initialization.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print([int(x) for x in strategy.unwrap(iterator.get_next())])
            [0, 1]
        """
        if tf.executing_eagerly() or tf.inside_function():
            return PerDeviceIterator(self._strategy, iter(self._dataset))
        iterator = tf.compat.v1.data.make_one_shot_iterator(self._dataset)
        return PerDeviceIterator(self._strategy, iterator)

    def make_initializable_iterator(self, shared_name: str | None = None) -> PerDeviceIterator:
        """Returns an iterator for a graph. Run its `initializer` first.

        Args:
            shared_name: If given, a server's sessions share the iterator under this name.

        Raises:
            RuntimeError: The method is called eagerly.

        Example:
            >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ...     strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            ...     dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            ...     iterator = dataset.make_initializable_iterator()
            ...     first = strategy.unwrap(iterator.get_next())
            ...     session.run(iterator.initializer)
            ...     print([int(x) for x in session.run(first)])
            [0, 1]
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                "make_initializable_iterator was called eagerly, where iterators need no "
                "initialization. Call make_one_shot_iterator() or iter(dataset)."
            )
        iterator = tf.compat.v1.data.make_initializable_iterator(self._dataset, shared_name)
        return PerDeviceIterator(self._strategy, iterator)

    def __iter__(self) -> PerDeviceIterator:
        """Returns an iterator. Works only in eager code."""
        _check_eager()
        return self.make_one_shot_iterator()


def _check_eager() -> None:
    # Tracing a Python loop over the dataset would never end.
    if not tf.executing_eagerly():
        raise RuntimeError(
            "A PerDeviceDataset was iterated over in a graph or tf.function, expected eager code. "
            "Call make_one_shot_iterator() or make_initializable_iterator(), and get_next() in "
            "tf.while_loop or `for _ in tf.range(steps)`, or run_steps_on_dataset."
        )


@_state.transparent_methods
class PerDeviceIterator:
    """Iterates over a `PerDeviceDataset`.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(100))
        >>> iterator = dataset.make_one_shot_iterator()
        >>> _ = iterator.get_next()
        >>> print([int(x) for x in strategy.unwrap(iterator.get_next())])  # On two cores.
        [2, 3]
    """

    def __init__(self, strategy: Any, iterator: Any) -> None:
        """Distributes the elements of `iterator` over the towers of `strategy`."""
        self._strategy = strategy
        self._iterator = iterator

    @property
    def initializer(self) -> tf.Operation:
        """The operation that starts the iterator at the first element, in a graph.

        Example:
            >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ...     strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            ...     dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            ...     session.run(dataset.make_initializable_iterator().initializer)
        """
        return self._iterator.initializer

    @property
    def element_spec(self) -> Any:
        """The `tf.TypeSpec` of one tower's element.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print(iterator.element_spec.dtype.name, iterator.element_spec.shape)
            int64 ()
        """
        return self._iterator.element_spec

    @property
    def output_shapes(self) -> Any:
        """The shapes of one tower's element.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print(iterator.output_shapes)
            ()
        """
        return tf.compat.v1.data.get_output_shapes(self._iterator)

    @property
    def output_types(self) -> Any:
        """The types of one tower's element.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print(iterator.output_types.name)
            int64
        """
        return tf.compat.v1.data.get_output_types(self._iterator)

    @property
    def output_classes(self) -> Any:
        """The classes of one tower's element.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print(iterator.output_classes.__name__)
            Tensor
        """
        return tf.compat.v1.data.get_output_classes(self._iterator)

    def get_next(self, name: str | None = None) -> Any:
        """Returns the next elements as one structure of per-device values.

        Args:
            name: A name for the operations.

        Raises:
            tf.errors.OutOfRangeError: Fewer elements than towers remain.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            >>> iterator = dataset.make_one_shot_iterator()
            >>> print([int(x) for x in strategy.unwrap(iterator.get_next())])
            [0, 1]
        """
        elements: list[Any] = []
        with tf.name_scope(name or "per_device_get_next"):
            taken: list[Any] = []
            for _ in range(self._strategy.num_towers):
                # The order of execution must not determine which tower gets which element.
                with tf.control_dependencies(taken):
                    element = self._next()
                taken = tf.nest.flatten(element, expand_composites=True)
                elements.append(element)
        return _values.regroup(elements)

    def _next(self) -> Any:
        # TensorFlow 2's iterator would place its results on the device of the caller's scope.
        with tf.device(None):
            return self._iterator.get_next()

    def __iter__(self) -> Iterator[Any]:
        """Returns the iterator itself. Works only in eager code."""
        _check_eager()
        return self

    def __next__(self) -> Any:
        """Returns the next elements. In eager code, a loop ends at the end of the data."""
        if not tf.executing_eagerly():
            return self.get_next()
        try:
            return self.get_next()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None


def distribute_dataset(
    strategy: Any, dataset_fn: Callable[[], tf.data.Dataset]
) -> PerDeviceDataset:
    """Distributes the dataset of `dataset_fn`; see `TPUStrategy.distribute_dataset`."""
    dataset = dataset_fn() if callable(dataset_fn) else dataset_fn
    if not callable(dataset_fn) or not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"distribute_dataset got {dataset!r}, expected a function that returns a "
            "tf.data.Dataset. Write distribute_dataset(lambda: dataset)."
        )
    return PerDeviceDataset(strategy, dataset)
