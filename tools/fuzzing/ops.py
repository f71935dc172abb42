"""Trials that call one op with anything.

The ops are those that tf_tpu_ext registers and those that TensorFlow's TPU graphs use. Each is
called with random attributes, counts, types, shapes and resources: eagerly, in a function, in a
compiled function, or from a GraphDef in a Session.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import cancellation, context, execute
from tensorflow.python.framework import kernels, op_def_library

import tf_tpu_ext
from fuzzing import trials, values

# Without a kernel for our devices, these are TensorFlow's own: Collective* wait for other tasks,
# and the rest belong to devices of other kinds.
OPS = re.compile(
    r"^TpuExt>|TPU|Tpu|Infeed|Outfeed|XlaHost|XlaRecvAtHost|XlaSendFromHost|XlaSendToHost|"
    r"XlaRecvFromHost|XlaPad$|XlaSort$|XlaDynamic|XlaGather$|XlaScatter$|XlaReduce|XlaSharding|"
    r"XlaSpmd|CollectivePermute|AllToAll$|CrossReplicaSum|XlaReplicaId|XlaSetBound|XlaConv|XlaDot"
)
NOT_OURS = re.compile(r"Collective.*V[23]$|XlaSparseDense|XlaSparseCore")
CORES = ("/device:TPU:0", "/device:TPU:1")
DEVICES = ("/device:CPU:0", *CORES, "/device:TPU_SYSTEM:0")
MODES = ("eager", "eager", "function", "compiled", "session")


def all_ops() -> dict[str, op_def_pb2.OpDef]:
    """The ops under trial by name."""
    buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    known = op_def_pb2.OpList.FromString(buffer)
    found = {op.name: op for op in known.op if OPS.search(op.name) and not NOT_OURS.search(op.name)}
    return dict(sorted(found.items()))


def _is_stock_on_cpu(op: str) -> bool:
    """Whether the CPU runs it by a kernel of TensorFlow's, which has faults of its own.

    TensorFlow registers the kernel that compiles ops on demand for GPUs too.
    """
    registered = kernels.get_registered_kernels_for_op(op).kernel
    return any(kernel.device_type == "GPU" for kernel in registered)


class _Call:
    """One op with its attributes and inputs."""

    def __init__(self, rng: random.Random, op: op_def_pb2.OpDef) -> None:
        self.op = op
        self.mode = rng.choice(MODES)
        stock_on_cpu = self.mode == "compiled" or _is_stock_on_cpu(op.name)
        self.device = rng.choice(CORES if stock_on_cpu else DEVICES)
        counts = values.count_attributes(op)
        self.attributes = {attr.name: values.attribute(rng, attr, counts) for attr in op.attr}
        if {"dtypes", "shapes"} <= set(self.attributes):
            # TensorFlow's shape functions write past the outputs where there are more shapes.
            self.attributes["shapes"] = self.attributes["shapes"][: len(self.attributes["dtypes"])]
        self.inputs = [self._input(rng, argument) for argument in op.input_arg]
        if rng.random() < 0.05 and self.inputs:
            self.inputs.pop()

    def _input(self, rng: random.Random, argument: op_def_pb2.OpDef.ArgDef) -> Any:
        if argument.type_list_attr:
            return [self._tensor(rng, dtype) for dtype in self.attributes[argument.type_list_attr]]
        dtype = tf.as_dtype(argument.type or self.attributes[argument.type_attr])
        if not argument.number_attr:
            return self._tensor(rng, dtype)
        count = self.attributes[argument.number_attr]
        return [self._tensor(rng, dtype) for _ in range(count if 0 <= count < 10 else 1)]

    def _tensor(self, rng: random.Random, dtype: tf.DType) -> Any:
        if rng.random() < 0.03:
            dtype = rng.choice(values.TYPES)
        if dtype == tf.resource:
            return _Resource(rng.randrange(1000))
        if dtype == tf.variant:
            return _Variant()
        if dtype.is_quantized or dtype.is_numpy_compatible is False:
            dtype = tf.float32
        return tf.constant(values.array(rng, dtype), dtype)

    def __str__(self) -> str:
        return f"{self.mode} {self.op.name} on {self.device}, {self.attributes}, {self.inputs}"


class _Resource:
    """Stands for a variable or another resource until the call is made."""

    def __init__(self, choice: int) -> None:
        self.choice = choice

    def __repr__(self) -> str:
        return f"resource {self.choice}"


class _Variant:
    """Stands for a variant until the call is made."""

    def __repr__(self) -> str:
        return "variant"


def _map(function: Callable[[Any], Any], inputs: list[Any]) -> list[Any]:
    return [
        [function(part) for part in value] if isinstance(value, list) else function(value)
        for value in inputs
    ]


class OpTrials:
    """See fuzzing.trials.Trials."""

    def __init__(self, only: str, seed: int) -> None:
        tf_tpu_ext.configure(wait_limit_seconds=trials.WAIT_LIMIT_SECONDS)
        self._seed = seed
        self._ops = [op for name, op in all_ops().items() if re.search(only, name)]
        self._resources = self._make_resources()
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        self._strategy = tf.distribute.TPUStrategy(resolver)

    @staticmethod
    def _make_resources() -> list[Any]:
        made = []
        for device in ("/device:CPU:0", "/device:TPU:0", "/device:TPU:1"):
            with tf.device(device):
                for value in (1.0, [1.0, 2.0], [1, 2], [[1.0, 2.0], [3.0, 4.0]]):
                    made.append(tf.Variable(value))
                made.append(tf.Variable(tf.constant([1, 2], tf.float16)))
        with tf.device("/device:CPU:0"):
            made.append(tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0))
            made.append(iter(tf.data.Dataset.range(3)))
        return made

    def _resource(self, choice: int) -> tf.Tensor:
        resource = self._resources[choice % len(self._resources)]
        for name in ("handle", "resource_handle", "_iterator_resource"):
            if hasattr(resource, name):
                return getattr(resource, name)
        raise TypeError(f"{resource} has no handle")

    def _call(self, number: int) -> _Call:
        rng = random.Random(f"{self._seed}/{number}")
        return _Call(rng, rng.choice(self._ops))

    def describe(self, number: int) -> str:
        return str(self._call(number))[:2000]

    def run(self, number: int) -> str:
        call = self._call(number)
        # Without a limit on ops of TensorFlow that wait for what never comes.
        manager = cancellation.CancellationManager()
        timer = threading.Timer(5 * trials.WAIT_LIMIT_SECONDS, manager.start_cancel)
        timer.start()
        try:
            with cancellation.CancellationManagerContext(manager):
                if call.mode == "session":
                    self._run_in_a_session(call)
                elif call.mode == "eager":
                    self._execute(call)
                else:
                    compiled = True if call.mode == "compiled" else None
                    function = tf.function(
                        lambda: self._execute(call), jit_compile=compiled, autograph=False
                    )
                    # The compiler of the CPU is TensorFlow's own, and ends the process for strings.
                    with tf.device(call.device if compiled else None):
                        function()
        except (AttributeError, NameError):
            raise  # the trial is wrong, not what it tries
        except Exception as error:
            return type(error).__name__
        finally:
            timer.cancel()
        return "ok"

    def _real(self, value: Any) -> Any:
        if isinstance(value, _Resource):
            return self._resource(value.choice)
        if isinstance(value, _Variant):
            return tf.raw_ops.EmptyTensorList(
                element_shape=[1], max_num_elements=1, element_dtype=tf.float32
            )
        return value

    def _execute(self, call: _Call) -> None:
        inputs = _map(self._real, call.inputs)
        with tf.device(call.device):
            if context.executing_eagerly():
                attributes = [part for pair in call.attributes.items() for part in pair]
                flat = [part for value in inputs for part in tf.nest.flatten(value)]
                outputs = len(call.op.output_arg)
                results = execute.execute(
                    call.op.name, max(outputs, 8), flat, tuple(attributes), context.context()
                )
                for result in results:
                    if result.dtype not in (tf.resource, tf.variant):
                        result.numpy()
            else:
                names = [argument.name for argument in call.op.input_arg]
                op_def_library.apply_op(
                    call.op.name, **dict(zip(names, inputs, strict=False)), **call.attributes
                )

    def _run_in_a_session(self, call: _Call) -> None:
        with tf.Graph().as_default() as graph, tf.device(call.device):

            def real(value: Any) -> Any:
                if isinstance(value, _Resource):
                    with tf.device(DEVICES[value.choice % 3]):
                        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2])
                        if value.choice % 2:
                            initialize = tf.raw_ops.AssignVariableOp(
                                resource=handle, value=np.ones(2, np.float32)
                            )
                            session.run(initialize)
                        return handle
                return self._real(value) if isinstance(value, _Variant) else value.numpy()

            with tf.compat.v1.Session(graph=graph) as session:
                names = [argument.name for argument in call.op.input_arg]
                inputs = _map(real, call.inputs)
                before = set(graph.get_operations())
                op_def_library.apply_op(
                    call.op.name, **dict(zip(names, inputs, strict=False)), **call.attributes
                )
                [op] = [
                    op
                    for op in graph.get_operations()
                    if op not in before and op.type == call.op.name
                ]
                options = tf.compat.v1.RunOptions(
                    timeout_in_ms=int(5000 * trials.WAIT_LIMIT_SECONDS)
                )
                session.run([op, *op.outputs], options=options)

    def check_health(self) -> None:
        for device in CORES:
            with tf.device(device):
                np.testing.assert_array_equal(tf.constant([1.0]) + 1.0, [2.0])

        # An op may have replaced the configuration.
        tf.tpu.experimental.initialize_tpu_system()

        @tf.function
        def step() -> Any:
            def replica() -> tf.Tensor:
                group = tf.distribute.get_replica_context()
                return group.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

            return self._strategy.run(replica)

        results = self._strategy.experimental_local_results(step())
        np.testing.assert_array_equal(results, [2.0, 2.0])
