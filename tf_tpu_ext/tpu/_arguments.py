"""Checks of the arguments of `replicate`, `rewrite`, `shard` and `batch_parallel`.

The checks use only Python values and static shapes. They build no ops and run nothing, so an
invalid call changes neither the default graph nor the machine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_tpu_ext.tpu._classes import DeviceAssignment

Computation = Callable[..., Any]


class ArgumentError(ValueError, TypeError):
    """The arguments do not fit the computation.

    The documentation of `replicate` promises a ValueError, but TensorFlow raises a TypeError. This
    is both, so that programs written for either catch it.
    """


def check_computation(caller: str, computation: Any) -> None:
    """Raises TypeError unless `computation` is callable."""
    if not callable(computation):
        raise TypeError(
            f"{caller} got computation={computation!r} of type {type(computation).__name__}, "
            "expected a Python function. Pass the function itself, not the result of calling it."
        )


def check_inputs(caller: str, inputs: Any) -> list[list[Any]]:
    """Returns `inputs` as a list with one list of inputs for each replica.

    A tensor in place of a replica's list becomes a list of one input, as in the second example of
    TensorFlow's documentation.

    Raises:
        TypeError: `inputs` is not a list of lists.
        ValueError: The replicas differ in number, structure, type or shape of their inputs.
    """
    if inputs is None:
        return [[]]
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"{caller} got inputs of type {type(inputs).__name__}, expected a list with one list "
            "of inputs for each replica. Write inputs=[[x0], [x1], ...]."
        )
    replicas = [_replica_inputs(caller, replica, value) for replica, value in enumerate(inputs)]
    for replica in range(1, len(replicas)):
        _check_same_inputs(caller, replicas[0], replicas[replica], replica)
    return replicas


def check_arity(caller: str, computation: Computation, count: int, infeed_queue: Any) -> None:
    """Raises ArgumentError unless `computation` takes `count` inputs and the queue's elements."""
    infeed_count = 0 if infeed_queue is None else infeed_queue.number_of_tuple_elements
    if isinstance(computation, tf.types.experimental.PolymorphicFunction):
        computation = computation.python_function
    try:
        # A decorated function may take different arguments from the function it wraps.
        signature = inspect.signature(computation, follow_wrapped=False)
    except ValueError:  # Some built-in functions have no signature.
        return
    try:
        signature.bind(*[None] * (count + infeed_count))
    except TypeError as error:
        infeed = f" and {infeed_count} from the infeed queue" if infeed_count else ""
        raise ArgumentError(
            f"{caller} got {count} inputs per replica{infeed}, but the computation "
            f"{_name(computation)}{signature} cannot be called with "
            f"{count + infeed_count} arguments: {error}. Pass one input for each of its "
            "parameters."
        ) from None


def check_equal_shapes(caller: str, replicas: Sequence[Sequence[Any]]) -> None:
    """Raises ValueError if the static shapes of an input differ between replicas."""
    flat = [tf.nest.flatten(replica) for replica in replicas]
    for position, values in enumerate(zip(*flat, strict=True)):
        first = static_shape(values[0])
        for replica, value in enumerate(values[1:], start=1):
            shape = static_shape(value)
            if first is None or shape is None or first.is_compatible_with(shape):
                continue
            raise ValueError(
                f"{caller} got input {position} with shape {first} in replica 0 and {shape} in "
                f"replica {replica}, expected one shape for all replicas. Pass maximum_shapes to "
                "pad the differing dimensions."
            )


def check_classes(caller: str, infeed_queue: Any, device_assignment: Any, xla_options: Any) -> None:
    """Raises TypeError if one of the options that all four functions take has the wrong type."""
    if infeed_queue is not None and not hasattr(infeed_queue, "generate_dequeue_op"):
        raise TypeError(
            f"{caller} got infeed_queue of type {type(infeed_queue).__name__}, expected an "
            "InfeedQueue. Make one with tf_tpu_ext.tpu.InfeedQueue(tuple_types, tuple_shapes)."
        )
    if xla_options is not None and not isinstance(xla_options, tf.tpu.XLAOptions):
        raise TypeError(
            f"{caller} got xla_options={xla_options!r}, expected an XLAOptions or None. Write "
            "xla_options=tf_tpu_ext.tpu.XLAOptions(...)."
        )
    expected = tf.tpu.experimental.DeviceAssignment
    if device_assignment is not None and not isinstance(device_assignment, expected):
        raise TypeError(
            f"{caller} got device_assignment of type {type(device_assignment).__name__}, expected "
            "a DeviceAssignment. Build one with tf_tpu_ext.tpu.DeviceAssignment.build(topology)."
        )


def check_device_assignment(
    caller: str, num_replicas: int, device_assignment: DeviceAssignment | None
) -> None:
    """Checks that there are cores for the replicas.

    Raises:
        ValueError: `device_assignment` has a different number of replicas. Or it is missing, and
            the number of replicas is neither one nor the number of cores; this is checked only in
            eager calls, because a graph may run elsewhere.
        RuntimeError: The machine has no cores.
    """
    if device_assignment is None:
        if tf.executing_eagerly():
            _check_default_assignment(caller, num_replicas)
        return
    if device_assignment.num_replicas != num_replicas:
        raise ValueError(
            f"{caller} got a device_assignment for {device_assignment.num_replicas} replicas and "
            f"inputs for {num_replicas}, expected the same number. Build the assignment with "
            f"num_replicas={num_replicas}."
        )


def static_shape(value: Any) -> tf.TensorShape | None:
    """Returns the static shape of a leaf of `inputs`.

    It is None for None and for composite tensors (ragged, sparse), which are never padded.
    """
    if value is None or is_composite(value):
        return None
    shape = getattr(value, "shape", None)
    return tf.TensorShape(np.shape(value) if shape is None else shape)


def is_composite(value: Any) -> bool:
    """Returns whether `value` is a composite tensor. A variable isn't, even though its class is."""
    return isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable)


def _replica_inputs(caller: str, replica: int, value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, np.ndarray) or tf.is_tensor(value) or isinstance(value, tf.Variable):
        return [value]
    raise TypeError(
        f"{caller} got inputs of type {type(value).__name__} for replica {replica}, expected a "
        "list of inputs. Write inputs=[[x0], [x1], ...]; inputs=[[]] passes none."
    )


def _check_same_inputs(caller: str, first: list[Any], other: list[Any], replica: int) -> None:
    if len(first) != len(other):
        raise ArgumentError(
            f"{caller} got {len(first)} inputs for replica 0 and {len(other)} for replica "
            f"{replica}, expected the same number of inputs for all replicas. Pass every replica "
            "one value for each parameter of the computation."
        )
    try:
        tf.nest.assert_same_structure(first, other)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{caller} got inputs of structure {structure_of(first)} for replica 0 and "
            f"{structure_of(other)} for replica {replica}, expected one structure for all "
            "replicas. Nest the inputs of every replica alike."
        ) from None
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(other), strict=True)
    for position, (mine, theirs) in enumerate(pairs):
        dtypes = [getattr(value, "dtype", None) for value in (mine, theirs)]
        if None in dtypes or tf.as_dtype(dtypes[0]) == tf.as_dtype(dtypes[1]):
            continue
        raise ValueError(
            f"{caller} got input {position} of type {tf.as_dtype(dtypes[0]).name} in replica 0 "
            f"and {tf.as_dtype(dtypes[1]).name} in replica {replica}, expected one type for all "
            "replicas. Convert them with tf.cast."
        )


def _check_default_assignment(caller: str, num_replicas: int) -> None:
    cores = len(tf.config.list_logical_devices("TPU"))
    if not cores:
        raise RuntimeError(
            f"{caller} was called on a machine without TPU cores, expected at least 1. Import "
            "tf_tpu_ext before TensorFlow's first operation."
        )
    if num_replicas in (0, 1, cores):
        return
    raise ValueError(
        f"{caller} got {num_replicas} replicas and no device_assignment on a machine of {cores} "
        f"cores, expected 1 replica or {cores}. Pass device_assignment=DeviceAssignment.build("
        f"topology, num_replicas={num_replicas})."
    )


def structure_of(value: Any) -> str:
    """Describes the nesting of `value`, with dots for leaves: `[., {'a': .}]`."""

    class _Leaf:
        def __repr__(self) -> str:
            return "."

    leaf = _Leaf()
    return repr(tf.nest.map_structure(lambda _: leaf, value))


def _name(computation: Computation) -> str:
    return getattr(computation, "__name__", type(computation).__name__)
