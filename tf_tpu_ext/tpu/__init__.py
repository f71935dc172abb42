"""Replicated TPU computations: the functions of `tf.compat.v1.tpu`, in graphs and eagerly.

A computation is a Python function that builds ops. `replicate` compiles it once with XLA and runs
it on several cores, each with its own inputs; `rewrite` runs it on one core; `shard` and
`batch_parallel` split whole tensors over cores and join the results. Inside of a computation
`cross_replica_sum` adds over the replicas, `core` places ops on a core of the replica, and
`outside_compilation` runs a part on the host, where `replica_id` tells for which replica.

    >>> import tensorflow as tf
    >>> import tf_tpu_ext
    >>> def step(batch):
    ...     return tf_tpu_ext.tpu.cross_replica_sum(tf.reduce_sum(batch))
    >>> batches = [[tf.ones([16])], [tf.ones([16])]]
    >>> outputs = tf_tpu_ext.tpu.replicate(step, batches)
    >>> print([[float(x) for x in replica] for replica in outputs])
    [[32.0], [32.0]]

The examples here have a machine of two cores.

These functions rest on TensorFlow's own and add the same ops to a graph, so the same program runs
on a real TPU; `tf.compat.v1.tpu.*` itself works as well. What they add:

* They may be called eagerly. The graph is built on the first call and kept; see `replicate`.
* Their errors are raised before anything runs, and say what was passed, what was expected and
  what to do.
* Padding works where TensorFlow's does not: on a single replica, for inputs of which only some
  replicas know the shape, and for -1 in `maximum_shapes`.
* Bound methods may be replicated.
* An `InfeedQueue` may be filled again and again from eager code.

| Name | Defined by TensorFlow at |
|---|---|
| `replicate`, `rewrite`, `shard`, `batch_parallel`, `outside_compilation`, `core`,
  `cross_replica_sum`, `bfloat16_scope`, `initialize_system`, `shutdown_system`, `PaddingSpec`,
  `CrossShardOptimizer` | https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu |
| `XLAOptions` | https://www.tensorflow.org/api_docs/python/tf/tpu/XLAOptions |
| `DeviceAssignment`, `Topology` | https://www.tensorflow.org/api_docs/python/tf/tpu/experimental |
| `InfeedQueue`, `replica_id` | see there |

`PaddingSpec`, `XLAOptions`, `CrossShardOptimizer`, `DeviceAssignment` and `Topology` are
TensorFlow's classes themselves.
"""

from tf_tpu_ext.tpu._classes import (
    CrossShardOptimizer,
    DeviceAssignment,
    PaddingSpec,
    Topology,
    XLAOptions,
)
from tf_tpu_ext.tpu.infeed import InfeedQueue
from tf_tpu_ext.tpu.inside import (
    bfloat16_scope,
    core,
    cross_replica_sum,
    outside_compilation,
    replica_id,
)
from tf_tpu_ext.tpu.replication import replicate, rewrite
from tf_tpu_ext.tpu.sharding import batch_parallel, shard
from tf_tpu_ext.tpu.system import initialize_system, shutdown_system

__all__ = [
    "CrossShardOptimizer",
    "DeviceAssignment",
    "InfeedQueue",
    "PaddingSpec",
    "Topology",
    "XLAOptions",
    "batch_parallel",
    "bfloat16_scope",
    "core",
    "cross_replica_sum",
    "initialize_system",
    "outside_compilation",
    "replica_id",
    "replicate",
    "rewrite",
    "shard",
    "shutdown_system",
]
