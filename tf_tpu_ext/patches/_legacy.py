"""What programs of TensorFlow 1 find: `tf.contrib`, and what `tf-tpu run --legacy` adds to it."""

from __future__ import annotations

from tf_tpu_ext.patches._patch import Patch, deferred

PATCHES = (
    Patch(
        name="moved_names",
        group="contrib",
        target="ops`, `array_ops`, `control_flow_ops` and `variable_scope` of `tensorflow.python",
        change="They have the names again that have moved to other modules since.",
        reason="many programs of TensorFlow 1, and tf-slim, import them from there.",
        install=deferred("tf_tpu_ext.contrib._private_names", "supply_names"),
    ),
    Patch(
        name="keras_layers",
        group="contrib",
        target="sys.meta_path",
        change="`import tf_keras.legacy_tf_layers` finds `tf_keras.src.legacy_tf_layers`.",
        reason="`tensorflow.python.layers`, which tf-slim uses, looks for its layers there.",
        install=deferred("tf_tpu_ext.contrib", "find_keras_layers"),
    ),
    Patch(
        name="contrib_modules",
        group="contrib",
        target="tf.contrib` and `get_tower_context` of `tf` and `tf.compat.v1",
        change="`tf.contrib` and `import tensorflow.contrib...` have what TPU programs import from "
        "them, see [towers.md](towers.md).",
        reason="TensorFlow 2 has dropped them.",
        install=deferred("tf_tpu_ext.contrib", "supply_contrib"),
    ),
    Patch(
        name="legacy_keras",
        group="legacy",
        target="TF_USE_LEGACY_KERAS",
        change="The environment variable is 1: `tf.keras` is tf_keras, which is Keras 2.",
        reason="TensorFlow 1's `tf.layers` and `tf.keras` need Keras 2.",
        install=deferred("tf_tpu_ext.launcher._legacy", "use_legacy_keras"),
    ),
    Patch(
        name="numpy_names",
        group="legacy",
        target="numpy",
        change="It has `bool`, `float`, `complex_`, `unicode_` and the like again.",
        reason="programs of TensorFlow 1 use these names, and NumPy has dropped them.",
        install=deferred("tf_tpu_ext.launcher._legacy", "supply_numpy_names"),
    ),
    Patch(
        name="v1_names",
        group="legacy",
        target="builtins.__import__",
        change="`import tensorflow` gives the script, and what it imports, the names of TensorFlow "
        "1. Packages that are written for TensorFlow 2 get the stock module.",
        reason="the script was written for `import tensorflow as tf` of TensorFlow 1.",
        install=deferred("tf_tpu_ext.launcher._legacy", "replace_import"),
    ),
)
