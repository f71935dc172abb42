"""Replaces Google Cloud Storage with a folder, or makes its paths an error.

TensorFlow's C++ code looks up the file system of the scheme `gs`. Replacing that covers every
access to files: `tf.io.gfile`, datasets, checkpoints, summaries and SavedModels.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from tf_tpu_ext import _native

_SCHEME = "gs://"


class RefusedPathError(ValueError):
    """A path is in Google Cloud Storage, and no folder replaces it."""


def check_arguments(arguments: Sequence[str], folder: str | None) -> None:
    """Checks that no argument is a path in Google Cloud Storage, unless a folder replaces it.

    Raises:
        RefusedPathError: An argument is such a path, and `folder` is None.
    """
    if folder is not None:
        return
    for argument in arguments:
        name, equals, value = argument.partition("=")
        paths = value if equals and name.startswith("-") else argument
        for path in paths.split(","):
            if path.startswith(_SCHEME):
                raise RefusedPathError(
                    f"{path} is in Google Cloud Storage, to which tf-tpu run has no access. "
                    "Expected a local path. Copy the data to FOLDER/<bucket>/<name> and run: "
                    "tf-tpu run --gs FOLDER ..."
                )


def install(folder: str | None) -> None:
    """Makes TensorFlow find `gs://bucket/name` at `folder/bucket/name`, or raise an error.

    Args:
        folder: The folder. None makes such paths an error.

    Raises:
        RuntimeError: TensorFlow was loaded with its own file system for such paths.
    """
    path = "" if folder is None else os.path.abspath(folder)
    argument = ctypes.c_char_p(os.fsencode(path))
    problem = _native.text_of("TfTpuExt_MapCloudStorage", argument)
    if problem is not None:
        raise RuntimeError(
            "TensorFlow was imported before tf-tpu run could replace its access to Google Cloud "
            "Storage. Run the script with the command tf-tpu, in a process of its own. "
            f"TensorFlow's error: {problem}"
        )
