"""Random attributes and tensors, mostly such as no op expects."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, op_def_pb2

INTEGERS = (0, 1, 2, 3, -1, 7, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 62), -(1 << 62))
# Of inputs or outputs. TensorFlow itself makes a list as long as any number it is given.
COUNTS = (0, 1, 1, 2, 3, -1)
FLOATS = (0.0, 1.0, -1.5, float("nan"), float("inf"), 1e38)
STRINGS = (b"", b"x", b"\xff\x00\x80", b"0", b"-1", b"a" * 500, b"\n\x02\x08\x01", b"tpu:0", b"SGD")
SHAPES: tuple[Any, ...] = (
    None,
    [],
    [1],
    [2],
    [0],
    [2, 3],
    [None],
    [None, 2],
    [1 << 40],
    [1 << 31, 1 << 31],
)
TYPES = (
    tf.float32, tf.int32, tf.int64, tf.bool, tf.float16, tf.bfloat16, tf.float64, tf.uint8,
    tf.complex64, tf.string, tf.int8, tf.uint64,
)  # fmt: skip
TENSOR_SHAPES: tuple[list[int], ...] = ([], [], [1], [2], [3], [0], [2, 3], [1, 2, 2, 1], [2, 0, 3])


def count_attributes(op: op_def_pb2.OpDef) -> set[str]:
    """The attributes that say how many inputs or outputs there are."""
    arguments = [*op.input_arg, *op.output_arg]
    return {argument.number_attr for argument in arguments if argument.number_attr}


def attribute(
    rng: random.Random, definition: op_def_pb2.OpDef.AttrDef, counts: Collection[str] = ()
) -> Any:
    """A value for the attribute, as Python code gives it; often one that the op allows.

    `counts` are the op's `count_attributes`.
    """
    kind = definition.type
    if kind.startswith("list("):
        single = op_def_pb2.OpDef.AttrDef()
        single.CopyFrom(definition)
        single.type = kind[len("list(") : -1]
        single.ClearField("default_value")
        return [attribute(rng, single) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if definition.HasField("default_value") and rng.random() < 0.5:
        return _plain(definition.default_value)
    if definition.HasField("allowed_values") and rng.random() < 0.9:
        allowed = definition.allowed_values.list
        if allowed.type:
            return tf.as_dtype(rng.choice(list(allowed.type)))
        if allowed.s:
            return rng.choice(list(allowed.s))
    if kind == "int" and definition.name in counts:
        return rng.choice(COUNTS)
    if kind == "int":
        minimum = definition.minimum if definition.has_minimum else None
        usual = minimum if minimum is not None and rng.random() < 0.6 else None
        return rng.choice((0, 1, 2, 3)) if rng.random() < 0.5 else usual or rng.choice(INTEGERS)
    if kind == "tensor":
        return tf.make_tensor_proto([1.0])
    choices: dict[str, Sequence[Any]] = {
        "float": FLOATS,
        "bool": (False, True),
        "string": STRINGS,
        "shape": [tf.TensorShape(shape) for shape in SHAPES],
        "type": TYPES,
        "func": ("no_such_function", ""),
    }
    return rng.choice(choices[kind])


def _plain(value: attr_value_pb2.AttrValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "type":
        return tf.as_dtype(value.type)
    if kind == "shape":
        return tf.TensorShape(value.shape)
    if kind == "list":
        return []
    if kind == "func":
        return value.func.name
    return getattr(value, kind)


def array(rng: random.Random, dtype: tf.DType) -> np.ndarray:
    """A small array of the type, which must not be a resource or a variant."""
    shape = rng.choice(TENSOR_SHAPES)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    if dtype == tf.string:
        return np.array(
            [rng.choice(STRINGS) for _ in range(int(np.prod(shape)))], dtype=object
        ).reshape(shape)
    if dtype == tf.bool:
        return numbers.integers(0, 2, shape).astype(bool)
    if rng.random() < 0.15 and dtype.is_integer:
        return np.full(shape, dtype.max if rng.random() < 0.5 else dtype.min).astype(
            dtype.as_numpy_dtype
        )
    low = 0 if dtype.is_unsigned or rng.random() < 0.6 else -3
    return numbers.integers(low, 4, shape).astype(dtype.as_numpy_dtype)
