"""`replicate`, sentence by sentence of the reference page, in a session, a function and eagerly."""

from __future__ import annotations

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import tpu

Pair = collections.namedtuple("Pair", ["left", "right"])


def replica_inputs(cores: int) -> list[list[float]]:
    return [[float(replica + 1)] for replica in range(cores)]


def test_random_ops_draw_different_numbers(run):
    def draw():
        return tf.random.uniform([20]), tf.random.uniform([20]), tf.random.normal([20])

    def draw_in_a_loop():
        return tf.map_fn(lambda _: tf.random.uniform([20]), tf.zeros([3]))

    rows = [*run(lambda: tpu.rewrite(draw)), *run(lambda: tpu.rewrite(draw_in_a_loop))[0]]
    assert len({row.tobytes() for row in rows}) == 6


def test_first_example_of_the_page(run, cores):
    def computation(x):
        x = x + 1
        return tf.math.reduce_mean(x)

    def build():
        vectors = [
            tf.convert_to_tensor([3.0 * r + 1, 3.0 * r + 2, 3.0 * r + 3]) for r in range(cores)
        ]
        return tpu.replicate(computation, inputs=[[x] for x in vectors])

    assert run(build) == [[3.0 * replica + 3] for replica in range(cores)]


class TestInputs:
    @pytest.mark.parametrize("inputs", [None, [[]]], ids=str)
    def test_none_is_one_replica_without_inputs(self, run, inputs):
        assert run(lambda: tpu.replicate(lambda: tf.constant(7), inputs)) == [[7]]

    def test_no_replicas(self, run):
        assert run(lambda: tpu.replicate(lambda: tf.constant(7), [])) == []

    def test_indexed_by_replica_then_input(self, run, cores):
        def build():
            inputs = [[float(r), 10.0 * r] for r in range(cores)]
            return tpu.replicate(lambda x, y: x - y, inputs)

        assert run(build) == [[-9.0 * replica] for replica in range(cores)]

    def test_nested(self, run, cores):
        def computation(x, y):
            assert isinstance(x["pair"], Pair)
            assert x["none"] is None
            return x["pair"].left + x["pair"].right, y[0] * y[1][0]

        def build():
            first = {"pair": Pair(1.0, np.float32(2.0)), "none": None}
            return tpu.replicate(
                computation, [[first, (r, [tf.constant(3)])] for r in range(cores)]
            )

        assert run(build) == [[3.0, 3 * replica] for replica in range(cores)]

    def test_list_of_numbers_becomes_scalars(self, run, cores):
        shapes = []

        def computation(x):
            shapes.append(tf.nest.map_structure(lambda leaf: leaf.shape.as_list(), x))
            return x[0][0] + x[1][1]

        assert (
            run(lambda: tpu.replicate(computation, [[[[1, 2], [3, 4]]]] * cores)) == [[5]] * cores
        )
        assert shapes[0] == [[[], []], [[], []]]

    def test_converted_list_is_one_tensor(self, run, cores):
        shapes = []

        def computation(x):
            shapes.append(x.shape.as_list())
            return tf.reduce_sum(x)

        def build():
            return tpu.replicate(computation, [[tf.convert_to_tensor([1, 2, 3])]] * cores)

        assert run(build) == [[6]] * cores
        assert shapes[0] == [3]

    @pytest.mark.parametrize(
        "value",
        [True, np.int8(-3), np.int64(2**40), np.float16(1.5), 1.5, np.float64(0.1), 1 + 2j],
        ids=lambda value: type(value).__name__,
    )
    def test_dtypes(self, run, value):
        expected = np.asarray(value)
        [[got]] = run(lambda: tpu.replicate(tf.identity, [[expected]]))
        assert got == expected
        assert got.dtype == expected.dtype

    def test_variables_are_read(self, run):
        def build():
            variable = tf.Variable(3.0) if tf.executing_eagerly() else tf.constant(3.0)
            return tpu.replicate(lambda x: x + 1, [[variable]])

        assert run(build) == [[4.0]]

    def test_unused_input(self, run, cores):
        inputs = [[1.0, 2.0]] * cores
        assert run(lambda: tpu.replicate(lambda x, y: y, inputs)) == [[2.0]] * cores

    def test_ragged_tensor(self, run):
        def build():
            ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
            return tpu.replicate(lambda x: x.flat_values * 2, [[ragged]])

        np.testing.assert_array_equal(run(build)[0][0], [2.0, 4.0, 6.0])

    def test_bare_tensor_is_one_input(self, run, cores):
        def build():
            return tpu.replicate(lambda x: x * 2, [tf.constant(float(r)) for r in range(cores)])

        assert run(build) == [[2.0 * replica] for replica in range(cores)]


class TestComputation:
    def test_bound_method(self, run, cores):
        class Model:
            scale = 3.0

            def step(self, x):
                return x * self.scale

        model = Model()
        expected = [[3.0 * x] for [x] in replica_inputs(cores)]
        assert run(lambda: tpu.replicate(model.step, replica_inputs(cores))) == expected

    def test_partial(self, run):
        add = functools.partial(lambda y, x: x - y, 1.0)
        assert run(lambda: tpu.replicate(add, [[3.0]])) == [[2.0]]

    def test_function_with_defaults(self, run):
        assert run(lambda: tpu.replicate(lambda x, y=4.0, *, z=1.0: x + y + z, [[3.0]])) == [[8.0]]

    def test_tf_function(self, run):
        @tf.function
        def computation(x):
            if x > 0:  # Python control flow, by autograph.
                return x
            return -x

        assert run(lambda: tpu.replicate(computation, [[-3.0]])) == [[3.0]]

    def test_captured_tensor(self, run, cores):
        def build():
            weight = tf.constant([2.0, 3.0])
            return tpu.replicate(lambda x: tf.reduce_sum(weight) * x, replica_inputs(cores))

        assert run(build) == [[5.0 * x] for [x] in replica_inputs(cores)]

    def test_knows_the_number_of_replicas(self, run, cores):
        def build():
            return tpu.replicate(lambda: tpu.cross_replica_sum(1.0), [[]] * cores)

        assert run(build) == [[float(cores)]] * cores

    def test_cannot_be_nested(self, run):
        def outer(x):
            return tpu.rewrite(lambda y: y + 1, [x])

        with pytest.raises((NotImplementedError, ValueError), match="nested"):
            run(lambda: tpu.replicate(outer, [[1.0]]))

    def test_in_a_function_without_a_name(self, cores):
        function = tf.function(lambda x: tpu.rewrite(lambda y: y + 1, [x]))
        assert [output.numpy() for output in function(1.0)] == [2.0]

    def test_failing_computation_leaves_the_variable_scope(self):
        def computation():
            raise KeyError("mine")

        with tf.Graph().as_default():
            scope = tf.compat.v1.get_variable_scope()
            before = scope.use_resource, scope.custom_getter
            with pytest.raises(KeyError, match="mine"):
                tpu.replicate(computation)
            assert (scope.use_resource, scope.custom_getter) == before


class TestOutputs:
    def test_nested(self, run, cores):
        def computation(x):
            return {"a": x, "b": [Pair(x + 1, None), (x * 2,)]}

        expected = [{"a": x, "b": [Pair(x + 1, None), (x * 2,)]} for [x] in replica_inputs(cores)]
        assert run(lambda: tpu.replicate(computation, replica_inputs(cores))) == expected

    def test_single_value_gives_a_sequence_of_one(self, run, cores):
        outputs = run(lambda: tpu.replicate(lambda x: x, replica_inputs(cores)))
        assert all(isinstance(output, (list, tuple)) for output in outputs)
        assert outputs == replica_inputs(cores)

    @pytest.mark.parametrize("kind", [list, tuple])
    def test_flat_sequence_gives_a_list(self, run, cores, kind):
        outputs = run(lambda: tpu.replicate(lambda x: kind([x, -x]), replica_inputs(cores)))
        assert outputs == [[x, -x] for [x] in replica_inputs(cores)]

    def test_constant_and_none(self, run):
        assert run(lambda: tpu.replicate(lambda: [3, None])) == [[3, None]]

    def test_nothing_gives_operations(self, cores):
        with tf.Graph().as_default():
            outputs = tpu.replicate(lambda x: None, replica_inputs(cores))
        assert [output.type for output in outputs] == ["NoOp"] * cores

    def test_only_operations_give_operations(self, cores):
        with tf.Graph().as_default():
            outputs = tpu.replicate(lambda x: tf.no_op(), replica_inputs(cores))
        assert [output.type for output in outputs] == ["NoOp"] * cores

    def test_operations_after_tensors_are_dropped(self, run, cores):
        outputs = run(lambda: tpu.replicate(lambda x: (x, tf.no_op()), replica_inputs(cores)))
        assert outputs == replica_inputs(cores)

    @pytest.mark.parametrize(
        ("computation", "structure"),
        [
            (lambda x: (tf.no_op(), x), r"\(\., \.\)"),
            (lambda x: {"a": tf.no_op()}, r"{'a': \.}"),
            (lambda x: (x, [tf.no_op()]), r"\(\., \[\.\]\)"),
        ],
        ids=["before", "in a dict", "nested"],
    )
    def test_operations_elsewhere_fail(self, run, computation, structure):
        with pytest.raises(ValueError, match=f"of structure {structure} with the operation 'NoOp"):
            run(lambda: tpu.replicate(computation, [[1.0]]))

    @pytest.mark.parametrize("returned", ["nothing", "operation", "operations"])
    def test_computation_without_tensors_runs(self, run, cores, returned):
        variables = []

        def computation(x):
            update = variables[0].assign_add(tpu.cross_replica_sum(x), read_value=False)
            if returned == "nothing":
                return None
            return update if returned == "operation" else [update, tf.no_op()]

        def build():
            if not variables:  # A function that makes variables is traced twice.
                with tf.init_scope():
                    variables.append(tf.Variable(10.0))
            outputs = tpu.replicate(computation, replica_inputs(cores))
            with tf.control_dependencies([output for output in outputs if output is not None]):
                return outputs, variables[0].read_value()

        outputs, value = run(build)
        assert outputs == [None] * cores
        assert value == 10.0 + sum(x for [x] in replica_inputs(cores))


class TestDeviceAssignment:
    def test_default_is_one_replica_or_as_many_as_cores(self, run, cores):
        for replicas in {1, cores}:
            expected = replica_inputs(replicas)
            assert run(lambda r=replicas: tpu.replicate(tf.identity, replica_inputs(r))) == expected

    def test_default_for_another_number_fails(self, cores):
        with pytest.raises(ValueError, match=rf"got {cores + 1} replicas .* expected 1 replica or"):
            tpu.replicate(tf.identity, replica_inputs(cores + 1))

    def test_explicit(self, run, cores):
        def with_sum(x):
            return x, tpu.cross_replica_sum(x)

        topology = tpu.Topology(tpu.initialize_system().numpy())
        for replicas in {1, max(1, cores // 2), cores}:
            assignment = tpu.DeviceAssignment.build(topology, num_replicas=replicas)
            outputs = run(
                lambda r=replicas, a=assignment: tpu.replicate(
                    with_sum, replica_inputs(r), device_assignment=a
                )
            )
            total = replicas * (replicas + 1) / 2
            assert outputs == [[x, total] for [x] in replica_inputs(replicas)]

    def test_reversed_cores(self, run, cores):
        topology = tpu.Topology(tpu.initialize_system().numpy())
        built = tpu.DeviceAssignment.build(topology, num_replicas=cores)
        assignment = tpu.DeviceAssignment(topology, built.core_assignment[::-1])
        outputs = run(
            lambda: tpu.replicate(lambda x: x, replica_inputs(cores), device_assignment=assignment)
        )
        assert outputs == replica_inputs(cores)

    def test_for_another_number_of_replicas_fails(self, cores):
        topology = tpu.Topology(tpu.initialize_system().numpy())
        assignment = tpu.DeviceAssignment.build(topology, num_replicas=1)
        with pytest.raises(ValueError, match=r"1 replicas and inputs for 3.*num_replicas=3"):
            tpu.replicate(tf.identity, replica_inputs(3), device_assignment=assignment)


class TestOptions:
    def test_name_does_nothing(self, same_graph):
        same_graph(
            lambda: tpu.replicate(tf.identity, [[1.0]], name="name"),
            lambda: tpu.replicate(tf.identity, [[1.0]]),
        )

    def test_xla_options_reach_the_graph(self):
        options = tpu.XLAOptions(use_spmd_for_xla_partitioning=False)
        with tf.Graph().as_default() as graph:
            tpu.replicate(tf.identity, [[1.0]], xla_options=options)
        [metadata] = [op for op in graph.get_operations() if op.type == "TPUReplicateMetadata"]
        assert metadata.get_attr("use_spmd_for_xla_partitioning") is False

    def test_xla_options_run(self, run, cores):
        options = tpu.XLAOptions(use_spmd_for_xla_partitioning=False)
        outputs = run(
            lambda: tpu.replicate(tf.identity, replica_inputs(cores), xla_options=options)
        )
        assert outputs == replica_inputs(cores)


class TestGraph:
    """The graph is TensorFlow's own, node by node."""

    @pytest.mark.parametrize(
        ("computation", "inputs"),
        [
            (lambda x: x + 1, [[1.0], [2.0]]),
            (lambda: None, None),
            (lambda x: (x, tf.no_op()), [[1], [2]]),
            (lambda x: {"a": [x["b"][0], None]}, [[{"b": (1.0, None)}], [{"b": (2.0, None)}]]),
            (lambda x, y: tf.raw_ops.CrossReplicaSum(input=x, group_assignment=[[0, 1]]),
             [[1.0, 2], [3.0, 4]]),
        ],
        ids=["single", "nothing", "operation", "nested", "collective"],
    )  # fmt: skip
    def test_equal(self, same_graph, computation, inputs):
        same_graph(
            lambda: tpu.replicate(computation, inputs),
            lambda: tf.compat.v1.tpu.replicate(computation, inputs),
        )

    def test_equal_with_options(self, same_graph, cores):
        topology = tpu.Topology(tpu.initialize_system().numpy())
        options = {
            "device_assignment": tpu.DeviceAssignment.build(topology, num_replicas=cores),
            "xla_options": tpu.XLAOptions(False, False),
        }
        inputs = replica_inputs(cores)
        same_graph(
            lambda: tpu.replicate(tf.identity, inputs, **options),
            lambda: tf.compat.v1.tpu.replicate(lambda x: tf.identity(x), inputs, **options),
        )

    def test_marks_the_ops_of_the_computation(self):
        with tf.Graph().as_default() as graph:
            tpu.replicate(lambda x: tf.add(x, 1.0, name="mine"), [[1.0]])
        operation = graph.get_operation_by_name("mine")
        assert operation.get_attr("_tpu_replicate") == b"cluster"


class TestErrors:
    """The ValueErrors of the page come before anything is built, compiled or run."""

    @pytest.fixture(autouse=True, params=["eager", "function", "graph"])
    def nothing_is_built(self, request, cores):
        before = tf_tpu_ext.compilation_stats().compilations
        graph = tf.Graph() if request.param == "graph" else None
        if request.param == "function":
            graph = tf.__internal__.FuncGraph("function")
        if graph is None:
            yield
        else:
            with graph.as_default():
                yield
            assert [op.type for op in graph.get_operations() if op.type != "Const"] == []
        assert tf_tpu_ext.compilation_stats().compilations == before

    @staticmethod
    def never_called(*args):
        raise AssertionError("the computation was called")

    def test_unequal_numbers_of_inputs(self):
        with pytest.raises(ValueError, match=r"2 inputs for replica 0 and 1 for replica 1.*same"):
            tpu.replicate(self.never_called, [[1.0, 2.0], [3.0]])

    @pytest.mark.parametrize("computation", [lambda: None, lambda x, y: x, lambda x, *, y: x])
    def test_inputs_do_not_match_the_parameters(self, computation):
        with pytest.raises(ValueError, match=r"1 inputs per replica.*one input for each"):
            tpu.replicate(computation, [[1.0]])
        with pytest.raises(TypeError):  # As TensorFlow raises.
            tpu.replicate(computation, [[1.0]])

    def test_structures_differ_between_replicas(self):
        with pytest.raises(ValueError, match=r"\[\[\.\]\] for replica 0 and \[\{'a': \.\}\]"):
            tpu.replicate(self.never_called, [[[1.0]], [{"a": 1.0}]])

    def test_types_differ_between_replicas(self):
        inputs = [[np.float32(1)], [np.int32(1)]]
        with pytest.raises(ValueError, match=r"input 0 of type float32 .* int32 in replica 1"):
            tpu.replicate(self.never_called, inputs)

    def test_shapes_differ_between_replicas(self):
        inputs = [[np.zeros(3)], [np.zeros(4)]]
        with pytest.raises(ValueError, match=r"\(3,\) in replica 0 and \(4,\) .* maximum_shapes"):
            tpu.replicate(self.never_called, inputs)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"computation": 3}, "computation=3 of type int, expected a Python function"),
            ({"inputs": 3.0}, "inputs of type float, expected a list with one list"),
            ({"inputs": [3.0]}, "inputs of type float for replica 0.*inputs=.*x0"),
            ({"infeed_queue": "q"}, "infeed_queue of type str, expected an InfeedQueue"),
            ({"device_assignment": [0]}, "of type list, expected a DeviceAssignment"),
            ({"xla_options": {}}, "xla_options={}, expected an XLAOptions"),
        ],
        ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
    )
    def test_wrong_class(self, arguments, message):
        with pytest.raises(TypeError, match=f"(?s)replicate got .*{message}"):
            tpu.replicate(**{"computation": self.never_called, "inputs": [[]], **arguments})
