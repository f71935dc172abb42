"""Replicated TPU computations: the functions of `tf.compat.v1.tpu`, in graphs and eagerly.

A computation is a Python function that builds ops. `replicate` compiles it once with XLA and runs
it on several cores, each with its own inputs. `rewrite` runs it on one core. `shard` and
`batch_parallel` split tensors over the cores and concatenate the results. Inside a computation,
`cross_replica_sum` sums over the replicas, `core` places ops on one core of a replica, and
`outside_compilation` runs ops on the host, where `replica_id` returns the replica's number.

    >>> import tensorflow as tf
    >>> import tf_tpu_ext
    >>> def step(batch):
    ...     return tf_tpu_ext.tpu.cross_replica_sum(tf.reduce_sum(batch))
    >>> batches = [[tf.ones([16])], [tf.ones([16])]]
    >>> outputs = tf_tpu_ext.tpu.replicate(step, batches)
    >>> print([[float(x) for x in replica] for replica in outputs])
    [[32.0], [32.0]]

The examples in this module run on a machine with two cores.

These functions call their TensorFlow counterparts and add the same ops to the graph, so the same
program runs on a real TPU. You can also call `tf.compat.v1.tpu.*` directly. These functions add the
following:

* They can be called eagerly. The first call traces a graph, which later calls reuse; see
  `replicate`.
* They check their arguments before anything runs. Error messages say what was passed, what was
  expected and what to do.
* Padding also works for a single replica, for inputs whose shapes are known on only some replicas,
  and with -1 in `maximum_shapes`.
* Bound methods can be replicated.
* Eager code can fill an `InfeedQueue` any number of times.

`PaddingSpec`, `XLAOptions`, `CrossShardOptimizer`, `DeviceAssignment` and `Topology` are
TensorFlow's own classes. TensorFlow documents
[the functions](https://www.tensorflow.org/api_docs/python/tf/compat/v1/tpu), together with
`PaddingSpec` and `CrossShardOptimizer`, and
[the other classes](https://www.tensorflow.org/api_docs/python/tf/tpu).
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
