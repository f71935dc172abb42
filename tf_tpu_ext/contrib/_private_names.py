"""Names that moved between TensorFlow's private modules.

tf-slim and many programs of TensorFlow 1 import them from their old places.
"""

from __future__ import annotations

import importlib

import tensorflow as tf

from tf_tpu_ext.patches._changes import Changes

_V1 = tf.compat.v1
_MOVED = {
    "tensorflow.python.framework.ops": {
        "IndexedSlices": tf.IndexedSlices,
        "Tensor": tf.Tensor,
    },
    "tensorflow.python.ops.array_ops": {"stack": tf.stack, "unstack": tf.unstack},
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": _V1.Assert,
        "case": _V1.case,
        "cond": _V1.cond,
        "while_loop": _V1.while_loop,
    },
    "tensorflow.python.ops.variable_scope": {"variable": _V1.Variable},
}


def supply_names(changes: Changes) -> None:
    """Puts the names back where they are missing."""
    for module_name, names in _MOVED.items():
        module = importlib.import_module(module_name)
        for name, value in names.items():
            changes.supply(module, name, value)
