"""Every change that the package makes to TensorFlow's Python, with its reason and how to undo it.

    from tf_tpu_ext import patches

    patches.applied()
    patches.undo_all()
    patches.apply()

Each patch belongs to a group. A group is applied as a whole:

- `tensorflow`: by `import tf_tpu_ext`.
- `estimator`: by `import tf_tpu_ext.estimator`.
- `estimator_names`: by `tf_tpu_ext.estimator.install()`.
- `contrib`: by `tf_tpu_ext.contrib.install()`.
- `legacy`: by `tf-tpu run --legacy`, together with the three groups above.
- `towers`: only while a `merge_fn` is being traced.

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
"""All patches."""

# Importing these packages applies the group, so they must be imported first.
_PACKAGES: dict[Group, str] = {
    "estimator": "tf_tpu_ext.estimator",
    "estimator_names": "tf_tpu_ext.estimator",
}
_lock = threading.RLock()
_applied: dict[str, Changes] = {}


def apply(group: Group = "tensorflow") -> None:
    """Applies every patch of a group that is not applied yet.

    Each patch checks that its target exists and takes the expected arguments. If not, the patch is
    left out with a RuntimeWarning that says what was expected and what was found. The other patches
    still apply.

    Where TensorFlow drives a real TPU, nothing of the group `tensorflow` is applied. This function
    is thread-safe, and may be called any number of times.

    Args:
        group: The group.

    Raises:
        ImportError: The native library or the package tensorflow-estimator can't be loaded.
        RuntimeError: TensorFlow has created its devices before the native library was loaded.

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
    """Undoes one patch. Does nothing if it is not applied.

    Args:
        name: The name of the patch, as `applied` returns it.

    Raises:
        RuntimeError: Other code has changed the same place since. The patch stays applied.

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
    """Undoes all applied patches, the latest first, and so restores TensorFlow's Python.

    This includes the patches for estimators, for `tf.contrib` and for `tf-tpu run --legacy`. The
    function is thread-safe, and may be called any number of times.

    Some changes can't be undone before the process ends: the devices, kernels, ops and graph passes
    of the native library; the file system for `gs://` paths that `tf-tpu run` adds; TensorFlow 1's
    behavior, which `--legacy` switches on by `tf.compat.v1.disable_v2_behavior`; and the choice of
    Keras 2, once Keras has been used.

    Existing objects are not affected: a resolver stays resolved, an iterator keeps its autotuning
    loop, and a program keeps the modules that it has imported.

    Raises:
        RuntimeError: Other code has changed the same place as a patch. That patch stays applied;
            all others are undone.

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
    """Returns the names of the applied patches, in the order in which they were applied.

    Example:
        >>> from tf_tpu_ext import patches
        >>> patches.applied()[:2]
        ('cluster_resolver', 'connect_to_cluster')
    """
    with _lock:
        return tuple(_applied)


def _install(patch: Patch) -> str | None:
    """Makes all changes of a patch or none. Returns the reason if the patch does not fit."""
    changes = Changes()
    try:
        patch.install(changes)
    except BaseException as error:
        changes.take_back()
        if isinstance(error, UnavailableError):
            return str(error)
        if isinstance(error, Exception):
            # A module or class that the patch needs is missing, or has changed.
            return f"{type(error).__name__}: {error}."
        raise
    _applied[patch.name] = changes
    return None
