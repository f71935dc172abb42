"""`TowerId`: the number of a tower, which has no value until the towers run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tf_tpu_ext.towers import _state


@_state.transparent_methods
class TowerId:
    """The number of the tower that is running, an int32 scalar.

    All towers share a trace, so the number has no value during tracing. In arithmetic with tensors,
    it behaves like a Python number and takes their type. TensorFlow's functions accept it as a
    tensor. Anything that needs the value during tracing, such as indexing a list, raises a
    TypeError.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> def fn():
        ...     tower_id = tf_tpu_ext.towers.get_tower_context().tower_id
        ...     return tf.gather([2.0, 3.0], tower_id) * tower_id
        >>> with strategy.scope():
        ...     results = strategy.unwrap(strategy.call_for_each_tower(fn))
        >>> print([float(x) for x in results])  # On two cores.
        [0.0, 3.0]

    Attributes:
        tensor: The same number as an int32 `tf.Tensor` of shape [].
    """

    # Makes NumPy leave operators such as `array + tower_id` to this class.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # It has no value to hash.

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor

    @property
    def dtype(self) -> tf.DType:
        """The type of `tensor`.

        Example:
            >>> tf_tpu_ext.towers.TowerId(tf.constant(1)).dtype.name
            'int32'
        """
        return self.tensor.dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of `tensor`, which is [].

        Example:
            >>> tf_tpu_ext.towers.TowerId(tf.constant(1)).shape.rank
            0
        """
        return self.tensor.shape

    def __repr__(self) -> str:
        return f"<TowerId {self.tensor.name}>"

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        """Converts the number to a tensor of any numeric type, like a Python number."""
        del name
        return self.tensor if dtype is None else tf.cast(self.tensor, dtype)

    def __bool__(self) -> NoReturn:
        self._has_no_value("a Python condition", "tf.cond(tower_id > 0, ...) or tf.where")

    def __int__(self) -> NoReturn:
        self._has_no_value("a Python integer", "tf.cast(tower_id, dtype), or tower_id as it is")

    def __float__(self) -> NoReturn:
        self._has_no_value("a Python float", "tf.cast(tower_id, tf.float32)")

    def __index__(self) -> NoReturn:
        self._has_no_value(
            "a Python index",
            "tf.gather(values, tower_id), or give each tower its own value as a per-device "
            "argument of call_for_each_tower",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        self._has_no_value("a NumPy array", "tf.convert_to_tensor(tower_id)")

    def __neg__(self) -> tf.Tensor:
        return -self.tensor

    def __abs__(self) -> tf.Tensor:
        return self.tensor

    def __eq__(self, other: object) -> Any:
        return self._like(other) == other

    def __ne__(self, other: object) -> Any:
        return self._like(other) != other

    def _like(self, other: Any) -> tf.Tensor:
        """Returns the number in the result type of an operator with `other`."""
        if isinstance(other, (TowerId, bool, int)):
            return self.tensor
        if isinstance(other, float):
            return tf.cast(self.tensor, tf.float32)
        dtype = getattr(other, "dtype", None)
        if dtype is None:
            dtype = np.asarray(other).dtype
        dtype = tf.as_dtype(dtype).base_dtype
        return self.tensor if dtype == tf.bool else tf.cast(self.tensor, dtype)

    def _has_no_value(self, use: str, instead: str) -> NoReturn:
        raise TypeError(
            f"tower_id was used as {use}, but it has no value yet, because all towers share a "
            f"trace. Write {instead}."
        )


def _left(name: str) -> Callable[[TowerId, Any], Any]:
    def operator(self: TowerId, other: Any) -> Any:
        number = self._like(other)
        return getattr(number, name)(other.tensor if isinstance(other, TowerId) else other)

    return operator


def _right(name: str) -> Callable[[TowerId, Any], Any]:
    def operator(self: TowerId, other: Any) -> Any:
        number = self._like(other)
        # An array's own operator would take precedence.
        return getattr(tf.convert_to_tensor(other, number.dtype), name)(number)

    return operator


def _division(self: TowerId, other: Any) -> Any:
    # TensorFlow divides int32 as float64, which does not mix with the usual float32.
    if isinstance(other, (int, TowerId)):
        return tf.cast(self.tensor, tf.float32) / tf.cast(other, tf.float32)
    return _left("__truediv__")(self, other)


def _division_by(self: TowerId, other: Any) -> Any:
    if isinstance(other, int):
        return tf.cast(other, tf.float32) / tf.cast(self.tensor, tf.float32)
    return _right("__truediv__")(self, other)


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    setattr(TowerId, f"__{_name}__", _left(f"__{_name}__"))
    setattr(TowerId, f"__r{_name}__", _right(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(TowerId, f"__{_name}__", _left(f"__{_name}__"))
setattr(TowerId, "__truediv__", _division)  # noqa: B010
setattr(TowerId, "__rtruediv__", _division_by)  # noqa: B010


def _to_tensor(
    value: TowerId, dtype: tf.DType | None = None, name: str | None = None, as_ref: bool = False
) -> tf.Tensor:
    del as_ref
    return value.__tf_tensor__(dtype, name)


tf.register_tensor_conversion_function(TowerId, _to_tensor)
