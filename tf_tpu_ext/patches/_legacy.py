"""The patches for programs of TensorFlow 1: `tf.contrib`, and those of `tf-tpu run --legacy`."""

from __future__ import annotations

from tf_tpu_ext.patches._patch import Patch, deferred

PATCHES = (
    Patch(
        name="moved_names",
        group="contrib",
        target="tensorflow.python.framework.ops`, modules of `tensorflow.python.ops`, "
        "`tensorflow.python.distribute.values`, and `tpu` and `tpu_strategy_util` of "
        "`tensorflow.python.tpu",
        change="They have again the names that have moved to other modules.",
        reason="many TensorFlow 1 programs, and tf-slim, import them from their old places.",
        install=deferred("tf_tpu_ext.contrib._private_names", "supply_names"),
    ),
    Patch(
        name="moved_modules",
        group="contrib",
        target="sys.meta_path",
        change="`import` also finds moved modules in their old places, such as "
        "`tensorflow.python.training.training_ops`, "
        "`tensorflow.python.distribute.distribution_strategy_context` and "
        "`tensorflow.python.tpu.async_checkpoint`.",
        reason="TensorFlow 1 programs import them from there.",
        install=deferred("tf_tpu_ext.contrib._private_names", "find_modules"),
    ),
    Patch(
        name="summary_flush",
        group="contrib",
        target="tensorflow.python.ops.summary_ops_v2.flush",
        change="It also takes the resource of a writer.",
        reason="`tf.contrib.summary.flush` did; copies of TPUEstimator in programs call it so.",
        install=deferred("tf_tpu_ext.contrib.copied_estimators", "flush_resources"),
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
        change="`tf.contrib` and `import tensorflow.contrib...` have the names that TPU programs "
        "import, see [towers.md](towers.md).",
        reason="TensorFlow 2 has removed them.",
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
        change="It has `bool`, `float`, `complex_`, `unicode_` and similar names again.",
        reason="TensorFlow 1 programs use these names, and NumPy has removed them.",
        install=deferred("tf_tpu_ext.launcher._legacy", "supply_numpy_names"),
    ),
    Patch(
        name="getargspec",
        group="legacy",
        target="inspect.getargspec",
        change="If Python does not have it, it is restored: it returns a function's arguments as "
        "`inspect.getfullargspec` does, without keyword-only ones.",
        reason="TensorFlow 1 programs, and packages of that era such as tensorflow-gan, call it, "
        "and Python 3.11 has removed it.",
        install=deferred("tf_tpu_ext.launcher._legacy", "supply_getargspec"),
    ),
    Patch(
        name="v1_names",
        group="legacy",
        target="builtins.__import__",
        change="`import tensorflow` gives the script, and what it imports, the names of TensorFlow "
        "1. Packages that are written for TensorFlow 2 get the stock module. If tensorflow-io's "
        "native ops don't load here, functions that use them run where they do load.",
        reason="the script was written for TensorFlow 1.",
        install=deferred("tf_tpu_ext.launcher._legacy", "replace_import"),
    ),
)
