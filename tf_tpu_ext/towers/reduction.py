"""The implementation of `reduce`, `batch_reduce` and `broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values as tf_values

from tf_tpu_ext.towers import _collectives, _state, _values

VariableAggregation = tf.compat.v1.VariableAggregation
"""How to combine the values of several towers: NONE, SUM, MEAN or ONLY_FIRST_TOWER."""

_BY_NAME = {
    "SUM": VariableAggregation.SUM,
    "MEAN": VariableAggregation.MEAN,
    "ONLY_FIRST_TOWER": VariableAggregation.ONLY_FIRST_TOWER,
    "ONLY_FIRST_REPLICA": VariableAggregation.ONLY_FIRST_TOWER,
}


def to_aggregation(method: str, aggregation: Any) -> Any:
    """Returns the aggregation with that value or name, which may be TensorFlow 2's.

    Raises:
        ValueError: It is not SUM, MEAN or ONLY_FIRST_TOWER.
    """
    name = getattr(aggregation, "name", aggregation)
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(
            f"{method} got aggregation={aggregation!r}, expected "
            "tf_tpu_ext.towers.VariableAggregation.SUM, MEAN or ONLY_FIRST_TOWER. To get the "
            "values of all towers unchanged, call unwrap(value)."
        )
    return found


def reduce(strategy: Any, method: str, aggregation: Any, value: Any, destinations: Any) -> Any:
    """Combines the values of all towers; see `TPUStrategy.reduce`."""
    devices = to_devices(strategy, method, destinations)
    if _state.in_computation():
        return reduce_in_computation(aggregation, _values.in_tower(value))
    combined = _combine(strategy, method, aggregation, value)
    return copy_to(devices, combined)


def reduce_in_computation(aggregation: Any, local: Any) -> Any:
    """Combines the values of all towers; `local` is the value of the tower being traced."""
    strategy = _state.computation().strategy
    if isinstance(local, tf.Variable):
        local = tf.convert_to_tensor(local)
    if aggregation == VariableAggregation.ONLY_FIRST_TOWER:
        return _collectives.first(local)
    if not tf.is_tensor(local):
        local = tf.convert_to_tensor(local)
    if aggregation == VariableAggregation.MEAN:
        _check_mean(local.dtype)
        local = tf.math.scalar_mul(1.0 / strategy.num_towers, local)
    return _collectives.total(local)


def _check_mean(dtype: tf.DType) -> None:
    if not (dtype.is_floating or dtype.is_complex):
        raise TypeError(
            f"MEAN got values of type {dtype.name}, expected floating point. Write "
            "tf.cast(value, tf.float32) first."
        )


def _combine(strategy: Any, method: str, aggregation: Any, value: Any) -> Any:
    components = _components(strategy, method, aggregation, value)
    if aggregation == VariableAggregation.ONLY_FIRST_TOWER or len(components) == 1:
        return components[0]
    with tf.device(strategy.extended._host_device):
        if any(isinstance(x, tf.IndexedSlices) for x in components):
            components = [tf.convert_to_tensor(x) for x in components]
        combined = tf.add_n([tf.convert_to_tensor(x) for x in components])
        if aggregation == VariableAggregation.MEAN:
            _check_mean(combined.dtype)
            combined = combined / tf.cast(len(components), combined.dtype)
    return combined


def _components(strategy: Any, method: str, aggregation: Any, value: Any) -> list[Any]:
    if isinstance(value, _values.MapOutput):
        return value.get()
    if isinstance(value, (list, tuple)) and len(value) == strategy.num_towers:
        return list(value)
    if _values.is_per_device(value):
        return list(value.values)
    if isinstance(value, _values.DistributedVariable) and not value._is_mirrored():
        return list(value.values)
    one = value.values[0] if _values.is_mirrored(value) else value
    if aggregation != VariableAggregation.SUM or strategy.num_towers == 1:
        return [one]
    if isinstance(one, (int, float)) and one == 0:
        return [one]
    raise ValueError(
        f"{method} got {value!r}, which is the same on all towers, expected a per-device value to "
        f"sum. Multiply it by num_towers ({strategy.num_towers}), or return it from "
        "call_for_each_tower."
    )


def to_devices(strategy: Any, method: str, destinations: Any) -> tuple[str, ...]:
    """Returns the names of the devices of `destinations`.

    Raises:
        ValueError: There is no device, or one that does not belong to the strategy.
    """
    devices = _named(strategy, destinations)
    if not devices:
        raise ValueError(
            f"{method} got destinations={destinations!r}, expected a variable or a per-device "
            "value, whose devices are meant, a device, or a list of devices. "
            f"{_valid_devices(strategy)}"
        )
    canonical = tuple(canonical_name(strategy, device) for device in devices)
    known = {canonical_name(strategy, device) for device in _reachable(strategy)}
    for given, device in zip(devices, canonical, strict=True):
        if device not in known:
            raise ValueError(
                f"{method} got the destination {given!r}, expected devices of the strategy. "
                f"{_valid_devices(strategy)}"
            )
    return canonical


def canonical_name(strategy: Any, device: str) -> str:
    """Returns the full name of a device, with missing parts taken from the first tower's core."""
    first = tf.DeviceSpec.from_string(strategy.worker_devices[0])
    of_task = tf.DeviceSpec(job=first.job, replica=first.replica, task=first.task, device_index=0)
    return str(of_task.make_merged_spec(tf.DeviceSpec.from_string(device)).to_string())


def _named(strategy: Any, destinations: Any) -> tuple[str, ...]:
    if isinstance(destinations, str):
        return (destinations,)
    if isinstance(destinations, (list, tuple)):
        return tuple(name for each in destinations for name in _named(strategy, each))
    if isinstance(destinations, _values.DistributedVariable):
        return tuple(destinations._devices)
    if isinstance(destinations, (_values.PerTower, _values.PerDevice, _values.MapOutput)):
        return tuple(strategy.worker_devices)
    if isinstance(destinations, tf_values.DistributedValues):
        devices = tuple(getattr(each, "device", "") for each in destinations._values)
        mirrored = _values.is_mirrored(destinations) and all(devices)
        return devices if mirrored else tuple(strategy.worker_devices)
    if _state.in_computation() and tf.is_tensor(destinations):
        return tuple(strategy.worker_devices)
    device = getattr(destinations, "device", None)
    if isinstance(device, str):
        return (device or strategy.extended._host_device,)
    return ()


def _reachable(strategy: Any) -> list[str]:
    hosts = [strategy.get_host_cpu_device(host) for host in range(strategy.num_hosts)]
    return [*strategy.worker_devices, *hosts]


def _valid_devices(strategy: Any) -> str:
    return f"Valid devices: {', '.join(_reachable(strategy))}."


def copy_to(devices: Sequence[str], value: Any) -> Any:
    """Copies a tensor to each device. Returns a mirrored value, or a single copy by itself."""
    copies = []
    for device in devices:
        with tf.device(device):
            copies.append(tf.identity(value))
    return _values.mirrored(copies)
