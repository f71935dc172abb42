"""Where `run_steps_on_dataset` takes its elements from."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

from tf_tpu_ext.towers import datasets


class Source:
    """An iterator from which each tower takes one element per step."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self.iterator = iterator
        self.element_spec = iterator.element_spec

    @classmethod
    def of(cls, strategy: Any, iterator: Any) -> Source:
        """Returns the source for an iterator.

        Raises:
            TypeError: `iterator` is not an iterator over a dataset.
        """
        if isinstance(iterator, datasets.PerDeviceIterator):
            return cls(strategy, iterator._iterator)
        if isinstance(iterator, tf.distribute.DistributedIterator):
            return _DistributedSource(strategy, iterator)
        if isinstance(iterator, (tf.data.Iterator, tf.compat.v1.data.Iterator)):
            return cls(strategy, iterator)
        raise TypeError(
            f"run_steps_on_dataset got an iterator of type {type(iterator).__name__}, expected an "
            "iterator of a dataset. Write "
            "distribution.distribute_dataset(dataset_fn).make_one_shot_iterator()."
        )

    def is_static(self) -> bool:
        """Returns whether infeed can carry the elements."""
        return all(
            isinstance(spec, tf.TensorSpec)
            and spec.shape.is_fully_defined()
            and spec.dtype not in (tf.string, tf.resource, tf.variant)
            for spec in tf.nest.flatten(self.element_spec)
        )

    def flat_specs(self) -> list[tf.TensorSpec]:
        """Returns the specs of an element's tensors."""
        return list(tf.nest.flatten(self.element_spec, expand_composites=True))

    def pack(self, tensors: list[tf.Tensor]) -> Any:
        """Packs tensors into an element."""
        return tf.nest.pack_sequence_as(self.element_spec, tensors, expand_composites=True)

    def next_optionals(self) -> list[Any]:
        """Returns an optional with the next element for each tower, in tower order."""
        optionals: list[Any] = []
        has: list[tf.Tensor] = []
        for _ in range(self._strategy.num_towers):
            with tf.control_dependencies(has[-1:]):
                optional = self._next_optional()
                optionals.append(optional)
                has.append(optional.has_value())
        return optionals

    def _next_optional(self) -> Any:
        if hasattr(self.iterator, "get_next_as_optional"):
            return self.iterator.get_next_as_optional()
        return iterator_ops.get_next_as_optional(self.iterator)

    def elements(self, optionals: list[Any]) -> list[list[tf.Tensor]]:
        """Returns the tensors of each tower's element."""
        return [
            list(tf.nest.flatten(optional.get_value(), expand_composites=True))
            for optional in optionals
        ]

    def raise_end(self) -> tf.Operation:
        """Returns an operation that raises the error for the end of the data."""
        return tf.group(*tf.nest.flatten(self.iterator.get_next(), expand_composites=True))


class _DistributedSource(Source):
    """An iterator over a distributed dataset of TensorFlow 2, which splits elements over towers."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        super().__init__(strategy, iterator)
        self.element_spec = tf.nest.map_structure(
            lambda spec: getattr(spec, "_value_specs", (spec,))[0], iterator.element_spec
        )

    def next_optionals(self) -> list[Any]:
        return [self.iterator.get_next_as_optional()]

    def elements(self, optionals: list[Any]) -> list[list[tf.Tensor]]:
        element = optionals[0].get_value()
        return [
            list(
                tf.nest.flatten(
                    tf.nest.map_structure(
                        lambda leaf, of=tower: self._strategy.experimental_local_results(leaf)[of],
                        element,
                    ),
                    expand_composites=True,
                )
            )
            for tower in range(self._strategy.num_towers)
        ]
