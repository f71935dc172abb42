"""`InfeedQueue`: elements follow the inputs of the computation, fed from a session or eagerly."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu


def queue_of_pairs(cores):
    return tpu.InfeedQueue(tuple_types=[tf.float32, tf.int32], tuple_shapes=[[2 * cores], [cores]])


def shards_of_step(step, cores):
    return [
        [np.array([step, r], np.float32), np.array([10 * r + step], np.int32)] for r in range(cores)
    ]


def computation(x, vector, scalar):
    return vector + x, scalar * 2


def check(outputs, step, cores):
    for replica, (vector, scalar) in enumerate(outputs):
        np.testing.assert_array_equal(vector, [step + 100, replica + 100])
        assert scalar == 2 * (10 * replica + step)


def test_eagerly_step_by_step(cores):
    queue = queue_of_pairs(cores)
    for step in range(4):
        assert queue.generate_enqueue_ops(shards_of_step(step, cores)) == [None] * cores
        outputs = tpu.replicate(computation, [[100.0]] * cores, infeed_queue=queue)
        check(outputs, step, cores)


def test_eagerly_split(cores):
    queue = tpu.InfeedQueue(
        tuple_types=[tf.float32], tuple_shapes=[[2 * cores]], shard_dimensions=[0]
    )
    queue.set_number_of_shards(cores)
    for step in range(3):
        whole = np.arange(2 * cores, dtype=np.float32) + step
        queue.split_inputs_and_generate_enqueue_ops([whole])
        outputs = tpu.replicate(lambda x: x * 2, [[]] * cores, infeed_queue=queue)
        np.testing.assert_array_equal(np.concatenate([x for [x] in outputs]), 2 * whole)


def test_several_elements_ahead(cores):
    queue = queue_of_pairs(cores)
    for step in range(3):
        queue.generate_enqueue_ops(shards_of_step(step, cores))
    for step in range(3):
        check(tpu.replicate(computation, [[100.0]] * cores, infeed_queue=queue), step, cores)


def test_in_a_session(cores):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tpu.initialize_system())
        queue = queue_of_pairs(cores)
        step = tf.compat.v1.placeholder(tf.int32, [])
        shards = [
            [tf.stack([tf.cast(step, tf.float32), float(r)]), [10 * r + step]] for r in range(cores)
        ]
        shards = [[tf.convert_to_tensor(x) for x in shard] for shard in shards]
        enqueue = queue.generate_enqueue_ops(
            shards,
            tpu_ordinal_function=lambda shard: shard,
            placement_function=lambda shard: "/device:CPU:0",
        )
        outputs = tpu.replicate(computation, [[100.0]] * cores, infeed_queue=queue)
        for number in range(3):
            check(session.run([outputs, enqueue], {step: number})[0], number, cores)


def test_rewrite_and_shard(cores):
    for value in (1.0, [1.0]):
        shapes = [np.shape(value)]
        queue = tpu.InfeedQueue(tuple_types=[tf.float32], tuple_shapes=shapes)
        queue.generate_enqueue_ops([[value]])
        [output] = tpu.rewrite(lambda x, y: x + y, [2.0], infeed_queue=queue)
        np.testing.assert_array_equal(output, np.add(value, 2.0))
    queue = tpu.InfeedQueue(tuple_types=[tf.float32], tuple_shapes=[[cores]])
    queue.generate_enqueue_ops([[[float(r)]] for r in range(cores)])
    x = np.ones([cores], np.float32)
    [got] = tpu.shard(lambda x, y: x * y, [x], num_shards=cores, infeed_queue=queue)
    np.testing.assert_array_equal(got, np.arange(cores))


class TestErrors:
    def test_number_of_arguments_counts_the_elements(self):
        with pytest.raises(ValueError, match=r"1 inputs per replica and 2 from the infeed queue"):
            tpu.replicate(lambda x, y: x, [[1.0]], infeed_queue=queue_of_pairs(1))

    def test_split_without_a_number_of_shards(self):
        with pytest.raises(ValueError, match=r"without a number of shards.*set_number_of_shards"):
            queue_of_pairs(1).split_inputs_and_generate_enqueue_ops([np.zeros(2), [1]])

    def test_other_shapes_than_the_queue(self, cores):
        queue = tpu.InfeedQueue(tuple_types=[tf.float32], tuple_shapes=[[2]])
        queue.set_number_of_shards(1)
        queue.freeze()
        with pytest.raises(ValueError, match="frozen"):
            queue.generate_enqueue_ops([[np.zeros(3, np.float32)]])


def test_graph_is_that_of_tensorflow(same_graph):
    from tensorflow.python.tpu import tpu_feed

    def build(queue, replicate):
        shards = [[tf.ones([2]), [1]], [tf.zeros([2]), [2]]]
        shards = [[tf.convert_to_tensor(element) for element in shard] for shard in shards]
        queue.generate_enqueue_ops(
            shards, lambda shard: shard, lambda shard: "/task:0/device:CPU:0"
        )
        replicate(computation, [[1.0], [2.0]], infeed_queue=queue)

    arguments = {"tuple_types": [tf.float32, tf.int32], "tuple_shapes": [[4], [2]]}
    same_graph(
        lambda: build(tpu.InfeedQueue(**arguments), tpu.replicate),
        lambda: build(tpu_feed.InfeedQueue(**arguments), tf.compat.v1.tpu.replicate),
    )


def test_cores_beyond_eight_belong_to_the_same_host(monkeypatch):
    device = tf.config.LogicalDevice
    for count, expected in ((8, 8), (2, 8), (16, 16)):
        devices = [device(f"/job:localhost/task:0/device:TPU:{i}", "TPU") for i in range(count)]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind, d=devices: d)
        queue = queue_of_pairs(1)
        placed = [queue._default_placement_function(i) for i in range(expected + 1)]
        assert placed == ["/task:0/device:CPU:0"] * expected + ["/task:1/device:CPU:0"]
        assert queue._default_ordinal_function(expected - 1) == expected - 1
