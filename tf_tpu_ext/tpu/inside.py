"""Functions to call inside a computation: placement, the host, sums over replicas, bfloat16."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops
from tensorflow.python.tpu import tpu_replication
from tensorflow.python.tpu.ops import tpu_ops

# The key of the replica numbers among the inputs in a computation's context.
_REPLICA_ID_KEY = "tf_tpu_ext/replica_id"


def core(num: int) -> str:
    """Returns the device name of one of the replica's logical cores, for `tf.device`.

    >>> core(1)
    'device:TPU_REPLICATED_CORE:1'

    Args:
        num: The number of the core within its replica, starting at 0.

    Returns:
        The device name.

    Raises:
        ValueError: `num` is negative.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/core
    """
    if num < 0:
        raise ValueError(
            f"core got num={num}, expected the number of a core of the replica. Pass 0 to "
            "device_assignment.num_cores_per_replica - 1."
        )
    return str(tf.compat.v1.tpu.core(num))


def outside_compilation(computation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs `computation` on the host, from inside a replicated computation.

    Each replica makes its own call. The arguments are sent to the host, and the results are sent
    back. Outside a replicated computation, this is an ordinary call to `computation`.

    >>> def on_host(x):
    ...     return tf.strings.to_number(tf.strings.format("1{}", x))
    >>> print(rewrite(lambda x: outside_compilation(on_host, x), [tf.constant(1)])[0].numpy())
    11.0

    Args:
        computation: Builds the ops for the host. It may use any op, including ops on strings.
        *args: The positional arguments of `computation`.
        **kwargs: The keyword arguments of `computation`.

    Returns:
        What `computation` returns.

    Raises:
        TypeError: `computation` is not callable.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/outside_compilation
    """
    if not callable(computation):
        raise TypeError(
            f"outside_compilation got computation={computation!r} of type "
            f"{type(computation).__name__}, expected a Python function. Pass the function itself "
            "and its arguments after it."
        )
    return tf.compat.v1.tpu.outside_compilation(computation, *args, **kwargs)


def replica_id() -> tf.Tensor:
    """Returns the replica's number, for use in an `outside_compilation` cluster.

    >>> def on_host(x):
    ...     return x * 10 + replica_id()
    >>> def computation(x):
    ...     return outside_compilation(on_host, x)
    >>> [[a], [b]] = replicate(computation, [[tf.constant(1)], [tf.constant(2)]])
    >>> print(a.numpy(), b.numpy())
    10 21

    Call it while the cluster is being built. To use the number in the function of a
    `tf.py_function` or `tf.numpy_function`, pass it as an argument. You can also call `replica_id`
    in the rest of the computation. Outside a replicated computation, it returns 0.

    Returns:
        The number of the replica, starting at 0, as an int32 scalar.

    Raises:
        RuntimeError: The function of a `tf.py_function` or `tf.numpy_function` calls it at run
            time.

    Replicas are numbered as in
    https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext
    """
    if _in_python_op():
        raise RuntimeError(
            "replica_id() was called inside a tf.py_function or tf.numpy_function at run time, "
            "when the replica is not known; expected a call while the cluster is built. Pass the "
            "number as an argument: tf.py_function(f, [tf_tpu_ext.tpu.replica_id(), x], Tout)."
        )
    try:
        context, graph = tpu_replication._enclosing_tpu_context_and_graph()
    except ValueError:
        return tf.constant(0)
    inputs = context._replicated_vars
    if _REPLICA_ID_KEY not in inputs:
        # The input belongs outside the computation. Clearing the control dependencies also lets us
        # leave the control flow context until the end of the block.
        with graph.as_default(), tf.control_dependencies(None):
            graph._set_control_flow_context(context.outer_context)
            numbers = [tf.constant(replica) for replica in range(context._num_replicas)]
            inputs[_REPLICA_ID_KEY] = tpu_ops.tpu_replicated_input(numbers, name="replica_id")
    return inputs[_REPLICA_ID_KEY]


def _in_python_op() -> bool:
    """Returns whether the caller is running inside a Python function that an op calls."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == script_ops.__file__ and frame.f_code.co_name == "__call__":
            return True
        frame = frame.f_back
    return False


def cross_replica_sum(
    x: Any, group_assignment: Sequence[Sequence[int]] | None = None, name: str | None = None
) -> tf.Tensor:
    """Returns the sum of `x` over the replicas.

    >>> [[a], [b]] = replicate(cross_replica_sum, [[tf.constant(1.0)], [tf.constant(2.0)]])
    >>> print(a.numpy(), b.numpy())
    3.0 3.0

    Args:
        x: The replica's summand, with the same shape and dtype on all replicas.
        group_assignment: The replicas in each group, `[group][member]`; each group has its own
            sum. None puts all replicas in one group.
        name: A name for the op.

    Returns:
        A tensor like `x`.

    Raises:
        ValueError: The groups differ in size, or a replica is in more than one group.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/cross_replica_sum
    """
    if isinstance(group_assignment, (list, tuple)):
        members = [replica for group in group_assignment for replica in group]
        if len({len(group) for group in group_assignment}) > 1 or len(set(members)) < len(members):
            raise ValueError(
                f"cross_replica_sum got group_assignment={group_assignment!r}, expected groups of "
                "one size with each replica in one group. Write [[0, 1], [2, 3]] for two groups "
                "of four replicas."
            )
    return tf.compat.v1.tpu.cross_replica_sum(x, group_assignment, name)


@contextlib.contextmanager
def bfloat16_scope(name: str | None = None) -> Iterator[tf.compat.v1.VariableScope]:
    """Makes `tf.compat.v1.get_variable` store variables as float32 and read them as bfloat16.

    >>> with tf.Graph().as_default(), bfloat16_scope():
    ...     weight = tf.compat.v1.get_variable("weight", [2], tf.bfloat16)
    ...     stored = tf.compat.v1.global_variables()[0]
    >>> print(weight.dtype.name, stored.dtype.base_dtype.name)
    bfloat16 float32

    Args:
        name: The name of the scope, or None for the enclosing scope.

    Yields:
        The variable scope.

    Documented at https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/bfloat16_scope
    """
    with tf.compat.v1.tpu.bfloat16_scope(name) as scope:
        yield scope
