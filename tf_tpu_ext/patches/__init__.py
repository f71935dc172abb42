"""Every change that the package makes to TensorFlow, each with its reason and its way back.

    from tf_tpu_ext import patches

    patches.applied()
    patches.undo_all()
    patches.apply()

A patch belongs to a group, which is applied as a whole:

- `tensorflow`: by `import tf_tpu_ext`.
- `estimator`: by `import tf_tpu_ext.estimator`.
- `estimator_names`: by `tf_tpu_ext.estimator.install()`.
- `contrib`: by `tf_tpu_ext.contrib.install()`.
- `legacy`: by `tf-tpu run --legacy`, with the three before.
- `towers`: while a `merge_fn` is traced, and no longer.

docs/patches.md lists them all.
"""

from __future__ import annotations

import importlib
import threading
import warnings

from tf_tpu_ext import _native
from tf_tpu_ext.patches import _estimator, _legacy, _tensorflow
from tf_tpu_ext.patches._changes import Changes, UnavailableError
from tf_tpu_ext.patches._patch import Group, Patch

__all__ = [
    "PATCHES",
    "Group",
    "Patch",
    "UnavailableError",
    "applied",
    "apply",
    "undo",
    "undo_all",
]

PATCHES: tuple[Patch, ...] = (*_tensorflow.PATCHES, *_estimator.PATCHES, *_legacy.PATCHES)

# Importing the package applies the group too, so the package comes first.
_PACKAGES: dict[Group, str] = {
    "estimator": "tf_tpu_ext.estimator",
    "estimator_names": "tf_tpu_ext.estimator",
}
_lock = threading.RLock()
_applied: dict[str, Changes] = {}


def apply(group: Group = "tensorflow") -> None:
    """Applies every patch of a group that is not applied yet.

    Each checks that what it changes is there and takes the arguments that the patch was written
    for. One that does not fit is left out with a RuntimeWarning, which says what was expected and
    what was found; the others still apply.

    Nothing of the group `tensorflow` is applied where the package stepped aside for a real TPU. Any
    thread may call this function, and call it again.

    Args:
        group: Which patches.

    Raises:
        ImportError: The native library, or the package tensorflow-estimator, can't be loaded.
        RuntimeError: The native library was asked for too late.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.apply()
        >>> "cluster_resolver" in patches.applied()
        True
    """
    with _lock:
        if group == "tensorflow" and not _native.load():
            return
        if group in _PACKAGES:
            importlib.import_module(_PACKAGES[group])
        for patch in PATCHES:
            if patch.group != group or patch.name in _applied:
                continue
            problem = _install(patch)
            if problem is not None:
                warnings.warn(
                    f"tf_tpu_ext left `{patch.target}` as it is: {problem} Without the patch "
                    f"{patch.name!r}: {patch.reason}",
                    RuntimeWarning,
                    stacklevel=2,
                )


def undo(name: str) -> None:
    """Takes one patch back; does nothing if it is not applied.

    Args:
        name: The patch's name, as `applied` returns it.

    Raises:
        RuntimeError: Other code has replaced what the patch had put in place. It stays.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.undo("tensorflow_io")
        >>> "tensorflow_io" in patches.applied()
        False
        >>> patches.apply()
    """
    with _lock:
        changes = _applied.get(name)
        if changes is not None:
            changes.take_back()
            del _applied[name]


def undo_all() -> None:
    """Takes every applied patch back, the latest first, so that TensorFlow is as it came.

    That includes what was applied for estimators, for `tf.contrib`, and for `tf-tpu run --legacy`.
    Any thread may call it, and call it again.

    What the native library registered when it was loaded can't be taken back: its devices, kernels,
    ops and graph passes, and the file system of `gs://` paths that `tf-tpu run` adds, are there
    until the process ends. The behavior of TensorFlow 1, which `--legacy` switches on by
    `tf.compat.v1.disable_v2_behavior`, stays as well, and so does the choice of Keras 2 once Keras
    has been used.

    What was made before keeps what it was made with: a resolver stays resolved, an iterator keeps
    its loop, and a program keeps the modules that it has imported.

    Raises:
        RuntimeError: Other code has replaced what a patch had put in place. That patch stays; all
            others are taken back.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.undo_all()
        >>> patches.applied()
        ()
        >>> patches.apply()
    """
    with _lock:
        problems = []
        for name in reversed(tuple(_applied)):
            try:
                undo(name)
            except RuntimeError as error:
                problems.append(str(error))
        if problems:
            raise RuntimeError(" ".join(problems))


def applied() -> tuple[str, ...]:
    """Returns the names of the patches in force, in the order of their application.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.applied()[:2]
        ('cluster_resolver', 'connect_to_cluster')
    """
    with _lock:
        return tuple(_applied)


def _install(patch: Patch) -> str | None:
    """Makes all changes of a patch or none; returns why it does not fit, if so."""
    changes = Changes()
    try:
        patch.install(changes)
    except BaseException as error:
        changes.take_back()
        if isinstance(error, UnavailableError):
            return str(error)
        if isinstance(error, Exception):
            # A module or class that the patch needs is gone, or is something else.
            return f"{type(error).__name__}: {error}."
        raise
    _applied[patch.name] = changes
    return None
