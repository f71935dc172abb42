"""What to do about an error that ended a script."""

from __future__ import annotations

import re
import sys

# How Python says which name of which module is missing.
_MISSING = (
    re.compile(r"(?P<module>tensorflow[\w.]*)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>tensorflow[\w.]*)'"),
    re.compile(r"No module named '(?P<module>tensorflow)\.(?P<name>contrib|estimator)\b"),
)
# What TensorFlow has dropped altogether, and --legacy supplies.
_DROPPED = ("contrib", "estimator")
_PUBLIC = ("tensorflow", "tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")


def hint(error: BaseException) -> str | None:
    """Returns what to do about an error of a script for TensorFlow 1 that ran without --legacy.

    Example:
        >>> from tf_tpu_ext.launcher import _hints
        >>> print(_hints.hint(ImportError("No module named 'tensorflow.contrib'")))
        TensorFlow 2 has no `contrib`. If the script is for TensorFlow 1, run it with --legacy.
        >>> _hints.hint(ImportError("No module named 'tensorflows'")) is None
        True
    """
    if not isinstance(error, AttributeError | ImportError):
        return None
    name = _missing_name(str(error))
    # With --legacy, it is there: the script wants something else.
    if name is None or "tensorflow.contrib" in sys.modules:
        return None
    if name not in _DROPPED and not _is_of_version_1(name):
        return None
    return f"TensorFlow 2 has no `{name}`. If the script is for TensorFlow 1, run it with --legacy."


def _missing_name(message: str) -> str | None:
    for pattern in _MISSING:
        found = pattern.search(message)
        if found is not None and found["module"] in _PUBLIC:
            return found["name"]
    return None


def _is_of_version_1(name: str) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and hasattr(tensorflow.compat.v1, name)
