"""Replaces `tensorflow.python.tpu.session_support`, which watches remote TPU workers.

Cloud workers can be preempted. Virtual cores end only with the process, and checkpoints are enough
to recover from that, so there is nothing to watch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_log = logging.getLogger("tf_tpu_ext")


class _WorkerAction:
    """An action on workers that are about to be preempted. Does nothing here.

    Args:
        timeout_ms: Not used. TensorFlow versions before 1.15 accepted it.
    """

    def __init__(self, timeout_ms: int | None = None) -> None:
        del timeout_ms

    def __call__(self, run_context: Any, all_workers: Any, lame_workers: Any) -> None:
        """Does nothing, since there are no workers."""
        del run_context, all_workers, lame_workers


class ResetComputation(_WorkerAction):
    """Elsewhere, this restarts the computation."""


# The name in TensorFlow before 1.15.
RestartComputation = ResetComputation


class ShutdownLameWorkers(_WorkerAction):
    """Elsewhere, this shuts down workers that are about to be preempted."""


class ShutdownAllWorkers(_WorkerAction):
    """Elsewhere, this shuts down all workers."""


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Elsewhere, this saves a checkpoint before a worker is preempted. Virtual cores never are."""

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
    """Logs that there is nothing to watch."""
    del session, devices, ping_interval, shutdown_timeout
    _log.info("TF_TPU_WATCHDOG_TIMEOUT has no effect: virtual cores end with their process.")
