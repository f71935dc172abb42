"""Values that differ between towers, outside and inside computations.

Outside, a per-device value is TensorFlow's own `PerReplica`, which has a tensor for each tower.
Inside, where all towers share a trace, it is a `PerTower`, which has only the tensor of the tower
that is running. `unwrap` lists the values of both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils
from tensorflow.python.distribute import values as tf_values

from tf_tpu_ext.towers import _collectives, _state
from tf_tpu_ext.towers._tower_id import TowerId

# Mirrored and tower-local variables of a strategy.
DistributedVariable = tf_values.DistributedVariable

_CONTAINER = "_tf_tpu_ext_container"


class PerDevice(tf_values.DistributedValues):
    """One value per tower, of a kind that TensorFlow's `PerReplica` can't hold: operations."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in tower order."""
        return tuple(self._values)


class DeviceIndex(PerDevice):
    """Maps worker devices to their numbers. As an argument, it gives each tower its number."""

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(range(len(devices)))
        self._names = tuple(devices)

    def __getitem__(self, device: str) -> int:
        return self._names.index(device)

    def get(self, device: str) -> int:
        """Returns the number of a worker device."""
        return self[device]

    @property
    def devices(self) -> tuple[str, ...]:
        """The worker devices."""
        return self._names


class PerTower:
    """A per-device value inside a computation.

    It is not a tensor, because in the cross-tower context, a tensor has one value for all towers.

    Attributes:
        local: The value on the tower that is running, a tensor or a composite tensor.
    """

    def __init__(self, local: Any) -> None:
        self.local = local
        self._listed: tuple[Any, list[Any]] | None = None

    @property
    def dtype(self) -> tf.DType:
        """The type of each tower's value."""
        return self.local.dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of each tower's value."""
        return self.local.shape

    def components(self) -> list[Any]:
        """Returns a list of the values of all towers."""
        graph = tf.compat.v1.get_default_graph()
        # A gather made in the graph of a branch can't be used outside it.
        if self._listed is None or self._listed[0]() is not graph:
            gathered = _collectives.all_towers(self.local)
            self._listed = (weakref.ref(graph), gathered)
        return list(self._listed[1])

    def __repr__(self) -> str:
        return f"<PerTower {self.local!r}>"


def _refuse_conversion(value: PerTower, *args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    raise TypeError(
        f"A per-device value was used as a tensor in the cross-tower context: got {value!r}, "
        "expected one tensor. Call distribution.unwrap(value) for the list of all towers' "
        "values, or distribution.reduce(aggregation, value, destinations)."
    )


tf.register_tensor_conversion_function(PerTower, _refuse_conversion)


class MapOutput:
    """The result of `map`: one value for each element."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = list(results)

    def get(self) -> list[Any]:
        """Returns the results, in order."""
        return list(self._results)


def is_per_device(value: Any) -> bool:
    """Returns whether the value of a leaf may differ between towers."""
    if isinstance(value, DistributedVariable):
        return False
    return isinstance(value, (PerTower, tf_values.DistributedValues)) and not is_mirrored(value)


def is_mirrored(value: Any) -> bool:
    """Returns whether a leaf has copies of one value on several devices but is not a variable."""
    return isinstance(value, tf_values.Mirrored) and not isinstance(value, DistributedVariable)


def in_tower(value: Any) -> Any:
    """Returns the value of a leaf for the tower that is running, inside a computation."""
    if isinstance(value, PerTower):
        return value.local
    if isinstance(value, DeviceIndex):
        return TowerId(_state.computation().tower_id)
    if isinstance(value, DistributedVariable) or not isinstance(value, tf_values.DistributedValues):
        return value
    if is_mirrored(value):
        return value.values[0]
    # Made outside the computation: every tower gets all tensors and selects its own.
    stacked = tf.stack([tf.convert_to_tensor(each) for each in value._values])
    return tf.gather(stacked, _state.computation().tower_id)


def from_tower(value: Any) -> Any:
    """Returns the per-device value for a leaf that a tower passes to the cross-tower context."""
    if _state.computation().strategy.num_towers == 1:
        return value
    if isinstance(value, TowerId):
        return PerTower(value.tensor)
    return PerTower(value) if tf.is_tensor(value) else value


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """Applies `function` to the leaves of a structure; a composite tensor is one leaf."""
    return tf.nest.map_structure(function, structure)


def regroup(per_tower: Sequence[Any]) -> Any:
    """Merges the structures of all towers into one structure of per-device values.

    A leaf that is the same object on all towers is left unchanged.
    """
    first = per_tower[0]
    if len(per_tower) == 1:
        return first
    flat = [tf.nest.flatten(structure) for structure in per_tower]
    merged = [_regroup_leaf(leaves) for leaves in zip(*flat, strict=True)]
    return tf.nest.pack_sequence_as(first, merged)


def _regroup_leaf(leaves: Sequence[Any]) -> Any:
    if all(leaf is leaves[0] for leaf in leaves):
        return leaves[0]
    if isinstance(leaves[0], tf.Operation):
        return _contained(PerDevice(leaves), leaves)
    return _contained(distribute_utils.regroup(tuple(leaves)), leaves)


def mirrored(copies: Sequence[Any]) -> Any:
    """Returns the mirrored value with these copies, or the copy if there is only one."""
    if len(copies) == 1:
        return copies[0]
    return _contained(tf_values.Mirrored(copies), copies)


def _contained(container: Any, components: Iterable[Any]) -> Any:
    """Stores the container in each component, for `container_of`."""
    if not isinstance(container, DistributedVariable):
        for component in components:
            # Some composite tensors and Python values can't have attributes.
            if not isinstance(component, (int, float, str, type(None))):
                try:
                    setattr(component, _CONTAINER, weakref.ref(container))
                except AttributeError:
                    continue
    return container


def container_of(value: Any) -> Any:
    """Returns the per-device value or variable that has `value` as a component."""
    reference = getattr(value, _CONTAINER, None)
    container = None if reference is None else reference()
    if container is not None:
        return container
    return distribute_utils.value_container(value)


def unwrap(value: Any) -> list[Any]:
    """Returns a list of the values of all towers; see `TPUStrategy.unwrap`."""
    if isinstance(value, PerTower):
        return value.components()
    if isinstance(value, MapOutput):
        return value.get()
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, DistributedVariable):
        # Inside a computation, a core has access only to its own copy.
        return [value] if _state.in_computation() else list(value.values)
    if isinstance(value, tf_values.DistributedValues):
        return list(value._values)
    return [value]
