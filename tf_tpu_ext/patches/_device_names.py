"""A patch that lets device names with a TPU's job mean this process, which has its cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._changes import Changes

# The jobs of the resolvers for the virtual cores to which the program has connected.
_jobs: frozenset[str] = frozenset()


def take_job_as_own(job: str) -> None:
    """Makes the first task of a job another name of this process, with eager execution.

    A session has the names of its target.
    """
    global _jobs
    _jobs |= {job}


def take_no_job_as_own() -> None:
    global _jobs
    _jobs = frozenset()


def _own(device: Any) -> Any:
    """Returns a device name as this process knows the device; anything else is left alone."""
    if not _jobs or not isinstance(device, str) or "/job:" not in device:
        return device
    import tensorflow as tf
    from tensorflow.python.framework import ops

    spec = tf.DeviceSpec.from_string(device)
    own = spec.job in _jobs and not spec.replica and not spec.task
    if not own or not ops.executing_eagerly_outside_functions():
        return device
    return spec.replace(job="localhost").to_string()


def install_device_names(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.framework import ops

    def device_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def device(device_name_or_function: Any) -> Any:
            return stock(_own(device_name_or_function))

        return device

    # tf.device calls it too.
    device = changes.wrap(ops, "device", device_of)
    changes.replace(tf.compat.v1, "device", device)
