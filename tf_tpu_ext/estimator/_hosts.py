"""Runs input pipelines as if on several hosts.

A pod slice has several hosts, and the input_fn runs once on each. To test how a program divides its
data among them, the cores are divided in order among a given number of hosts, and each call to the
input_fn gets its host's number. Everything runs in this process.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._changes import Changes, find

VARIABLE = "TF_TPU_EXT_HOSTS"
_hosts: int | None = None


def set_input_hosts(hosts: int) -> None:
    """Sets the number of hosts for the input pipelines of TPUEstimators.

    The default is the environment variable TF_TPU_EXT_HOSTS, or 1. If the number does not divide
    the number of cores, the first call to an estimator raises an error.

    Args:
        hosts: The number of hosts among which the cores are divided evenly.

    Raises:
        ValueError: The number is less than 1.

    Example:
        >>> import tf_tpu_ext.estimator
        >>> tf_tpu_ext.estimator.set_input_hosts(1)
    """
    global _hosts
    if hosts < 1:
        raise ValueError(f"set_input_hosts got {hosts}, expected at least 1 host.")
    _hosts = hosts


def install(changes: Changes) -> None:
    """Patches the contexts of tensorflow-estimator."""
    from tensorflow_estimator.python.estimator.tpu import tpu_context, tpu_estimator

    context = tpu_context._InternalTPUContext
    find(context, "num_of_replicas_per_host")
    changes.wrap(context, "_get_tpu_system_metadata", _metadata_of)
    changes.wrap(context, "tpu_ordinal_function", _ordinal_function_of)
    changes.wrap(context, "device_for_replica", _device_for_replica_of)
    broadcast_of = functools.partial(_broadcast_of, context)
    changes.wrap(tpu_estimator, "generate_broadcast_enqueue_ops_fn", broadcast_of)


def _number() -> int:
    if _hosts is not None:
        return _hosts
    text = os.environ.get(VARIABLE) or "1"
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{VARIABLE} is {text!r}, expected a number of hosts, at least 1.")
    return int(text)


def _metadata_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Divides the cores of the only host among the requested number of hosts."""

    def metadata(self: Any) -> Any:
        real, hosts = stock(self), _number()
        if hosts == 1 or real.num_hosts != 1:
            return real
        if real.num_cores % hosts:
            raise ValueError(
                f"The input pipelines are to run on {hosts} hosts, which does not divide the "
                f"{real.num_cores} cores. Change {VARIABLE}, or the number of cores."
            )
        if self.model_parallelism_enabled:
            raise ValueError(
                f"TPUConfig.num_cores_per_replica is set, and the input pipelines are to run on "
                f"{hosts} hosts; expected one of them. Leave {VARIABLE} at 1."
            )
        return real._replace(num_hosts=hosts, num_of_cores_per_host=real.num_cores // hosts)

    return metadata


def _is_divided(context: Any) -> bool:
    """Returns whether its hosts share one machine. If there are several workers, each is a host."""
    metadata = context._get_tpu_system_metadata()
    cores = [device.name for device in metadata.devices if device.device_type == "TPU"]
    tasks = {name.partition("/device:")[0] for name in cores}
    return bool(metadata.num_hosts > len(tasks))


def _ordinal_function_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    def ordinal_function(self: Any, host_id: int) -> Callable[[int], int]:
        ordinal: Callable[[int], int] = stock(self, host_id)
        if not _is_divided(self):
            return ordinal
        first = host_id * self.num_of_cores_per_host
        return lambda shard: first + ordinal(shard)

    return ordinal_function


def _device_for_replica_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    def device_for_replica(self: Any, replica_id: int) -> tuple[str, int]:
        if not _is_divided(self):
            device: tuple[str, int] = stock(self, replica_id)
            return device
        return self.tpu_host_placement_function(replica_id=replica_id), replica_id

    return device_for_replica


def _broadcast_of(context: Any, stock: Callable[..., Any]) -> Callable[..., Any]:
    class AllReplicasOnOneHost(context):
        """A context for creating the ops that feed all replicas from the first host."""

        @property
        def num_of_replicas_per_host(self) -> int:
            return int(self.num_replicas)

    def generate(
        ctx: Any, input_fn: Callable[[Any], Any], inputs_structure_recorder: Any, num_hosts: int
    ) -> Any:
        if num_hosts == 1 or not _is_divided(ctx):
            return stock(ctx, input_fn, inputs_structure_recorder, num_hosts)

        def input_of_all(user_context: Any) -> Any:
            # The program sees all hosts.
            user_context._internal_ctx = ctx
            return input_fn(user_context)

        feeding = copy.copy(ctx)
        feeding.__class__ = AllReplicasOnOneHost
        return stock(feeding, input_of_all, inputs_structure_recorder, 1)

    return generate
