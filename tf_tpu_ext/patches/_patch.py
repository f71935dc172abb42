"""The class of patches."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Literal

from tf_tpu_ext.patches._changes import Changes

Group = Literal["tensorflow", "estimator", "estimator_names", "contrib", "legacy", "towers"]
"""A name of a group of patches."""


@dataclasses.dataclass(frozen=True)
class Patch:
    """One change to TensorFlow, or to a package that belongs to it.

    Attributes:
        name: The name of the patch.
        group: The patches with which it is applied.
        target: The full name of what changes.
        change: What is different afterwards.
        reason: Why programs need the change.
        install: Makes the changes. Raises `UnavailableError` if the target is not as expected;
            changes made before are undone.

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
    """Returns an `install` that imports its function only when the patch is applied."""

    def install(changes: Changes) -> None:
        getattr(importlib.import_module(module), function)(changes)

    return install
