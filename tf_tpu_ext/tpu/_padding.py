"""Checks of `maximum_shapes`, and padding in two cases that TensorFlow does not handle.

TensorFlow pads on the host and passes each real size to the program as another int32 scalar. The
program begins with XlaSetDynamicDimensionSize, which makes XLA mask the padding out of every
result. TensorFlow does this if a dimension is unknown on two replicas or differs between them. This
module adds two cases: inputs whose shape is known on only some replicas, and a single replica,
whose unknown dimensions TensorFlow does not pad, so that each size would be compiled separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla as xla_ops
from tensorflow.core.framework import attr_value_pb2

from tf_tpu_ext.tpu import _arguments
from tf_tpu_ext.tpu._classes import PaddingSpec

# XLA treats a dimension with the bound 1 as static.
_MINIMUM_BOUND = 2


def check_maximum_shapes(caller: str, replicas: Sequence[Sequence[Any]], shapes: Any) -> Any:
    """Returns `shapes` with a TensorShape for each input to be padded, and None for the others.

    Args:
        caller: The name of the public function, for messages.
        replicas: The inputs, `[replica][input]`.
        shapes: The user's maximum_shapes. A leaf is a TensorShape, an array or tensor of sizes
            where -1 means unknown, or None.

    Raises:
        ValueError: The structure differs from that of `replicas[0]`, the rank of a shape differs
            from that of its input, or an input is larger than its maximum.
    """
    try:
        tf.nest.assert_same_structure(replicas[0], shapes, check_types=False)
    except (TypeError, ValueError):
        raise _arguments.ArgumentError(
            f"{caller} got maximum_shapes of structure {_arguments.structure_of(shapes)} for "
            f"inputs of structure {_arguments.structure_of(replicas[0])}, expected the same "
            "structure. Pass one tf.TensorShape for each input of a replica."
        ) from None
    flat_shapes = [_as_shape(caller, shape) for shape in tf.nest.flatten(shapes)]
    for replica, values in enumerate(replicas):
        for position, value in enumerate(tf.nest.flatten(values)):
            flat_shapes[position] = _check_shape(
                caller, value, flat_shapes[position], f"input {position} of replica {replica}"
            )
    return tf.nest.pack_sequence_as(shapes, flat_shapes)


def check_padding_spec(caller: str, padding_spec: Any) -> PaddingSpec | None:
    """Returns `padding_spec` as a PaddingSpec or None; raises ValueError if it is neither."""
    if padding_spec is None:
        return None
    try:
        spec: PaddingSpec = PaddingSpec(padding_spec)
    except ValueError:
        raise ValueError(
            f"{caller} got padding_spec={padding_spec!r}, expected PaddingSpec.AUTO, "
            "PaddingSpec.POWER_OF_TWO or None. Import PaddingSpec from tf_tpu_ext.tpu."
        ) from None
    return spec


def traced_shapes(replicas: Sequence[Sequence[Any]], shapes: Any) -> list[tf.TensorShape | None]:
    """Returns the shape with which to trace each flat input of an eager call.

    Dimensions that will be padded are unknown, so that one trace serves all sizes. A dimension that
    has its maximum size on every replica stays known, because layers build weights from it.
    """
    flat_shapes = tf.nest.flatten(shapes)
    flat_replicas = [tf.nest.flatten(values) for values in replicas]
    traced: list[tf.TensorShape | None] = []
    for position, maximum in enumerate(flat_shapes):
        if maximum is None:
            traced.append(None)
            continue
        sizes = [values[position].shape.as_list() for values in flat_replicas]
        traced.append(
            tf.TensorShape(
                [
                    bound if all(size[axis] == bound for size in sizes) else None
                    for axis, bound in enumerate(maximum.as_list())
                ]
            )
        )
    return traced


def unify_known_shapes(replicas: list[list[Any]], shapes: Any) -> list[list[Any]]:
    """Makes dimensions unknown on all replicas if they are known on only some.

    TensorFlow compares the replicas' shapes, and fails if only one of two is known.
    """
    flat_shapes = tf.nest.flatten(shapes)
    flat = [tf.nest.flatten(values) for values in replicas]
    for position, maximum in enumerate(flat_shapes):
        known: list[Any] = [_arguments.static_shape(values[position]) for values in flat]
        if maximum is None or any(shape is None or shape.rank is None for shape in known):
            continue
        sizes = list(zip(*(shape.as_list() for shape in known), strict=True))
        if not any(None in size and set(size) != {None} for size in sizes):
            continue
        common = [size[0] if len(set(size)) == 1 else None for size in sizes]
        for values in flat:
            values[position] = tf.compat.v1.placeholder_with_default(values[position], common)
    return [
        tf.nest.pack_sequence_as(values, flat_values)
        for values, flat_values in zip(replicas, flat, strict=True)
    ]


def pad_single_replica(
    computation: _arguments.Computation,
    inputs: list[Any],
    shapes: Any,
    padding_spec: PaddingSpec | None,
    dynamic_padder: bool,
) -> tuple[_arguments.Computation, list[Any]]:
    """Pads the unknown dimensions of a single replica's inputs as TensorFlow does for several.

    Args:
        computation: The function to replicate.
        inputs: The inputs of the only replica.
        shapes: The checked maximum shapes.
        padding_spec: With POWER_OF_TWO, dimensions without a maximum are padded to a power of two;
            otherwise they keep their size.
        dynamic_padder: Whether XLA masks the padding.

    Returns:
        The computation and the inputs to replicate instead, unchanged if there is nothing to pad.
    """
    flat = tf.nest.flatten(inputs)
    sizes: list[tf.Tensor] = []
    padded_axes: list[tuple[int, int]] = []
    for position, maximum in enumerate(tf.nest.flatten(shapes)):
        known = _arguments.static_shape(flat[position])
        if maximum is None or known is None or known.rank is None:
            continue
        real = None
        paddings: list[Any] = [[0, 0]] * known.rank
        for axis, (size, bound) in enumerate(zip(known.as_list(), maximum.as_list(), strict=True)):
            if size is not None or (bound is None and padding_spec != PaddingSpec.POWER_OF_TWO):
                continue
            if real is None:
                real = _marked(tf.shape(flat[position]))
            target = _power_of_two(real[axis]) if bound is None else max(bound, _MINIMUM_BOUND)
            paddings[axis] = [0, target - real[axis]]
            padded_axes.append((position, axis))
            sizes.append(real[axis])
        if real is not None:
            flat[position] = _marked(tf.pad(flat[position], paddings))
    if not sizes:
        return computation, inputs

    def bounded(*arguments: Any) -> Any:
        values = list(arguments[: len(inputs)])
        real_sizes = arguments[len(inputs) :]
        flat_values = tf.nest.flatten(values)
        for (position, axis), size in zip(padded_axes, real_sizes, strict=True):
            value = flat_values[position]
            if dynamic_padder:
                flat_values[position] = xla_ops.set_dynamic_dimension_size(value, axis, size)
                flat_values[position].set_shape(value.shape)
        return computation(*tf.nest.pack_sequence_as(values, flat_values))

    return bounded, [*tf.nest.pack_sequence_as(inputs, flat), *sizes]


def _as_shape(caller: str, shape: Any) -> tf.TensorShape | None:
    if shape is None or isinstance(shape, tf.TensorShape):
        return shape
    value = tf.get_static_value(shape) if tf.is_tensor(shape) else shape
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        raise ValueError(
            f"{caller} got {shape!r} in maximum_shapes, expected a tf.TensorShape, or a constant "
            "vector of integers in which -1 stands for an unknown size. Write "
            "tf.TensorShape([None, 8])."
        )
    return tf.TensorShape([None if size == -1 else int(size) for size in value])


def _check_shape(
    caller: str, value: Any, maximum: tf.TensorShape | None, what: str
) -> tf.TensorShape | None:
    """Returns `maximum`, with the rank of `value` if its own is unknown."""
    shape = _arguments.static_shape(value)
    if maximum is None or shape is None:
        return None
    if shape.rank is None:
        raise ValueError(
            f"{caller} got {what} of unknown rank, expected a known rank where maximum_shapes is "
            "given. Call set_shape on the input."
        )
    if maximum.rank is None:
        return tf.TensorShape([None] * shape.rank)
    if shape.rank != maximum.rank:
        raise ValueError(
            f"{caller} got {what} with shape {shape}, whose rank {shape.rank} does not match "
            f"maximum_shapes {maximum}, of rank {maximum.rank}. Give one size, or None, for each "
            "dimension of the input."
        )
    for axis, (size, bound) in enumerate(zip(shape.as_list(), maximum.as_list(), strict=True)):
        if size is not None and bound is not None and size > bound:
            raise ValueError(
                f"{caller} got {what} with shape {shape}, which does not match maximum_shapes "
                f"{maximum}: dimension {axis} has size {size}, expected at most {bound}. Raise the "
                "maximum, or use None to pad to the largest size of all replicas."
            )
    return maximum


def _power_of_two(size: tf.Tensor) -> tf.Tensor:
    """Returns the smallest power of two that is at least `size` and at least 2."""
    powers = tf.constant([1 << exponent for exponent in range(1, 31)], tf.int32)
    smaller = tf.reduce_sum(tf.cast(powers < size, tf.int32))
    return tf.bitwise.left_shift(_MINIMUM_BOUND, smaller)


def _marked(tensor: tf.Tensor) -> tf.Tensor:
    """Marks a host op that prepares padding, as TensorFlow does."""
    attribute = attr_value_pb2.AttrValue(b=True)
    tensor.op._set_attr("_post_device_rewrite", attribute)  # pylint: disable=protected-access
    return tensor
