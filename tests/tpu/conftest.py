"""What the tests of the tpu API share: the three ways to run a graph, and graphs to compare."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_tpu_ext import tpu

Build = Callable[[], Any]
Run = Callable[[Build], Any]


@pytest.fixture(scope="session")
def cores() -> int:
    """The number of cores of this process, with the system initialized."""
    tpu.initialize_system()
    return len(tf.config.list_logical_devices("TPU"))


def _run_eagerly(build: Build) -> Any:
    return build()


def _run_in_function(build: Build) -> Any:
    structure: list[Any] = []

    @tf.function(autograph=False)
    def function():
        outputs = build()
        structure[:] = [outputs]
        operations = [x for x in tf.nest.flatten(outputs) if isinstance(x, tf.Operation)]
        with tf.control_dependencies(operations):
            done = tf.constant(True)
        return [x for x in tf.nest.flatten(outputs) if tf.is_tensor(x)], done

    tensors = iter(function()[0])
    return tf.nest.map_structure(lambda x: next(tensors) if tf.is_tensor(x) else None, structure[0])


def _run_in_session(build: Build) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outputs = build()
        session.run(tf.compat.v1.global_variables_initializer())
        fetches = [x for x in tf.nest.flatten(outputs) if x is not None]
        values = iter(session.run(fetches))
        return tf.nest.map_structure(lambda x: None if x is None else next(values), outputs)


@pytest.fixture(params=[_run_eagerly, _run_in_function, _run_in_session], ids=lambda f: f.__name__)
def run(request: pytest.FixtureRequest, cores: int) -> Run:
    """Runs what a function builds; returns its outputs as NumPy arrays, None for operations."""
    del cores

    def run(build: Build) -> Any:
        outputs = request.param(build)
        return tf.nest.map_structure(lambda x: x.numpy() if tf.is_tensor(x) else x, outputs)

    return run


@pytest.fixture
def same_graph() -> Callable[[Build, Build], None]:
    """Checks that two functions build the same graph, in a v1 graph and in a tf.function."""

    def check(build: Build, expected: Build) -> None:
        for graph_of in (_graph_of, _function_graph_of):
            mine, theirs = _normalized(graph_of(build)), _normalized(graph_of(expected))
            assert mine == theirs

    return check


def _graph_of(build: Build) -> tf.compat.v1.GraphDef:
    with tf.Graph().as_default() as graph:
        build()
    return graph.as_graph_def()


def _function_graph_of(build: Build) -> tf.compat.v1.GraphDef:
    def function():
        build()
        return tf.constant(0)

    return tf.function(function, autograph=False).get_concrete_function().graph.as_graph_def()


def _normalized(graph: tf.compat.v1.GraphDef) -> list[str]:
    """Returns the nodes, and the functions in some order, without the numbers in their names."""
    number = r"(__inference_\w+?|cluster_function|cond)(_\d+)?(_true|_false)?(_\d+)?"
    functions = sorted(re.sub(number, r"\1\3", str(f)) for f in graph.library.function)
    return [re.sub(number, r"\1\3", str(node)) for node in graph.node] + functions
