"""Patches of TensorFlow's C++ code, and of how it loads other libraries."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _native
from tf_tpu_ext.patches._changes import Changes, UnavailableError


class NativeOpsError(NotImplementedError):
    """Native ops of tensorflow-io don't load in this TensorFlow."""

    # AutoGraph raises another exception instead of one whose constructor it does not know.
    __init__ = Exception.__init__


def install_tensorflow_io(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    def load_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def load_op_library(library_filename: Any) -> Any:
            name = os.path.basename(os.fsdecode(library_filename))
            try:
                return stock(library_filename)
            except (tf.errors.OpError, OSError) as error:
                if not name.startswith("libtensorflow_io"):
                    raise
                # tensorflow-io reports this error unchanged, and its import tolerates it.
                raise NativeOpsError(
                    "The native ops of tensorflow-io don't load in TensorFlow "
                    f"{tf.__version__}: they were built for another version. Its parts in Python "
                    "work. Expected tensorflow-io 0.37.1 beside TensorFlow 2.16 or 2.17. Run the "
                    "pipeline in an environment of its own: `tf-tpu io setup`, then "
                    'tf_tpu_ext.io.dataset("pipeline.py:make_dataset"); see docs/tensorflow_io.md.'
                ) from error

        return load_op_library

    load_op_library = changes.wrap(load_library, "load_op_library", load_of)
    for module in (tf, tf.compat.v1, tf.compat.v2):
        changes.replace(module, "load_op_library", load_op_library)


def install_autotune_loop(changes: Changes) -> None:
    problem = _native.text_of("TfTpuExt_ReplaceAutotuneLoop")
    if problem is not None:
        raise UnavailableError(problem)

    def restore() -> None:
        problem = _native.text_of("TfTpuExt_RestoreAutotuneLoop")
        if problem is not None:
            raise RuntimeError(f"TensorFlow's autotuning loop can't be restored: {problem}")

    changes.on_undo(restore)
