"""What a patch is."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Literal

from tf_tpu_ext.patches._changes import Changes

Group = Literal["tensorflow", "estimator", "estimator_names", "contrib", "legacy", "towers"]


@dataclasses.dataclass(frozen=True)
class Patch:
    """One change to TensorFlow, or to a package that belongs to it.

    Attributes:
        name: What `applied` calls it.
        group: With which others it is applied.
        target: What changes, by its full name.
        change: What is different afterwards.
        reason: Why programs need it.
        install: Makes the changes. Raises `UnavailableError` where the target is not what the
            patch was written for; what was changed by then is taken back.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.PATCHES[1].name, patches.PATCHES[1].target
        ('connect_to_cluster', 'tf.config.experimental_connect_to_cluster')
    """

    name: str
    group: Group
    target: str
    change: str
    reason: str
    install: Callable[[Changes], None] = dataclasses.field(repr=False)


def deferred(module: str, function: str) -> Callable[[Changes], None]:
    """Returns the `install` of a patch in a module that is imported only when it is applied."""

    def install(changes: Changes) -> None:
        getattr(importlib.import_module(module), function)(changes)

    return install
