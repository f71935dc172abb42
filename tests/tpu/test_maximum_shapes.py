"""What `maximum_shapes` and `padding_spec` pad to, the graph of it, and what they must fit."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tf_tpu_ext import tpu

AUTO = tpu.PaddingSpec.AUTO
POWER_OF_TWO = tpu.PaddingSpec.POWER_OF_TWO
OPEN_ROWS = [tf.TensorShape([None, 4])]


class TestSizes:
    """What the program is padded to, seen where XLA does not mask it."""

    @staticmethod
    def padded_size(cores, size, shapes, padding_spec=None, graph=False):
        options = tpu.XLAOptions(enable_xla_dynamic_padder=False)

        def call(vectors):
            return tpu.replicate(
                tf.size,
                [[x] for x in vectors],
                maximum_shapes=[shapes],
                padding_spec=padding_spec,
                xla_options=options,
            )

        vectors = [tf.ones([max(1, size - replica)]) for replica in range(cores)]
        if graph:
            signature = [[tf.TensorSpec([None])] * cores]
            call = tf.function(call, input_signature=signature)
        sizes = {output.numpy() for [output] in call(vectors)}
        assert len(sizes) == 1
        return sizes.pop()

    @pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
    @pytest.mark.parametrize("size", [2, 3, 7, 8, 9])
    def test_unknown_is_the_largest_of_all_replicas(self, cores, size, graph):
        for padding_spec in (None, AUTO):
            got = self.padded_size(cores, size, tf.TensorShape([None]), padding_spec, graph)
            assert got == size

    @pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
    @pytest.mark.parametrize(("size", "expected"), [(1, 2), (2, 2), (3, 4), (5, 8), (9, 16)])
    def test_power_of_two(self, cores, size, expected, graph):
        shape = tf.TensorShape([None])
        assert self.padded_size(cores, size, shape, POWER_OF_TWO, graph) == expected

    @pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
    @pytest.mark.parametrize("padding_spec", [None, POWER_OF_TWO])
    def test_known_is_the_maximum(self, cores, padding_spec, graph):
        assert self.padded_size(cores, 5, tf.TensorShape([6]), padding_spec, graph) == 6

    @pytest.mark.parametrize("unknown", [np.array([-1]), tf.constant([-1]), tf.TensorShape(None)])
    def test_other_ways_to_write_unknown(self, cores, unknown):
        assert self.padded_size(cores, 5, unknown) == 5

    def test_dimension_of_none(self, cores):
        shape = tf.TensorShape([tf.compat.v1.Dimension(None)])
        assert self.padded_size(cores, 5, shape) == 5

    def test_none_leaves_an_input_as_it_is(self, cores):
        shapes = []

        def computation(x, y):
            shapes.append((x.shape.as_list(), y.shape.as_list()))
            return tf.reduce_sum(x) + tf.reduce_sum(y)

        inputs = [[tf.ones([3]), tf.ones([4])]] * cores
        outputs = tpu.replicate(computation, inputs, maximum_shapes=[tf.TensorShape([None]), None])
        assert [output.numpy() for [output] in outputs] == [7.0] * cores
        assert shapes == [([None], [4])]

    @pytest.mark.parametrize("known", [0, 1])
    def test_shape_that_one_replica_knows(self, cores, known):
        if cores == 1:
            pytest.skip("there is one replica")

        @tf.function(
            input_signature=[[tf.TensorSpec([3 if r == known else None]) for r in range(cores)]]
        )
        def function(vectors):
            return tpu.replicate(
                tf.reduce_mean, [[x] for x in vectors], maximum_shapes=[tf.TensorShape([None])]
            )

        vectors = [tf.fill([3 if r == known else r + 1], float(r)) for r in range(cores)]
        assert [x.numpy() for [x] in function(vectors)] == list(range(cores))


class TestGraph:
    @pytest.mark.parametrize("padding_spec", [None, AUTO, POWER_OF_TWO])
    @pytest.mark.parametrize("dynamic_padder", [True, False])
    def test_equals_that_of_tensorflow(self, same_graph, padding_spec, dynamic_padder):
        def build(replicate):
            inputs = [
                [tf.compat.v1.placeholder(tf.float32, [None, 4]), [tf.ones([3 + replica])]]
                for replica in range(2)
            ]
            shapes = [tf.TensorShape([None, 4]), [tf.TensorShape([8])]]
            options = tpu.XLAOptions(enable_xla_dynamic_padder=dynamic_padder)
            replicate(
                lambda x, y: tf.reduce_sum(x) + y[0],
                inputs,
                maximum_shapes=shapes,
                padding_spec=padding_spec,
                xla_options=options,
            )

        same_graph(lambda: build(tpu.replicate), lambda: build(tf.compat.v1.tpu.replicate))

    def test_of_a_single_replica_without_padding_equals_that_of_tensorflow(self, same_graph):
        def build(replicate):
            inputs = [[tf.compat.v1.placeholder(tf.float32, [None, 4])]]
            replicate(tf.reduce_sum, inputs, maximum_shapes=OPEN_ROWS)

        same_graph(
            lambda: build(tpu.replicate),
            lambda: build(lambda _, *args, **kwargs: tf.compat.v1.tpu.replicate(
                lambda x: tf.reduce_sum(x), *args, **kwargs)),
        )  # fmt: skip

    def test_of_a_single_replica_has_the_ops_of_several(self):
        def types_of(num_replicas):
            with tf.Graph().as_default() as graph:
                inputs = [
                    [tf.compat.v1.placeholder(tf.float32, [None])] for _ in range(num_replicas)
                ]
                tpu.replicate(
                    tf.reduce_sum,
                    inputs,
                    maximum_shapes=[tf.TensorShape([None])],
                    padding_spec=POWER_OF_TWO,
                )
            marked = [
                op.type
                for op in graph.get_operations()
                if "_post_device_rewrite" in op.node_def.attr
            ]
            inside = [
                op.type for op in graph.get_operations() if "_tpu_replicate" in op.node_def.attr
            ]
            return set(marked), inside.count("XlaSetDynamicDimensionSize")

        assert types_of(1) == types_of(2)


class TestErrors:
    @staticmethod
    def never_called(*args):
        raise AssertionError("the computation was called")

    @pytest.mark.parametrize(
        "shapes",
        [
            [],
            [tf.TensorShape([None])] * 2,
            [[tf.TensorShape([None])]],
            tf.TensorShape([None]),
        ],
        ids=["none", "two", "nested", "bare"],
    )
    def test_structure(self, cores, shapes):
        with pytest.raises(ValueError, match=r"maximum_shapes of structure .* inputs of .*\[\.\]"):
            tpu.replicate(self.never_called, [[tf.ones([3])]] * cores, maximum_shapes=shapes)

    @pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
    def test_size_above_the_maximum(self, cores, graph):
        def call():
            inputs = [[np.ones([3, 4])] for _ in range(cores)]
            tpu.replicate(self.never_called, inputs, maximum_shapes=[tf.TensorShape([None, 2])])

        match = r"input 0 of replica 0 with shape \(3, 4\).* dimension 1 has size 4.* at most 2"
        scope = tf.Graph().as_default() if graph else contextlib.nullcontext()
        with scope, pytest.raises(ValueError, match=match):
            call()

    def test_size_above_the_maximum_on_the_last_replica(self, cores):
        inputs = [[np.ones([1 + replica])] for replica in range(cores)]
        shapes = [tf.TensorShape([max(0, cores - 1)])]
        with pytest.raises(ValueError, match=f"of replica {cores - 1}"):
            tpu.replicate(self.never_called, inputs, maximum_shapes=shapes)

    def test_rank(self, cores):
        with pytest.raises(ValueError, match=r"rank 1 does not match .* of rank 2"):
            tpu.replicate(self.never_called, [[tf.ones([3])]] * cores, maximum_shapes=OPEN_ROWS)

    def test_unknown_rank(self):
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32)
            with pytest.raises(ValueError, match=r"unknown rank.*set_shape"):
                tpu.replicate(self.never_called, [[x]], maximum_shapes=OPEN_ROWS)

    @pytest.mark.parametrize("shape", [3, "ab", np.array([1.5]), np.array([[1]])], ids=str)
    def test_leaf_that_is_no_shape(self, cores, shape):
        with pytest.raises(ValueError, match=r"in maximum_shapes, expected a tf.TensorShape"):
            tpu.replicate(self.never_called, [[tf.ones([3])]] * cores, maximum_shapes=[shape])

    def test_with_an_infeed_queue(self):
        queue = tpu.InfeedQueue(tuple_types=[tf.float32], tuple_shapes=[[3]])
        with pytest.raises(ValueError, match="maximum_shapes together with an infeed_queue"):
            tpu.replicate(
                lambda x, y: x,
                [[tf.ones([3])]],
                infeed_queue=queue,
                maximum_shapes=[tf.TensorShape([None])],
            )

    def test_padding_spec(self):
        with pytest.raises(ValueError, match=r"padding_spec='POWER', expected PaddingSpec.AUTO"):
            tpu.replicate(self.never_called, [[1.0]], padding_spec="POWER")

    def test_real_size_above_the_maximum_in_a_graph(self, cores):
        @tf.function(input_signature=[[tf.TensorSpec([None])] * cores])
        def function(vectors):
            return tpu.replicate(
                tf.reduce_sum, [[x] for x in vectors], maximum_shapes=[tf.TensorShape([4])]
            )

        assert [x.numpy() for [x] in function([tf.ones([4])] * cores)] == [4.0] * cores
        with pytest.raises(tf.errors.InvalidArgumentError):
            function([tf.ones([5])] * cores)
        assert [x.numpy() for [x] in function([tf.ones([3])] * cores)] == [3.0] * cores
