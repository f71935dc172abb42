"""The loops of `run_steps_on_dataset`: on the cores, fed by infeed, or on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import cond_v2, control_flow_util_v2, while_v2
from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext.towers import _calls, _state
from tf_tpu_ext.towers._sources import Source


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps of one `run_steps_on_dataset`.

    Attributes:
        strategy: The strategy whose towers run them.
        source: Where the data comes from.
        iterations: The number of steps.
        step: Builds a step from one tower's element. Returns what to wait for, followed by the
            outputs of that tower.
        finish: Combines a tower's outputs over all towers.
        initial: Returns the initial values of each tower's outputs, or None for zeros. Called after
            the step has been traced.
        automatic: Whether every operation of a step that has side effects runs, as in a
            `tf.function`; otherwise, only those that the user's function returns.
    """

    strategy: Any
    source: Source
    iterations: Any
    step: Callable[[Any], list[tf.Tensor]]
    finish: Callable[[list[tf.Tensor]], list[tf.Tensor]]
    initial: Callable[[], list[list[Any]] | None]
    automatic: bool


# The operation that runs the loop, and the outputs of each tower.
Built = tuple[tf.Operation, list[list[tf.Tensor]]]


def on_cores(steps: Steps) -> Built:
    """Builds a loop in the computation, and a loop on the host that feeds it."""
    strategy, source = steps.strategy, steps.source
    specs = source.flat_specs()

    def computation(tower_id: tf.Tensor, run: tf.Tensor) -> list[Any]:
        state = _state.Computation(strategy, tower_id)
        with _state.tracing(state):
            traced = _trace(
                "step",
                lambda *tensors: steps.step(source.pack(list(tensors))),
                steps.automatic,
                specs,
            )
            begin = _begin(steps.initial(), tower_id, traced.outputs[1:])

            def body(count: Any, _: Any, *carried: Any) -> list[Any]:
                done, *new = _call(traced, carried[: len(specs)])
                with tf.control_dependencies([done, *new]):
                    count = count + 1
                with tf.control_dependencies([count]):
                    return [count, *_receive(specs, run), *new]

            count, _, *carried = while_v2.while_loop(
                lambda count, more, *_: tf.not_equal(more, 0),
                body,
                [tf.constant(0), *_receive(specs, run), *begin],
                return_same_structure=False,
            )
            with tf.control_dependencies([count]):
                return [tf.identity(count), *steps.finish(carried[len(specs) :])]

    with tf.device(strategy.extended._host_device):
        # Distinguishes this run's messages from those that an earlier, failed run left behind.
        run = tf.cast(tf.math.floormod(tf.timestamp() * 1e6, 2.0**31 - 1), tf.int32)
    inputs = [[tf.constant(tower, tf.int32), run] for tower in range(strategy.num_towers)]
    per_tower = _calls.replicate(strategy, computation, inputs)
    return _end(steps, _feed(steps, run), per_tower)


def _receive(specs: list[tf.TensorSpec], run: tf.Tensor) -> list[tf.Tensor]:
    """Dequeues a message of this run: whether there is a step, and its element."""
    dtypes = [tf.int32, tf.int32, *(spec.dtype for spec in specs)]
    shapes = [tf.TensorShape([]), tf.TensorShape([]), *(spec.shape for spec in specs)]

    def receive(*_: Any) -> list[tf.Tensor]:
        return list(tpu_ops.infeed_dequeue_tuple(dtypes, shapes))

    received = while_v2.while_loop(
        lambda of_run, *_: tf.not_equal(of_run, run),
        receive,
        receive(),
        return_same_structure=False,
    )
    return list(received[1:])


def _begin(
    initial: list[list[Any]] | None,
    tower_id: tf.Tensor,
    outputs: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Returns the initial values of a tower's outputs."""
    if initial is None:
        return [tf.zeros(x.shape, x.dtype) for x in outputs]
    begin = []
    for position, output in enumerate(outputs):
        own = [tf.cast(tower[position], output.dtype) for tower in initial]
        same = all(x is own[0] for x in own) or len(own) == 1
        begin.append(own[0] if same else tf.gather(tf.stack(own), tower_id))
    return begin


def _feed(steps: Steps, run: tf.Tensor) -> tf.Tensor:
    """Builds the loop on the host that sends the messages to every core; see `_receive`.

    Returns:
        The number of steps for which there was data.
    """
    strategy, source = steps.strategy, steps.source
    specs = source.flat_specs()
    shapes = [tf.TensorShape([]), tf.TensorShape([]), *(spec.shape for spec in specs)]

    def send(tower: int, more: int, tensors: list[tf.Tensor]) -> tf.Operation:
        device = tf.DeviceSpec.from_string(strategy.worker_devices[tower])
        host = device.replace(device_type="CPU", device_index=0)
        with tf.device(host.to_string()):
            return tpu_ops.infeed_enqueue_tuple(
                [run, tf.constant(more), *tensors], shapes, device_ordinal=device.device_index or 0
            )

    def stop() -> tf.Tensor:
        nothing = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
        with tf.control_dependencies([send(t, 0, nothing) for t in range(strategy.num_towers)]):
            return tf.constant(False)

    def feed_next() -> tf.Tensor:
        optionals = source.next_optionals()
        has_all = tf.reduce_all([optional.has_value() for optional in optionals])

        def feed() -> tf.Tensor:
            elements = source.elements(optionals)
            sent = [send(t, 1, tensors) for t, tensors in enumerate(elements)]
            with tf.control_dependencies(sent):
                return tf.constant(True)

        return cond_v2.cond_v2(has_all, feed, stop)

    def body(count: tf.Tensor, limit: tf.Tensor) -> list[tf.Tensor]:
        more = cond_v2.cond_v2(count < limit, feed_next, stop)
        return [count + 1, more]

    with tf.device(strategy.extended._host_device):
        # The last iteration only tells the cores that there is no further step.
        return _concurrent_while(body, steps.iterations) - 1


def _concurrent_while(body: Callable[..., list[tf.Tensor]], iterations: Any) -> tf.Tensor:
    """Builds `while more: count, more = body(count, limit)`.

    In a function, TensorFlow would run the computation and a loop with side effects in order. A
    loop that is declared stateless runs at the same time as the computation.
    """
    scalars = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.bool), tf.TensorSpec([], tf.int32)]
    limit = tf.convert_to_tensor(iterations, tf.int32)
    body_graph = _trace(
        "feed", lambda count, _, limit: [*body(count, limit), tf.identity(limit)], False, scalars
    )
    captured = body_graph.external_captures
    body_graph.outputs = [*body_graph.outputs, *body_graph.internal_captures]
    of_captured = [tf.TensorSpec(x.shape, x.dtype) for x in captured]
    cond_graph = _trace(
        "feed_more",
        lambda count, more, *_: [more],
        False,
        [*scalars, *of_captured],
    )
    functions = []
    for graph in (cond_graph, body_graph):
        function = concrete_function.ConcreteFunction.from_func_graph(graph, None, {})
        function.add_to_graph()
        functions.append(function)
    inputs = [tf.constant(0), tf.constant(True), limit, *captured]
    results = tf.raw_ops.StatelessWhile(input=inputs, cond=functions[0], body=functions[1])
    control_flow_util_v2.maybe_set_lowering_attr(results[0].op)
    return results[0]


def on_host(steps: Steps) -> Built:
    """Builds a loop on the host that runs a computation for each step."""
    strategy, source = steps.strategy, steps.source
    towers = range(strategy.num_towers)
    specs = source.flat_specs() * strategy.num_towers

    def all_towers(*tensors: tf.Tensor) -> list[tf.Tensor]:
        def computation(tower_id: tf.Tensor, own: list[tf.Tensor]) -> list[tf.Tensor]:
            with _state.tracing(_state.Computation(strategy, tower_id)):
                done, *outputs = steps.step(source.pack(own))
                with tf.control_dependencies([done]):
                    return [tf.constant(True), *steps.finish(outputs)]

        each = len(specs) // strategy.num_towers
        inputs = [
            [tf.constant(t, tf.int32), list(tensors[t * each : (t + 1) * each])] for t in towers
        ]
        per_tower = _calls.replicate(strategy, computation, inputs)
        return [x for outputs in per_tower for x in outputs]

    traced = _trace("step", all_towers, steps.automatic, specs)
    begin = steps.initial()
    per_step = len(traced.outputs) // strategy.num_towers
    first = []
    for position, output in enumerate(traced.outputs):
        tower, place = divmod(position, per_step)
        if begin is None or place == 0:
            first.append(tf.zeros([size or 0 for size in output.shape], output.dtype))
        else:
            first.append(tf.cast(begin[tower][place - 1], output.dtype))

    def body(count: Any, more: Any, *previous: Any) -> list[Any]:
        del more
        optionals = source.next_optionals()
        has_all = tf.reduce_all([optional.has_value() for optional in optionals])

        def run() -> list[Any]:
            elements = [x for tensors in source.elements(optionals) for x in tensors]
            outputs = _call(traced, elements)
            with tf.control_dependencies(outputs):
                return [count + 1, tf.constant(True), *outputs]

        def keep() -> list[Any]:
            return [tf.identity(count), tf.constant(False), *map(tf.identity, previous)]

        return list(cond_v2.cond_v2(has_all, run, keep))

    with tf.device(strategy.extended._host_device):
        count, _, *last = while_v2.while_loop(
            lambda count, more, *_: tf.logical_and(count < steps.iterations, more),
            body,
            [tf.constant(0), tf.constant(True), *first],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([]),
                *(output.shape for output in traced.outputs),
            ],
            return_same_structure=False,
        )
    # Each tower's first result is replaced by the count.
    per_tower = [[count, *last[tower * per_step + 1 : (tower + 1) * per_step]] for tower in towers]
    return _end(steps, count, per_tower)


def _end(steps: Steps, count: tf.Tensor, per_tower: list[list[tf.Tensor]]) -> Built:
    """Makes the outputs wait for the steps, and raises an error at the end of the data."""
    # The error at the end of the data cancels the computation, so it must not come before all
    # towers have finished: it depends on their counts.
    count = tf.reduce_min(tf.stack([count, *(tower[0] for tower in per_tower)]))
    with tf.control_dependencies([x for tower in per_tower for x in tower]):

        def ended() -> tf.Tensor:
            with tf.control_dependencies([steps.source.raise_end()]):
                return tf.constant(False)

        complete = cond_v2.cond_v2(count < steps.iterations, ended, lambda: tf.constant(True))
    with tf.control_dependencies([complete]):
        run_op = tf.group(complete, name="run_steps")
    with tf.control_dependencies([run_op]):
        return run_op, [[tf.identity(x) for x in tower[1:]] for tower in per_tower]


def _trace(
    name: str,
    function: Callable[..., list[tf.Tensor]],
    automatic: bool,
    specs: Sequence[tf.TensorSpec] = (),
) -> Any:
    """Traces a function into a graph. If `automatic`, its ops with side effects run in order."""
    return func_graph.func_graph_from_py_func(
        name,
        function,
        args=tuple(specs),
        kwargs={},
        add_control_dependencies=automatic,
        collections=tf.compat.v1.get_default_graph()._collections,
    )


def _call(graph: Any, arguments: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
    """Calls a traced function in the default graph."""
    function = concrete_function.ConcreteFunction.from_func_graph(graph, None, {})
    return list(tf.nest.flatten(function._call_flat(list(arguments), function.captured_inputs)))


def call_unordered(name: str, function: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    """Calls a function whose ops run as soon as they can instead of in program order."""
    return _call(_trace(name, function, False))
