"""`replicate` and `rewrite`: run a computation on several cores, or on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_tpu_ext.tpu import _arguments, _eager, _graph, _padding
from tf_tpu_ext.tpu._classes import DeviceAssignment, PaddingSpec, XLAOptions


@_graph.unconverted
def replicate(
    computation: Callable[..., Any],
    inputs: Sequence[Sequence[Any]] | None = None,
    infeed_queue: Any | None = None,
    device_assignment: DeviceAssignment | None = None,
    name: str | None = None,
    maximum_shapes: Any | None = None,
    padding_spec: PaddingSpec | None = None,
    xla_options: XLAOptions | None = None,
) -> list[Any]:
    """Runs `computation` on several cores, each with its own inputs.

    In a graph or a `tf.function`, this adds the same ops as `tf.compat.v1.tpu.replicate`. Called
    eagerly, it runs the ops and returns when all replicas have finished.

    >>> def computation(x):
    ...     x = x + 1
    ...     return tf.math.reduce_mean(x)
    >>> x = tf.convert_to_tensor([1.0, 2.0, 3.0])
    >>> y = tf.convert_to_tensor([4.0, 5.0, 6.0])
    >>> [[mean_x], [mean_y]] = replicate(computation, inputs=[[x], [y]])
    >>> print(mean_x.numpy(), mean_y.numpy())
    3.0 6.0

    With `maximum_shapes`, inputs may differ in size between replicas and between calls. The host
    pads them, and the padding does not affect the results. With `PaddingSpec.POWER_OF_TWO`, XLA
    compiles only once for each power of two:

    >>> y = tf.convert_to_tensor([4.0, 5.0, 6.0, 7.0, 8.0])
    >>> [[mean_x], [mean_y]] = replicate(
    ...     computation,
    ...     inputs=[[x], [y]],
    ...     maximum_shapes=[tf.TensorShape([None])],
    ...     padding_spec=PaddingSpec.POWER_OF_TWO,
    ... )
    >>> print(mean_x.numpy(), mean_y.numpy())
    3.0 7.0

    Eager calls reuse a trace if the code of `computation`, the objects that it captures, and the
    structure, types and shapes of the inputs are the same. Dimensions that `maximum_shapes` leaves
    unknown may differ. Captured variables are read and written in every call. As with
    `tf.function`, Python side effects happen only during tracing, Python values from globals,
    attributes and containers keep the values of the first call, and only the first call may create
    variables.

    Args:
        computation: Builds the computation of one replica from tensors.
        inputs: The inputs, `[replica][input]`. Each input may be a nested structure. None means
            `[[]]`: one replica without inputs. Leaves are converted to tensors, so a list of
            numbers becomes a list of scalars; use `tf.convert_to_tensor` to pass a vector. A single
            tensor may take the place of a replica's list.
        infeed_queue: An `InfeedQueue`. The elements of a tuple follow the inputs as arguments.
        device_assignment: Which cores run which replica. May be omitted if each replica uses one
            core and the number of replicas is one or the number of cores.
        name: Not used.
        maximum_shapes: A structure like `inputs[0]` with the `tf.TensorShape` to which each input
            is padded. Unknown dimensions, which an array may give as -1, are padded to the largest
            size on any replica. Inputs whose leaf is None are not padded.
        padding_spec: How to pad unknown dimensions: `PaddingSpec.AUTO` to the largest size,
            `PaddingSpec.POWER_OF_TWO` to the next power of two.
        xla_options: Compiler options.

    Returns:
        A list with the outputs of each replica, in the structure that `computation` returns, with
        these exceptions: A single value becomes a list of one. Operations after the tensors of a
        flat list are dropped. If there are no outputs, or only operations, the replica's entry is a
        `tf.Operation` that runs the replica, or None in an eager call, where it has already run.

    Raises:
        ValueError: The number, structure, types or shapes of the inputs differ between replicas.
        ValueError: The number of inputs differs from the number of parameters of `computation`.
        ValueError: `maximum_shapes` has a different structure from the inputs, a shape in it has a
            different rank from its input, or an input is larger than its maximum.
        ValueError: `device_assignment` has a different number of replicas, or is missing.
        TypeError: An argument has the wrong type.
        LookupError: A `tf.GradientTape` differentiates through an eager call.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/replicate
    """
    return _replicate(
        "replicate",
        computation,
        inputs,
        infeed_queue,
        device_assignment,
        name,
        maximum_shapes,
        padding_spec,
        xla_options,
    )


@_graph.unconverted
def rewrite(
    computation: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    infeed_queue: Any | None = None,
    device_assignment: DeviceAssignment | None = None,
    name: str | None = None,
    xla_options: XLAOptions | None = None,
) -> Any:
    """Runs `computation` on one core.

    >>> print(rewrite(lambda x, y: x * y, inputs=[tf.constant(6), tf.constant(7)])[0].numpy())
    42

    Args:
        computation: Builds the computation from tensors. It may return a list of tensors followed
            by operations. Evaluating any of its outputs runs all operations that it adds.
        inputs: The arguments of `computation`, or None for no arguments. Each may be a nested
            structure. Leaves are converted to tensors, as in `replicate`.
        infeed_queue: An `InfeedQueue`. The elements of a tuple follow the inputs as arguments.
        device_assignment: The core, or the cores of a partitioned computation. None is core 0.
        name: Not used.
        xla_options: Compiler options.

    Returns:
        What `computation` returns, with the exceptions listed under `replicate`.

    Raises:
        ValueError: The number of inputs differs from the number of parameters of `computation`.
        TypeError: An argument has the wrong type.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/rewrite
    """
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"rewrite got inputs of type {type(inputs).__name__}, expected a list with one value "
            "for each parameter of the computation. Write inputs=[x]."
        )
    replicas = None if inputs is None else [inputs]
    return _replicate(
        "rewrite",
        computation,
        replicas,
        infeed_queue,
        device_assignment,
        name,
        xla_options=xla_options,
    )[0]


def _replicate(
    caller: str,
    computation: _arguments.Computation,
    inputs: Any,
    infeed_queue: Any | None,
    device_assignment: DeviceAssignment | None,
    name: str | None,
    maximum_shapes: Any | None = None,
    padding_spec: PaddingSpec | None = None,
    xla_options: XLAOptions | None = None,
) -> list[Any]:
    """Checks the arguments of `replicate`, and builds its graph or runs it eagerly."""
    _arguments.check_computation(caller, computation)
    replicas = _arguments.check_inputs(caller, inputs)
    if not replicas:
        return []
    _arguments.check_classes(caller, infeed_queue, device_assignment, xla_options)
    _arguments.check_arity(caller, computation, len(replicas[0]), infeed_queue)
    padding_spec = _padding.check_padding_spec(caller, padding_spec)
    if maximum_shapes is None:
        _arguments.check_equal_shapes(caller, replicas)
    elif infeed_queue is not None:
        raise ValueError(
            f"{caller} got maximum_shapes together with an infeed_queue, expected one of them: "
            "the elements of a queue have static shapes. Pass the data as inputs instead."
        )
    else:
        maximum_shapes = _padding.check_maximum_shapes(caller, replicas, maximum_shapes)
    _arguments.check_device_assignment(caller, len(replicas), device_assignment)

    def build(traced: _arguments.Computation, arguments: list[list[Any]]) -> list[Any]:
        return _build(
            caller,
            traced,
            arguments,
            infeed_queue,
            device_assignment,
            name,
            maximum_shapes,
            padding_spec,
            xla_options,
        )

    if not tf.executing_eagerly():
        return build(computation, replicas)
    arguments = _eager.to_tensors(replicas)
    shapes = None
    if maximum_shapes is not None:
        shapes = _padding.traced_shapes(arguments, maximum_shapes) * len(replicas)
    options = (
        "replicate",
        _eager.identity(infeed_queue),
        _eager.identity(device_assignment),
        repr(maximum_shapes),
        padding_spec,
        xla_options,
    )
    return list(_eager.call(build, options, computation, arguments, shapes))


def _build(
    caller: str,
    computation: _arguments.Computation,
    replicas: list[list[Any]],
    infeed_queue: Any | None,
    device_assignment: DeviceAssignment | None,
    name: str | None,
    maximum_shapes: Any | None,
    padding_spec: PaddingSpec | None,
    xla_options: XLAOptions | None,
) -> list[Any]:
    """Adds TensorFlow's graph of a replicated computation to the default graph."""
    traced = _graph.checked(caller, computation)
    if maximum_shapes is not None and len(replicas) == 1:
        dynamic_padder = xla_options is None or xla_options.enable_xla_dynamic_padder
        padded, inputs = _padding.pad_single_replica(
            traced, replicas[0], maximum_shapes, padding_spec, dynamic_padder
        )
        if padded is not traced:
            traced, replicas, maximum_shapes = padded, [inputs], None
    elif maximum_shapes is not None:
        replicas = _padding.unify_known_shapes(replicas, maximum_shapes)
    with _graph.building():
        outputs: list[Any] = tf.compat.v1.tpu.replicate(
            traced,
            replicas,
            infeed_queue=infeed_queue,
            device_assignment=device_assignment,
            name=name,
            maximum_shapes=maximum_shapes,
            padding_spec=padding_spec,
            xla_options=xla_options,
        )
    return outputs
