"""Graphs without TPU ops are the same, byte for byte, with and without the package.

Each program runs in two processes, which print a digest of everything TensorFlow made of it: the
graphs after the optimization passes and partitioning, the function library, and the results.
"""

from __future__ import annotations

import json

import pytest

# With one thread, sums add up in one order.
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}

PREAMBLE = """
import sys
if sys.argv[1] == "with":
    import tf_tpu_ext
import hashlib, json
import numpy as np
import tensorflow as tf
tf.keras.utils.set_random_seed(1)

def digest(value):
    # Deterministic: the serialized map of attributes has no order of its own.
    if hasattr(value, "SerializePartialToString"):
        value = value.SerializePartialToString(deterministic=True)
    elif not isinstance(value, bytes):
        value = np.asarray(value).tobytes()
    return hashlib.sha256(value).hexdigest()

def report(**values):
    print("REPORT" + json.dumps(values))
"""

SESSION = """
v1 = tf.compat.v1
v1.disable_control_flow_v2() if "v1" in sys.argv[2] else v1.enable_control_flow_v2()
with tf.Graph().as_default() as graph:
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    kernel = v1.get_variable("kernel", initializer=np.eye(4, dtype=np.float32), use_resource=True)
    with tf.device("/device:CPU:0"):
        hidden = tf.nn.relu(tf.matmul(x, kernel)) + tf.constant(1.0) * tf.constant(2.0)
    looped = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y)), [0, hidden])[1]
    chosen = tf.cond(tf.reduce_sum(looped) > 0, lambda: looped * 2, lambda: looped - 1)
    loss = tf.reduce_mean(chosen)
    update = kernel.assign_sub(0.1 * tf.gradients(loss, [kernel])[0])
    names = tf.strings.as_string(tf.argmax(chosen, axis=1))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        fetched = session.run([loss, update, names], {x: np.arange(8).reshape(2, 4)},
                              options=options, run_metadata=metadata)
    functions = {f.signature.name: digest(f) for f in graph.as_graph_def().library.function}
report(
    graph=digest(graph.as_graph_def()),
    functions=functions,
    partitions=[digest(partition) for partition in metadata.partition_graphs],
    nodes=sum(len(partition.node) for partition in metadata.partition_graphs),
    results=[digest(fetched[0]), digest(fetched[1]), [n.decode() for n in fetched[2]]],
)
"""

FUNCTION = """
from tensorflow.python.eager import context
variable = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

@tf.function(autograph=False)
def step(x):
    with tf.GradientTape() as tape:
        y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, variable))),
                          [0, x], maximum_iterations=5)[1]
        loss = tf.reduce_sum(y) + tf.reduce_sum(tf.random.stateless_normal([3], seed=[1, 2]))
    variable.assign_sub(0.1 * tape.gradient(loss, variable))
    return loss

x = tf.constant([[0.1, 0.2], [0.3, 0.4]])
context.context().enable_run_metadata()
losses = [step(x).numpy() for _ in range(3)]
metadata = context.context().export_run_metadata()
graphs = []
for function in metadata.function_graphs:
    graphs.append(digest(function.pre_optimization_graph))
    graphs.append(digest(function.post_optimization_graph))
    graphs.extend(digest(partition) for partition in function.partition_graphs)
concrete = step.get_concrete_function(x)
report(
    function=digest(concrete.function_def),
    graph=digest(concrete.graph.as_graph_def()),
    graphs=graphs,
    results=[digest(losses), digest(variable.numpy())],
)
"""

DATASET = """
dataset = tf.data.Dataset.range(50).map(lambda i: tf.cast(i, tf.float32) ** 2).shuffle(10, seed=3)
dataset = dataset.batch(8).prefetch(2)
# Names in the serialized graph of a dataset differ from run to run without the package, too.
report(results=[digest(batch.numpy()) for batch in dataset])
"""

KERAS = """
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dropout(0.3), tf.keras.layers.Dense(1)])
# Keras chooses by the devices it finds whether a model is compiled.
model.compile("adam", "mse", jit_compile=False)
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
history = model.fit(inputs, inputs[:, :1], epochs=2, batch_size=16, verbose=0)
report(results=[digest(history.history["loss"]), digest(model.predict(inputs, verbose=0))])
"""


@pytest.mark.parametrize(
    ("program", "variant"),
    [
        (SESSION, "v1"),
        (SESSION, "v2"),
        (FUNCTION, "plain"),
        (DATASET, ""),
        (KERAS, ""),
    ],
    ids=["session-v1", "session-v2", "function", "dataset", "keras"],
)
def test_same_with_and_without_the_package(run_python, program, variant):
    reports = []
    for package in ("with", "without"):
        done = run_python(PREAMBLE + program, package, variant, env=ONE_THREAD)
        [line] = [x for x in done.stdout.splitlines() if x.startswith("REPORT")]
        reports.append(json.loads(line.removeprefix("REPORT")))
    assert reports[0] == reports[1]
    assert reports[0]["results"]
    if program is SESSION:
        assert reports[0]["partitions"]
        assert reports[0]["nodes"] > 10
    if program is FUNCTION:
        assert len(reports[0]["graphs"]) > 2


def test_a_tpu_graph_in_the_process_leaves_others_alone(run_python):
    """Using cores first changes nothing in the graphs that come afterwards."""
    used = """
import tensorflow as tf
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.tpu.initialize_system())
    session.run(tf.compat.v1.tpu.rewrite(lambda x: x + 1.0, [1.0]))
"""
    code = PREAMBLE + "if sys.argv[1] == 'with':\n    exec(sys.argv[3])\n" + SESSION
    reports = [
        run_python(code, package, "v1", used, env=ONE_THREAD).stdout.split("REPORT")[1]
        for package in ("with", "without")
    ]
    assert json.loads(reports[0]) == json.loads(reports[1])


def test_flags_of_tensorflow_may_be_set_after_the_import(run_python):
    code = """
        import os
        import sys
        import tf_tpu_ext
        import tensorflow as tf

        v1 = tf.compat.v1
        os.environ["TF_XLA_FLAGS"] = sys.argv[1]
        with tf.Graph().as_default(), v1.Session() as session:
            given = v1.placeholder(tf.float32, [2])
            with tf.xla.experimental.jit_scope():
                result = tf.exp(given) * 2
            run = v1.RunMetadata()
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            for _ in range(2):
                session.run(result, {given: [1.0, 2.0]}, options, run)
            print("compiled" if "_XlaRun" in str(run.step_stats) else "not compiled")
    """
    deferred = "--tf_xla_always_defer_compilation=true"
    said = [run_python(code, flags).stdout.splitlines()[-1] for flags in ("", deferred)]
    assert said == ["compiled", "not compiled"]
