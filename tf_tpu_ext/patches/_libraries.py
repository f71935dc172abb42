"""Patches of TensorFlow's C++, and of how it loads that of others."""

from __future__ import annotations

import functools
import os
from typing import Any

from tf_tpu_ext import _native
from tf_tpu_ext.patches._attributes import UnavailableError, Undo, replace_attributes


def install_tensorflow_io() -> Undo:
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    stock = load_library.load_op_library

    @functools.wraps(stock)
    def load_op_library(library_filename: Any) -> Any:
        name = os.path.basename(os.fsdecode(library_filename))
        try:
            return stock(library_filename)
        except (tf.errors.OpError, OSError) as error:
            if not name.startswith("libtensorflow_io"):
                raise
            # The error that tensorflow-io passes on as it is, and survives while it is imported.
            raise NotImplementedError(
                f"The native ops of tensorflow-io don't load in TensorFlow {tf.__version__}: they "
                "were built for another version. Its parts in Python work. Expected tensorflow-io "
                "0.37.1 beside TensorFlow 2.16 or 2.17; see docs/estimator.md. Read the files with "
                "tf.data, or in outside compilation with tf.py_function."
            ) from error

    modules = (tf, tf.compat.v1, tf.compat.v2)
    return replace_attributes(
        [
            (load_library, "load_op_library", load_op_library),
            *((module, "load_op_library", load_op_library) for module in modules),
        ]
    )


def install_autotune_loop() -> Undo:
    problem = _native.text_of("TfTpuExt_ReplaceAutotuneLoop")
    if problem is not None:
        raise UnavailableError(problem)

    def undo() -> None:
        problem = _native.text_of("TfTpuExt_RestoreAutotuneLoop")
        if problem is not None:
            raise RuntimeError(f"TensorFlow's autotuning loop can't be restored: {problem}")

    return undo
