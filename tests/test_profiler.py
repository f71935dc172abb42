"""TensorFlow's profiler shows what the virtual TPU does."""

from __future__ import annotations

import pathlib

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tf_tpu_ext


def event_names(logdir: pathlib.Path) -> set[str]:
    """The names of all events that were recorded under the folder."""
    names = set()
    for path in logdir.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in space.planes:
            names.update(metadata.name for metadata in plane.event_metadata.values())
    return names


def test_a_step_is_seen(tmp_path: pathlib.Path) -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([40_000]))

    def host(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce("MEAN", tf.reduce_sum(weights))
        value = tf_tpu_ext.tpu.outside_compilation(host, mean)
        weights.assign_add(context.all_reduce("SUM", tf.fill([40_000], value)))
        return value

    @tf.function
    def profiled_step() -> tf.Tensor:
        return strategy.run(replica)

    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(3):
        profiled_step()
    tf.profiler.experimental.stop()
    expected = {
        "TPU compile",
        "TPU all-reduce",
        "TPU host call",
        "TPU combine gradients",
        "TPU update in place",
        *(f"TPU core {core}" for core in range(strategy.num_replicas_in_sync)),
    }
    assert expected <= event_names(tmp_path)
