"""Stands in for `tensorflow.python.tpu.session_support`: the care of remote TPU workers.

Workers of a cloud are preempted and have to be watched. Virtual cores live and die with the
process, whose checkpoints are what recovery needs; so nothing is left to do here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_log = logging.getLogger("tf_tpu_ext")


class _WorkerAction:
    """What would be done with workers before they go away."""

    def __call__(self, run_context: Any, all_workers: Any, lame_workers: Any) -> None:
        """Does nothing: there are no workers."""
        del run_context, all_workers, lame_workers


class ResetComputation(_WorkerAction):
    """Would start the computation again."""


class ShutdownLameWorkers(_WorkerAction):
    """Would end the workers that are about to be preempted."""


class ShutdownAllWorkers(_WorkerAction):
    """Would end all workers."""


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Would save a checkpoint before a worker is preempted; virtual cores never are."""

    def __init__(
        self,
        checkpoint_prefix: str,
        saver: Any = None,
        on_shutdown_hooks: Sequence[Any] | None = None,
    ) -> None:
        del checkpoint_prefix, saver, on_shutdown_hooks


def start_worker_watchdog(
    session: Any, devices: Any = None, ping_interval: float = 60, shutdown_timeout: float = 3600
) -> None:
    """Says that there is nothing to watch."""
    del session, devices, ping_interval, shutdown_timeout
    _log.info("TF_TPU_WATCHDOG_TIMEOUT has no effect: virtual cores end with their process.")
