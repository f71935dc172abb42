"""What is left of `tf.contrib.learn`: its monitors became hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def replace_monitors_with_hooks(
    monitors_or_hooks: Sequence[Any] | None, estimator: Any
) -> list[Any]:
    """Returns the hooks, among which no monitors can be any more.

    Args:
        monitors_or_hooks: Hooks of sessions.
        estimator: Not used.

    Raises:
        TypeError: One is no hook.

    Example:
        >>> import tensorflow as tf
        >>> from tf_tpu_ext.contrib import learn
        >>> hooks = [tf.compat.v1.train.StopAtStepHook(last_step=3)]
        >>> learn.replace_monitors_with_hooks(hooks, estimator=None) == hooks
        True
    """
    del estimator
    for hook in monitors_or_hooks or ():
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise TypeError(
                "The monitors of tf.contrib.learn are not supported by tf_tpu_ext. Expected a "
                f"tf.compat.v1.train.SessionRunHook, got {hook!r}."
            )
    return list(monitors_or_hooks or ())
