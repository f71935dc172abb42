"""What remains of `tf.contrib.learn`: its monitors have become hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def replace_monitors_with_hooks(
    monitors_or_hooks: Sequence[Any] | None, estimator: Any
) -> list[Any]:
    """Returns the hooks. Monitors are not supported.

    Args:
        monitors_or_hooks: Session hooks.
        estimator: Not used.

    Raises:
        TypeError: An entry is not a hook.

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
