"""Trials that run damaged TPU graphs.

The graphs are those of real programs: as Python makes them, and as the bridge leaves them, with
`_TPUCompileMlir` and the ops that execute. A trial changes one to three things of one of them.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.tpu import training_loop
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext
from fuzzing import trials, values

v1 = tf.compat.v1
RUN_LIMIT_MILLISECONDS = int(5000 * trials.WAIT_LIMIT_SECONDS)


@dataclasses.dataclass(frozen=True)
class Base:
    """A graph that works, and the names of what a session runs, in this order."""

    name: str
    graph: graph_pb2.GraphDef
    runs: list[list[str]]


def _replicated() -> list[list[Any]]:
    def computation(x: tf.Tensor) -> tf.Tensor:
        text = v1.tpu.outside_compilation(
            lambda value: tf.strings.as_string(value), tf.reduce_sum(x)
        )
        length = v1.tpu.outside_compilation(lambda value: tf.strings.length(value), text)
        return tpu_ops.cross_replica_sum(x * 2.0) + tf.cast(length, tf.float32)

    inputs = [[tf.constant([1.0, 2.0])], [tf.constant([3.0, 4.0])]]
    return [v1.tpu.replicate(computation, inputs)]


def _training() -> list[list[Any]]:
    with tf.device("/device:TPU:0"):
        weights = v1.get_variable(
            "w", shape=[2, 2], use_resource=True, initializer=v1.ones_initializer()
        )

    def step(x: tf.Tensor) -> tf.Tensor:
        loss = tf.reduce_sum(tf.square(x @ weights))
        [gradient] = tf.gradients(loss, [weights])
        with tf.control_dependencies([weights.assign_sub(0.1 * gradient)]):
            return tf.identity(loss)

    return [[v1.global_variables_initializer()], v1.tpu.rewrite(step, [tf.ones([3, 2])])]


def _infeed() -> list[list[Any]]:
    def loop() -> Any:
        def body(total: tf.Tensor) -> tf.Tensor:
            [value] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[2]])
            return total + value

        return training_loop.repeat(2, body, [tf.zeros([2])])

    with tf.device("/device:CPU:0"):
        enqueue = [
            tpu_ops.infeed_enqueue_tuple([tf.ones([2])], [[2]], device_ordinal=0) for _ in range(2)
        ]
    return [[*enqueue, v1.tpu.rewrite(loop)]]


def _control_flow() -> list[list[Any]]:
    def computation(x: tf.Tensor) -> tf.Tensor:
        found = tf.where(x > 1.0)
        looped = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x])[1]
        padded = gen_xla_ops.xla_pad(looped, 0.0, [1], [0], [0])
        return tf.cond(tf.reduce_sum(x) > 0, lambda: padded, lambda: -padded), tf.size(found)

    return [v1.tpu.rewrite(computation, [tf.constant([1.0, 2.0, 3.0])])]


PROGRAMS: dict[str, Callable[[], list[list[Any]]]] = {
    "replicated": _replicated,
    "training": _training,
    "infeed": _infeed,
    "control flow": _control_flow,
}


def _names(fetches: Any) -> list[str]:
    return [fetch.name for fetch in tf.nest.flatten(fetches)]


def _compile_metadata() -> Any:
    """The class of TPUCompileMetadataProto, as far as it is read here: the wheel has only C++'s."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="compile_metadata_of_the_fuzzer.proto",
        package="fuzzing",
        dependency=["tensorflow/core/framework/tensor_shape.proto"],
    )
    argument = file.message_type.add(name="Argument")
    argument.field.add(name="dtype", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    argument.field.add(
        name="shape",
        number=2,
        type=field.TYPE_MESSAGE,
        type_name=".tensorflow.TensorShapeProto",
        label=field.LABEL_OPTIONAL,
    )
    metadata = file.message_type.add(name="Metadata")
    metadata.field.add(
        name="args",
        number=1,
        type=field.TYPE_MESSAGE,
        type_name=".fuzzing.Argument",
        label=field.LABEL_REPEATED,
    )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fuzzing.Metadata"))


def _compiled_by_hand(name: str, partitions: list[graph_pb2.GraphDef]) -> list[Base]:
    """For each computation that the bridge has made, a graph of its ops alone.

    The graphs have constants for arguments, and bring variables back as results.
    """
    nodes = [node for partition in partitions for node in partition.node]
    metadata_class = _compile_metadata()
    bases = []
    for node in nodes:
        # What talks to the host waits for the rest of its graph.
        if node.op != "_TPUCompileMlir" or any(
            name in node.attr["mlir_module"].s for name in (b"Host", b"Infeed")
        ):
            continue
        executes = [other for other in nodes if other.op.startswith("TPUExecute")]
        metadata = metadata_class.FromString(node.attr["metadata"].s)
        bases.append(_compile_and_execute(f"{name}, compiled", node, metadata, executes[0]))
    return bases


def _compile_and_execute(
    name: str, compile_node: node_def_pb2.NodeDef, metadata: Any, executed: node_def_pb2.NodeDef
) -> Base:
    graph = graph_pb2.GraphDef()
    compilation = graph.node.add()
    compilation.name, compilation.op = "compile", compile_node.op
    for key, value in compile_node.attr.items():
        if not key.startswith("_"):
            compilation.attr[key].CopyFrom(value)
    compilation.device = "/job:localhost/replica:0/task:0/device:CPU:0"
    arguments = [
        np.ones([dim.size for dim in arg.shape.dim], tf.as_dtype(arg.dtype).as_numpy_dtype)
        for arg in metadata.args
    ]
    for i in range(compilation.attr["NumDynamicShapes"].i):
        _add_constant(graph, f"shape{i}", np.array(arguments[i].shape, np.int64))
        compilation.input.append(f"shape{i}")
    updates = [i for i in executed.attr["device_var_updates_indices"].list.i if i >= 0]
    results = list(executed.attr["Tresults"].list.type)
    for index in sorted(updates):
        results.insert(index, tf.float32.as_datatype_enum)
    runs = []
    for core in range(compilation.attr["num_computations"].i):
        execute = graph.node.add()
        execute.name, execute.op = f"execute{core}", "TPUExecute"
        execute.device = f"/job:localhost/replica:0/task:0/device:TPU:{core}"
        execute.attr["Targs"].list.SetInParent()  # there, even if it is empty
        for i, value in enumerate(arguments):
            _add_constant(graph, f"argument{core}_{i}", value)
            execute.input.append(f"argument{core}_{i}")
            execute.attr["Targs"].list.type.append(tf.as_dtype(value.dtype).as_datatype_enum)
        execute.input.append(f"compile:{core + 1}")
        execute.attr["Tresults"].list.SetInParent()
        execute.attr["Tresults"].list.type.extend(results)
        runs += [f"execute{core}:{i}" for i in range(len(results))]
    return Base(name, graph, [runs])


def _add_constant(graph: graph_pb2.GraphDef, name: str, value: np.ndarray) -> None:
    node = graph.node.add()
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def make_bases() -> list[Base]:
    """Runs the programs once; returns their graphs, and those that the bridge made of them."""
    bases = []
    for name, build in PROGRAMS.items():
        with tf.Graph().as_default() as graph, v1.Session() as session:
            runs = build()
            partitions: list[graph_pb2.GraphDef] = []
            for fetches in runs:
                recorded = v1.RunMetadata()
                options = v1.RunOptions(output_partition_graphs=True)
                session.run(fetches, options=options, run_metadata=recorded)
                partitions += recorded.partition_graphs
            bases.append(Base(name, graph.as_graph_def(), [_names(fetches) for fetches in runs]))
        bases += _compiled_by_hand(name, partitions)
    return bases


def _damage(rng: random.Random, graph: graph_pb2.GraphDef) -> str:
    """Changes one thing of the graph; returns what."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    nodes = rng.choice([body for body in bodies if body])
    # Rare ops are what the package is about: half of the time one that is not a constant.
    chosen = [node for node in nodes if node.op not in ("Const", "NoOp", "Identity")]
    node = rng.choice(chosen if chosen and rng.random() < 0.7 else list(nodes))
    change = rng.choice((_drop_input, _swap_inputs, _redirect, _drop_attribute, _change_attribute,
                         _change_attribute, _change_attribute, _move, _rename_op))  # fmt: skip
    return f"{node.op} '{node.name}': {change(rng, node, nodes)}"


def _drop_input(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    if not node.input:
        return _change_attribute(rng, node, nodes)
    return f"without input {node.input.pop(rng.randrange(len(node.input)))}"


def _swap_inputs(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    if len(node.input) < 2:
        return _change_attribute(rng, node, nodes)
    first, second = rng.sample(range(len(node.input)), 2)
    node.input[first], node.input[second] = node.input[second], node.input[first]
    return f"inputs {first} and {second} swapped"


def _redirect(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    if not node.input:
        return _change_attribute(rng, node, nodes)
    index = rng.randrange(len(node.input))
    node.input[index] = f"{rng.choice(list(nodes)).name}:{rng.choice((0, 0, 1, 7))}"
    return f"input {index} from {node.input[index]}"


def _drop_attribute(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    if not node.attr:
        return _move(rng, node, nodes)
    name = rng.choice(sorted(node.attr))
    del node.attr[name]
    return f"without attribute {name}"


def _change_attribute(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    if not node.attr:
        return _move(rng, node, nodes)
    name = rng.choice(sorted(node.attr))
    op = op_def_registry.get(node.op)
    if op is not None and name in values.count_attributes(op):
        node.attr[name].i = rng.choice(values.COUNTS)
    else:
        _change_value(rng, node.attr[name])
    return f"attribute {name} = {str(node.attr[name])[:200]!r}"


def _change_value(rng: random.Random, value: attr_value_pb2.AttrValue) -> None:
    kind = value.WhichOneof("value")
    if kind == "s":
        value.s = _change_bytes(rng, value.s)
    elif kind == "i":
        value.i = rng.choice((*values.INTEGERS, value.i + 1, value.i - 1))
    elif kind == "b":
        value.b = not value.b
    elif kind == "f":
        value.f = rng.choice(values.FLOATS)
    elif kind == "type":
        value.type = rng.choice(values.TYPES).as_datatype_enum
    elif kind == "shape":
        value.shape.CopyFrom(tf.TensorShape(rng.choice(values.SHAPES)).as_proto())
    elif kind == "func":
        value.func.name = rng.choice(("no_such_function", ""))
    elif kind == "tensor":
        value.tensor.CopyFrom(tf.make_tensor_proto(values.array(rng, rng.choice(values.TYPES[:4]))))
    elif kind == "list":
        _change_list(rng, value.list)
    else:
        value.i = rng.choice(values.INTEGERS)


def _change_list(rng: random.Random, value: attr_value_pb2.AttrValue.ListValue) -> None:
    for name in ("s", "i", "type", "shape", "f", "b"):
        field = getattr(value, name)
        if not field:
            continue
        action = rng.random()
        if action < 0.3:
            del field[-1]
        elif name == "type" and action < 0.7:
            field[rng.randrange(len(field))] = rng.choice(values.TYPES).as_datatype_enum
        elif name == "i" and action < 0.7:
            field[rng.randrange(len(field))] = rng.choice(values.INTEGERS)
        elif name == "s" and action < 0.7:
            index = rng.randrange(len(field))
            field[index] = _change_bytes(rng, field[index])
        else:
            field.extend([field[0]])


def _change_bytes(rng: random.Random, old: bytes) -> bytes:
    if not old or rng.random() < 0.15:
        return rng.choice(values.STRINGS)
    changed = bytearray(old)
    for _ in range(rng.choice((1, 1, 3))):
        position = rng.randrange(len(changed))
        action = rng.random()
        if action < 0.5:
            changed[position] = rng.randrange(256)
        elif action < 0.7:
            # A digit for a digit: sizes, numbers and types in the text of a module.
            digits = [i for i, byte in enumerate(changed) if chr(byte).isdigit()]
            if digits:
                changed[rng.choice(digits)] = ord(rng.choice("0123456789"))
        elif action < 0.85:
            del changed[position : position + rng.choice((1, 4, 40))]
        else:
            changed[position:position] = changed[position : position + rng.choice((1, 4, 40))]
        if not changed:
            break
    return bytes(changed)


def _move(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    device = rng.choice(("CPU:0", "TPU:0", "TPU:1", "TPU:7", "TPU_SYSTEM:0", "GPU:0"))
    node.device = f"/device:{device}"
    return f"on {node.device}"


def _rename_op(rng: random.Random, node: node_def_pb2.NodeDef, nodes: Any) -> str:
    old, node.op = node.op, rng.choice(list(nodes)).op
    return f"becomes {node.op}, was {old}"


class GraphTrials:
    """See fuzzing.trials.Trials."""

    def __init__(self, only: str, seed: int) -> None:
        tf_tpu_ext.configure(wait_limit_seconds=trials.WAIT_LIMIT_SECONDS)
        v1.disable_eager_execution()
        self._seed = seed
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
        self._bases = [base for base in make_bases() if re.search(only, base.name)]

    def _make(self, number: int) -> tuple[Base, graph_pb2.GraphDef, str]:
        rng = random.Random(f"{self._seed}/{number}")
        base = rng.choice(self._bases)
        graph = graph_pb2.GraphDef()
        graph.CopyFrom(base.graph)
        changes = [_damage(rng, graph) for _ in range(rng.choice((1, 1, 2, 3)))]
        return base, graph, f"{base.name}: {'; '.join(changes)}"

    def describe(self, number: int) -> str:
        return self._make(number)[2][:2000]

    def run(self, number: int) -> str:
        base, graph_def, _ = self._make(number)
        try:
            self._run(graph_def, base.runs)
        except (tf.errors.OpError, ValueError, TypeError, KeyError, IndexError) as error:
            return type(error).__name__
        return "ok"

    @staticmethod
    def _run(graph_def: graph_pb2.GraphDef, runs: list[list[str]]) -> None:
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            tf.import_graph_def(graph_def, name="")
            for names in runs:
                fetches = [graph.as_graph_element(name) for name in names]
                options = v1.RunOptions(timeout_in_ms=RUN_LIMIT_MILLISECONDS)
                session.run(fetches, options=options)

    def check_health(self) -> None:
        # A damaged graph may have replaced the configuration.
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
        for base in self._bases:
            self._run(base.graph, base.runs)
