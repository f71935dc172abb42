"""What the tests of outside compilation share: the ways to run a computation with clusters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import strategy_of_all_cores

import tf_tpu_ext

v1 = tf.compat.v1

# The arguments of each replica.
Replicas = Sequence[Sequence[Any]]


@dataclasses.dataclass
class Way:
    """One way to run a computation on all cores.

    Attributes:
        outside: The function `outside_compilation` that goes with it.
        cores: The number of replicas.
        run_arrays: Runs a computation on the arguments of each replica; returns a structure of
            arrays for each.
    """

    name: str
    outside: Callable[..., Any]
    cores: int
    run_arrays: Callable[[Callable[..., Any], Replicas], list[Any]]

    def run(self, computation: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Runs on all cores.

        Args:
            computation: Gets `self.outside` first, then the replica's arguments.
            *arguments: For each parameter a function from the replica's number to the argument.

        Returns:
            What each replica returned, with arrays for tensors.
        """

        def traced(*inputs: Any) -> Any:
            return computation(self.outside, *inputs)

        return self.run_arrays(traced, self.replicas(*arguments))

    def check(
        self, computation: Callable[..., Any], *arguments: Any, rtol: float = 1e-5, atol: float = 0
    ) -> list[Any]:
        """Runs as `run` does, and compares with plain TensorFlow, called eagerly."""
        results = self.run(computation, *arguments)
        for result, inputs in zip(results, self.replicas(*arguments), strict=True):
            plain = computation(lambda f, *args, **kwargs: f(*args, **kwargs), *inputs)
            plain = tf.nest.map_structure(np.asarray, plain)
            tf.nest.assert_same_structure(plain, result, check_types=False)
            pairs = zip(tf.nest.flatten(plain), tf.nest.flatten(result), strict=True)
            for expected, got in pairs:
                assert got.dtype == expected.dtype
                if got.dtype == object:
                    assert got.tolist() == expected.tolist()
                else:
                    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
        return results

    def replicas(self, *arguments: Any) -> list[list[Any]]:
        return [[tf.constant(f(replica)) for f in arguments] for replica in range(self.cores)]


# How a program is run changes nothing for a host graph that two of the ways do not show.
LEFT_OUT = ("[eager-host_graph", "[session_v1_control_flow-host_graph")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what would repeat itself."""
    left_out = [
        item
        for item in items
        if "outside_compilation" in item.path.parts
        and any(combination in item.name for combination in LEFT_OUT)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def strategy() -> Any:
    """All cores of the process, a replica each."""
    return strategy_of_all_cores()


@pytest.fixture(params=["folded", "host_graph"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """How clusters reach the host: by calls of the program, or as a graph that runs beside it."""
    tf_tpu_ext.configure(fold_host_calls=request.param == "folded")
    yield str(request.param)
    tf_tpu_ext.configure(fold_host_calls=True)


def _run_by_strategy(strategy: Any) -> Callable[..., list[Any]]:
    def run(computation: Callable[..., Any], replicas: Replicas) -> list[Any]:
        def distributed(number: int) -> Any:
            return strategy.experimental_distribute_values_from_function(
                lambda context: replicas[context.replica_id_in_sync_group][number]
            )

        @tf.function
        def step(*inputs: Any) -> Any:
            return strategy.run(computation, args=inputs)

        outputs = step(*[distributed(number) for number in range(len(replicas[0]))])
        flat = [strategy.experimental_local_results(x) for x in tf.nest.flatten(outputs)]
        return [
            tf.nest.pack_sequence_as(outputs, [np.asarray(values[replica]) for values in flat])
            for replica in range(len(replicas))
        ]

    return run


def _run_eagerly(computation: Callable[..., Any], replicas: Replicas) -> list[Any]:
    outputs = tf_tpu_ext.tpu.replicate(computation, [list(inputs) for inputs in replicas])
    return [tf.nest.map_structure(np.asarray, _unpacked(output)) for output in outputs]


def _run_in_session(computation: Callable[..., Any], replicas: Replicas) -> list[Any]:
    arrays = [[x.numpy() for x in inputs] for inputs in replicas]
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = [[tf.constant(x) for x in row] for row in arrays]
        outputs = v1.tpu.replicate(computation, inputs)
        session.run(v1.global_variables_initializer())
        values = session.run(outputs)
    return [tf.nest.map_structure(np.asarray, _unpacked(value)) for value in values]


def _unpacked(output: Any) -> Any:
    """A flat computation's outputs come as a list, and a single one as a list of one."""
    return output[0] if isinstance(output, list) and len(output) == 1 else output


def _run_with_v1_control_flow(computation: Callable[..., Any], replicas: Replicas) -> list[Any]:
    v1.disable_control_flow_v2()
    try:
        return _run_in_session(computation, replicas)
    finally:
        v1.enable_control_flow_v2()


@pytest.fixture(params=["strategy", "eager", "session", "session_v1_control_flow"])
def way(request: pytest.FixtureRequest, strategy: Any, mode: str) -> Way:
    """Each way to run a computation in turn."""
    del mode
    name = str(request.param)
    run: Any = {
        "strategy": _run_by_strategy(strategy),
        "eager": _run_eagerly,
        "session": _run_in_session,
        "session_v1_control_flow": _run_with_v1_control_flow,
    }[name]
    api: Any = tf_tpu_ext.tpu if name == "eager" else v1.tpu
    return Way(name, api.outside_compilation, strategy.num_replicas_in_sync, run)


@pytest.fixture
def soft_placement(set_soft_placement: Callable[[bool], None]) -> None:
    """Lets ops that the cores can't do move to the host."""
    set_soft_placement(True)
