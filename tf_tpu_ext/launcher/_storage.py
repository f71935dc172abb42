"""Google Cloud Storage for scripts that run without it: a folder in its place, or a refusal."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

_SCHEME = "gs://"
# Where TensorFlow's Python hands paths to its C++.
_FUNCTIONS = {
    "tensorflow.python.lib.io._pywrap_file_io": (
        "BufferedInputStream",
        "CopyFile",
        "CreateDir",
        "DeleteFile",
        "DeleteRecursively",
        "FileExists",
        "GetChildren",
        "GetMatchingFiles",
        "HasAtomicMove",
        "IsDirectory",
        "ReadFileToString",
        "RecursivelyCreateDir",
        "RenameFile",
        "Stat",
        "WritableFile",
        "WriteStringToFile",
    ),
    "tensorflow.python.lib.io._pywrap_record_io": ("RandomRecordReader", "RecordIterator"),
    "tensorflow.python.client._pywrap_events_writer": ("EventsWriter",),
    "tensorflow.python.training.py_checkpoint_reader": ("NewCheckpointReader",),
    "tensorflow.python.framework.tensor_util": ("make_tensor_proto",),
}


class RefusedPathError(ValueError):
    """A path in Google Cloud Storage, with no folder to stand for it."""


class Storage:
    """Maps `gs://bucket/name` to `folder/bucket/name`.

    Args:
        folder: The folder; None to refuse such paths.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else os.path.abspath(folder)

    def local(self, path: str) -> str:
        """Returns the local path that stands for a path; other paths stay what they are.

        Raises:
            RefusedPathError: There is no folder.
        """
        if not path.startswith(_SCHEME):
            return path
        if self._folder is None:
            raise RefusedPathError(
                f"{path} is in Google Cloud Storage, which tf-tpu run does not reach. Expected a "
                "local path. Copy the data to FOLDER/<bucket>/<name> and run: "
                "tf-tpu run --gs FOLDER ..."
            )
        parts = [part for part in path[len(_SCHEME) :].split("/") if part not in ("", ".")]
        if ".." in parts:
            raise RefusedPathError(f"{path} leads out of its bucket. Expected a path without '..'.")
        return os.path.join(self._folder, *parts)

    def argument(self, argument: str) -> str:
        """Returns an argument of a command line with its path replaced: `gs://...`, `--x=gs://...`.

        Raises:
            RefusedPathError: See `local`.
        """
        name, equals, value = argument.partition("=")
        if equals and name.startswith("-"):
            return f"{name}={self._paths(value)}"
        return self._paths(argument)

    def _paths(self, value: str) -> str:
        """Replaces paths in a list that is separated by commas."""
        if _SCHEME not in value:
            return value
        return ",".join(self.local(path) for path in value.split(","))

    def install(self) -> None:
        """Replaces the paths that TensorFlow gets from now on.

        In its file functions, records and event files, and in constants of graphs and functions.
        """
        for module_name, names in _FUNCTIONS.items():
            module = importlib.import_module(module_name)
            for name in names:
                setattr(module, name, self._replacing(getattr(module, name)))
        writer: Any = importlib.import_module("tensorflow.python.lib.io.tf_record").TFRecordWriter
        writer.__init__ = self._replacing(writer.__init__)

    def _replacing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(
                *(self._value(value) for value in args),
                **{name: self._value(value) for name, value in kwargs.items()},
            )

        return call

    def _value(self, value: Any) -> Any:
        """Replaces a path, or the paths of a list, whether text or bytes."""
        if isinstance(value, bytes):
            return self.local(os.fsdecode(value)).encode() if _is_path(value) else value
        if isinstance(value, str):
            return self.local(value) if _is_path(value) else value
        if isinstance(value, (list, tuple)) and any(_is_path(entry) for entry in value):
            return [self._value(entry) for entry in value]
        return value


def _is_path(value: Any) -> bool:
    if isinstance(value, bytes):
        return value.startswith(_SCHEME.encode())
    return isinstance(value, str) and value.startswith(_SCHEME)
