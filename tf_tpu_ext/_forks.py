"""Functions that a forked process calls are an error: TensorFlow's threads stayed in its parent."""

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
    # Not imported here: a child that does nothing with TensorFlow has no need of it.
    module = sys.modules.get("tensorflow.python.eager.context")
    context: Any = module.context_safe() if module else None
    if context is not None and context._initialized:
        # What functions and most ops call first. Each context has its own, and exec ends this.
        context.ensure_initialized = _refuse


def watch() -> None:
    """From now on, children of this process get the error instead of a wait without end."""
    os.register_at_fork(after_in_child=_refuse_functions)
