"""The names in each `tf.contrib` module: where they are today, or what replaces them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_tpu_ext._library import minor_of


@dataclasses.dataclass(frozen=True)
class Missing:
    """A name without an equivalent.

    Attributes:
        instead: A sentence that says what to use.
    """

    instead: str


Table = dict[str, "str | Missing"]

_MINOR = minor_of(tf.__version__)
_V1 = "tensorflow:compat.v1."
_TOWERS = "tf_tpu_ext.towers:"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2:"
_TPU_OPS = "tensorflow.python.tpu.ops.tpu_ops:"
_TPU = "tf_tpu_ext.tpu:"
_ESTIMATOR = "tf_tpu_ext.estimator:"

# What to do if a package that a name needs is not installed.
NEEDS = {
    "tf_tpu_ext": "Install it: pip install 'tf_tpu_ext[estimator]'.",
    # tf_keras requires the distribution `tensorflow`, whichever one is installed.
    "tf_keras": f"Install it: pip install --no-deps 'tf_keras=={_MINOR}.*'.",
    "tf_slim": "Install it: pip install tf-slim.",
}

# Modules of `tpu.python.tpu` that TensorFlow has, or that are supplied for tensorflow-estimator.
_TPU_MODULES = (
    "_tpu_estimator_embedding",
    "device_assignment",
    "error_handling",
    "feature_column",
    "functional",
    "session_support",
    "tensor_tracer",
    "topology",
    "tpu",
    "tpu_config",
    "tpu_context",
    "tpu_embedding",
    "tpu_embedding_gradient",
    "tpu_estimator",
    "tpu_feed",
    "tpu_function",
    "tpu_optimizer",
    "tpu_sharding",
    "tpu_system_metadata",
    "training_loop",
    "util",
)

# Packages in which a contrib module lives on: names that are not in its table are looked up there.
PACKAGES = {
    "framework": "tf_slim",
    "framework.python.ops": "tf_slim",
    "framework.python.ops.arg_scope": "tf_slim.ops.arg_scope",
    "framework.python.ops.variables": "tf_slim.ops.variables",
    "tpu.python.ops.tpu_ops": "tensorflow.python.tpu.ops.tpu_ops",
    **{f"tpu.python.tpu.{name}": f"tensorflow.python.tpu.{name}" for name in _TPU_MODULES},
    "layers": "tf_slim.layers",
    "layers.python.layers": "tf_slim.layers",
    "layers.python.layers.initializers": "tf_slim.layers.initializers",
    "layers.python.layers.layers": "tf_slim.layers.layers",
    "layers.python.layers.normalization": "tf_slim.layers.normalization",
    "layers.python.layers.regularizers": "tf_slim.layers.regularizers",
    "layers.python.layers.utils": "tf_slim.layers.utils",
    "losses": "tf_slim.losses",
    "metrics": "tf_slim.metrics",
    "training": "tf_slim.training",
    "training.python.training.evaluation": "tf_slim.training.evaluation",
    "training.python.training.training": "tf_slim.training.training",
}
# Packages that live on with all of their modules; the longest matching name wins.
WHOLE_PACKAGES = {
    "keras": "tf_keras",
    "slim": "tf_slim",
    "slim.python.slim": "tf_slim",
    "tpu.proto": "tensorflow.core.protobuf.tpu",
}

_DISTRIBUTE: Table = {
    "AllReduceCrossDeviceOps": (
        "tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps"
    ),
    "AllReduceCrossTowerOps": "tensorflow:distribute.HierarchicalCopyAllReduce",
    "CollectiveAllReduceStrategy": "tensorflow:distribute.MultiWorkerMirroredStrategy",
    "CrossDeviceOps": "tensorflow:distribute.CrossDeviceOps",
    "CrossTowerOps": "tensorflow:distribute.CrossDeviceOps",
    "DistributeConfig": Missing("Set TF_CONFIG and use tf.distribute.MultiWorkerMirroredStrategy."),
    "DistributionStrategy": "tensorflow:distribute.Strategy",
    "MirroredStrategy": "tensorflow:distribute.MirroredStrategy",
    "Monitor": "tf_tpu_ext.contrib.step_fn:Monitor",
    "MultiStepContext": _TOWERS + "MultiStepContext",
    "OneDeviceStrategy": "tensorflow:distribute.OneDeviceStrategy",
    "ParameterServerStrategy": "tensorflow:distribute.ParameterServerStrategy",
    "ReductionToOneDeviceCrossTowerOps": "tensorflow:distribute.ReductionToOneDevice",
    "StandardInputStep": "tf_tpu_ext.contrib.step_fn:StandardInputStep",
    "StandardSingleLossStep": "tf_tpu_ext.contrib.step_fn:StandardSingleLossStep",
    "Step": "tf_tpu_ext.contrib.step_fn:Step",
    "TPUStrategy": _TOWERS + "TPUStrategy",
    "TowerContext": _TOWERS + "TowerContext",
    "UpdateContext": "tensorflow.python.distribute.distribute_lib:UpdateContext",
    "get_cross_tower_context": _TOWERS + "get_cross_tower_context",
    "get_distribution_strategy": "tensorflow:distribute.get_strategy",
    "get_loss_reduction": "tf_tpu_ext.contrib.step_fn:get_loss_reduction",
    "initialize_tpu_system": "tensorflow:tpu.experimental.initialize_tpu_system",
    "get_tower_context": _TOWERS + "get_tower_context",
    "has_distribution_strategy": "tensorflow:distribute.has_strategy",
    "require_tower_context": _TOWERS + "require_tower_context",
    "run_standard_tensorflow_server": Missing("Use tf.distribute.Server."),
}

_OPS_OF_TPUS = (
    "cross_replica_sum",
    "infeed_dequeue",
    "infeed_dequeue_tuple",
    "infeed_enqueue",
    "infeed_enqueue_tuple",
    "outfeed_dequeue",
    "outfeed_dequeue_tuple",
    "outfeed_enqueue",
    "outfeed_enqueue_tuple",
)

_TPU_MODULE: Table = {
    **{name: _TPU_OPS + name for name in _OPS_OF_TPUS},
    "CrossShardOptimizer": _TPU + "CrossShardOptimizer",
    "DeviceAssignment": _TPU + "DeviceAssignment",
    "InfeedQueue": _TPU + "InfeedQueue",
    "Topology": _TPU + "Topology",
    "batch_parallel": _TPU + "batch_parallel",
    "bfloat16_scope": _TPU + "bfloat16_scope",
    "core": _TPU + "core",
    "device_assignment": "tensorflow.python.tpu.device_assignment:device_assignment",
    "initialize_system": _TPU + "initialize_system",
    "outside_compilation": _TPU + "outside_compilation",
    "repeat": "tensorflow.python.tpu.training_loop:repeat",
    "replicate": _TPU + "replicate",
    "rewrite": _TPU + "rewrite",
    "shard": _TPU + "shard",
    "shutdown_system": _TPU + "shutdown_system",
    "while_loop": "tensorflow.python.tpu.training_loop:while_loop",
    "InputPipelineConfig": _ESTIMATOR + "InputPipelineConfig",
    "RunConfig": _ESTIMATOR + "RunConfig",
    "StreamingFilesDataset": "tensorflow.python.tpu.datasets:StreamingFilesDataset",
    "TPUConfig": _ESTIMATOR + "TPUConfig",
    "TPUContext": _ESTIMATOR + "TPUContext",
    "TPUEstimator": _ESTIMATOR + "TPUEstimator",
    "TPUEstimatorSpec": _ESTIMATOR + "TPUEstimatorSpec",
    "export_estimator_savedmodel": _ESTIMATOR + "export_estimator_savedmodel",
    "AsyncCheckpointSaverHook": _V1 + "train.CheckpointSaverHook",
    "TPUInMemoryEvalHook": Missing("Call model.evaluate between calls of model.fit."),
    "TPUDistributionStrategy": Missing("Use tf_tpu_ext.TPUStrategy."),
    "keras_to_tpu_model": Missing(
        "Build and compile the Keras model inside of tf_tpu_ext.TPUStrategy(...).scope()."
    ),
    "profiler": Missing("Use tf.profiler.experimental."),
}

_CLUSTER_RESOLVER: Table = {
    "ClusterResolver": "tensorflow:distribute.cluster_resolver.ClusterResolver",
    "GceClusterResolver": "tensorflow:distribute.cluster_resolver.GCEClusterResolver",
    "SimpleClusterResolver": "tensorflow:distribute.cluster_resolver.SimpleClusterResolver",
    "GCEClusterResolver": "tensorflow:distribute.cluster_resolver.GCEClusterResolver",
    "KubernetesClusterResolver": "tensorflow:distribute.cluster_resolver.KubernetesClusterResolver",
    "SlurmClusterResolver": "tensorflow:distribute.cluster_resolver.SlurmClusterResolver",
    "TFConfigClusterResolver": "tensorflow:distribute.cluster_resolver.TFConfigClusterResolver",
    "TPUClusterResolver": "tensorflow:distribute.cluster_resolver.TPUClusterResolver",
    "UnionClusterResolver": "tensorflow:distribute.cluster_resolver.UnionResolver",
}

_SUMMARY_MODULE: Table = {
    "SummaryWriter": "tensorflow:summary.SummaryWriter",
    "all_summary_ops": _SUMMARY + "all_v2_summary_ops",
    "always_record_summaries": _SUMMARY + "always_record_summaries",
    "audio": _SUMMARY + "audio",
    "create_db_writer": Missing("Databases are gone: write files with create_file_writer."),
    "create_file_writer": _SUMMARY + "create_file_writer",
    "create_summary_file_writer": _SUMMARY + "create_summary_file_writer",
    "eval_dir": _SUMMARY + "eval_dir",
    "flush": _SUMMARY + "flush",
    "generic": _SUMMARY + "generic",
    "graph": _SUMMARY + "graph_v1",
    "histogram": _SUMMARY + "histogram",
    "image": _SUMMARY + "image",
    "import_event": _SUMMARY + "import_event",
    "initialize": _SUMMARY + "initialize",
    "never_record_summaries": _SUMMARY + "never_record_summaries",
    "record_summaries_every_n_global_steps": _SUMMARY + "record_summaries_every_n_global_steps",
    "scalar": _SUMMARY + "scalar",
    "should_record_summaries": _SUMMARY + "should_record_summaries",
    "summary_writer_initializer_op": _SUMMARY + "summary_writer_initializer_op",
}

_TRAINING: Table = {
    "HParams": "tf_tpu_ext.contrib.hparams:HParams",
    "checkpoints_iterator": "tensorflow:train.checkpoints_iterator",
    "bucket_by_sequence_length": "tensorflow:data.experimental.bucket_by_sequence_length",
    "wait_for_new_checkpoint": (
        "tensorflow.python.training.checkpoint_utils:wait_for_new_checkpoint"
    ),
    "parse_values": "tf_tpu_ext.contrib.hparams:parse_values",
    "train": Missing("Use tf.compat.v1.train.MonitoredTrainingSession, or Keras fit."),
    "create_train_op": Missing("Call optimizer.minimize(loss, global_step)."),
    "evaluate_once": Missing("Use Keras evaluate."),
}

_IN_DATA = (
    "CsvDataset",
    "Counter",
    "Optional",
    "RandomDataset",
    "SqlDataset",
    "TFRecordWriter",
    "bucket_by_sequence_length",
    "choose_from_datasets",
    "copy_to_device",
    "dense_to_sparse_batch",
    "enumerate_dataset",
    "get_next_as_optional",
    "get_single_element",
    "group_by_reducer",
    "group_by_window",
    "ignore_errors",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "make_saveable_from_iterator",
    "map_and_batch",
    "parallel_interleave",
    "parse_example_dataset",
    "prefetch_to_device",
    "rejection_resample",
    "sample_from_datasets",
    "scan",
    "shuffle_and_repeat",
    "unbatch",
    "unique",
)

_DATA: Table = {
    **{name: f"tensorflow:data.experimental.{name}" for name in _IN_DATA},
    "AUTOTUNE": "tensorflow:data.AUTOTUNE",
    "batch_and_drop_remainder": "tf_tpu_ext.contrib.data:batch_and_drop_remainder",
    "padded_batch_and_drop_remainder": "tf_tpu_ext.contrib.data:padded_batch_and_drop_remainder",
    "assert_element_shape": "tf_tpu_ext.contrib.data:assert_element_shape",
    "sliding_window_batch": Missing("Use tf.data.Dataset.window(size, shift, stride)."),
}

_OPS = "tensorflow.python.framework.ops:"
_TENSOR_UTIL = "tensorflow.python.framework.tensor_util:"

_FRAMEWORK: Table = {
    **{
        name: _V1 + name
        for name in (
            "TensorSpec",
            "assert_same_float_dtype",
            "assert_scalar",
            "convert_to_tensor_or_sparse_tensor",
            "is_non_decreasing",
            "is_numeric_tensor",
            "is_strictly_increasing",
            "name_scope",
            "py_func",
        )
    },
    **{
        name: f"tensorflow.python.util.deprecation:{name}"
        for name in ("deprecated", "deprecated_arg_values", "deprecated_args")
    },
    **{name: _OPS + name for name in ("get_name_scope", "prepend_name_scope", "strip_name_scope")},
    "BoundedTensorSpec": "tensorflow.python.framework.tensor_spec:BoundedTensorSpec",
    "argsort": "tensorflow:argsort",
    "assert_global_step": _V1 + "train.assert_global_step",
    "create_global_step": _V1 + "train.create_global_step",
    "get_global_step": _V1 + "train.get_global_step",
    "get_or_create_global_step": _V1 + "train.get_or_create_global_step",
    "get_trainable_variables": "tf_tpu_ext.contrib.framework:get_trainable_variables",
    "get_variables": "tf_tpu_ext.contrib.framework:get_variables",
    "init_from_checkpoint": _V1 + "train.init_from_checkpoint",
    "is_tensor": "tensorflow:is_tensor",
    "list_variables": "tensorflow:train.list_variables",
    "load_checkpoint": "tensorflow:train.load_checkpoint",
    "load_variable": "tensorflow:train.load_variable",
    "nest": "tensorflow:nest",
    "sort": "tensorflow:sort",
    **{
        name: f"tensorflow.python.framework.smart_cond:{name}"
        for name in ("smart_case", "smart_cond", "smart_constant_value")
    },
    "arg_scope": Missing("Install tf-slim: `from tf_slim import arg_scope`."),
    "add_arg_scope": Missing("Install tf-slim: `from tf_slim import add_arg_scope`."),
    "assign_from_checkpoint_fn": Missing("Use tf.compat.v1.train.init_from_checkpoint."),
    "assign_from_checkpoint": Missing("Use tf.compat.v1.train.init_from_checkpoint."),
}

_LAYERS: Table = {
    "flatten": "tf_tpu_ext.contrib.layers:flatten",
    "l1_l2_regularizer": "tf_tpu_ext.contrib.layers:l1_l2_regularizer",
    "l1_regularizer": "tf_tpu_ext.contrib.layers:l1_regularizer",
    "l2_regularizer": "tf_tpu_ext.contrib.layers:l2_regularizer",
    "layer_norm": "tf_tpu_ext.contrib.layers:layer_norm",
    "optimize_loss": Missing("Call optimizer.minimize(loss, global_step)."),
    "variance_scaling_initializer": "tf_tpu_ext.contrib.layers:variance_scaling_initializer",
    "xavier_initializer": "tf_tpu_ext.contrib.layers:xavier_initializer",
    "xavier_initializer_conv2d": "tf_tpu_ext.contrib.layers:xavier_initializer",
    "batch_norm": Missing("Use tf.keras.layers.BatchNormalization, or install tf-slim."),
    "conv2d": Missing("Use tf.keras.layers.Conv2D, or install tf-slim."),
    "dropout": Missing("Use tf.keras.layers.Dropout, or install tf-slim."),
    "fully_connected": Missing("Use tf.keras.layers.Dense, or install tf-slim."),
    "max_pool2d": Missing("Use tf.keras.layers.MaxPool2D, or install tf-slim."),
    "embed_sequence": Missing("Use tf.keras.layers.Embedding."),
    "sparse_column_with_hash_bucket": Missing("Use tf.feature_column."),
}

_OPTIMIZER_V2: Table = {
    name: f"{_V1}train.{name}"
    for name in (
        "AdadeltaOptimizer",
        "AdagradOptimizer",
        "AdamOptimizer",
        "GradientDescentOptimizer",
        "MomentumOptimizer",
        "RMSPropOptimizer",
    )
}

_CELLS = "tf_keras.src.layers.rnn.legacy_cells:"
_WRAPPERS = "tf_keras.src.layers.rnn.legacy_cell_wrappers:"

_RNN: Table = {
    **{
        name: _CELLS + name
        for name in ("BasicLSTMCell", "BasicRNNCell", "GRUCell", "LSTMCell", "LSTMStateTuple")
    },
    "MultiRNNCell": _CELLS + "MultiRNNCell",
    "RNNCell": _CELLS + "RNNCell",
    "DeviceWrapper": _WRAPPERS + "DeviceWrapper",
    "DropoutWrapper": _WRAPPERS + "DropoutWrapper",
    "ResidualWrapper": _WRAPPERS + "ResidualWrapper",
    "static_bidirectional_rnn": _V1 + "nn.static_bidirectional_rnn",
    "static_rnn": _V1 + "nn.static_rnn",
    "LSTMBlockCell": Missing("Use tf.nn.rnn_cell.LSTMCell."),
    "LayerNormBasicLSTMCell": Missing("Use tf.nn.rnn_cell.LSTMCell."),
}

_ESTIMATOR_MODULE: Table = {
    "InMemoryEvaluatorHook": (
        "tensorflow_estimator.python.estimator.hooks.hooks:InMemoryEvaluatorHook"
    ),
    "clip_gradients_by_norm": "tf_tpu_ext.contrib.opt:clip_gradients_by_norm",
    **{
        f"stop_if_{change}_hook": f"{_ESTIMATOR}stop_if_{change}_hook"
        for change in ("higher", "lower", "no_decrease", "no_increase")
    },
}

_LOOKUP: Table = {
    name: f"tensorflow.python.ops.lookup_ops:{name}"
    for name in (
        "IdTableWithHashBuckets",
        "KeyValueTensorInitializer",
        "MutableHashTable",
        "TextFileIdTableInitializer",
        "TextFileInitializer",
        "TextFileStringTableInitializer",
        "index_table_from_file",
        "index_table_from_tensor",
        "index_to_string_table_from_file",
        "index_to_string_table_from_tensor",
    )
}
_LOOKUP["HashTable"] = "tensorflow.python.ops.lookup_ops:StaticHashTableV1"

_LEARN: Table = {
    "ModeKeys": "tensorflow_estimator.python.estimator.mode_keys:ModeKeys",
    "RunConfig": "tensorflow_estimator.python.estimator.run_config:RunConfig",
    **{
        name: Missing("Use Keras models, or tf.estimator.train_and_evaluate.")
        for name in ("Estimator", "Experiment", "learn_runner")
    },
}
_MONITORS: Table = {
    "replace_monitors_with_hooks": "tf_tpu_ext.contrib.learn:replace_monitors_with_hooks",
    "ValidationMonitor": Missing("Call tf.estimator.train_and_evaluate."),
}

_UTIL: Table = {
    "constant_value": _TENSOR_UTIL + "constant_value",
    "make_ndarray": "tensorflow:make_ndarray",
    "make_tensor_proto": "tensorflow:make_tensor_proto",
    **{
        name: f"tensorflow.python.framework.meta_graph:{name}"
        for name in ("ops_used_by_graph_def", "stripped_op_list_for_graph")
    },
}

_OPTIMIZER_MODULES: dict[str, Table] = {
    f"optimizer_v2.{module}": {name: _OPTIMIZER_V2[name]}
    for module, name in {
        "adadelta": "AdadeltaOptimizer",
        "adagrad": "AdagradOptimizer",
        "adam": "AdamOptimizer",
        "gradient_descent": "GradientDescentOptimizer",
        "momentum": "MomentumOptimizer",
        "rmsprop": "RMSPropOptimizer",
    }.items()
}

MODULES: dict[str, Table] = {
    **_OPTIMIZER_MODULES,
    "": {},
    "cluster_resolver": _CLUSTER_RESOLVER,
    "data": _DATA,
    "distribute": _DISTRIBUTE,
    "distribute.python": {},
    "distribute.python.mirrored_strategy": {"MirroredStrategy": _DISTRIBUTE["MirroredStrategy"]},
    "distribute.python.one_device_strategy": {
        "OneDeviceStrategy": _DISTRIBUTE["OneDeviceStrategy"]
    },
    "distribute.python.monitor": {"Monitor": _DISTRIBUTE["Monitor"]},
    "distribute.python.step_fn": {
        name: _DISTRIBUTE[name] for name in ("Step", "StandardInputStep", "StandardSingleLossStep")
    },
    "distribute.python.tpu_strategy": {"TPUStrategy": _DISTRIBUTE["TPUStrategy"]},
    "distribute.python.values": {"MultiStepContext": _DISTRIBUTE["MultiStepContext"]},
    "cloud": {
        name: Missing("Use tf.io.gfile and the clients of your cloud.")
        for name in ("BigtableClient", "BigQueryReader", "ConfigureGcsHook")
    },
    "estimator": _ESTIMATOR_MODULE,
    "framework": _FRAMEWORK,
    "framework.python": {},
    "framework.python.ops": {},
    "framework.python.ops.arg_scope": {},
    "framework.python.ops.variables": {},
    "image": {
        name: f"tf_tpu_ext.contrib.image:{name}"
        for name in ("compose_transforms", "rotate", "transform", "translate")
    },
    "layers": _LAYERS,
    "layers.python": {},
    **{name: {} for name in PACKAGES if name.startswith("layers.python.")},
    "learn": _LEARN,
    "learn.monitors": _MONITORS,
    "lookup": _LOOKUP,
    "losses": {},
    "metrics": {},
    "opt": {
        "LARSOptimizer": "tf_tpu_ext.contrib.opt:LARSOptimizer",
        "AdamWOptimizer": Missing("Use tf.keras.optimizers.AdamW."),
    },
    "quantize": {
        f"create_{kind}_graph": Missing("Use the TensorFlow Model Optimization toolkit.")
        for kind in ("eval", "training")
    },
    "rnn": _RNN,
    "optimizer_v2": _OPTIMIZER_V2,
    "stateless": {
        f"stateless_{name}": f"tensorflow:random.stateless_{name}"
        for name in ("categorical", "normal", "truncated_normal", "uniform")
    },
    "summary": _SUMMARY_MODULE,
    "tpu": _TPU_MODULE,
    "tpu.python": {},
    "tpu.python.ops": {},
    "tpu.python.ops.tpu_ops": {name: _TPU_OPS + name for name in _OPS_OF_TPUS},
    "tpu.python.tpu": {},
    "tpu.python.tpu.async_checkpoint": {
        "AsyncCheckpointSaverHook": _TPU_MODULE["AsyncCheckpointSaverHook"]
    },
    "tpu.python.tpu.bfloat16": {"bfloat16_scope": _TPU_MODULE["bfloat16_scope"]},
    "tpu.python.tpu.datasets": {"StreamingFilesDataset": _TPU_MODULE["StreamingFilesDataset"]},
    "tpu.python.tpu.keras_support": {
        "TPUDistributionStrategy": _TPU_MODULE["TPUDistributionStrategy"],
        "tpu_model": _TPU_MODULE["keras_to_tpu_model"],
    },
    "tpu.python.tpu.tpu": _TPU_MODULE,
    "tpu.python.tpu.tpu_config": {
        name: _TPU_MODULE[name] for name in ("InputPipelineConfig", "RunConfig", "TPUConfig")
    },
    "tpu.python.tpu.tpu_context": {
        "TPUContext": _ESTIMATOR + "TPUContext",
        "_get_tpu_context": "tf_tpu_ext.contrib.copied_estimators:get_tpu_context",
    },
    "tpu.python.tpu.tpu_estimator": {
        name: _TPU_MODULE[name] for name in ("TPUEstimator", "TPUEstimatorSpec")
    },
    "tpu.python.tpu.tpu_optimizer": {"CrossShardOptimizer": _TPU_MODULE["CrossShardOptimizer"]},
    "tpu.tpu": _TPU_MODULE,
    "nn": {
        "conv1d_transpose": "tensorflow:nn.conv1d_transpose",
        "nth_element": "tensorflow.python.ops.nn_ops:nth_element",
    },
    "training": _TRAINING,
    "training.python": {},
    "training.python.training": {},
    "training.python.training.evaluation": {
        "checkpoints_iterator": _TRAINING["checkpoints_iterator"]
    },
    "training.python.training.hparam": {"HParams": _TRAINING["HParams"]},
    "training.python.training.training": {},
    "util": _UTIL,
}

# Whole modules that are not available.
GONE: dict[str, Missing] = {
    "crf": Missing("Install tensorflow-addons."),
    "eager": Missing("Eager execution, tf.train.Checkpoint and tf.Variable are TensorFlow's own."),
    "feature_column": Missing("Use tf.feature_column."),
    "predictor": Missing("Use tf.saved_model.load."),
    "seq2seq": Missing("Use tf.keras.layers.Attention and its relatives."),
    "tensorboard": Missing("Use tensorboard.plugins."),
    "tensorrt": Missing("Use tf.experimental.tensorrt."),
}
