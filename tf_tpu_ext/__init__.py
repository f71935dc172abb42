"""Virtual TPU cores: TPU TensorFlow programs run unmodified on any machine.

Importing this package, before TensorFlow's first operation, is all that a program needs:

    import tf_tpu_ext
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)

`configure` sets the number of cores, `compilation_stats` tells what was compiled, and
`tf_tpu_ext.tpu` has the functions of `tf.compat.v1.tpu`, which may also be called eagerly.
"""

from __future__ import annotations

from tf_tpu_ext import _native

if _native.load():
    from tf_tpu_ext import _machine, patches

    _machine.configure_from_environment()
    patches.apply_all()

from tf_tpu_ext import contrib, towers, tpu
from tf_tpu_ext._machine import (
    Cluster,
    Compilation,
    CompilationStats,
    Machine,
    TransferStats,
    compilation_stats,
    configure,
    machine,
    transfer_stats,
)
from tf_tpu_ext.towers import (
    MultiStepContext,
    TowerContext,
    TPUStrategy,
    VariableAggregation,
    get_tower_context,
)
from tf_tpu_ext.tpu import (
    CrossShardOptimizer,
    DeviceAssignment,
    InfeedQueue,
    PaddingSpec,
    Topology,
    XLAOptions,
    batch_parallel,
    bfloat16_scope,
    core,
    cross_replica_sum,
    initialize_system,
    outside_compilation,
    replica_id,
    replicate,
    rewrite,
    shard,
    shutdown_system,
)

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Compilation",
    "CompilationStats",
    "CrossShardOptimizer",
    "DeviceAssignment",
    "InfeedQueue",
    "Machine",
    "MultiStepContext",
    "PaddingSpec",
    "TPUStrategy",
    "Topology",
    "TowerContext",
    "TransferStats",
    "VariableAggregation",
    "XLAOptions",
    "batch_parallel",
    "bfloat16_scope",
    "compilation_stats",
    "configure",
    "contrib",
    "core",
    "cross_replica_sum",
    "get_tower_context",
    "initialize_system",
    "machine",
    "outside_compilation",
    "replica_id",
    "replicate",
    "rewrite",
    "shard",
    "shutdown_system",
    "towers",
    "tpu",
    "transfer_stats",
]
