"""CrossReplicaSum, AllToAll, CollectivePermute and the Xla* collectives, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_collectives import (
    Groups,
    Pairs,
    as_pairs,
    assert_replicas_equal,
    numpy_all_to_all,
    numpy_permute,
    numpy_sum,
    random_array,
    replica_arrays,
)
from replicas import strategy_of_all_cores
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import tf_tpu_ext

tpu = tf.compat.v1.tpu
raw = tf.raw_ops

SUM_TYPES = ["half", "bfloat16", "float32", "float64", "int32", "uint32"]
NUMBER_TYPES = [
    *SUM_TYPES,
    *["int8", "uint8", "int16", "uint16", "int64", "uint64", "complex64", "complex128"],
]
REPLICAS = [2, 4, 8]

# Every example is a program of its own to compile.
compiled = settings(
    max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def on_first_cores(session: Any, replicas: int) -> Any:
    """The device assignment of as many replicas, on one core each."""
    topology = session.run(tpu.initialize_system())
    return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)


def replicate(function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """Runs `function` on one core for each of `values`; the value is its argument."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outputs = tpu.replicate(
            function,
            [[tf.constant(value)] for value in values],
            device_assignment=on_first_cores(session, len(values)),
        )
        return [output[0] for output in session.run(outputs)]


@st.composite
def group_assignments(draw: st.DrawFn) -> tuple[int, Groups]:
    """A number of replicas, and all of them in random groups of one size."""
    replicas = draw(st.sampled_from(REPLICAS))
    order = draw(st.permutations(range(replicas)))
    size = draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= replicas]))
    return replicas, [list(order[i : i + size]) for i in range(0, replicas, size)]


@st.composite
def partial_permutations(draw: st.DrawFn) -> tuple[int, Pairs]:
    replicas = draw(st.sampled_from(REPLICAS))
    sources = draw(st.permutations(range(replicas)))
    targets = draw(st.permutations(range(replicas)))
    count = draw(st.integers(0, replicas))
    return replicas, list(zip(sources[:count], targets[:count], strict=True))


class TestCrossReplicaSum:
    @pytest.mark.parametrize("dtype", SUM_TYPES)
    @pytest.mark.parametrize("replicas", REPLICAS)
    def test_all_replicas(self, dtype, replicas):
        arrays = replica_arrays([3, 5], dtype, replicas)
        expected = numpy_sum(arrays, [list(range(replicas))])
        for got, want in zip(replicate(tpu.cross_replica_sum, arrays), expected, strict=True):
            # XLA may add floats in another order.
            tolerance = {"float32": 1e-6, "float64": 1e-14, "half": 1e-3, "bfloat16": 8e-3}
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=tolerance.get(dtype, 0),
                atol=100 * tolerance.get(dtype, 0),
            )
            assert got.dtype == want.dtype

    @compiled
    @given(group_assignments(), st.lists(st.integers(0, 4), max_size=4))
    def test_groups(self, assignment, shape):
        replicas, groups = assignment
        arrays = replica_arrays(shape, "int32", replicas)
        got = replicate(lambda x: tpu.cross_replica_sum(x, groups), arrays)
        assert_replicas_equal(got, numpy_sum(arrays, groups))

    @pytest.mark.parametrize(
        ("dtype", "large", "rounded"), [("half", 2048, 2056), ("bfloat16", 256, 264)]
    )
    def test_16_bit_sums_are_rounded_once(self, dtype, large, rounded):
        # Rounded after every addition, each 1 would be lost.
        values = np.array([large, 1, 1, 1, 1, 1, 1, 1], tf.as_dtype(dtype).as_numpy_dtype)
        assert replicate(tpu.cross_replica_sum, values) == [rounded] * 8

    def test_unsigned_sums_wrap_around(self):
        values = np.array([2**32 - 1, 3], np.uint32)
        assert replicate(tpu.cross_replica_sum, values) == [2, 2]

    def test_in_a_loop(self):
        def step(x):
            return tf.while_loop(
                lambda i, _: i < 5, lambda i, y: (i + 1, tpu.cross_replica_sum(y)), [0, x]
            )[1]

        assert replicate(step, [1.0, 2.0, 3.0, 4.0]) == [10.0 * 4**4] * 4

    def test_gradient(self):
        def step(x):
            weight = x * 2
            return tf.gradients(weight * tpu.cross_replica_sum(x, [[0, 1], [2, 3]]), x)[0]

        x = np.array([1, 2, 3, 4], np.float32)
        pair_sums = np.array([3, 3, 7, 7])
        # d(2 x s)/dx = 2 s + the sum over the pair of 2 x.
        np.testing.assert_allclose(replicate(step, x), 2 * pair_sums + 2 * pair_sums)

    def test_replicas_of_different_sizes(self):
        """A replica without an element adds nothing to it."""
        lengths = [1, 3, 2, 5]

        def step(length):
            x = tf.range(1, 6) * 10**length
            return tpu.cross_replica_sum(tf.boolean_mask(x, tf.range(5) < length))

        whole = np.zeros(5, np.int32)
        for length in lengths:
            whole[:length] += np.arange(1, length + 1, dtype=np.int32) * 10**length
        got = replicate(step, np.array(lengths, np.int32))
        assert_replicas_equal(got, [whole[:length] for length in lengths])


class TestAllToAll:
    @pytest.mark.parametrize("dtype", ["bool", *NUMBER_TYPES])
    def test_types(self, dtype):
        arrays = replica_arrays([2, 8], dtype, 4)
        groups = [[3, 1, 0, 2]]
        got = replicate(
            lambda x: raw.AllToAll(
                input=x,
                group_assignment=groups,
                concat_dimension=0,
                split_dimension=1,
                split_count=4,
            ),
            arrays,
        )
        assert_replicas_equal(got, numpy_all_to_all(arrays, groups, concat=0, split=1))

    @compiled
    @given(group_assignments(), st.data())
    def test_groups_and_dimensions(self, assignment, data):
        replicas, groups = assignment
        shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
        split = data.draw(st.integers(0, len(shape) - 1))
        concat = data.draw(st.integers(0, len(shape) - 1))
        shape[split] *= len(groups[0])
        arrays = replica_arrays(shape, "float32", replicas)
        got = replicate(
            lambda x: raw.AllToAll(
                input=x,
                group_assignment=groups,
                concat_dimension=concat,
                split_dimension=split,
                split_count=len(groups[0]),
            ),
            arrays,
        )
        assert_replicas_equal(got, numpy_all_to_all(arrays, groups, concat, split))

    def test_gradient_returns_the_pieces(self):
        def step(x):
            exchanged = raw.AllToAll(
                input=x,
                group_assignment=[[0, 1]],
                concat_dimension=0,
                split_dimension=1,
                split_count=2,
            )
            return tf.gradients(exchanged * exchanged, x)[0]

        arrays = replica_arrays([3, 4], "float32", 2)
        assert_replicas_equal(replicate(step, arrays), [2 * array for array in arrays])


class TestCollectivePermute:
    @pytest.mark.parametrize("dtype", NUMBER_TYPES)
    def test_types(self, dtype):
        arrays = replica_arrays([3, 2], dtype, 4)
        pairs = [(0, 2), (2, 3), (3, 1)]
        got = replicate(lambda x: raw.CollectivePermute(input=x, source_target_pairs=pairs), arrays)
        assert_replicas_equal(got, numpy_permute(arrays, pairs))

    @compiled
    @given(partial_permutations(), st.lists(st.integers(0, 4), max_size=4))
    def test_pairs(self, permutation, shape):
        replicas, pairs = permutation
        arrays = replica_arrays(shape, "float32", replicas)
        got = replicate(
            lambda x: raw.CollectivePermute(input=x, source_target_pairs=as_pairs(pairs)), arrays
        )
        assert_replicas_equal(got, numpy_permute(arrays, pairs))

    def test_gradient_goes_back(self):
        def step(x):
            moved = raw.CollectivePermute(input=x, source_target_pairs=[[0, 1], [1, 2]])
            return tf.gradients(moved * moved, x)[0]

        # Replica 2 sends nothing.
        assert replicate(step, np.array([1, 2, 3], np.float32)) == [2, 4, 0]


class TestXlaCollectives:
    @pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
    @pytest.mark.parametrize(
        ("name", "reduce"), [("Add", np.add), ("Max", np.maximum), ("Min", np.minimum)]
    )
    def test_all_reduce(self, dtype, name, reduce):
        arrays = [np.arange(6).astype(tf.as_dtype(dtype).as_numpy_dtype) * i for i in (1, 3, 2, 5)]
        got = replicate(
            lambda x: gen_xla_ops.xla_all_reduce(
                input=x, group_assignment=[[0, 1], [2, 3]], reduce_op=name, mode="CrossReplica"
            ),
            arrays,
        )
        pairs = [reduce(arrays[0], arrays[1]), reduce(arrays[2], arrays[3])]
        assert_replicas_equal(got, [pairs[0], pairs[0], pairs[1], pairs[1]])

    def test_reduce_scatter(self):
        arrays = [np.arange(8, dtype=np.float32) * i for i in (1, 2, 3, 4)]
        got = replicate(
            lambda x: gen_xla_ops.xla_reduce_scatter(
                input=x, group_assignment=[[0, 1, 2, 3]], scatter_dimension=0, reduce_op="Add"
            ),
            arrays,
        )
        assert_replicas_equal(got, np.split(sum(arrays), 4))


GROUP_ERRORS = [
    ([0, 1], r"must have rank 2.*got shape \[2\]"),
    ([[0]], r"every replica.*got 1 of 2, without \[1\].*exactly one"),
    ([[0, 1], [1, 0]], r"replica 1 more than once.*at most once"),
    ([[0, 2]], r"names replica 2.*2 replicas, numbers 0 to 1"),
    ([[0, -1]], r"names replica -1"),
]
PAIR_ERRORS = [
    ([0, 1], r"shape \[pairs, 2\]; got shape \[2\]"),
    ([[0, 1, 1]], r"shape \[pairs, 2\]; got shape \[1, 3\]"),
    ([[0, 1], [0, 0]], r"replica 0 more than once as a source"),
    ([[0, 1], [1, 1]], r"replica 1 more than once as a target"),
    ([[0, 5]], r"names replica 5"),
]
ALL_TO_ALL_ERRORS = [
    ({"concat_dimension": 2}, r"concat_dimension 2 is out of range of input rank 2"),
    ({"split_dimension": -1}, r"split_dimension -1 is out of range of input rank 2"),
    ({"split_count": 0}, r"split_count 0"),
    ({"split_count": 3}, r"split_count 3 must equal"),
    ({"split_dimension": 1}, r"input dimension 3 not divisible by split_count 2"),
]


def all_to_all(x: Any, groups: Any = ((0, 1),), **attributes: int) -> Any:
    defaults = {"concat_dimension": 0, "split_dimension": 0, "split_count": 2}
    return raw.AllToAll(input=x, group_assignment=groups, **{**defaults, **attributes})


class TestErrors:
    @pytest.mark.parametrize(("groups", "message"), GROUP_ERRORS)
    def test_groups(self, groups, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"CrossReplicaSum.*" + message):
            replicate(lambda x: raw.CrossReplicaSum(input=x, group_assignment=groups), [1.0, 2.0])
        assert replicate(tpu.cross_replica_sum, [1.0, 2.0]) == [3.0, 3.0]

    @pytest.mark.parametrize(("pairs", "message"), PAIR_ERRORS)
    def test_pairs(self, pairs, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"CollectivePermute.*" + message):
            replicate(
                lambda x: raw.CollectivePermute(input=x, source_target_pairs=pairs), [1.0, 2.0]
            )

    def test_all_to_all_groups(self):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"AllToAll: .*more than once"):
            replicate(lambda x: all_to_all(x, [[0, 1], [0, 1]]), np.ones([2, 2, 3], np.float32))

    @pytest.mark.parametrize(("attributes", "message"), ALL_TO_ALL_ERRORS)
    def test_shapes_known_in_the_graph(self, attributes, message):
        with pytest.raises(ValueError, match=message):
            replicate(lambda x: all_to_all(x, **attributes), np.ones([2, 2, 3], np.float32))

    def test_shapes_known_when_compiled(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            inputs = [tf.compat.v1.placeholder(tf.float32, [None, None]) for _ in range(2)]
            outputs = tpu.replicate(
                all_to_all, [[x] for x in inputs], device_assignment=on_first_cores(session, 2)
            )
            fed = {x: np.full([4, 1], i, np.float32) for i, x in enumerate(inputs)}
            assert_replicas_equal(
                [output[0] for output in session.run(outputs, fed)],
                [np.array([[0], [0], [1], [1]], np.float32)] * 2,
            )
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"not divisible by split_count 2.*AllToAll"
            ):
                session.run(outputs, {x: np.ones([3, 1], np.float32) for x in inputs})

    def test_all_to_all_needs_fixed_sizes(self):
        def step(x):
            return all_to_all(tf.boolean_mask(x, x > 0))

        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"AllToAll: dimension 0 .* at most 4 elements"
        ):
            replicate(step, np.ones([2, 4], np.float32))


class TestOneReplicaOnCpu:
    @pytest.fixture(params=["eager", "jit_compile", "session"])
    def run(self, request):
        def in_session(function):
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                return session.run(function())

        def on_cpu(function):
            with tf.device("/CPU:0"):
                if request.param == "session":
                    return in_session(function)
                if request.param == "jit_compile":
                    return tf.function(function, jit_compile=True)().numpy()
                return function().numpy()

        return on_cpu

    @pytest.mark.parametrize("dtype", SUM_TYPES)
    def test_sum_is_the_identity(self, run, dtype):
        x = random_array([2, 3], dtype, seed=0)
        got = run(lambda: raw.CrossReplicaSum(input=tf.constant(x), group_assignment=[[0]]))
        assert_replicas_equal([got], [x])

    @pytest.mark.parametrize("dtype", ["bool", "bfloat16", "complex128"])
    def test_all_to_all_is_the_identity(self, run, dtype):
        x = random_array([2, 3], dtype, seed=0)
        got = run(lambda: all_to_all(tf.constant(x), [[0]], split_count=1))
        assert_replicas_equal([got], [x])

    @pytest.mark.parametrize("pairs", [[(0, 0)], []])
    def test_permute_keeps_or_clears(self, run, pairs):
        x = random_array([2, 3], "float32", seed=0)
        got = run(
            lambda: raw.CollectivePermute(input=tf.constant(x), source_target_pairs=as_pairs(pairs))
        )
        assert_replicas_equal([got], numpy_permute([x], pairs))

    @pytest.mark.parametrize(
        "function",
        [
            lambda: raw.CrossReplicaSum(input=1.0, group_assignment=[[0, 1]]),
            lambda: all_to_all(tf.ones([2, 3])),
            lambda: raw.CollectivePermute(input=1.0, source_target_pairs=[[0, 1]]),
        ],
    )
    def test_other_replicas_need_replicate(self, run, function):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"names replica 1.*one replica.*tpu\.replicate"
        ):
            run(function)

    @pytest.mark.parametrize(("attributes", "message"), ALL_TO_ALL_ERRORS)
    def test_eager_all_to_all_has_the_shape_errors(self, attributes, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            all_to_all(tf.ones([2, 3]), **attributes)


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.TPUStrategy:
    return strategy_of_all_cores()


class TestStrategy:
    def run(self, strategy, function):
        """Runs `function` of the replica's number, as a float, on every core."""
        numbers = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(float(context.replica_id_in_sync_group))
        )

        @tf.function
        def run_step(x):
            return strategy.run(function, [x])

        results = strategy.experimental_local_results(run_step(numbers))
        return [result.numpy() for result in results]

    def test_collective_ops(self, strategy):
        replicas = strategy.num_replicas_in_sync
        everyone = list(range(replicas))
        shift = [[i, (i + 1) % replicas] for i in everyone]

        def step(x):
            row = tf.fill([replicas], x)
            return tf.stack(
                [
                    tpu.cross_replica_sum(row),
                    all_to_all(row, [everyone], split_count=replicas),
                    raw.CollectivePermute(input=row, source_target_pairs=shift),
                ]
            )

        for replica, got in enumerate(self.run(strategy, step)):
            total = np.full(replicas, sum(everyone))
            before = np.full(replicas, (replica - 1) % replicas)
            np.testing.assert_array_equal(got, [total, everyone, before])

    def test_all_reduce(self, strategy):
        replicas = strategy.num_replicas_in_sync

        def step(x):
            context = tf.distribute.get_replica_context()
            mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, x)
            return tf.concat([[mean], context.all_gather(x[None], axis=0)], 0)

        expected = [(replicas - 1) / 2, *range(replicas)]
        for got in self.run(strategy, step):
            np.testing.assert_array_equal(got, expected)

    def test_sums_of_what_several_threads_compute(self, strategy):
        """The thread that computes the last part runs the sum that needs it."""
        replicas = strategy.num_replicas_in_sync

        def step(x):
            one = tf.constant(1.0)
            for _ in range(4):
                large = tf.fill([400_000], one) + x
                one = tpu.cross_replica_sum(tf.reduce_max(tf.exp(large - x))) / replicas / np.e
            return one

        with tf_tpu_ext.Options(stack_replicas=False):
            for _ in range(2):
                np.testing.assert_allclose(self.run(strategy, step), replicas * [1.0], rtol=1e-5)

    def test_errors_reach_the_caller(self, strategy):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"CrossReplicaSum: .*rank 2"):
            self.run(strategy, lambda x: raw.CrossReplicaSum(input=x, group_assignment=[0]))
        total = sum(range(strategy.num_replicas_in_sync))
        assert set(self.run(strategy, tpu.cross_replica_sum)) == {total}
