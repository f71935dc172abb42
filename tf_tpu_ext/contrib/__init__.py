"""`tf.contrib` on TensorFlow 2, with the names that TensorFlow 1 programs for TPUs import from it.

    import tf_tpu_ext.contrib

    tf_tpu_ext.contrib.install()

    import tensorflow.compat.v1 as tf

    strategy = tf.contrib.distribute.TPUStrategy(
        tf.contrib.cluster_resolver.TPUClusterResolver(), steps_per_run=1
    )

Nothing changes unless `install` is called. Names without an equivalent raise an error that says
what to use instead. docs/towers.md lists the modules.
"""

from __future__ import annotations

import importlib

import tensorflow as tf

from tf_tpu_ext import _namespaces, patches
from tf_tpu_ext.contrib import _modules
from tf_tpu_ext.patches._changes import Changes
from tf_tpu_ext.patches._finders import Alias
from tf_tpu_ext.towers.context import get_tower_context

__all__ = ["install"]


def install() -> None:
    """Makes `tf.contrib` and `import tensorflow.contrib...` work in this process.

    Sets `contrib` and `get_tower_context` in `tensorflow` and `tensorflow.compat.v1`. Further calls
    have no effect.

    Example:
        >>> import tf_tpu_ext.contrib
        >>> tf_tpu_ext.contrib.install()
        >>> from tensorflow.contrib.training import HParams
        >>> HParams(rate=0.5).override_from_dict({"rate": 0.25}).rate
        0.25
    """
    patches.apply("contrib")


def supply_contrib(changes: Changes) -> None:
    """Makes `import tensorflow.contrib` work and sets the public names."""
    changes.add_finder(_modules.ContribFinder(), first=True)
    contrib = importlib.import_module(_modules.ROOT)
    for module in (tf, *_namespaces.public_modules("v1")):
        changes.put(module, "contrib", contrib)
        changes.put(module, "get_tower_context", get_tower_context)


def find_keras_layers(changes: Changes) -> None:
    """Makes tf_keras's layers importable from where tensorflow.python.layers looks for them."""
    changes.add_finder(Alias("tf_keras.legacy_tf_layers", "tf_keras.src.legacy_tf_layers"))
