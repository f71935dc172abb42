"""Ops on `/device:TPU:i` outside of compiled programs with inputs that no device takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import context, execute

CORE = "/device:TPU:0"


class TestBadInput:
    @pytest.mark.parametrize("device", [CORE, "/device:TPU:1"])
    def test_an_update_of_another_type_than_the_variable(self, device: str) -> None:
        with tf.device(device):
            variable = tf.Variable([1.0, 2.0])
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"of type half; variable"):
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=variable.handle,
                    alpha=tf.constant(1.0, tf.float16),
                    delta=tf.ones([2], tf.float16),
                )
            variable.assign_add([1.0, 1.0])
        np.testing.assert_array_equal(variable, [2.0, 3.0])

    def test_an_update_of_an_uninitialized_variable(self) -> None:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device(CORE):
            variable = tf.Variable([1.0, 2.0])
            updates = [variable[:].assign([3.0, 4.0]), variable.assign_add([1.0, 1.0])]
            for update in updates:
                with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                    session.run(update)
            session.run(variable.initializer)
            np.testing.assert_array_equal(session.run(updates[1]), [2.0, 3.0])

    def test_an_update_that_does_not_fit_the_variable(self) -> None:
        """The kernels of updates are synchronous, the op that orders them is not."""
        with tf.device(CORE):
            variable = tf.Variable([1.0, 2.0])
            with pytest.raises(tf.errors.InvalidArgumentError, match="same shape"):
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=variable.handle, alpha=1.0, delta=tf.ones([3])
                )
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 7"):
                tf.raw_ops.ResourceScatterUpdate(
                    resource=variable.handle, indices=[7], updates=[1.0]
                )
            variable.assign_add([1.0, 1.0])
        np.testing.assert_array_equal(variable, [2.0, 3.0])

    @pytest.mark.parametrize(
        ("start", "size", "name"),
        [(0, [1], "start_indices"), ([0], 2, "size_indices"), ([0, 0], [1, 1], "start_indices")],
    )
    def test_a_slice_with_other_indices_than_dimensions(
        self, start: Any, size: Any, name: str
    ) -> None:
        with tf.device(CORE):
            with pytest.raises(tf.errors.InvalidArgumentError, match=name):
                gen_xla_ops.xla_dynamic_slice(tf.zeros([4]), start, size)
            found = gen_xla_ops.xla_dynamic_slice(tf.range(4), [1], [2])
        np.testing.assert_array_equal(found, [1, 2])

    def test_a_slice_with_other_indices_than_dimensions_in_a_program(self) -> None:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            output = tf.compat.v1.tpu.rewrite(
                lambda x: gen_xla_ops.xla_dynamic_slice(x, tf.constant(0), tf.constant([1])),
                [tf.zeros([4])],
            )
            session.run(tf.compat.v1.tpu.initialize_system())
            with pytest.raises(tf.errors.InvalidArgumentError, match="start_indices"):
                session.run(output)

    def test_a_shape_whose_elements_can_not_be_counted(self) -> None:
        """XLA throws a C++ exception, or ends the process."""
        with (
            tf.device(CORE),
            pytest.raises(tf.errors.InvalidArgumentError, match=r"ShardToFullShape has full_shape"),
        ):
            gen_xla_ops.xla_spmd_shard_to_full_shape(tf.zeros([2]), "", [1 << 31, 1 << 31])

    def test_shapes_that_do_not_fit(self) -> None:
        with tf.device(CORE), pytest.raises(tf.errors.InvalidArgumentError):
            gen_xla_ops.xla_pad([1.0, 2.0], 9.0, [1, 1], [2], [1])

    @pytest.mark.parametrize("key", [[], "", ["no", "such", "key"]])
    def test_a_cluster_that_tensorflow_made_for_another_device(self, key: Any) -> None:
        with tf.device(CORE):
            inputs = [tf.constant(1.0), tf.constant(key, tf.string)]
            types = [dtype.as_datatype_enum for dtype in (tf.float32, tf.float32)]
            with pytest.raises(tf.errors.UnimplementedError, match=r"_XlaRun.*another device"):
                execute.execute(
                    b"_XlaRun",
                    1,
                    inputs,
                    ("Targs", types[:1], "Tresults", types[1:]),
                    context.context(),
                )
            np.testing.assert_array_equal(tf.constant([1.0]) + 1.0, [2])
