"""Names for the TensorFlow classes that this package's functions accept."""

from typing import TypeAlias

import tensorflow as tf

CrossShardOptimizer: TypeAlias = tf.compat.v1.tpu.CrossShardOptimizer
DeviceAssignment: TypeAlias = tf.tpu.experimental.DeviceAssignment
PaddingSpec: TypeAlias = tf.compat.v1.tpu.PaddingSpec
Topology: TypeAlias = tf.tpu.experimental.Topology
XLAOptions: TypeAlias = tf.tpu.XLAOptions
