"""`compilation_stats()` says why a function was compiled again, and what each program is."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import _compilations, _traces


@pytest.fixture
def compiled():
    """Returns the programs that were compiled since the test began."""
    before = tf_tpu_ext.compilation_stats().compilations

    def since():
        return tf_tpu_ext.compilation_stats().programs[before:]

    return since


def line_of(text):
    lines = pathlib.Path(__file__).read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.strip() == text]
    return f"{__file__}:{number}"


def test_programs_of_sessions_know_their_lines(compiled):
    def computation(x):
        wide = tf.cast(x, tf.float64)  # the first op of the session's
        return tf.while_loop(
            lambda y: tf.reduce_sum(y) < 100.0,
            lambda y: [tf.matmul(y, y)],  # in the session's loop
            [tf.cast(wide, tf.float32)],
        )

    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2, 3, 3])
        y = tf.compat.v1.tpu.rewrite(computation, [x])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
            session.run(y, {x: np.ones([2, 3, 3])})
    [program] = compiled()
    first = line_of("wide = tf.cast(x, tf.float64)  # the first op of the session's")
    in_loop = line_of("lambda y: [tf.matmul(y, y)],  # in the session's loop")
    assert program.source == first
    lines = {note.kind: note.source for note in program.notes}
    assert lines == {"emulated": first, "small product": in_loop}


def test_shapes_and_python_values(strategy, compiled):
    def step(images, scale=2):
        doubled = images * scale  # the first op of the step
        return strategy.run(lambda x: tf.reduce_sum(x), args=(doubled,))

    # Each strategy has a function of its own.
    step.__name__ = f"step_of_{strategy.num_replicas_in_sync}"
    step = tf.function(step)
    step(tf.ones([4, 3]))
    step(tf.ones([4, 3]))
    step(tf.ones([6, 3]))
    step(tf.ones([6, 3]), scale=5)
    step(tf.ones([4, 3], tf.float64))
    first, shape, value, dtype = compiled()
    assert [first.hits, shape.hits] == [1, 0]
    assert (first.compared_with, first.changes, first.compiled_again_because) == (None, (), "")
    assert shape.compared_with == first.program_id
    assert shape.changes == (tf_tpu_ext.Change("images", "float32[4,3]", "float32[6,3]"),)
    assert value.compared_with == shape.program_id
    assert value.compiled_again_because == "scale: 2 -> 5"
    # The nearest earlier one, not the last.
    assert dtype.compared_with == first.program_id
    assert dtype.compiled_again_because == "images: float32[4,3] -> float64[4,3]"
    for program in (first, shape, value, dtype):
        assert program.function == f"step_of_{strategy.num_replicas_in_sync}"
        assert program.source == line_of("doubled = images * scale  # the first op of the step")
        assert program.traced_with.keys() == {"images", "scale"}
        assert program.num_replicas == strategy.num_replicas_in_sync
        assert program.seconds == program.lowering_seconds + program.building_seconds > 0
        assert program.started > 1.7e9


def test_parts_of_a_structure(compiled):
    @tf.function(jit_compile=True)
    def combine(batch, weights):
        return batch["x"] * weights[0] + weights[1]

    with tf.device("/TPU:0"):
        x = tf.ones([3])
        combine({"x": x}, [2.0, tf.constant(1.0)])
        combine({"x": x}, [3.0, tf.constant(1.0)])
        combine({"x": tf.ones([5])}, [3.0, tf.constant(1.0)])
    reasons = [program.compiled_again_because for program in compiled()]
    assert reasons == ["", "weights[0]: 2.0 -> 3.0", "batch['x']: float32[3] -> float32[5]"]


def test_shapes_that_python_does_not_know(compiled):
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None], tf.float32)])
    def total(values):
        return tf.reduce_sum(values)

    with tf.device("/TPU:0"):
        assert [float(total(tf.ones([n]))) for n in (3, 7)] == [3.0, 7.0]
    first, second = compiled()
    assert first.name == second.name
    assert second.compiled_again_because == "values: float32[3] -> float32[7]"
    assert second.traced_with == {"values": "float32[?]"}


def test_values_that_are_compiled_in(compiled):
    @tf.function(jit_compile=True)
    def reshape(values, shape):
        return tf.reshape(values, shape)

    with tf.device("/TPU:0"):
        for shape in ([2, 3], [3, 2]):
            np.testing.assert_array_equal(
                reshape(tf.range(6), tf.constant(shape)), np.arange(6).reshape(shape)
            )
    _, second = compiled()
    assert second.compiled_again_because == "shape: int32[2] = 2 3 -> int32[2] = 3 2"


def test_arguments_have_names(strategy, compiled):
    with strategy.scope():
        kernel = tf.Variable(
            tf.ones([3, 2]), name="kernel", aggregation=tf.VariableAggregation.MEAN
        )

    @tf.function
    def step(images):
        return strategy.run(lambda x: kernel.assign_add(0.5 * x), args=(images,))

    step(tf.ones([3, 2]))
    [program] = compiled()
    arguments = {argument.name: argument for argument in program.arguments}
    assert set(arguments) == {"kernel", "images"}
    assert arguments["kernel"].is_variable
    assert not arguments["images"].is_variable
    assert arguments["kernel"].text == "float32[3,2]"
    assert arguments["kernel"].bytes == 24
    # Replicas that are stacked share a variable.
    shared = 24 * (program.stacked_replicas - 1) // program.stacked_replicas
    assert program.argument_bytes == 48 - shared


def test_memory_of_a_program(compiled):
    # The product is needed twice, and too large to be computed twice.
    @tf.function(jit_compile=True)
    def step(x):
        product = tf.matmul(x, x)
        return tf.matmul(product, product)

    with tf.device("/TPU:0"):
        step(tf.ones([64, 64]))
    [program] = compiled()
    size = 4 * 64 * 64
    assert program.argument_bytes == size
    assert size <= program.result_bytes < size + 100
    assert size <= program.temporary_bytes < 3 * size


def test_a_new_function_object(compiled):
    def make(scale):
        @tf.function
        def scaled(x):
            return tf_tpu_ext.tpu.rewrite(lambda y: y * scale, [x])

        return scaled

    for scale in (2.0, 3.0):
        make(scale)(tf.ones([2]))
    _, second = compiled()
    assert second.changes == ()
    assert second.compiled_again_because.startswith("traced again with equal arguments")


def test_options(compiled):
    @tf.function(jit_compile=True)
    def step(x):
        return x + 1.0

    with tf.device("/TPU:0"):
        step(tf.ones([2]))
        tf_tpu_ext.configure(tensorflow_kernels=False)
        try:
            step(tf.ones([2]))
        finally:
            tf_tpu_ext.configure(tensorflow_kernels=True)
    _, second = compiled()
    assert second.compiled_again_because == "tensorflow_kernels: 1 -> 0"


def test_given_up(run_python):
    done = run_python("""
        import tensorflow as tf
        import tf_tpu_ext

        tf_tpu_ext.configure(cores=1, max_programs=1)

        @tf.function(jit_compile=True)
        def step(x):
            return x + 1.0

        with tf.device("/TPU:0"):
            for size in (2, 3, 2):
                step(tf.ones([size]))
        for program in tf_tpu_ext.compilation_stats().programs:
            print(program.compared_with, program.compiled_again_because)
    """)
    lines = done.stdout.splitlines()
    assert lines[0] == "None "
    assert lines[1] == "1 x: float32[2] -> float32[3]"
    assert lines[2].startswith("1 the earlier program had been given up")


def test_after_a_failure(compiled):
    @tf.function(jit_compile=True)
    def broken(x):
        return tf.strings.length(tf.strings.as_string(x))

    with tf.device("/TPU:0"):
        for _ in range(2):
            with pytest.raises(tf.errors.OpError):
                broken(tf.ones([2]))
    first, second = compiled()
    assert first.error
    assert second.compiled_again_because == "the earlier compilation had failed"


def test_programs_of_a_session(compiled):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.float32, [None], name="fed")
        # No other test's program, which would be found already compiled.
        result = tf.compat.v1.tpu.rewrite(lambda x: x * 1.625, [fed])
        session.run(tf.compat.v1.tpu.initialize_system())
        for size in (2, 3):
            session.run(result, {fed: np.ones(size, np.float32)})
    first, second = compiled()
    assert first.traced_with == {}
    assert [change.now for change in second.changes] == ["float32[3]"]


def test_programs_of_two_sessions(compiled):
    for factor in (1.375, 1.875):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = tf.compat.v1.placeholder(tf.float32, [4])
            result = tf.compat.v1.tpu.rewrite(lambda x, by=factor: x * by, [fed])
            session.run(tf.compat.v1.tpu.initialize_system())
            session.run(result, {fed: np.ones(4, np.float32)})
    first, second = compiled()
    assert second.compared_with == first.program_id
    assert "equal arguments in another graph: another session's" in second.compiled_again_because


def test_notes_name_lines(compiled):
    @tf.function(jit_compile=True)
    def step(x):
        wide = tf.cast(x, tf.float64) * 2.0  # wide
        return tf.cast(wide, tf.float32)

    with tf.device("/TPU:0"):
        step(tf.ones([2]))
    [program] = compiled()
    [note] = program.notes
    assert (note.kind, note.what) == ("emulated", "float64")
    assert note.source == line_of("wide = tf.cast(x, tf.float64) * 2.0  # wide")
    assert note.advice == "use float32"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("__inference_train_step_62", "train_step"),
        ("__forward_call_1", "call"),
        ("step", "step"),
        ("_12", "_12"),
        ("", ""),
    ],
)
def test_names_of_functions(name, function):
    assert _traces.function_of(name) == function


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x/_2", "x"),
        ("mul_weights_handle_inputs_0/R0/_0", "mul_weights_handle_inputs_0"),
        ("dense/kernel/replica_3", "dense/kernel"),
        ("IteratorGetNext:1", "IteratorGetNext"),
        ("^barrier", "barrier"),
    ],
)
def test_names_of_arguments(name, shown):
    assert _compilations.argument_name(name) == shown


def test_traces_are_bounded(monkeypatch):
    monkeypatch.setattr(_traces, "_MOST", 2)
    traces = _traces.Traces()
    functions = []
    for _ in range(3):

        @tf.function
        def traced(x):
            return x

        functions.append(traced.get_concrete_function(tf.ones([2])))
        traces.note(functions[-1])
    assert traces.find(functions[0].name.decode()).arguments == {}
    assert traces.find(functions[2].name.decode()).arguments == {"x": "float32[2]"}
