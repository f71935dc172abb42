"""Builds the package for the TensorFlow that is installed; pyproject.toml names this backend.

The native library is compiled against the headers of one minor version of TensorFlow. pip builds in
an isolated environment, so this module looks for the TensorFlow next to which the package will be
installed, and requests the same minor version there; if there is none, the newest supported one.

    TF_TPU_EXT_TENSORFLOW=2.20 pip wheel .   # for another one
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import sysconfig
from typing import Any

import tf_config
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

VARIABLE = "TF_TPU_EXT_TENSORFLOW"


def _installed_minor() -> str | None:
    """Returns the minor of the TensorFlow that this Python will import, or None."""
    # Not sys.path: pip has put its own folders there.
    folders = [*sysconfig.get_paths().values(), site.getusersitepackages()]
    for name in ("tensorflow", "tensorflow-cpu"):
        for found in importlib.metadata.distributions(name=name, path=folders):
            return tf_config.minor_of(found.version)
    return None


def tensorflow_requirement() -> str:
    """Returns what to install to build against.

    Raises:
        ValueError: The environment variable names a TensorFlow that is not supported.
    """
    minor = os.environ.get(VARIABLE) or None
    if minor is not None and minor not in tf_config.MINORS:
        raise ValueError(
            f"{VARIABLE} must be one of {', '.join(tf_config.MINORS)}. Received: {minor!r}"
        )
    if minor is None:
        minor = _installed_minor()
    if minor not in tf_config.MINORS:
        # pip may be about to replace it; if not, the import will say what to do.
        minor = tf_config.MINORS[-1]
    return f"tensorflow-cpu=={minor}.*"


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    tensorflow = [] if os.environ.get(tf_config.BUILT_VARIABLE) else [tensorflow_requirement()]
    return [*build_meta.get_requires_for_build_wheel(config_settings), *tensorflow]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), tensorflow_requirement()]
