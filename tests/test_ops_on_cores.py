"""Ops on `/device:TPU:i` outside of compiled programs, where the CPU has no kernel for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

CORE = "/device:TPU:0"
Run = Callable[[Callable[[], Any]], Any]


def _eagerly(make: Callable[[], Any]) -> Any:
    with tf.device(CORE):
        return tf.nest.map_structure(lambda value: value.numpy(), make())


def _in_a_function(make: Callable[[], Any]) -> Any:
    @tf.function
    def step() -> Any:
        with tf.device(CORE):
            return make()

    return tf.nest.map_structure(lambda value: value.numpy(), step())


def _in_a_session(make: Callable[[], Any]) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device(CORE):
        return session.run(make())


@pytest.fixture(params=[_eagerly, _in_a_function, _in_a_session])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


class TestOpsThatOnlyXlaHas:
    def test_pad(self, run: Run) -> None:
        padded = run(lambda: gen_xla_ops.xla_pad([1.0, 2.0], 9.0, [1], [2], [1]))
        np.testing.assert_array_equal(padded, [9, 1, 9, 2, 9, 9])

    def test_dynamic_update_slice(self, run: Run) -> None:
        updated = run(
            lambda: gen_xla_ops.xla_dynamic_update_slice(tf.zeros([4]), tf.ones([2]), [1])
        )
        np.testing.assert_array_equal(updated, [0, 1, 1, 0])

    def test_sort(self, run: Run) -> None:
        values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
        np.testing.assert_array_equal(
            run(lambda: gen_xla_ops.xla_sort(tf.constant(values))), np.sort(values)
        )

    def test_with_a_function_as_attribute(self, run: Run) -> None:
        @tf.function(autograph=False)
        def add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return a + b

        scalar = tf.TensorSpec([], tf.float32)

        def sums_of_rows() -> tf.Tensor:
            return gen_xla_ops.xla_variadic_reduce_v2(
                inputs=[tf.constant([[1.0, 2.0], [3.0, 4.0]])],
                init_values=[tf.constant(0.0)],
                dimensions_to_reduce=[1],
                reducer=add.get_concrete_function(scalar, scalar),
            )

        np.testing.assert_array_equal(run(sums_of_rows), [[3, 7]])

    def test_what_xla_cannot_run_is_an_error_and_the_core_goes_on(self, run: Run) -> None:
        with pytest.raises(tf.errors.UnimplementedError, match="recv"):
            run(lambda: gen_xla_ops.xla_recv(dtype=tf.float32, tensor_name="x", shape=[2]))
        np.testing.assert_array_equal(run(lambda: tf.constant([1.0]) + 1.0), [2])

    def test_a_type_that_xla_does_not_have_is_an_error(self, run: Run) -> None:
        with pytest.raises(
            (tf.errors.InvalidArgumentError, tf.errors.NotFoundError), match="XlaSort"
        ):
            run(lambda: gen_xla_ops.xla_sort(tf.constant(["b", "a"])))


class TestLayoutsThatTheCpuRefuses:
    @staticmethod
    def _images() -> np.ndarray:
        return np.random.default_rng(1).normal(size=(2, 3, 8, 6)).astype(np.float32)

    def test_convolution(self, run: Run) -> None:
        images = self._images()
        filters = np.random.default_rng(2).normal(size=(3, 3, 3, 4)).astype(np.float32)
        convolved = run(
            lambda: tf.nn.conv2d(images, filters, [1, 1, 2, 1], "SAME", data_format="NCHW")
        )
        with tf.device("/CPU:0"):
            expected = tf.nn.conv2d(images.transpose(0, 2, 3, 1), filters, [1, 2, 1, 1], "SAME")
        np.testing.assert_allclose(
            convolved, expected.numpy().transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("pool", [tf.nn.max_pool2d, tf.nn.avg_pool2d])
    def test_pools(self, run: Run, pool: Callable[..., tf.Tensor]) -> None:
        images = self._images()
        pooled = run(lambda: pool(images, 2, 2, "VALID", data_format="NCHW"))
        windows = images.reshape(2, 3, 4, 2, 3, 2)
        expected = windows.max((3, 5)) if pool is tf.nn.max_pool2d else windows.mean((3, 5))
        np.testing.assert_allclose(pooled, expected, rtol=1e-6)

    def test_gradients(self) -> None:
        images = self._images()
        with tf.device(CORE), tf.GradientTape() as tape:
            inputs = tf.constant(images)
            tape.watch(inputs)
            pooled = tf.nn.max_pool2d(inputs, 2, 2, "VALID", data_format="NCHW")
            loss = tf.reduce_sum(pooled)
            gradient = tape.gradient(loss, inputs)
        windows = images.reshape(2, 3, 4, 2, 3, 2)
        expected = windows == windows.max((3, 5), keepdims=True)
        np.testing.assert_array_equal(gradient, expected.reshape(images.shape))


class TestInputsThatTheCpuRefuses:
    """A TPU takes them."""

    def test_dilated_gradients(self, run: Run) -> None:
        images = np.random.default_rng(3).normal(size=(1, 7, 7, 2)).astype(np.float32)
        filters = np.random.default_rng(4).normal(size=(3, 3, 2, 3)).astype(np.float32)
        gradient = run(
            lambda: tf.raw_ops.Conv2DBackpropInput(
                input_sizes=[1, 7, 7, 2],
                filter=tf.constant(filters),
                out_backprop=tf.ones([1, 3, 3, 3]),
                strides=[1, 1, 1, 1],
                padding="VALID",
                dilations=[1, 2, 2, 1],
            )
        )
        expected = np.zeros_like(images)
        for row, column in np.ndindex(3, 3):
            for i, j in np.ndindex(3, 3):
                expected[0, row + 2 * i, column + 2 * j] += filters[i, j].sum(1)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)

    def test_gradients_of_grouped_convolutions(self, run: Run) -> None:
        filters = np.random.default_rng(5).normal(size=(1, 1, 2, 6)).astype(np.float32)
        gradient = run(
            lambda: tf.raw_ops.Conv2DBackpropInput(
                input_sizes=[1, 2, 2, 6],
                filter=tf.constant(filters),
                out_backprop=tf.ones([1, 2, 2, 6]),
                strides=[1, 1, 1, 1],
                padding="VALID",
            )
        )
        groups = filters[0, 0].reshape(2, 3, 2).sum(2).T.reshape(6)
        np.testing.assert_allclose(gradient, np.broadcast_to(groups, (1, 2, 2, 6)), rtol=1e-5)

    @pytest.mark.parametrize("dilations", [[1, 1, 1, 1, 1], [1, 2, 2, 2, 1]])
    def test_convolution_in_three_dimensions(self, run: Run, dilations: list[int]) -> None:
        volume = np.random.default_rng(6).normal(size=(1, 4, 4, 4, 1)).astype(np.float32)
        convolved = run(
            lambda: tf.raw_ops.Conv3D(
                input=tf.constant(volume),
                filter=tf.ones([2, 2, 2, 1, 1]),
                strides=[1] * 5,
                padding="VALID",
                dilations=dilations,
            )
        )
        step = dilations[1]
        size = 4 - step
        expected = sum(
            volume[:, i : i + size, j : j + size, k : k + size]
            for i, j, k in np.ndindex(2 * step, 2 * step, 2 * step)
            if not (i % step or j % step or k % step)
        )
        np.testing.assert_allclose(convolved, expected, rtol=1e-5, atol=1e-5)

    def test_channels_first_in_an_op_of_any_dimensions(self, run: Run) -> None:
        images = np.random.default_rng(7).normal(size=(1, 3, 4, 4)).astype(np.float32)
        convolved = run(
            lambda: tf.raw_ops.Conv(
                input=tf.constant(images),
                filter=tf.ones([1, 1, 3, 2]),
                strides=[1] * 4,
                padding="VALID",
                data_format="CHANNELS_FIRST",
            )
        )
        expected = np.repeat(images.sum(1, keepdims=True), 2, 1)
        np.testing.assert_allclose(convolved, expected, rtol=1e-5, atol=1e-5)

    def test_labels_out_of_range(self, run: Run) -> None:
        loss, _ = run(
            lambda: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
                features=tf.zeros([3, 4]), labels=tf.constant([0, 7, 3])
            )
        )
        np.testing.assert_allclose(loss, [np.log(4), np.nan, np.log(4)], rtol=1e-6)

    def test_updates_out_of_range_are_dropped_and_others_count(self, run: Run) -> None:
        # The index that is refused comes last: nothing that was written before may remain.
        updated = run(
            lambda: tf.tensor_scatter_nd_add(
                tf.ones([3]) + tf.zeros([3]), [[0], [2], [9]], [1.0, 2.0, 4.0]
            )
        )
        np.testing.assert_array_equal(updated, [2, 1, 3])

    @pytest.mark.parametrize("height", [1, 2])
    def test_pools_over_channels(self, run: Run, height: int) -> None:
        images = np.random.default_rng(8).normal(size=(1, 2, 2, 6)).astype(np.float32)
        window = {"ksize": [1, height, 1, 3], "strides": [1, height, 1, 3], "padding": "VALID"}

        def pool_and_gradient() -> tuple[tf.Tensor, tf.Tensor]:
            inputs = tf.constant(images)
            pooled = tf.raw_ops.MaxPool(input=inputs, **window)
            ones = tf.ones([1, 2 // height, 2, 2])
            gradient = tf.raw_ops.MaxPoolGrad(
                orig_input=inputs, orig_output=pooled, grad=ones, **window
            )
            return pooled, gradient

        pooled, gradient = run(pool_and_gradient)
        windows = images.reshape(1, 2 // height, height, 2, 2, 3)
        expected = windows.max((2, 5), keepdims=True)
        np.testing.assert_array_equal(pooled, expected[:, :, 0, ..., 0])
        np.testing.assert_array_equal(gradient, (windows == expected).reshape(images.shape))

    @pytest.mark.parametrize("op", [tf.raw_ops.Bincount, tf.raw_ops.DenseBincount])
    def test_counts_of_negative_values_are_dropped(
        self, run: Run, op: Callable[..., tf.Tensor]
    ) -> None:
        values = {"arr" if op is tf.raw_ops.Bincount else "input": [1, -1, 7, 1]}
        counts = run(lambda: op(size=3, weights=[1.0, 2.0, 4.0, 8.0], **values))
        np.testing.assert_array_equal(counts, [0, 9, 0])

    def test_what_a_tpu_refuses_too_is_an_error(self, run: Run) -> None:
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            run(lambda: tf.gather_nd(tf.zeros([2]), [[0, 0, 0]]))
        np.testing.assert_array_equal(run(lambda: tf.constant([1.0]) + 1.0), [2])


class TestResultsThatDifferOnTheCpu:
    """Eagerly: in graphs, TensorFlow computes ops of constants on the CPU."""

    def test_singular_vectors_that_are_not_computed(self) -> None:
        values, left, right = _eagerly(
            lambda: tf.raw_ops.Svd(input=tf.linalg.diag([3.0, 2.0]), compute_uv=False)
        )
        np.testing.assert_allclose(values, [3, 2], rtol=1e-6)
        assert left.shape == right.shape == (0,)

    def test_gradient_of_a_dilated_depthwise_convolution(self) -> None:
        filters = np.arange(1.0, 5.0, dtype=np.float32).reshape(2, 2, 1, 1)
        gradient = _eagerly(
            lambda: tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                input_sizes=[1, 3, 3, 1],
                filter=filters,
                out_backprop=tf.ones([1, 1, 1, 1]),
                strides=[1, 1, 1, 1],
                padding="VALID",
                dilations=[1, 2, 2, 1],
            )
        )
        np.testing.assert_array_equal(gradient[0, ::2, ::2], filters[..., 0])
        np.testing.assert_array_equal(gradient.sum(), 10)

    def test_gradient_of_a_complex_reciprocal(self) -> None:
        y, dy = np.array([4 + 2j, 2j]), np.array([5, 7 - 3j])
        gradient = _eagerly(lambda: tf.raw_ops.ReciprocalGrad(y=tf.constant(y), dy=tf.constant(dy)))
        np.testing.assert_allclose(gradient, -dy * y * y)

    @pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
    @pytest.mark.parametrize(
        ("add", "expected"),
        [
            (lambda ones: tf.reduce_mean(ones), 1),
            (lambda ones: tf.reduce_sum(ones), 6000),
            (lambda ones: tf.cumsum(ones)[-1], 6000),
            (lambda ones: tf.raw_ops.BiasAddGrad(out_backprop=ones[:, None])[0], 6000),
            (lambda ones: tf.nn.l2_loss(ones), 3000),
        ],
        ids=["mean", "sum", "cumulative", "bias", "l2"],
    )
    def test_sums_of_short_floats(
        self, add: Callable[[tf.Tensor], tf.Tensor], expected: float, dtype: tf.DType
    ) -> None:
        found = _eagerly(lambda: add(tf.ones([6000], dtype)))
        # The last bit of bfloat16 is 2**-8 of the value.
        np.testing.assert_allclose(float(found), expected, rtol=2**-8)

    def test_a_sum_that_overflows_only_on_the_way(self) -> None:
        values = np.array([60000, 60000, -60000, -60000], np.float16)
        assert _eagerly(lambda: tf.reduce_sum(values)) == 0

    def test_a_complex_division_by_zero(self) -> None:
        one, zero = tf.constant(1 + 1j), tf.constant(0j)
        for divide in (tf.raw_ops.RealDiv, tf.raw_ops.Div, tf.raw_ops.Xdivy):
            quotient = _eagerly(lambda divide=divide: divide(x=one, y=zero))
            assert quotient.real == quotient.imag == np.inf
        np.testing.assert_allclose(_eagerly(lambda: tf.math.divide(one, 1 + 1j)), 1)


class TestTypesThatTheCpuRefuses:
    def test_cast(self, run: Run) -> None:
        small = tf.as_dtype("float8_e5m2fnuz")
        found = run(lambda: tf.cast(tf.cast([0.5, -4.0], small), tf.float32))
        np.testing.assert_array_equal(found, [0.5, -4])

    def test_truth_of_a_bfloat16(self, run: Run) -> None:
        assert run(lambda: tf.raw_ops.ToBool(input=tf.constant(5.0, tf.bfloat16)))

    @staticmethod
    def _apply(dtype: tf.DType) -> tuple[np.ndarray, np.ndarray]:
        var, accumulator, squares = (
            tf.Variable(tf.fill([3], tf.cast(value, dtype))) for value in (1.0, 0.0, 1.0)
        )
        zero = tf.constant(0.0, dtype)
        tf.raw_ops.ResourceApplyAdagradDA(
            var=var.handle,
            gradient_accumulator=accumulator.handle,
            gradient_squared_accumulator=squares.handle,
            grad=tf.constant([1.0, 2.0, 3.0], dtype),
            lr=tf.constant(0.5, dtype),
            l1=zero,
            l2=zero,
            global_step=tf.constant(1, tf.int64),
        )
        return var.numpy(), squares.numpy()

    def test_an_optimizer_in_float16(self) -> None:
        with tf.device("/CPU:0"):
            expected = self._apply(tf.float32)
        with tf.device(CORE):
            found = self._apply(tf.float16)
        for value, reference in zip(found, expected, strict=True):
            assert value.dtype == np.float16
            np.testing.assert_allclose(value, reference, rtol=2e-3)

    def test_a_variable_of_another_device_is_an_error(self) -> None:
        with tf.device("/CPU:0"):
            variable = tf.Variable(tf.ones([3], tf.float16))
        one = tf.constant(1.0, tf.float16)
        with tf.device(CORE), pytest.raises(tf.errors.OpError, match="device"):
            tf.raw_ops.ResourceApplyAdagradDA(
                var=variable.handle,
                gradient_accumulator=variable.handle,
                gradient_squared_accumulator=variable.handle,
                grad=tf.ones([3], tf.float16),
                lr=one,
                l1=one,
                l2=one,
                global_step=tf.constant(1, tf.int64),
            )
