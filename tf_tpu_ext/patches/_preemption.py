"""The patch that lets SIGTERM ask PreemptionCheckpointHandler for a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _native
from tf_tpu_ext.patches._changes import Changes


def _watch_sigterm() -> None:
    """Makes the next check for a preemption find one after SIGTERM."""
    _native.library().TfTpuExt_SetPreempted(0)
    # Python lets only this thread set handlers; elsewhere SIGTERM keeps its meaning.
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)

    def preempt(number: int, frame: Any) -> None:
        _native.library().TfTpuExt_SetPreempted(1)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, preempt)


def install_preemption(changes: Changes) -> None:
    from tensorflow.python.distribute.failure_handling import failure_handling

    def initialize_of(stock: Callable[..., None]) -> Callable[..., None]:
        def initialize(self: Any) -> None:
            stock(self)
            _watch_sigterm()

        return initialize

    changes.wrap(
        failure_handling.PreemptionCheckpointHandler,
        "_initialize_for_tpu_strategy",
        initialize_of,
        uses=("self",),
    )
