"""Ops of TensorFlow that are patched, against what they do elsewhere."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from process_memory import resident_bytes
from tensorflow.python.eager import execute
from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext import patches

pytestmark = pytest.mark.usefixtures("tensorflow_patches")


# AllToAll.

ALL_TO_ALL_ERRORS = [
    ([1.0, 2.0, 3.0], {"split_count": 0}, "split_count 0 must at least be one"),
    ([1.0, 2.0], {"group_assignment": [0, 1]}, "group_assignment must have rank 2"),
    ([1.0, 2.0], {"split_count": 1}, "split_count 1 must equal the size of the second dimension"),
    (
        [[1.0], [2.0], [3.0]],
        {"concat_dimension": 1},
        "input dimension 3 not divisible by split_count 2",
    ),
    ([1.0, 2.0], {"concat_dimension": 1}, "concat_dimension 1 is out of range"),
]


def all_to_all(x: Any, **changes: Any) -> Any:
    attributes = {"concat_dimension": 0, "split_dimension": 0, "split_count": 2}
    groups = {"group_assignment": [[0, 1]]}
    return tpu_ops.all_to_all(x, **{**attributes, **groups, **changes})


@pytest.mark.parametrize(("x", "changes", "message"), ALL_TO_ALL_ERRORS)
def test_all_to_all_has_the_same_errors_eagerly_and_in_graphs(x, changes, message):
    for given in (x, np.float32(x), tf.constant(x)):
        with pytest.raises(ValueError, match=message):
            all_to_all(given, **changes)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        all_to_all(x, **changes)
    with pytest.raises(ValueError, match=message):
        tf.function(lambda: all_to_all(x, **changes))()


def test_all_to_all_without_the_patch():
    patches.undo_all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="split_count 0"):
        all_to_all([1.0, 2.0], split_count=0)


@pytest.mark.parametrize("groups", [[[0]], np.array([[0]]), tf.constant([[0]]), None])
@pytest.mark.parametrize("x", [[1.0, 2.0], np.arange(6).reshape(2, 3), tf.constant([True])])
def test_all_to_all_of_one_replica_is_the_identity(x, groups):
    result = all_to_all(x, split_count=1, group_assignment=groups)
    assert isinstance(result, tf.Tensor)
    np.testing.assert_array_equal(result, np.asarray(x))
    assert result.dtype == tf.convert_to_tensor(x).dtype


def test_all_to_all_keeps_tensorflow_s_own_errors():
    with pytest.raises(TypeError, match=r"all_to_all\(\).*'color'"):
        all_to_all([1.0], color="red")


def test_all_to_all_has_its_gradient():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = all_to_all(x * 3.0, split_count=1, group_assignment=[[0]])
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 3.0])


# Scatters.

SCATTERS = ("sub", "mul", "div", "min", "max", "add", "update")


def scatter_on_a_core(variable: tf.Variable, name: str, slices: tf.IndexedSlices) -> np.ndarray:
    @tf.function
    def run() -> Any:
        def computation() -> Any:
            getattr(variable, f"scatter_{name}")(slices)
            # Reads after it see what it wrote.
            return tf.identity(variable)

        return tf.compat.v1.tpu.rewrite(computation)

    [value] = run()
    np.testing.assert_array_equal(value, variable)
    return np.asarray(value)


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
@pytest.mark.parametrize("rows", [[3, 0], [[1], [3]], [2]])
def test_scatters_inside_a_computation(name, dtype, rows):
    start = np.array([[8, -9], [np.pi, 5], [-7, 2], [100, 60]])
    updates = np.arange(2, 2 + np.size(rows) * 2).reshape([*np.shape(rows), 2])
    updates = tf.cast(updates, dtype)
    slices = tf.IndexedSlices(updates, tf.constant(rows))
    expected = tf.Variable(tf.cast(start, dtype))
    getattr(expected, f"scatter_{name}")(slices)
    assert not np.array_equal(expected, tf.cast(start, dtype)) or name in ("min", "max")
    got = scatter_on_a_core(tf.Variable(tf.cast(start, dtype)), name, slices)
    tolerance = 0 if dtype == "int32" else 1e-6 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(
        got.astype(np.float64), expected.numpy().astype(np.float64), rtol=tolerance
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("sub", -9.0), ("mul", -24.0), ("div", -4 / 6), ("min", -4), ("max", 3)]
)
def test_scatters_of_one_row_twice_leave_the_others(name, expected):
    slices = tf.IndexedSlices(tf.constant([2.0, 3.0]), tf.constant([0, 0]))
    got = scatter_on_a_core(tf.Variable([-4.0, np.inf, -np.inf, 0.0]), name, slices)
    np.testing.assert_allclose(got, [expected, np.inf, -np.inf, 0.0], rtol=1e-6)


def test_scatters_of_one_number():
    slices = tf.IndexedSlices(tf.constant(2.0), tf.constant([0, 2]))
    got = scatter_on_a_core(tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "mul", slices)
    np.testing.assert_array_equal(got, [[2.0, 4.0], [3.0, 4.0], [10.0, 12.0]])


@pytest.mark.parametrize("name", ["sub", "mul", "div", "min", "max"])
def test_scatters_elsewhere_are_tensorflow_s(name):
    variable = tf.Variable([1.0, 2.0])
    slices = tf.IndexedSlices(tf.constant([3.0]), tf.constant([1]))

    @tf.function
    def function() -> Any:
        return getattr(variable, f"scatter_{name}")(slices)

    @tf.function
    def with_a_host_computation() -> None:
        def computation() -> None:
            tf.compat.v1.tpu.outside_compilation(getattr(variable, f"scatter_{name}"), slices)

        tf.compat.v1.tpu.rewrite(computation)

    for graph in (
        function.get_concrete_function().graph,
        with_a_host_computation.get_concrete_function().graph,
    ):
        kinds = [op.type for op in graph.get_operations()]
        assert f"ResourceScatter{name.title()}" in kinds


def test_scatters_in_a_loop_of_a_replica():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        variable = tf.Variable([1.0, 1.0, 1.0], aggregation=tf.VariableAggregation.NONE)

    @tf.function
    def step(times: Any) -> Any:
        def replica() -> Any:
            for i in tf.range(times):
                rows = tf.IndexedSlices(tf.constant([2.0]), [i])
                variable.scatter_mul(rows)
                variable.scatter_sub(rows)
            return variable.read_value()

        return strategy.run(replica)

    for value in strategy.experimental_local_results(step(tf.constant(2))):
        np.testing.assert_array_equal(value, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("name", ["sub", "mul"])
def test_scatters_in_a_graph(name):
    def kinds(where: Any) -> set[str]:
        with tf.Graph().as_default() as graph:
            variable = tf.Variable([1.0, 2.0])
            slices = tf.IndexedSlices(tf.constant([3.0]), tf.constant([1]))
            scatter = getattr(variable, f"scatter_{name}")
            # Not the value, whose read would be an op of the cores.
            tf.compat.v1.tpu.rewrite(lambda: where(lambda: scatter(slices).op))
            return {op.type for op in graph.get_operations()}

    stock = f"ResourceScatter{name.title()}"
    assert stock not in kinds(lambda function: function())
    assert stock in kinds(tf.compat.v1.tpu.outside_compilation)


# Handles of variables.


@pytest.fixture
def handle_ops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices on which the op of the patch has created handles."""
    devices: list[str] = []
    stock = execute.execute

    def recording(op: bytes, *args: Any, **kwargs: Any) -> Any:
        results = stock(op, *args, **kwargs)
        if op == b"TpuExt>VariableHandle":
            devices.extend(handle.device for handle in results)
        return results

    monkeypatch.setattr(execute, "execute", recording)
    return devices


def core(number: int) -> str:
    return f"/job:localhost/replica:0/task:0/device:TPU:{number}"


def test_variables_of_cores_get_their_handles_from_the_fast_op(handle_ops):
    for number in (0, 1):
        with tf.device(core(number)):
            first, second = (tf.Variable([1.0, number], name="v") for _ in range(2))
        first.assign_add([1.0, 1.0])
        np.testing.assert_array_equal(first, [2.0, number + 1])
        np.testing.assert_array_equal(second, [1.0, number])
        assert first.device == second.device == core(number)
        assert first.handle._handle_data.shape_and_type[0].dtype == tf.float32.as_datatype_enum
    assert handle_ops == [core(0), core(0), core(1), core(1)]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(tf.bool, []), (tf.int32, [2]), (tf.bfloat16, [0, 3]), (tf.complex64, [1]), (tf.int8, [2, 2])],
)
def test_variables_of_cores_hold_any_type(dtype, shape, handle_ops):
    with tf.device(core(0)):
        variable = tf.Variable(tf.zeros(shape, dtype), shape=tf.TensorShape(None))
        variable.assign(tf.ones([3], dtype))
    np.testing.assert_array_equal(variable.numpy(), np.ones(3, dtype.as_numpy_dtype))
    assert len(handle_ops) == 1


def test_a_handle_keeps_the_value_of_a_variable_of_a_core(handle_ops):
    with tf.device(core(1)):
        variable = tf.Variable(tf.zeros([2**20]))
    kept = weakref.ref(variable)
    handle = variable.handle
    del variable
    gc.collect()
    assert kept() is None
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    assert value.shape == [2**20]
    assert len(handle_ops) == 1


def test_variables_of_cores_are_freed(handle_ops):
    size = 2**26
    with tf.device(core(0)):
        value = tf.ones([size], tf.int8)
        before = resident_bytes()
        for _ in range(20):
            tf.Variable(value).assign_add(value)
    gc.collect()
    assert resident_bytes() - before < 5 * size
    assert len(handle_ops) == 20


def test_other_variables_keep_the_stock_op(handle_ops):
    with tf.device("CPU:0"):
        np.testing.assert_array_equal(tf.Variable([1.0]), [1.0])
    with tf.Graph().as_default(), tf.device(core(0)):
        variable = tf.compat.v1.get_variable("v", initializer=[3.0], use_resource=True)
        assert variable.handle.op.type == "VarHandleOp"
        with tf.compat.v1.Session() as session:
            session.run(variable.initializer)
            np.testing.assert_array_equal(session.run(variable), [3.0])
    assert handle_ops == []


def test_variables_of_cores_without_the_patch(handle_ops):
    patches.undo("variable_handles")
    with tf.device(core(0)):
        np.testing.assert_array_equal(tf.Variable([1.0, 2.0]), [1.0, 2.0])
    assert handle_ops == []
