"""`rewrite`, `shard` and `batch_parallel`, in a session, a function and eagerly."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu


class TestRewrite:
    def test_returns_what_the_computation_returns(self, run):
        def computation(x, y):
            return {"sum": x + y["a"], "both": (x, [y["a"]])}

        outputs = run(lambda: tpu.rewrite(computation, [1.0, {"a": 2.0}]))
        assert outputs == {"sum": 3.0, "both": (1.0, [2.0])}

    @pytest.mark.parametrize("inputs", [None, []], ids=str)
    def test_without_inputs(self, run, inputs):
        assert run(lambda: tpu.rewrite(lambda: 5, inputs)) == [5]

    def test_nothing_and_operations(self, run):
        assert run(lambda: tpu.rewrite(lambda x: None, [1.0])) is None
        assert run(lambda: tpu.rewrite(lambda x: tf.no_op(), [1.0])) is None
        assert run(lambda: tpu.rewrite(lambda x: [x, tf.no_op()], [1.0])) == [1.0]

    def test_list_of_numbers_becomes_scalars(self, run):
        assert run(lambda: tpu.rewrite(lambda x: x[0] - x[1], [[3, 1]])) == [2]

    def test_runs_on_the_assigned_core(self, run, cores):
        topology = tpu.Topology(tpu.initialize_system().numpy())
        for core in {0, cores - 1}:
            coordinates = topology.device_coordinates[0, core]
            assignment = tpu.DeviceAssignment(topology, [[coordinates]])
            outputs = run(
                lambda a=assignment: tpu.rewrite(lambda x: x + 1, [1.0], device_assignment=a)
            )
            assert outputs == [2.0]

    def test_graph_is_that_of_tensorflow(self, same_graph):
        same_graph(
            lambda: tpu.rewrite(lambda x, y: (x + y[0], tf.no_op()), [1.0, [2.0]], name="name"),
            lambda: tf.compat.v1.tpu.rewrite(lambda x, y: (x + y[0], tf.no_op()), [1.0, [2.0]]),
        )

    def test_number_of_inputs(self):
        with pytest.raises(ValueError, match=r"rewrite got 1 inputs .* one input for each"):
            tpu.rewrite(lambda x, y: x, [1.0])

    def test_inputs_that_are_no_list(self):
        with pytest.raises(TypeError, match=r"rewrite got inputs of type .*inputs=\[x\]"):
            tpu.rewrite(lambda x: x, tf.constant([1.0]))


class TestShard:
    def test_splits_and_joins_along_dimension_0(self, run, cores):
        x = np.arange(4 * cores, dtype=np.float32).reshape([2 * cores, 2])

        def computation(x, y):
            assert x.shape == [2, 2]
            return x + y, tf.reduce_sum(x, 0)

        joined, sums = run(lambda: tpu.shard(computation, [x, x], num_shards=cores))
        np.testing.assert_array_equal(joined, 2 * x)
        np.testing.assert_array_equal(sums, x.reshape([cores, 2, 2]).sum(1).reshape(-1))

    def test_axes(self, run, cores):
        x = np.arange(6 * cores, dtype=np.int32).reshape([3, 2 * cores])
        y = np.arange(cores, dtype=np.int32)
        outputs = run(
            lambda: tpu.shard(
                lambda x, y: (tf.transpose(x) * y, x - y),
                [x, y],
                num_shards=cores,
                input_shard_axes=[1, 0],
                output_shard_axes=[0, -1],
            )
        )
        by_column = np.repeat(y, 2)
        np.testing.assert_array_equal(outputs[0], (x * by_column).T)
        np.testing.assert_array_equal(outputs[1], x - by_column)

    def test_scalars_are_stacked(self, run, cores):
        x = np.arange(cores, dtype=np.float32)
        outputs = run(lambda: tpu.shard(tf.reduce_sum, [x], num_shards=cores))
        np.testing.assert_array_equal(outputs[0], x)

    def test_one_output_of_any_shard(self, run, cores):
        x = np.ones([cores, 3], np.float32)
        outputs = run(
            lambda: tpu.shard(
                lambda x: (x, x + 1), [x], num_shards=cores, outputs_from_all_shards=[True, False]
            )
        )
        np.testing.assert_array_equal(outputs[0], x)
        np.testing.assert_array_equal(outputs[1], np.full([1, 3], 2.0))
        none = run(
            lambda: tpu.shard(lambda x: x, [x], num_shards=cores, outputs_from_all_shards=False)
        )
        np.testing.assert_array_equal(none[0], np.ones([1, 3]))

    def test_captured_tensor_goes_to_every_shard(self, run, cores):
        def build():
            seven = tf.constant(7)
            return tpu.shard(lambda x: x + seven, [tf.range(cores)], num_shards=cores)

        np.testing.assert_array_equal(run(build)[0], np.arange(cores) + 7)

    def test_list_is_one_tensor(self, run, cores):
        outputs = run(lambda: tpu.shard(lambda x: x * 2, [[1] * cores], num_shards=cores))
        np.testing.assert_array_equal(outputs[0], [2] * cores)

    def test_without_inputs_and_outputs(self, run, cores):
        outputs = run(lambda: tpu.shard(lambda: tpu.cross_replica_sum(1), num_shards=cores))
        np.testing.assert_array_equal(outputs[0], [cores] * cores)
        assert run(lambda: tpu.shard(lambda: None, num_shards=cores)) == [None]

    def test_graph_is_that_of_tensorflow(self, same_graph):
        arguments = {
            "num_shards": 2,
            "input_shard_axes": [1],
            "output_shard_axes": [1, 0],
            "outputs_from_all_shards": [True, False],
        }
        same_graph(
            lambda: tpu.shard(lambda x: (x, x + 1), [tf.ones([2, 4])], **arguments),
            lambda: tf.compat.v1.tpu.shard(lambda x: (x, x + 1), [tf.ones([2, 4])], **arguments),
        )

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_shards": 0}, "num_shards=0, expected a positive number"),
            ({"num_shards": 3}, r"shape \(4, 2\), expected dimension 0 to be a multiple of .*=3"),
            ({"input_shard_axes": [0, 1]}, "2 input_shard_axes for 1 inputs"),
            ({"input_shard_axes": [2]}, r"split along dimension 2, which it does not have"),
            ({"inputs": [1.0]}, "rank 1 or more"),
            ({"inputs": []}, "0 inputs per replica"),
            ({"output_shard_axes": [0, 0]}, "output_shard_axes must be equal to the number"),
            ({"outputs_from_all_shards": [True] * 3}, "outputs_from_all_shards must be equal"),
        ],
        ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
    )
    def test_errors(self, run, cores, arguments, message):
        arguments = {"inputs": [np.ones([4, 2])], **arguments}
        with pytest.raises(ValueError, match=message):
            run(lambda: tpu.shard(lambda x: x, **arguments))

    def test_inputs_that_are_no_list(self):
        with pytest.raises(TypeError, match=r"shard got inputs of type .*inputs=\[x\]"):
            tpu.shard(lambda x: x, tf.constant([1.0]))


class TestBatchParallel:
    def test_splits_the_batch(self, run, cores):
        x = np.arange(6 * cores, dtype=np.float32).reshape([2 * cores, 3])
        y = np.arange(2 * cores, dtype=np.int32)
        outputs = run(
            lambda: tpu.batch_parallel(
                lambda x, y: (x * tf.cast(y, tf.float32)[:, None], -y), [x, y], num_shards=cores
            )
        )
        np.testing.assert_array_equal(outputs[0], x * y[:, None])
        np.testing.assert_array_equal(outputs[1], -y)

    def test_graph_is_that_of_tensorflow(self, same_graph):
        same_graph(
            lambda: tpu.batch_parallel(lambda x: x * 2, [tf.ones([4])], 2, name="name"),
            lambda: tf.compat.v1.tpu.batch_parallel(lambda x: x * 2, [tf.ones([4])], 2),
        )

    def test_batch_that_cannot_be_split(self, cores):
        with pytest.raises(ValueError, match=r"batch_parallel got input 0 .* replicate with"):
            tpu.batch_parallel(lambda x: x, [np.ones(3)], num_shards=2)

    def test_traced_once(self, cores):
        traces = []

        def computation(x):
            traces.append(x)
            return x + 1

        for start in range(3):
            x = np.arange(start, start + cores)
            [got] = tpu.batch_parallel(computation, [x], num_shards=cores)
            np.testing.assert_array_equal(got, x + 1)
        assert len(traces) == 1
