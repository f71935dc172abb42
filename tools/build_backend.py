"""Builds the package for the TensorFlow that is installed; pyproject.toml names this backend.

The native library is compiled against the headers of one minor version of TensorFlow. pip builds in
an isolated environment. The build uses the TensorFlow next to which the package will be installed;
if there is none, this module requests the newest supported one.

    TF_TPU_EXT_TENSORFLOW=2.20 pip wheel .   # for another one
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

import tf_config
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

VARIABLE = "TF_TPU_EXT_TENSORFLOW"


def _installed_minor() -> str | None:
    """Returns the minor of the TensorFlow that this Python will import, or None."""
    # Not sys.path: pip has put its own folders there.
    folders = tf_config.outer_folders()
    for name in ("tensorflow", "tensorflow-cpu"):
        for found in importlib.metadata.distributions(name=name, path=folders):
            return tf_config.minor_of(found.version)
    return None


def tensorflow_requirements() -> list[str]:
    """Returns what to install to build against, if what is installed is not what is wanted.

    Raises:
        ValueError: The environment variable names a TensorFlow that is not supported.
    """
    wanted = os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in tf_config.MINORS:
        raise ValueError(
            f"{VARIABLE} must be one of {', '.join(tf_config.MINORS)}. Received: {wanted!r}"
        )
    installed = _installed_minor()
    if installed in tf_config.MINORS and wanted in (None, installed):
        return []
    # pip may be about to replace one that isn't supported; if not, the import will say what to do.
    return [f"tensorflow-cpu=={wanted or tf_config.MINORS[-1]}.*"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    tensorflow = [] if os.environ.get(tf_config.BUILT_VARIABLE) else tensorflow_requirements()
    return [*build_meta.get_requires_for_build_wheel(config_settings), *tensorflow]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [
        *build_meta.get_requires_for_build_editable(config_settings),
        *tensorflow_requirements(),
    ]
