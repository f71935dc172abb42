"""The patch that lets every error about a lost worker name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _workers
from tf_tpu_ext.patches._changes import Changes


def install_worker_errors(changes: Changes) -> None:
    import tensorflow as tf

    def init_of(stock: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, node_def: Any, op: Any, message: Any, *args: Any) -> None:
            if isinstance(message, str):
                message = _workers.with_lost_ones(message)
            stock(self, node_def, op, message, *args)

        return init

    changes.wrap(
        tf.errors.UnavailableError, "__init__", init_of, uses=("node_def", "op", "message")
    )
