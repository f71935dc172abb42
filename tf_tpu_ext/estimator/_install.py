"""Brings tensorflow-estimator to life on a TensorFlow that has dropped it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

import tensorflow as tf

from tf_tpu_ext import _aliases, _namespaces

_SUPPLIED = "tf_tpu_ext.estimator._supplied"
# What tensorflow-estimator imports, and what takes its place where TensorFlow has none.
SUPPLIED = {
    "tensorflow.python.distribute.estimator_training": "estimator_training",
    "tensorflow.python.tpu.session_support": "session_support",
    "tensorflow.python.tpu.tpu_embedding": "tpu_embedding",
    "tensorflow.python.tpu.tpu_embedding_gradient": "tpu_embedding_gradient",
}
# Names of tf.compat.v1.tpu.experimental that went away with `tpu_embedding`.
_PARAMETERS = (
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
)
_lock = threading.RLock()


def load() -> ModuleType:
    """Supplies what is missing and imports tensorflow-estimator; may be called again.

    Returns:
        The package `tensorflow_estimator`.

    Raises:
        ImportError: tensorflow-estimator, or what it needs, is not installed.
    """
    with _lock:
        if importlib.util.find_spec("tensorflow_estimator") is None:
            raise ImportError(
                "tf_tpu_ext.estimator needs the package tensorflow-estimator, which is not "
                "installed. Run: pip install --no-deps tensorflow-estimator==2.15.0"
            )
        _supply_modules()
        _supply_export_names()
        try:
            return importlib.import_module("tensorflow_estimator")
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"tensorflow-estimator can't be imported: {error}. Expected version 2.15.0. "
                "Run: pip install --no-deps tensorflow-estimator==2.15.0"
            ) from error


def install() -> None:
    """Makes `tf.estimator` and `tf.compat.v1.estimator` work in this process.

    Also `import tensorflow.compat.v1 as tf; tf.estimator` and the parameters of embedding tables in
    `tf.compat.v1.tpu.experimental`. It may be called again.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext.estimator
        >>> tf_tpu_ext.estimator.install()
        >>> tf.compat.v1.estimator.tpu.TPUEstimator is tf_tpu_ext.estimator.TPUEstimator
        True
    """
    load()
    old = importlib.import_module("tensorflow_estimator._api.v1.estimator")
    new = importlib.import_module("tensorflow_estimator._api.v2.estimator")
    for module in _namespaces.public_modules("v1"):
        module.estimator = old
    for module in (tf, *_namespaces.public_modules("v2")):
        module.estimator = new
    # Programs import private modules by the place that they had in TensorFlow.
    _aliases.add("tensorflow.python.estimator", "tensorflow_estimator.python.estimator")


def _supply_modules() -> None:
    for name, ours in SUPPLIED.items():
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        module = importlib.import_module(f"{_SUPPLIED}.{ours}")
        sys.modules[name] = module
        parent, _, short = name.rpartition(".")
        setattr(importlib.import_module(parent), short, module)
    embedding: Any = sys.modules["tensorflow.python.tpu.tpu_embedding"]
    experimental = tf.compat.v1.tpu.experimental
    for name in _PARAMETERS:
        if not hasattr(experimental, name):
            setattr(experimental, name, getattr(embedding, name))


def _supply_export_names() -> None:
    """Registers the API name under which tensorflow-estimator exports its symbols."""
    from tensorflow.python.util import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        return
    attributes = type(tf_export.API_ATTRS[tf_export.TENSORFLOW_API_NAME])
    name = "estimator"
    tf_export.API_ATTRS[name] = attributes("_estimator_api_names", "_estimator_api_constants")
    tf_export.API_ATTRS_V1[name] = attributes(
        "_estimator_api_names_v1", "_estimator_api_constants_v1"
    )
    tf_export.ESTIMATOR_API_NAME = name
