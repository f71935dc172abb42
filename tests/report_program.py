"""A program that does all that the page of a report shows.

Arguments: cores, the page, and a target for the compiler of a real TPU, if it is to be asked.
"""

from __future__ import annotations

import sys

import tensorflow as tf

import tf_tpu_ext

cores, page, *targets = int(sys.argv[1]), *sys.argv[2:]
tf_tpu_ext.configure(cores=cores, target=targets)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    kernel = tf.Variable(tf.ones([32, 16]), name="dense/kernel")


@tf.function
def train_step(images, rate=0.1):
    def on_core(x):
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce("SUM", tf.matmul(x, tf.matmul(x, kernel), transpose_a=True))
        kernel.assign_sub(rate * gradient)
        mean = context.all_reduce("MEAN", tf.reduce_mean(gradient))
        doubled = tf.cast(mean, tf.float64) * 2.0  # float64
        total = tf.constant(0.0)
        for _ in tf.range(2):
            total += tf_tpu_ext.tpu.outside_compilation(tf.square, mean)  # in a loop
        return context.all_reduce("SUM", total) + tf.cast(doubled, tf.float32)

    return strategy.run(on_core, args=(images,))


for size in (8, 8, 8, 4):
    train_step(tf.ones([size, 32]))
train_step(tf.ones([8, 32]), rate=0.01)

for length in (3, 5):
    tf_tpu_ext.tpu.replicate(
        tf.reduce_sum, [[tf.ones([length])]], maximum_shapes=[tf.TensorShape([16])]
    )


@tf.function(jit_compile=True)
def broken(x):
    return tf.strings.length(tf.strings.as_string(x))  # strings


with tf.device("/TPU:0"):
    try:
        broken(tf.ones([2]))
    except tf.errors.OpError as error:
        print(error.message)

if targets:
    tf_tpu_ext.tpu.rewrite(lambda x: x + 1.0, [tf.ones([1024, 3])])  # padding
    tf_tpu_ext.tpu.rewrite(tf.linalg.qr, [tf.ones([256, 256])])  # kernels
    tf_tpu_ext.tpu.rewrite(lambda x: tf.signal.fft(x), [tf.ones([8], tf.complex128)])  # refused

tf_tpu_ext.report(page, title="<All> & everything")
