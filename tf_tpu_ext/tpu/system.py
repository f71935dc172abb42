"""`initialize_system` and `shutdown_system`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tf_tpu_ext.tpu import _eager


def initialize_system(
    embedding_config: Any | None = None,
    job: str | None = None,
    compilation_failure_closes_chips: bool = True,
    tpu_cancellation_closes_chips: bool | None = None,
) -> tf.Tensor:
    """Starts the TPU system.

    Programs that call `tf.tpu.experimental.initialize_tpu_system` do not need this.

    >>> topology = Topology(serialized=initialize_system().numpy())
    >>> int(topology.mesh_rank)
    4

    Args:
        embedding_config: A `TPUEmbeddingConfiguration` proto, or None for no embedding tables.
        job: The cluster job that has the TPUs. May be None if there is only one job.
        compilation_failure_closes_chips: Whether a failed compilation closes the chips.
        tpu_cancellation_closes_chips: Whether a cancelled execution closes the chips.

    Returns:
        The serialized `TopologyProto`, a string scalar for `Topology(serialized=...)`. In a graph,
        run this tensor before anything that uses the TPU.

    Documented at
    https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/initialize_system
    """

    def build() -> tf.Tensor:
        return tf.compat.v1.tpu.initialize_system(
            embedding_config,
            job,
            compilation_failure_closes_chips,
            tpu_cancellation_closes_chips,
        )

    if not tf.executing_eagerly():
        return build()
    topology = _run_on_system(build, job)
    # Buffers on the cores are gone, so TensorFlow has to look up the devices again.
    context.context()._initialize_logical_devices()  # pylint: disable=protected-access
    return topology


def shutdown_system(job: str | None = None) -> tf.Operation | None:
    """Stops the TPU system. Variables on its cores are lost.

    >>> _ = initialize_system()
    >>> shutdown_system()

    Args:
        job: The cluster job that has the TPUs. May be None if there is only one job.

    Returns:
        The operation that stops the system, or None when called eagerly.

    Documented at
    https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu/shutdown_system
    """

    def build() -> tf.Operation:
        return tf.compat.v1.tpu.shutdown_system(job)

    if not tf.executing_eagerly():
        return build()
    _run_on_system(build, job)
    _eager.clear()
    context.context().clear_kernel_cache()
    return None


def _run_on_system(build: Any, job: str | None) -> Any:
    """Runs ops in a function, on the device where TensorFlow's graph passes rewrite them."""
    device = "/device:TPU_SYSTEM:0" if job is None else f"/job:{job}/device:TPU_SYSTEM:0"

    def built() -> Any:
        result = build()
        return None if isinstance(result, tf.Operation) else result

    with tf.device(device):
        return tf.function(built, autograph=False).get_concrete_function()()
