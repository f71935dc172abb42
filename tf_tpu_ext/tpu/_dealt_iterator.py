"""The iterator that deals the elements of a dataset out to the cores of a host.

TensorFlow's own iterator (`multi_device_iterator_ops.OwnedMultiDeviceIterator`) has a pipeline and
threads for each device, to copy elements to its memory early. The memory of a virtual core is the
host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.data.ops import dataset_ops, iterator_ops, options, prefetch_op
from tensorflow.python.distribute import device_util, input_lib
from tensorflow.python.framework import composite_tensor, ops

# An attribute of the op that moves an element to its core; cc/passes/core_elements.h removes such
# moves where only a program takes the element.
_FOR_CORE = "_tpu_ext_for_core"


class DealtIterator(composite_tensor.CompositeTensor):
    """Gives each device the next element in turn, as OwnedMultiDeviceIterator does.

    Args:
        iterator: The iterator over the elements of all devices.
        devices: The names of the devices, in the order in which they get elements.
    """

    def __init__(self, iterator: Any, devices: Sequence[str]) -> None:
        self._iterator = iterator
        self._devices = tuple(devices)

    @property
    def element_spec(self) -> Any:
        return self._iterator.element_spec

    @property
    def _type_spec(self) -> DealtIteratorSpec:
        return DealtIteratorSpec(self._devices, self.element_spec)

    def get_next(self) -> list[Any]:
        """Returns the next element of each device.

        Raises:
            tf.errors.OutOfRangeError: There are not enough elements left.
        """
        return [_on_device(self._iterator.get_next(), device) for device in self._devices]

    def get_next_as_optional(self) -> list[Any]:
        """Returns the next element of each device, or nothing for those that get none."""
        optionals = [self._iterator.get_next_as_optional() for _ in self._devices]
        if not tf.executing_eagerly():
            if tf.config.get_soft_device_placement():
                return optionals
            host = device_util.get_host_for_device(self._devices[0])
            return [_TakenOptional(optional, host) for optional in optionals]
        return [
            _on_device(optional, device)
            for optional, device in zip(optionals, self._devices, strict=True)
        ]


class _TakenOptional:
    """An optional of a graph whose value the host takes, whatever device asks for it.

    Only soft device placement moves an optional's ops from the device that they are on to its
    iterator's.
    """

    def __init__(self, optional: tf.experimental.Optional, host: str) -> None:
        self.element_spec = optional.element_spec
        with tf.device(host):
            self._has_value = optional.has_value()
            self._value = tf.cond(
                self._has_value,
                optional.get_value,
                lambda: input_lib._dummy_tensor_fn(self.element_spec),
            )

    def has_value(self) -> tf.Tensor:
        return self._has_value

    def get_value(self) -> Any:
        return self._value


class DealtIteratorSpec(tf.TypeSpec):
    """The type of a `DealtIterator`."""

    __slots__ = ["_devices", "_element_spec"]

    def __init__(self, devices: Sequence[str], element_spec: Any) -> None:
        self._devices = tuple(devices)
        self._element_spec = element_spec

    @property
    def value_type(self) -> type[DealtIterator]:
        return DealtIterator

    def _serialize(self) -> tuple[Any, ...]:
        return self._devices, self._element_spec

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return (iterator_ops.IteratorSpec(self._element_spec),)

    def _to_components(self, value: DealtIterator) -> tuple[Any, ...]:
        return (value._iterator,)

    def _from_components(self, components: Sequence[Any]) -> DealtIterator:
        return DealtIterator(components[0], self._devices)


def _on_device(element: Any, device: str) -> Any:
    """Returns an element on the device that it is for."""

    def move(value: tf.Tensor) -> tf.Tensor:
        moved = tf.identity(value)
        if not tf.executing_eagerly():
            moved.op._set_attr(_FOR_CORE, attr_value_pb2.AttrValue(s=device.encode()))
        return moved

    with tf.device(device):
        return tf.nest.map_structure(move, element, expand_composites=True)


def deal(dataset: Any, devices: Sequence[str], buffer_size: int) -> DealtIterator:
    """Makes the iterator, on the current device.

    Args:
        dataset: What to iterate over.
        devices: The names of the devices, in the order in which they get elements.
        buffer_size: `InputOptions.experimental_per_replica_buffer_size`: how many elements each
            device keeps ready, and the host for each device. None are produced early if it is 0.
    """
    distribution = options.Options()
    distribution.experimental_distribute.num_devices = len(devices)
    if buffer_size == 0:
        distribution.experimental_optimization.inject_prefetch = False
    slack = len(devices) if dataset.options().experimental_slack else None
    # Otherwise, a function places its iterator where its elements go.
    variant = tf.identity(dataset._variant_tensor)
    dataset = dataset_ops._VariantDataset(variant, dataset.element_spec).with_options(distribution)
    if buffer_size > 0:
        dataset = prefetch_op._PrefetchDataset(
            dataset, 2 * buffer_size * len(devices), slack_period=slack
        )
    return DealtIterator(iter(dataset), devices)


def deal_to_worker(worker_iterator: Any) -> DealtIterator:
    """Makes the iterator of an `input_lib._SingleWorkerOwnedDatasetIterator`."""
    host = worker_iterator._worker
    if not ops.inside_function():
        host = device_util.get_host_for_device(
            device_util.canonicalize(host, device_util.current())
        )
    input_options = worker_iterator._options or input_lib.distribute_lib.InputOptions()
    with tf.device(host):
        return deal(
            worker_iterator._dataset,
            worker_iterator._devices,
            input_options.experimental_per_replica_buffer_size,
        )
