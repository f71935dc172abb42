"""`shard` and `batch_parallel`: run a computation on pieces of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_tpu_ext.tpu import _arguments, _eager, _graph
from tf_tpu_ext.tpu._classes import DeviceAssignment, XLAOptions


@_graph.unconverted
def shard(
    computation: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    num_shards: int = 1,
    input_shard_axes: Sequence[int] | None = None,
    outputs_from_all_shards: bool | Sequence[bool] = True,
    output_shard_axes: Sequence[int] | None = None,
    infeed_queue: Any | None = None,
    device_assignment: DeviceAssignment | None = None,
    name: str | None = None,
    xla_options: XLAOptions | None = None,
) -> list[Any]:
    """Splits the inputs, runs `computation` on each piece, and concatenates the outputs.

    Tensors that `computation` captures are not split: every shard gets them whole.

    >>> x = tf.reshape(tf.range(8), [2, 4])
    >>> double = shard(lambda x: 2 * x, [x], num_shards=2, input_shard_axes=[1],
    ...                output_shard_axes=[1])
    >>> print(double[0].numpy())
    [[ 0  2  4  6]
     [ 8 10 12 14]]

    Args:
        computation: Builds the computation of one shard from tensors.
        inputs: Tensors of rank 1 or more, or values convertible to such tensors. None for no
            inputs.
        num_shards: The number of shards, each of which is a replica.
        input_shard_axes: For each input, the dimension to split. Its size must be a multiple of
            `num_shards`. None splits all inputs along dimension 0.
        outputs_from_all_shards: Whether to concatenate the outputs of all shards rather than return
            the output of one. Either a list with a value for each output, or one value for all.
        output_shard_axes: For each output, the dimension along which to concatenate. None
            concatenates all outputs along dimension 0. Scalars are stacked.
        infeed_queue: An `InfeedQueue`. The elements of a tuple follow the inputs as arguments.
        device_assignment: Which cores run which shard; see `replicate`.
        name: Not used.
        xla_options: Compiler options.

    Returns:
        A list of tensors, one for each output of `computation`. If there are no outputs, a list of
        one `tf.Operation`, or of None when called eagerly.

    Raises:
        ValueError: `num_shards` is not positive, or does not divide a dimension to be split.
        ValueError: `input_shard_axes` does not have one entry per input, or `output_shard_axes` or
            `outputs_from_all_shards` does not have one entry per output.
        ValueError: The number of inputs differs from the number of parameters of `computation`.
        TypeError: An argument has the wrong type.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/shard
    """
    return _shard(
        "shard",
        computation,
        inputs,
        num_shards,
        input_shard_axes,
        outputs_from_all_shards,
        output_shard_axes,
        infeed_queue,
        device_assignment,
        name,
        xla_options,
    )


@_graph.unconverted
def batch_parallel(
    computation: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    num_shards: int = 1,
    infeed_queue: Any | None = None,
    device_assignment: DeviceAssignment | None = None,
    name: str | None = None,
    xla_options: XLAOptions | None = None,
) -> list[Any]:
    """Splits the inputs along dimension 0 and runs `computation` on each piece.

    The outputs are concatenated along dimension 0. This is `shard` with its default axes.

    >>> batch_parallel(lambda x: x + 1, [tf.range(4)], num_shards=2)[0].numpy()
    array([1, 2, 3, 4], dtype=int32)

    Args:
        computation: As for `shard`.
        inputs: As for `shard`. The size of dimension 0 must be a multiple of `num_shards`.
        num_shards: As for `shard`.
        infeed_queue: As for `shard`.
        device_assignment: As for `shard`.
        name: Not used.
        xla_options: As for `shard`.

    Returns:
        A list of tensors, one for each output of `computation`; see `shard`.

    Raises:
        ValueError: `num_shards` is not positive or does not divide the batch, or the number of
            inputs differs from the number of parameters of `computation`.
        TypeError: An argument has the wrong type.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/batch_parallel
    """
    return _shard(
        "batch_parallel",
        computation,
        inputs,
        num_shards,
        infeed_queue=infeed_queue,
        device_assignment=device_assignment,
        name=name,
        xla_options=xla_options,
    )


def _shard(
    caller: str,
    computation: _arguments.Computation,
    inputs: Any,
    num_shards: int,
    input_shard_axes: Sequence[int] | None = None,
    outputs_from_all_shards: bool | Sequence[bool] = True,
    output_shard_axes: Sequence[int] | None = None,
    infeed_queue: Any | None = None,
    device_assignment: DeviceAssignment | None = None,
    name: str | None = None,
    xla_options: XLAOptions | None = None,
) -> list[Any]:
    """Checks the arguments of `shard`, then builds its graph or runs it eagerly."""
    _arguments.check_computation(caller, computation)
    if num_shards <= 0:
        raise ValueError(
            f"{caller} got num_shards={num_shards}, expected a positive number. Pass the number of "
            "cores, len(tf.config.list_logical_devices('TPU'))."
        )
    values = _check_sharded(caller, inputs, num_shards, input_shard_axes)
    _arguments.check_classes(caller, infeed_queue, device_assignment, xla_options)
    _arguments.check_arity(caller, computation, len(values), infeed_queue)
    _arguments.check_device_assignment(caller, num_shards, device_assignment)

    def build(traced: _arguments.Computation, arguments: list[Any]) -> list[Any]:
        with _graph.building():
            outputs: list[Any] = tf.compat.v1.tpu.shard(
                _graph.checked(caller, traced),
                arguments,
                num_shards=num_shards,
                input_shard_axes=None if input_shard_axes is None else list(input_shard_axes),
                outputs_from_all_shards=outputs_from_all_shards,
                output_shard_axes=output_shard_axes,
                infeed_queue=infeed_queue,
                device_assignment=device_assignment,
                name=name,
                xla_options=xla_options,
            )
        return outputs

    if not tf.executing_eagerly():
        return build(computation, values)
    options = (
        "shard",
        num_shards,
        repr(input_shard_axes),
        repr(outputs_from_all_shards),
        repr(output_shard_axes),
        _eager.identity(infeed_queue),
        _eager.identity(device_assignment),
        xla_options,
    )
    # Unlike in the inputs of replicate, a list of numbers is one tensor here.
    arguments = [tf.convert_to_tensor(value) for value in values]
    return list(_eager.call(build, options, computation, arguments))


def _check_sharded(
    caller: str, inputs: Any, num_shards: int, axes: Sequence[int] | None
) -> list[Any]:
    """Returns the inputs as a list, and raises an error unless each can be split."""
    if inputs is None:
        inputs = []
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"{caller} got inputs of type {type(inputs).__name__}, expected a list of tensors. "
            "Write inputs=[x]."
        )
    if axes is None:
        axes = [0] * len(inputs)
    if len(axes) != len(inputs):
        raise ValueError(
            f"{caller} got {len(axes)} input_shard_axes for {len(inputs)} inputs, expected one "
            "for each input. Pass None to split all inputs along dimension 0."
        )
    for position, (value, axis) in enumerate(zip(inputs, axes, strict=True)):
        shape = _arguments.static_shape(value)
        if shape is None or shape.rank is None:
            continue
        if not -shape.rank <= axis < shape.rank:
            raise ValueError(
                f"{caller} got input {position} with shape {shape} to be split along dimension "
                f"{axis}, which it does not have. Pass a tensor of rank 1 or more, or let the "
                "computation capture what every shard needs as a whole."
            )
        if shape[axis] is not None and shape[axis] % num_shards:
            raise ValueError(
                f"{caller} got input {position} with shape {shape}, expected dimension {axis} to "
                f"be a multiple of num_shards={num_shards}. Change the batch size, or use "
                "replicate with maximum_shapes."
            )
    return list(inputs)
