"""Loads TensorFlow without its access to Google Cloud Storage, which a folder may replace."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

# If set, TensorFlow's libraries register no file system for gs:// when they are loaded. They accept
# any spelling. With this one, TensorFlow's Python does not look for tensorflow-io's plugin.
_VARIABLE = "TF_USE_MODULAR_FILESYSTEM"
_VALUE = "TRUE"
# The libraries advise using tensorflow-io instead, which would be misleading here.
_ADVICE = "Using modular file system for"
# Copies lines without the advice, until the line that ends it or the end of this process.
_FILTER = """
import sys
advice, last = (argument.encode() for argument in sys.argv[1:])
for line in sys.stdin.buffer:
    text, ended, _ = line.partition(last)
    if advice not in text:
        sys.stderr.buffer.write(text)
        sys.stderr.flush()
    if ended:
        break
"""


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leaves Google Cloud Storage access out of TensorFlow, if that is loaded in this context."""
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
    """Keeps the advice out of stderr.

    Another process does so, because this one may crash, and its last output must not be lost.
    """
    try:
        stderr = os.dup(2)
    except OSError:
        # There is no stderr.
        yield
        return
    last = f"tf-tpu {secrets.token_hex(16)}\n"
    # Without the site module, it starts in a few milliseconds. Ctrl-C is not meant for it.
    command = [sys.executable, "-S", "-E", "-c", _FILTER, _ADVICE, last]
    copier = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert copier.stdin is not None
    try:
        sys.stderr.flush()
        os.dup2(copier.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
    finally:
        os.close(stderr)
        with contextlib.suppress(BrokenPipeError), copier.stdin:
            copier.stdin.write(last.encode())
        copier.wait()
