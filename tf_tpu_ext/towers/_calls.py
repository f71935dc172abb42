"""`call_for_each_tower`: traces a function once and runs it on every tower."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _state, _values
from tf_tpu_ext.towers._tower_id import TowerId
from tf_tpu_ext.towers.context import TowerReplicaContext
from tf_tpu_ext.tpu import _eager, _graph

_PACKING = "_tf_tpu_ext_packing"


@dataclasses.dataclass
class Packing:
    """How to pack the flat results of a computation into the structure that its function returned.

    Attributes:
        structure: What the function returned when it was traced.
        results: For each leaf, the position of its first tensor and the number of its tensors, or
            None if it is not a tensor.
    """

    structure: Any = None
    results: list[tuple[int, int] | None] = dataclasses.field(default_factory=list)

    def pack(self, tensors: list[Any], operation: Any) -> Any:
        """Returns one tower's results, with `operation` in place of operations."""
        leaves = []
        for leaf, place in zip(tf.nest.flatten(self.structure), self.results, strict=True):
            if place is None:
                leaves.append(operation if isinstance(leaf, tf.Operation) else leaf)
            else:
                begin, count = place
                parts = tensors[begin : begin + count]
                leaves.append(
                    tf.nest.pack_sequence_as(leaf, parts, expand_composites=True)
                    if count != 1 or not isinstance(leaf, tf.Tensor)
                    else parts[0]
                )
        return tf.nest.pack_sequence_as(self.structure, leaves)


def call_in_tower(
    strategy: Any, fn: Callable[..., Any], args: Any, kwargs: Any, convert: Any
) -> Any:
    """Calls `fn` for the tower being traced, in a computation, and returns per-device values."""
    tower_id = _state.computation().tower_id
    args, kwargs = _values.map_leaves(_values.in_tower, (args, kwargs))
    with TowerReplicaContext(strategy, replica_id_in_sync_group=tower_id):
        result = _state.converted(fn, convert)(*args, **kwargs)
    return _values.map_leaves(_values.from_tower, result)


def call_for_each_tower(strategy: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Runs `fn` on all towers, or adds it to a graph; see `TPUStrategy.call_for_each_tower`."""
    convert = _state.conversion()
    if _state.in_computation():
        return call_in_tower(strategy, fn, args, kwargs, convert)
    leaves = tf.nest.flatten((args, kwargs))
    per_tower = [_components(strategy, leaf) for leaf in leaves]
    call = _Call(strategy, fn, (args, kwargs), leaves, per_tower, convert)
    if tf.executing_eagerly():
        return _call_eagerly(call)
    outputs, packing = _build(call)
    return _merge(outputs, packing)


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call to `call_for_each_tower`.

    Attributes:
        strategy: The strategy.
        fn: The user's function.
        structure: Its arguments, `(args, kwargs)`.
        leaves: The leaves of `structure`.
        per_tower: For each leaf, its value on each tower, or None if all towers share the leaf.
        convert: The autograph context in which `fn` is converted.
    """

    strategy: Any
    fn: Callable[..., Any]
    structure: Any
    leaves: list[Any]
    per_tower: list[list[Any] | None]
    convert: Any


def _components(strategy: Any, leaf: Any) -> list[Any] | None:
    """Returns the value of each tower if an argument differs between towers, otherwise None."""
    if isinstance(leaf, _values.DeviceIndex) or not (
        _values.is_per_device(leaf) or _values.is_mirrored(leaf)
    ):
        return None
    components = list(leaf.values)
    if len(components) != strategy.num_towers:
        raise ValueError(
            f"call_for_each_tower got an argument of {len(components)} values, expected "
            f"{strategy.num_towers}, one for each tower. Make it with broadcast, "
            "distribute_dataset or call_for_each_tower of this strategy."
        )
    return [tf.convert_to_tensor(x) if _is_number(x) else x for x in components]


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _build(call: _Call) -> tuple[list[Any], Packing]:
    """Adds the replicated computation to the default graph.

    Returns:
        For each tower, a list of its tensors, or an operation if there are none; and how to pack
        the tensors.
    """
    strategy = call.strategy
    packing = Packing()

    def computation(tower_id: tf.Tensor, *own: Any) -> list[Any]:
        remaining = iter(own)
        merged = [
            leaf if of_towers is None else next(remaining)
            for leaf, of_towers in zip(call.leaves, call.per_tower, strict=True)
        ]
        args, kwargs = tf.nest.pack_sequence_as(call.structure, merged)
        state = _state.Computation(strategy, tower_id)
        with _state.tracing(state):
            args, kwargs = _values.map_leaves(_values.in_tower, (args, kwargs))
            with TowerReplicaContext(strategy, replica_id_in_sync_group=tower_id):
                result = _state.converted(call.fn, call.convert)(*args, **kwargs)
        return flatten_results(result, packing, state)

    of_each_tower = [
        [tf.constant(tower, tf.int32)] + [own[tower] for own in call.per_tower if own is not None]
        for tower in range(strategy.num_towers)
    ]
    outputs = replicate(strategy, computation, of_each_tower)
    return outputs, packing


def replicate(strategy: Any, computation: Callable[..., Any], inputs: list[list[Any]]) -> Any:
    """Adds a computation that runs on the strategy's cores to the default graph.

    The shapes of an argument may differ between towers.
    """
    flat = [tf.nest.flatten(tower, expand_composites=True) for tower in inputs]
    same = all(
        values_of_one[0].shape.is_fully_defined()
        and all(x.shape == values_of_one[0].shape for x in values_of_one)
        for values_of_one in zip(*flat, strict=True)
    )
    maximum_shapes = None
    if not same and all(x.shape.rank is not None for x in flat[0]):
        maximum_shapes = tf.nest.map_structure(
            lambda x: tf.TensorShape([None] * x.shape.rank), inputs[0], expand_composites=True
        )
    with _graph.building():
        return tf.compat.v1.tpu.replicate(
            computation,
            inputs,
            device_assignment=strategy.extended._device_assignment,
            maximum_shapes=maximum_shapes,
        )


def flatten_results(result: Any, packing: Packing, state: _state.Computation) -> list[Any]:
    """Returns the tensors of a tower's results, followed by the operations that must run."""
    tensors: list[Any] = []
    operations: list[tf.Operation] = list(state.effects)
    packing.structure = result
    packing.results = []
    for leaf in tf.nest.flatten(result):
        if isinstance(leaf, TowerId):
            leaf = leaf.tensor
        if isinstance(leaf, tf.Operation):
            operations.append(leaf)
            packing.results.append(None)
        elif tf.is_tensor(leaf):
            parts = tf.nest.flatten(leaf, expand_composites=True)
            packing.results.append((len(tensors), len(parts)))
            tensors.extend(parts)
        else:
            packing.results.append(None)
    graph = tf.compat.v1.get_default_graph()
    # Operations in the graph of a branch or loop run together with it.
    operations = [x for x in operations if x.graph is graph]
    with tf.control_dependencies(operations):
        tensors = [tf.identity(x) for x in tensors]
    return tensors + operations


def _merge(per_tower: list[Any], packing: Packing) -> Any:
    towers = []
    for outputs in per_tower:
        tensors: list[Any] = []
        operation = None
        if isinstance(outputs, tf.Operation):
            operation = outputs
        elif outputs is not None:
            tensors = list(outputs)
            if tensors and not tf.executing_eagerly() and _has_operation(packing):
                operation = tf.group(*tensors)
        towers.append(packing.pack(tensors, operation))
    return _values.regroup(towers)


def _has_operation(packing: Packing) -> bool:
    return any(isinstance(x, tf.Operation) for x in tf.nest.flatten(packing.structure))


def _call_eagerly(call: _Call) -> Any:
    """Runs the computation as a function that is traced in the first call."""
    # The trace outlives the call, so it must not hold the call's function and tensors.
    strategy, convert = call.strategy, call.convert
    structure = tf.nest.map_structure(lambda _: None, call.structure)
    differs = [own is not None for own in call.per_tower]
    is_tensor = [not own and tf.is_tensor(x) for x, own in zip(call.leaves, differs, strict=True)]
    shared = [x for x, tensor in zip(call.leaves, is_tensor, strict=True) if tensor]
    fixed = [
        None if tensor or own else leaf
        for leaf, own, tensor in zip(call.leaves, differs, is_tensor, strict=True)
    ]
    arguments = [shared, [own for own in call.per_tower if own is not None]]

    def build(traced: Callable[..., Any], given: Any) -> Any:
        tensors, of_towers = iter(given[0]), iter(given[1])
        leaves = [
            next(tensors) if tensor else leaf for leaf, tensor in zip(fixed, is_tensor, strict=True)
        ]
        inputs = [next(of_towers) if own else None for own in differs]
        with strategy.scope():
            outputs, packing = _build(_Call(strategy, traced, structure, leaves, inputs, convert))
        setattr(tf.compat.v1.get_default_graph(), _PACKING, packing)
        return outputs

    options = ("call_for_each_tower", _eager.identity(strategy), _structure_key(call, is_tensor))
    concrete = _eager.concrete(build, options, call.fn, arguments)
    outputs, _ = concrete(arguments)
    return _merge(outputs, getattr(concrete.graph, _PACKING))


def _structure_key(call: _Call, is_tensor: list[bool]) -> Hashable:
    """Returns a key that differs between calls that can't share a trace."""
    kinds = [
        "." if tensor or own is not None else _eager.fingerprint(leaf)
        for leaf, tensor, own in zip(call.leaves, is_tensor, call.per_tower, strict=True)
    ]
    dots = tf.nest.map_structure(lambda _: ".", call.structure)
    own = tuple(None if each is None else len(each) for each in call.per_tower)
    return repr(dots), tuple(kinds), tuple(is_tensor), own
