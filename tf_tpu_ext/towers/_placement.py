"""The placement of towers and variables on cores and devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.distribute import distribute_lib, distribute_utils
from tensorflow.python.distribute import tpu_strategy as tf_tpu_strategy
from tensorflow.python.distribute import values as tf_values
from tensorflow.python.ops import variable_scope
from tensorflow.python.tpu import tpu_strategy_util

from tf_tpu_ext import _machine, _native
from tf_tpu_ext.towers import _state, _values, reduction


class TowersExtended(tf_tpu_strategy.TPUExtended):
    """TensorFlow's implementation of a TPU strategy, extended for towers."""

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        devices = kwargs.get("colocate_with")
        if not isinstance(devices, _Devices):
            return super()._create_variable(next_creator, **kwargs)
        if len(devices) > 1:
            kwargs["colocate_with"] = devices
            return super()._create_variable(next_creator, **kwargs)
        del kwargs["colocate_with"]
        kwargs.pop("experimental_batch_initialization", None)
        with tf.device(devices[0]):
            return next_creator(**kwargs)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if isinstance(value, _values.PerTower):
            aggregation = reduction.to_aggregation("reduce_to", reduce_op)
            return reduction.reduce_in_computation(aggregation, value.local)
        return super()._reduce_to(reduce_op, value, destinations, options)

    def _update(self, var: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: Any) -> Any:
        packed = getattr(var, "_packed_variable", None)
        if packed is None or tf.executing_eagerly() or _state.in_computation():
            return super()._update(var, fn, args, kwargs, group)
        # In a tf.function, TensorFlow would call `fn` once, with all copies as one variable on a
        # composite device, which can be assigned but not read.
        updates = []
        for number, device in enumerate(packed.devices):
            with (
                tf.device(device),
                distribute_lib.UpdateContext(number),
                tf.name_scope(f"update_{number}"),
            ):
                own_args = distribute_utils.select_replica(number, args)
                own_kwargs = distribute_utils.select_replica(number, kwargs)
                result = fn(packed.on_device(device), *own_args, **own_kwargs)
                # The result of an assignment would be read later, outside this device scope.
                updates.append(tf.nest.map_structure(_read_now, result))
        return distribute_utils.update_regroup(self, updates, group)

    def _local_results(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, (_values.PerTower, _values.PerDevice)):
            return tuple(_values.unwrap(value))
        return tuple(super()._local_results(value))


def _read_now(value: Any) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


class _Devices(tuple[str, ...]):
    """Devices for new variables, passed in place of a variable on those devices."""

    @property
    def _devices(self) -> tuple[str, ...]:
        return tuple(self)


@contextlib.contextmanager
def variables_on(devices: Sequence[str]) -> Iterator[None]:
    """Places the variables created in this context on `devices`."""

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs["colocate_with"] = _Devices(devices)
        return next_creator(**kwargs)

    with variable_scope.variable_creator_scope(create):
        yield


def first_cores(resolver: Any, num_cores: int | None) -> Any | None:
    """Returns the assignment of towers to the first `num_cores` cores, or None to use all.

    Raises:
        ValueError: `num_cores` is not between 1 and the number of cores.
        RuntimeError: The topology of a remote TPU is not known yet.
    """
    if num_cores is None:
        return None
    available = resolver.get_tpu_system_metadata().num_cores
    if not isinstance(num_cores, int) or not 1 <= num_cores <= available:
        raise ValueError(
            f"TPUStrategy got num_cores={num_cores!r}, expected 1 to {available}, the number of "
            "cores. Leave it out to use all, or get more by tf_tpu_ext.configure(cores=n)."
        )
    if num_cores == available:
        return None
    topology = _topology(resolver)
    order = _cores_in_order(topology)
    coordinates = [[[*topology.device_coordinates[task][core]]] for task, core in order[:num_cores]]
    return tf.tpu.experimental.DeviceAssignment(topology, coordinates)


def check_assignment(assignment: Any, num_cores: int | None) -> None:
    """Raises ValueError if towers have several cores, or `num_cores` is given as well."""
    if num_cores is not None:
        raise ValueError(
            f"TPUStrategy got num_cores={num_cores!r} together with an "
            "experimental_device_assignment, expected one of them. The assignment says how many "
            "cores there are: leave num_cores out."
        )
    per_tower = assignment.num_cores_per_replica
    if per_tower != 1:
        raise ValueError(
            f"TPUStrategy got an experimental_device_assignment of {per_tower} cores for each "
            "replica, expected 1: a tower is one core. Use tf.distribute.TPUStrategy for replicas "
            "of several cores."
        )


def _cores_in_order(topology: Any) -> list[tuple[int, int]]:
    tasks, cores = topology.device_coordinates.shape[:2]
    return [(task, core) for task in range(tasks) for core in range(cores)]


def _topology(resolver: Any) -> Any:
    known = tpu_strategy_util.get_initialized_tpu_systems().get(resolver.master())
    if known is not None:
        return known
    if resolver.master() in tpu_strategy_util._LOCAL_MASTERS and _native.load():
        return _local_topology()
    raise RuntimeError(
        f"TPUStrategy got num_cores for the TPU {resolver.master()!r}, whose topology is not known "
        "yet. Call tf.tpu.experimental.initialize_tpu_system(resolver) eagerly first."
    )


def _local_topology() -> Any:
    """Returns the topology of this machine's cores, as initializing the TPU system would."""
    mesh = _machine.machine().mesh_shape
    x_size, _, _, per_chip = mesh
    proto = topology_pb2.TopologyProto(
        mesh_shape=mesh, num_tasks=1, num_tpu_devices_per_task=_machine.machine().cores
    )
    for core in range(_machine.machine().cores):
        chip = core // per_chip
        proto.device_coordinates.extend([chip % x_size, chip // x_size, 0, core % per_chip])
    return tf.tpu.experimental.Topology(serialized=proto.SerializeToString())


def job(strategy: Any) -> str | None:
    """Returns the job of the TPU workers, or None for the TPU of this process."""
    resolver = strategy.cluster_resolver
    if resolver.master() in tpu_strategy_util._LOCAL_MASTERS:
        return None
    return str(tf.DeviceSpec.from_string(strategy.worker_devices[0]).job)


def check_variable(strategy: Any, method: str, variable: Any) -> None:
    """Raises ValueError unless `variable` was created in the strategy's scope."""
    owner = getattr(variable, "distribute_strategy", None)
    if isinstance(variable, (tf.Variable, _values.DistributedVariable)):
        if owner is strategy or not isinstance(variable, _values.DistributedVariable):
            return
        raise ValueError(
            f"{method} got the variable {variable.name!r} of {owner}, expected one of {strategy}. "
            "Make it inside of this strategy's scope()."
        )
    raise ValueError(
        f"{method} got {variable!r}, expected a variable. Make it with tf.Variable or "
        "get_variable inside of distribution.scope()."
    )


def check_mirrored(method: str, arguments: Any) -> None:
    """Raises ValueError if an argument is a per-device value."""
    for leaf in tf.nest.flatten(arguments):
        if _values.is_per_device(leaf):
            raise ValueError(
                f"{method} got the per-device value {leaf!r} as an argument, expected values that "
                "are the same on all devices. Combine it first: distribution.reduce(aggregation, "
                "value, destinations=var)."
            )


def on_device(strategy: Any, device: str, number: int) -> Callable[[Any], Any]:
    """Returns a function that maps a leaf to its copy on a device."""

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, tf_values.DistributedValues):
            return leaf
        names = [
            reduction.canonical_name(strategy, getattr(each, "device", "")) for each in leaf._values
        ]
        place = names.index(device) if device in names else min(number, len(names) - 1)
        return leaf._values[place]

    return take


def read(variable: Any) -> tf.Tensor:
    """Returns the value of a variable, combined over all towers if it is tower-local."""
    local = isinstance(variable, _values.DistributedVariable) and not variable._is_mirrored()
    if not (local and _state.in_computation()):
        return variable.read_value()
    # In a computation, this reads the core's own copy.
    value = variable._read_variable_op()
    if variable.aggregation == tf.VariableAggregation.NONE:
        raise ValueError(
            f"read_var got the tower-local variable {variable.name!r} with aggregation NONE, "
            "expected SUM, MEAN or ONLY_FIRST_TOWER. Pass aggregation= when making it."
        )
    aggregation = reduction.to_aggregation("read_var", variable.aggregation)
    return reduction.reduce_in_computation(aggregation, value)
