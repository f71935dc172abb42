"""`tf.contrib` for programs of TensorFlow 1: what TPU programs import from it, on TensorFlow 2.

    import tf_tpu_ext.contrib

    tf_tpu_ext.contrib.install()

    import tensorflow.compat.v1 as tf

    strategy = tf.contrib.distribute.TPUStrategy(
        tf.contrib.cluster_resolver.TPUClusterResolver(), steps_per_run=1
    )

Nothing of it is there unless `install` is called. What has no equivalent raises an error that names
what to use today. docs/towers.md lists the modules.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from tf_tpu_ext import _aliases, _namespaces
from tf_tpu_ext.contrib import _modules, _private_names
from tf_tpu_ext.towers.context import get_tower_context

__all__ = ["install"]


def install() -> None:
    """Makes `tf.contrib` and `import tensorflow.contrib...` work in this process.

    Sets `contrib` and `get_tower_context` of `tensorflow` and `tensorflow.compat.v1`. It may be
    called again.

    Example:
        >>> import tf_tpu_ext.contrib
        >>> tf_tpu_ext.contrib.install()
        >>> from tensorflow.contrib.training import HParams
        >>> HParams(rate=0.5).override_from_dict({"rate": 0.25}).rate
        0.25
    """
    if not any(isinstance(finder, _modules.Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _modules.Finder())
    _private_names.restore()
    # Where tensorflow.python.layers, on which tf-slim stands, looks for its layers.
    _aliases.add("tf_keras.legacy_tf_layers", "tf_keras.src.legacy_tf_layers")
    contrib = _modules.import_contrib()
    for module in (tf, *_namespaces.public_modules("v1")):
        module.contrib = contrib
        module.get_tower_context = get_tower_context
