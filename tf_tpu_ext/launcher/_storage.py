"""Google Cloud Storage for scripts that run without it: a folder in its place, or a refusal.

TensorFlow's C++ asks the file system of the scheme `gs`, so every way to a file is covered:
Python's file functions, datasets, checkpoints, summaries and SavedModels, by whatever string they
get there.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from tf_tpu_ext import _native

_SCHEME = "gs://"


class RefusedPathError(ValueError):
    """A path in Google Cloud Storage, with no folder to stand for it."""


def check_arguments(arguments: Sequence[str], folder: str | None) -> None:
    """Checks that a command line names no path in Google Cloud Storage that nothing stands for.

    Raises:
        RefusedPathError: An argument is such a path, and there is no folder.
    """
    if folder is not None:
        return
    for argument in arguments:
        name, equals, value = argument.partition("=")
        paths = value if equals and name.startswith("-") else argument
        for path in paths.split(","):
            if path.startswith(_SCHEME):
                raise RefusedPathError(
                    f"{path} is in Google Cloud Storage, which tf-tpu run does not reach. Expected "
                    "a local path. Copy the data to FOLDER/<bucket>/<name> and run: "
                    "tf-tpu run --gs FOLDER ..."
                )


def install(folder: str | None) -> None:
    """Makes TensorFlow find `gs://bucket/name` at `folder/bucket/name`, or refuse it.

    Args:
        folder: The folder; None to refuse such paths.

    Raises:
        RuntimeError: TensorFlow was loaded with a file system of its own for them.
    """
    path = "" if folder is None else os.path.abspath(folder)
    argument = ctypes.c_char_p(os.fsencode(path))
    problem = _native.text_of("TfTpuExt_MapCloudStorage", argument)
    if problem is not None:
        raise RuntimeError(
            "TensorFlow was imported before tf-tpu run could take the place of its access to "
            "Google Cloud Storage. Run the script by the command tf-tpu, in a process of its own. "
            f"TensorFlow says: {problem}"
        )
