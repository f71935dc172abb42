"""Loads TensorFlow without its access to Google Cloud Storage, which a folder may replace."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

# If set, TensorFlow's libraries register no file system for gs:// when they are loaded. They accept
# any spelling. With this one, TensorFlow's Python does not look for the plugin of tensorflow-io.
_VARIABLE = "TF_USE_MODULAR_FILESYSTEM"
_VALUE = "TRUE"
# They advise using tensorflow-io instead, which would be misleading here.
_ADVICE = b"Using modular file system for"


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """If TensorFlow is loaded in this context, it has no access to Google Cloud Storage."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = _VALUE
    try:
        with _without_advice():
            yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Holds back output to stderr, and writes it at the end without the advice."""
    try:
        stderr = os.dup(2)
    except OSError:
        # There is no stderr.
        yield
        return
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            kept = b"".join(line for line in file if _ADVICE not in line)
            while kept:
                kept = kept[os.write(2, kept) :]
