"""`replicate` and `rewrite`: a computation compiled once and run on several cores, or on one."""

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
    """Runs `computation` on several cores, each with inputs of its own.

    In a graph or a `tf.function` this adds the same ops as `tf.compat.v1.tpu.replicate`. Called
    eagerly it runs them at once, and returns when all replicas have finished.

    >>> def computation(x):
    ...     x = x + 1
    ...     return tf.math.reduce_mean(x)
    >>> x = tf.convert_to_tensor([1.0, 2.0, 3.0])
    >>> y = tf.convert_to_tensor([4.0, 5.0, 6.0])
    >>> [[mean_x], [mean_y]] = replicate(computation, inputs=[[x], [y]])
    >>> print(mean_x.numpy(), mean_y.numpy())
    3.0 6.0

    With `maximum_shapes` the replicas, and the batches of one replica, may differ in size. Inputs
    are padded on the host, and the padding changes no result. `PaddingSpec.POWER_OF_TWO` limits
    how often XLA compiles to once for each power of two:

    >>> y = tf.convert_to_tensor([4.0, 5.0, 6.0, 7.0, 8.0])
    >>> [[mean_x], [mean_y]] = replicate(
    ...     computation,
    ...     inputs=[[x], [y]],
    ...     maximum_shapes=[tf.TensorShape([None])],
    ...     padding_spec=PaddingSpec.POWER_OF_TWO,
    ... )
    >>> print(mean_x.numpy(), mean_y.numpy())
    3.0 7.0

    Eager calls trace `computation` once for its code and what it captured, and for each structure,
    types and shapes of the inputs; a dimension that `maximum_shapes` leaves open counts as one
    shape. Captured variables are read and written on every call. As under `tf.function`, Python
    values that the computation reads from globals, attributes or containers are those of the first
    call, its print statements run once, and variables may be created in the first call only.

    Args:
        computation: Builds the computation of one replica from tensors.
        inputs: The inputs, `[replica][input]`, any of them nested; None means `[[]]`: one replica
            without inputs. Leaves, of any dtype of the machine, are converted to tensors, which
            makes a list of numbers a list of scalars: convert it with `tf.convert_to_tensor` to
            pass a vector. A replica's inputs may be a single tensor in place of a list.
        infeed_queue: An `InfeedQueue`, whose elements follow the inputs as further arguments.
        device_assignment: Which cores run which replica. May be omitted if a replica uses one core
            and there is one replica, or as many as cores.
        name: Does nothing.
        maximum_shapes: Structured as `inputs[0]`: the `tf.TensorShape` to which to pad each input.
            Unknown dimensions, also written as -1 in an array, are padded to the largest size of
            all replicas. None as a leaf leaves its input as it is.
        padding_spec: How to pad unknown dimensions: `PaddingSpec.AUTO` to the largest size,
            `PaddingSpec.POWER_OF_TWO` to the next power of two.
        xla_options: Options of the compiler.

    Returns:
        A list with the outputs of each replica, structured as what `computation` returns, except:
        no output (None) gives a `tf.Operation` that runs the replica; a single value gives a list
        of one; operations in a flat list are dropped, and alone give a `tf.Operation`. Called
        eagerly, None stands for the operation, which has run.

    Raises:
        ValueError: The replicas do not have equal numbers of inputs.
        ValueError: The number of inputs is not that of the parameters of `computation`.
        ValueError: A static dimension of the inputs does not match `maximum_shapes`: the rank
            differs, or the size is above the maximum.
        ValueError: The structure of a replica's inputs is not that of `maximum_shapes`.
        ValueError: Types or shapes differ between replicas, or `device_assignment` does not fit.
        TypeError: An argument is of the wrong class.
        LookupError: A gradient is taken through an eager call.

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
            by operations; all operations that it adds run when any of its outputs is evaluated.
        inputs: The arguments of `computation`, any of them nested, or None for none. Leaves are
            converted to tensors: a list of numbers becomes a list of scalars.
        infeed_queue: An `InfeedQueue`, whose elements follow the inputs as further arguments.
        device_assignment: The core, or the cores of a partitioned computation; else core 0.
        name: Does nothing.
        xla_options: Options of the compiler.

    Returns:
        What `computation` returns, with the exceptions that `replicate` names.

    Raises:
        ValueError: The number of inputs is not that of the parameters of `computation`.
        TypeError: An argument is of the wrong class.

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
    """Checks the arguments of `replicate`, then builds or runs its graph."""
    _arguments.check_computation(caller, computation)
    replicas = _arguments.check_inputs(caller, inputs)
    if not replicas:
        return []
    _arguments.check_classes(caller, infeed_queue, device_assignment, xla_options)
    infeed_count = 0 if infeed_queue is None else infeed_queue.number_of_tuple_elements
    _arguments.check_arity(caller, computation, len(replicas[0]), infeed_count)
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
