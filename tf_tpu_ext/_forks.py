"""Makes function calls in a forked process an error: TensorFlow's threads stay in its parent."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn


def _refuse(*_: Any) -> NoReturn:
    raise RuntimeError(
        f"Process {os.getpid()} was forked after TensorFlow had started, and has none of its "
        "threads: a TensorFlow function would wait for ever. Start processes anew instead, as by "
        "multiprocessing.get_context('spawn'), or fork before TensorFlow's first operation."
    )


def _refuse_functions() -> None:
    # Not imported here: a child that does not use TensorFlow does not need it.
    module = sys.modules.get("tensorflow.python.eager.context")
    context: Any = module.context_safe() if module else None
    if context is not None and context._initialized:
        # Functions and most ops call this first. Each context has its own, and exec undoes this.
        context.ensure_initialized = _refuse


def watch() -> None:
    """Makes future children of this process raise the error instead of waiting forever."""
    os.register_at_fork(after_in_child=_refuse_functions)
