"""Makes tensorflow-estimator work with a TensorFlow that has dropped it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import tensorflow as tf

from tf_tpu_ext import _namespaces, patches
from tf_tpu_ext.patches._changes import Changes, find
from tf_tpu_ext.patches._finders import Alias

_SUPPLIED = "tf_tpu_ext.estimator._supplied"
_PACKAGE = "tensorflow_estimator.python.estimator"
# Modules in tensorflow-estimator's package `tpu` that TensorFlow 1 had in its own.
_TPU_MODULES = (
    "_tpu_estimator_embedding",
    "error_handling",
    "tpu_config",
    "tpu_context",
    "tpu_estimator",
    "util",
)
# Modules that tensorflow-estimator imports, and our replacements if TensorFlow lacks them.
SUPPLIED = {
    "tensorflow.python.distribute.estimator_training": "estimator_training",
    "tensorflow.python.tpu.session_support": "session_support",
    "tensorflow.python.tpu.tpu_embedding": "tpu_embedding",
    "tensorflow.python.tpu.tpu_embedding_gradient": "tpu_embedding_gradient",
}
# Names of tf.compat.v1.tpu.experimental that TensorFlow removed with `tpu_embedding`.
_PARAMETERS = (
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
)


def load() -> ModuleType:
    """Applies the patches for tensorflow-estimator and imports it. May be called repeatedly.

    Returns:
        The package `tensorflow_estimator`.

    Raises:
        ImportError: tensorflow-estimator, or a package that it needs, is not installed.
    """
    if importlib.util.find_spec("tensorflow_estimator") is None:
        raise ImportError(
            "tf_tpu_ext.estimator needs the package tensorflow-estimator, which is not "
            "installed. Run: pip install --no-deps tensorflow-estimator==2.15.0"
        )
    patches.apply("estimator")
    try:
        return importlib.import_module("tensorflow_estimator")
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"tensorflow-estimator can't be imported: {error}. Expected version 2.15.0. "
            "Run: pip install --no-deps tensorflow-estimator==2.15.0"
        ) from error


def install() -> None:
    """Makes `tf.estimator` and `tf.compat.v1.estimator` work in this process.

    This includes `tf.estimator` after `import tensorflow.compat.v1 as tf`, and the parameters of
    embedding tables in `tf.compat.v1.tpu.experimental`. Further calls have no effect.

    Raises:
        ImportError: tensorflow-estimator, or a package that it needs, is not installed.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext.estimator
        >>> tf_tpu_ext.estimator.install()
        >>> tf.compat.v1.estimator.tpu.TPUEstimator is tf_tpu_ext.estimator.TPUEstimator
        True
    """
    load()
    patches.apply("estimator_names")


def set_public_names(changes: Changes) -> None:
    """Sets `estimator` in all modules where programs look for it."""
    old = importlib.import_module("tensorflow_estimator._api.v1.estimator")
    new = importlib.import_module("tensorflow_estimator._api.v2.estimator")
    for module in _namespaces.public_modules("v1"):
        changes.put(module, "estimator", old)
    for module in (tf, *_namespaces.public_modules("v2")):
        changes.put(module, "estimator", new)


def find_private_modules(changes: Changes) -> None:
    """Makes the private modules importable from their old locations in TensorFlow."""
    changes.add_finder(Alias("tensorflow.python.estimator", _PACKAGE))
    for name in _TPU_MODULES:
        changes.add_finder(Alias(f"tensorflow.python.tpu.{name}", f"{_PACKAGE}.tpu.{name}"))


def supply_modules(changes: Changes) -> None:
    """Supplies the modules that TensorFlow no longer has."""
    for name, ours in SUPPLIED.items():
        changes.supply_module(name, f"{_SUPPLIED}.{ours}")


def supply_parameters(changes: Changes) -> None:
    """Supplies the names of `tf.compat.v1.tpu.experimental` that TensorFlow has removed."""
    embedding = importlib.import_module("tensorflow.python.tpu.tpu_embedding")
    experimental = tf.compat.v1.tpu.experimental
    for name in _PARAMETERS:
        changes.supply(experimental, name, getattr(embedding, name))


def supply_export_names(changes: Changes) -> None:
    """Registers the API name under which tensorflow-estimator exports its symbols."""
    from tensorflow.python.util import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        return
    attributes = type(find(tf_export, "API_ATTRS")[tf_export.TENSORFLOW_API_NAME])
    name = "estimator"
    names = attributes("_estimator_api_names", "_estimator_api_constants")
    names_v1 = attributes("_estimator_api_names_v1", "_estimator_api_constants_v1")
    changes.put_item(tf_export.API_ATTRS, name, names)
    changes.put_item(find(tf_export, "API_ATTRS_V1"), name, names_v1)
    changes.put(tf_export, "ESTIMATOR_API_NAME", name)
