"""A patch of the iterators of distributed datasets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._changes import Changes


# A function that takes an iterator asks with each call.
@functools.lru_cache(maxsize=256)
def _are_cores(devices: tuple[str, ...]) -> bool:
    import tensorflow as tf

    types = {tf.DeviceSpec.from_string(device).device_type for device in devices}
    return types == {"TPU"}


def install_dealt_iterators(changes: Changes) -> None:
    from tensorflow.python.distribute import input_lib

    def create_of(stock: Callable[[Any], None]) -> Callable[[Any], None]:
        def create(self: Any) -> None:
            if not _are_cores(tuple(self._devices)):
                stock(self)
                return
            from tf_tpu_ext.tpu import _dealt_iterator

            self._iterator = _dealt_iterator.deal_to_worker(self)

        return create

    def spec_of(stock: Callable[[Any, list[Any]], None]) -> Callable[[Any, list[Any]], None]:
        def get_spec(self: Any, specs: list[Any]) -> None:
            if not _are_cores(tuple(self._devices)):
                stock(self, specs)
                return
            from tf_tpu_ext.tpu import _dealt_iterator

            specs.append(_dealt_iterator.DealtIteratorSpec(self._devices, self._element_spec))

        return get_spec

    changes.wrap(
        input_lib._SingleWorkerOwnedDatasetIterator,
        "_create_owned_multi_device_iterator",
        create_of,
    )
    changes.wrap(
        input_lib._SingleWorkerDatasetIteratorSpec, "_get_multi_device_iterator_spec", spec_of
    )
