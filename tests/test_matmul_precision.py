"""`Options(matmul_precision="tpu")`: products and convolutions as a TPU computes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2

import tf_tpu_ext
from tf_tpu_ext import Options

RANDOM = np.random.default_rng(7)
LEFT = RANDOM.standard_normal([32, 48]).astype(np.float32)
RIGHT = RANDOM.standard_normal([48, 16]).astype(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """Float32 rounded to bfloat16, to nearest and to even: by its bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def exact(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.astype(np.float64) @ right.astype(np.float64)


def run(computation, *arguments, **options):
    """The result on one core, in NumPy's types."""
    with Options(**options):
        [result] = tf_tpu_ext.tpu.rewrite(computation, [tf.constant(x) for x in arguments])
    return result.numpy()


def test_the_square_that_shows_it():
    one = np.float32([[1 + 2**-10]])
    square = lambda x: tf.matmul(x, x) - 1.0  # noqa: E731
    assert run(square, one, matmul_precision="tpu") == 0
    assert run(square, one) == pytest.approx(0.00195, abs=1e-5)


def test_products_are_of_rounded_operands_and_summed_in_full():
    found = run(tf.matmul, LEFT, RIGHT, matmul_precision="tpu")
    np.testing.assert_allclose(found, exact(rounded(LEFT), rounded(RIGHT)), atol=2e-5)
    assert np.abs(found - exact(LEFT, RIGHT)).max() > 1e-3
    np.testing.assert_allclose(run(tf.matmul, LEFT, RIGHT), exact(LEFT, RIGHT), atol=2e-5)


def test_what_is_not_finite_or_halfway():
    values = np.float32([[np.inf, -np.inf, np.nan, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8, 1e-30, 0]])
    found = run(lambda x: tf.matmul(x, [[1.0]], transpose_a=True), values, matmul_precision="tpu")
    np.testing.assert_array_equal(
        found[:, 0], [np.inf, -np.inf, np.nan, np.inf, 1, 1 + 2**-6, rounded(np.float32(1e-30)), 0]
    )


@pytest.mark.parametrize(
    ("precision", "expected", "tolerance"),
    [
        ("DEFAULT", exact(rounded(LEFT), rounded(RIGHT)), 2e-5),
        # Three products of the operands' two parts: all but that of the small ones.
        (
            "HIGH",
            exact(LEFT, RIGHT) - exact(LEFT - rounded(LEFT), RIGHT - rounded(RIGHT)),
            1e-4,
        ),
        ("HIGHEST", exact(LEFT, RIGHT), 2e-5),
    ],
)
def test_precision_that_the_program_asks_xla_for(precision, expected, tolerance):
    config = xla_data_pb2.PrecisionConfig()
    value = xla_data_pb2.PrecisionConfig.Precision.Value(precision)
    config.operand_precision.extend([value, value])
    numbers = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]
    )

    def product(x, y):
        return xla.dot_general(x, y, numbers, config)

    found = run(product, LEFT, RIGHT, matmul_precision="tpu")
    np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.fixture
def without_tensor_float() -> Iterator[None]:
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)


def test_precision_that_tensorflow_is_asked_for(without_tensor_float):
    found = run(tf.matmul, LEFT, RIGHT, matmul_precision="tpu")
    np.testing.assert_allclose(found, exact(LEFT, RIGHT), atol=2e-5)


def test_precision_is_part_of_what_a_program_is():
    def product():
        with Options(matmul_precision="tpu"):
            function = tf.function(lambda x, y: tf.matmul(x, y), jit_compile=True)
            function.get_concrete_function(LEFT, RIGHT)
        return function

    with tf.device("TPU:0"):
        function = product()
        before = function(LEFT, RIGHT)
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            in_full = function(LEFT, RIGHT)
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(True)
        np.testing.assert_array_equal(function(LEFT, RIGHT), before)
    np.testing.assert_allclose(in_full, exact(LEFT, RIGHT), atol=2e-5)
    np.testing.assert_allclose(before, exact(rounded(LEFT), rounded(RIGHT)), atol=2e-5)


# Small ones are computed by XLA, large ones by TensorFlow's kernels.
@pytest.mark.parametrize("size", [6, 32])
@pytest.mark.parametrize("kernels", [True, False])
def test_convolutions_and_their_gradients(size, kernels):
    image = RANDOM.standard_normal([2, size, size, 16]).astype(np.float32)
    kernel = RANDOM.standard_normal([3, 3, 16, 8]).astype(np.float32)
    upstream = RANDOM.standard_normal([2, size - 2, size - 2, 8]).astype(np.float32)

    def step(x, y, z):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            made = tf.nn.conv2d(x, y, 1, "VALID")
        return [made, *tape.gradient(made, [x, y], z)]

    inputs = [tf.constant(x) for x in (image, kernel, upstream)]
    with Options(matmul_precision="tpu", tensorflow_kernels=kernels):
        found = tf_tpu_ext.tpu.rewrite(step, inputs)
    # Each of the three is linear in both of its operands.
    expected = step(*(tf.constant(rounded(x), tf.float64) for x in (image, kernel, upstream)))
    in_full = step(*(tf.cast(x, tf.float64) for x in inputs))
    for one, rounded_one, full_one in zip(found, expected, in_full, strict=True):
        scale = np.abs(rounded_one).max()
        np.testing.assert_allclose(one, rounded_one, atol=1e-5 * scale)
        assert np.abs(one.numpy() - full_one.numpy()).max() > 1e-4 * scale


def test_other_types_and_pools_are_as_before():
    image = RANDOM.standard_normal([2, 32, 32, 16]).astype(np.float32)

    def others(x, y):
        double = tf.matmul(tf.cast(x, tf.float64), tf.cast(x, tf.float64), transpose_b=True)
        return tf.reduce_sum(double), tf.nn.avg_pool2d(y, 3, 1, "SAME"), x * x

    plain = tf_tpu_ext.tpu.rewrite(others, [LEFT, image])
    with Options(matmul_precision="tpu"):
        found = tf_tpu_ext.tpu.rewrite(others, [LEFT, image])
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_replicas_together():
    factors = range(1, len(tf.config.list_logical_devices("TPU")) + 1)
    with Options(matmul_precision="tpu"):
        results = tf_tpu_ext.tpu.replicate(
            lambda x: tf.matmul(x, RIGHT), [[tf.constant(LEFT * factor)] for factor in factors]
        )
    for factor, [result] in zip(factors, results, strict=True):
        expected = exact(rounded(LEFT * np.float32(factor)), rounded(RIGHT))
        np.testing.assert_allclose(result, expected, atol=2e-5 * factor)


def test_a_target_sets_it_unless_it_is_chosen(run_python):
    run_python("""
        import tf_tpu_ext
        def precision(**settings):
            return tf_tpu_ext.configure(**settings).options.matmul_precision
        assert precision() == "full"
        assert precision(target="v5e-8") == "tpu"
        assert precision(target="") == "full"
        with tf_tpu_ext.compile_for("v5e-8"):
            assert precision() == "tpu"
            assert precision(matmul_precision="full") == "full"
            assert precision(share_updates=True) == "full"
        assert precision(matmul_precision="tpu") == "tpu"
        assert precision(target="v5e-8") == "tpu"
        assert precision(target="") == "tpu"
    """)


@pytest.mark.parametrize("wrong", [True, "bf16", 1])
def test_that_is_none(wrong):
    with pytest.raises(ValueError, match='`matmul_precision` must be "full", "tpu", or None'):
        Options(matmul_precision=wrong)
