"""Names and modules that have moved within TensorFlow since version 1.15.

tf-slim and many TensorFlow 1 programs import them from their old locations.
"""

from __future__ import annotations

import importlib

from tf_tpu_ext.patches._changes import Changes, find
from tf_tpu_ext.patches._finders import Alias

_V1 = "tensorflow:compat.v1."
_V2 = "tensorflow:compat.v2."
_INDEXED_SLICES = "tensorflow.python.framework.indexed_slices:"
_REPLICATION = "tensorflow.python.tpu.tpu_replication:"
_DISTRIBUTE_UTILS = "tensorflow.python.distribute.distribute_utils:"

# By old module: the name, and its location today.
_MOVED = {
    "tensorflow.python.framework.ops": {
        "IndexedSlices": "tensorflow:IndexedSlices",
        "IndexedSlicesValue": _INDEXED_SLICES + "IndexedSlicesValue",
        "Tensor": "tensorflow:Tensor",
        "convert_n_to_tensor_or_indexed_slices": (
            _INDEXED_SLICES + "convert_n_to_tensor_or_indexed_slices"
        ),
        "convert_to_tensor_or_indexed_slices": (
            _INDEXED_SLICES + "convert_to_tensor_or_indexed_slices"
        ),
        "convert_to_tensor_v2": (
            "tensorflow.python.framework.tensor_conversion:convert_to_tensor_v2"
        ),
        "disable_tensor_equality": _V1 + "disable_tensor_equality",
        "enable_tensor_equality": _V1 + "enable_tensor_equality",
        "internal_convert_n_to_tensor_or_indexed_slices": (
            _INDEXED_SLICES + "internal_convert_n_to_tensor_or_indexed_slices"
        ),
        "internal_convert_to_tensor_or_indexed_slices": (
            _INDEXED_SLICES + "internal_convert_to_tensor_or_indexed_slices"
        ),
        "register_tensor_conversion_function": ("tensorflow:register_tensor_conversion_function"),
    },
    "tensorflow.python.ops.array_ops": {
        "stack": "tensorflow:stack",
        "unstack": "tensorflow:unstack",
    },
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": _V1 + "Assert",
        "case": _V1 + "case",
        "case_v2": _V2 + "case",
        "cond": _V1 + "cond",
        "cond_for_tf_v2": _V2 + "cond",
        "switch_case": _V2 + "switch_case",
        "while_loop": _V1 + "while_loop",
        "while_loop_v2": _V2 + "while_loop",
    },
    "tensorflow.python.ops.math_ops": {
        "bincount_v1": "tensorflow.python.ops.bincount_ops:bincount_v1",
    },
    "tensorflow.python.ops.nn_impl": {
        "compute_average_loss": _V2 + "nn.compute_average_loss",
        "l2_normalize_v2": _V2 + "math.l2_normalize",
        "scale_regularization_loss": _V2 + "nn.scale_regularization_loss",
    },
    "tensorflow.python.ops.random_ops": {"random_crop": _V1 + "random_crop"},
    # Used by copies of tpu_estimator.py in programs.
    "tensorflow.python.ops.resource_variable_ops": {
        "_from_proto_fn": "tensorflow.python.ops.ref_variable:_from_proto_fn",
        "_to_proto_fn": "tensorflow.python.ops.ref_variable:_to_proto_fn",
    },
    "tensorflow.python.ops.variable_scope": {
        "disable_resource_variables": _V1 + "disable_resource_variables",
        "enable_resource_variables": _V1 + "enable_resource_variables",
        "resource_variables_enabled": _V1 + "resource_variables_enabled",
        "variable": _V1 + "Variable",
    },
    "tensorflow.python.ops.variables": {
        "RefVariable": "tensorflow.python.ops.ref_variable:RefVariable",
        "VariableV1": _V1 + "Variable",
        "is_variable_initialized": _V1 + "is_variable_initialized",
    },
    "tensorflow.python.distribute.values": {
        name: _DISTRIBUTE_UTILS + name
        for name in (
            "is_distributed_variable",
            "regroup",
            "select_replica",
            "update_regroup",
            "validate_colocate",
            "value_container",
        )
    },
    "tensorflow.python.tpu.tpu": {
        "TPUReplicateContext": _REPLICATION + "TPUReplicateContext",
        "outside_compilation": _REPLICATION + "outside_compilation",
    },
    "tensorflow.python.tpu.tpu_strategy_util": {
        "initialize_tpu_system": "tensorflow:tpu.experimental.initialize_tpu_system",
    },
}
_MOVED_MODULES = {
    "tensorflow.python.distribute.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib"
    ),
    "tensorflow.python.training.distribute": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.training.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib"
    ),
    "tensorflow.python.training.gen_training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.tpu.async_checkpoint": (
        "tensorflow.contrib.tpu.python.tpu.async_checkpoint"
    ),
}


def supply_names(changes: Changes) -> None:
    """Restores the names where they are missing."""
    for module_name, names in _MOVED.items():
        module = importlib.import_module(module_name)
        for name, today in names.items():
            changes.supply(module, name, _value(today))


def find_modules(changes: Changes) -> None:
    """Makes the modules importable from their old locations."""
    for name, today in _MOVED_MODULES.items():
        changes.add_finder(Alias(name, today))


def _value(today: str) -> object:
    module, _, attributes = today.partition(":")
    value: object = importlib.import_module(module)
    for name in attributes.split("."):
        value = find(value, name)  # type: ignore[arg-type]
    return value
