"""TensorFlow's profiler shows what the virtual TPU does."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import profiles
import pytest
import tensorflow as tf
import worker_processes

import tf_tpu_ext

STEPS = 3
# A Python that has XProf, if it isn't this one.
XPROF_PYTHON = os.environ.get("TF_TPU_EXT_XPROF_PYTHON", sys.executable)


def training_step(strategy: Any) -> Callable[[], Any]:
    """A step with a product, a sum over all replicas, and a shared update."""
    with strategy.scope():
        weights = tf.Variable(tf.ones([256, 256]))

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        # Else a group of replicas would compute it once for all of them.
        own = weights * tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
        gradient = tf.matmul(own, weights, name="product")
        weights.assign_add(1e-6 * context.all_reduce("SUM", gradient))
        return tf.reduce_sum(gradient)

    @tf.function
    def step() -> Any:
        return strategy.run(replica)

    return step


def host_step(strategy: Any) -> Callable[[], Any]:
    """A step whose replicas meet, and then call the host."""

    def host(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(np.square, [x], tf.float32), [4])  # the host line

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", tf.fill([4], 2.0))
        value = tf_tpu_ext.tpu.outside_compilation(host, total)
        return context.all_reduce("MEAN", value)

    @tf.function
    def step() -> Any:
        return strategy.run(replica)

    return step


def profile(logdir: pathlib.Path, step: Callable[[], Any]) -> list[float]:
    """Profiles some steps; returns how many seconds each took."""
    step()
    seconds = []
    tf.profiler.experimental.start(str(logdir))
    for number in range(STEPS):
        begin = time.perf_counter()
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            tf.nest.map_structure(lambda value: value.numpy(), as_values(step()))
        seconds.append(time.perf_counter() - begin)
    tf.profiler.experimental.stop()
    return seconds


def as_values(result: Any) -> Any:
    return result.values if isinstance(result, tf.distribute.DistributedValues) else result


def line_of(mark: str) -> str:
    """The line of this file that ends with a comment, as `file:line`."""
    for number, line in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1):
        if line.endswith(f"# {mark}"):
            return f"{__file__}:{number}"
    raise AssertionError(mark)


def test_a_step_is_seen_on_the_threads_of_the_host(tmp_path: pathlib.Path) -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([40_000]))

    def host(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce("MEAN", tf.reduce_sum(weights))
        value = tf_tpu_ext.tpu.outside_compilation(host, mean)
        weights.assign_add(context.all_reduce("SUM", tf.fill([40_000], value)))
        return value

    @tf.function
    def profiled_step() -> tf.Tensor:
        return strategy.run(replica)

    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(STEPS):
        profiled_step()
    tf.profiler.experimental.stop()
    expected = {
        "TPU launch",
        "TPU compile",
        "TPU all-reduce",
        "TPU host call",
        "TPU combine gradients",
        "TPU update in place",
        *(f"TPU core {core}" for core in range(strategy.num_replicas_in_sync)),
    }
    threads = profiles.read_planes(tmp_path)["/host:CPU"].lines.values()
    assert expected <= {event.name for events in threads for event in events}


def test_each_core_has_its_steps_and_programs(strategy: Any, tmp_path: pathlib.Path) -> None:
    seconds = profile(tmp_path, training_step(strategy))
    cores = profiles.read_cores(tmp_path)
    assert len(cores) == strategy.num_replicas_in_sync
    for core in cores:
        steps, modules = core.lines["Steps"], core.lines["XLA Modules"]
        assert [step.name for step in steps] == [str(number) for number in range(STEPS)]
        # From its launch to that of the next one; the last one to its end.
        for step, taken in zip(steps, seconds, strict=True):
            assert 0 < step.end - step.begin < taken + max(seconds)
        for module in modules:
            assert sum(step.contains(module) for step in steps) == 1
        for op in core.lines.get("XLA Ops", []):
            assert any(module.contains(op) for module in modules), op
        assert core.stats["peak_teraflops_per_second"] > 0
        assert core.stats["peak_hbm_bw_gigabytes_per_second"] > 0


def test_each_core_has_its_ops(strategy: Any, tmp_path: pathlib.Path) -> None:
    profile(tmp_path, training_step(strategy))
    cores = profiles.read_cores(tmp_path)
    for core in cores:
        ops = core.lines["XLA Ops"]
        products = [op for op in ops if op.stats.get("tf_op") == "product:MatMul"]
        assert len(products) == STEPS
        for product in products:
            # Once for each replica, even if one product is computed for a group.
            assert product.stats["flops"] == 2 * 256**3
            assert product.stats["symbol_id"] > 0
        if len(cores) > 1:
            sums = [op for op in ops if op.stats["hlo_category"] == "all-reduce"]
            assert len(sums) == STEPS


def test_a_program_is_in_the_metadata(strategy: Any, tmp_path: pathlib.Path) -> None:
    profile(tmp_path, training_step(strategy))
    modules = set(profiles.read_planes(tmp_path)["/host:metadata"].events)
    for core in profiles.read_cores(tmp_path):
        assert {module.name for module in core.lines["XLA Modules"]} <= modules


def ops_of(core: profiles.Plane) -> list[tuple[str, Any, Any]]:
    return sorted(
        (op.name, op.stats["hlo_category"], op.stats.get("tf_op", ""))
        for op in core.lines["XLA Ops"]
    )


def test_restored_programs_have_their_ops(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    # So that the programs' numbers differ from those in the cache.
    tf_tpu_ext.tpu.rewrite(lambda: tf.random.stateless_uniform([3], seed=[1, 2]))
    tf_tpu_ext.configure(compilation_cache=tmp_path / "cache")
    try:
        for folder, restored in [("compiled", False), ("restored", True)]:
            profile(tmp_path / folder, training_step(make_strategy(2)))
            assert tf_tpu_ext.compilation_stats().programs[-1].restored == restored
    finally:
        tf_tpu_ext.configure(compilation_cache="")
    compiled, restored = (
        profiles.read_planes(tmp_path / folder) for folder in ("compiled", "restored")
    )
    for core in range(2):
        of_compiled, of_restored = (
            planes[f"/device:TPU:{core}"] for planes in (compiled, restored)
        )
        assert ops_of(of_restored) == ops_of(of_compiled) != []
        modules = {module.name for module in of_restored.lines["XLA Modules"]}
        assert modules <= set(restored["/host:metadata"].events)


def test_one_run_of_a_group_is_on_all_its_cores(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    profile(tmp_path, training_step(make_strategy(8)))
    cores = profiles.read_cores(tmp_path)
    runs = [module for core in cores for module in core.lines["XLA Modules"]]
    groups = {run.stats.get("one_run_for_cores", "") for run in runs}
    assert ", ".join(map(str, range(8))) in groups
    for group in groups - {""}:
        members = [cores[int(core)] for core in group.split(", ")]
        times = [
            [
                (module.begin, module.end)
                for module in member.lines["XLA Modules"]
                if module.stats.get("one_run_for_cores") == group
            ]
            for member in members
        ]
        assert times[0]
        for other in times[1:]:
            np.testing.assert_allclose(other, times[0], atol=1e-9)


def test_transfers_tell_their_python_line(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    profile(tmp_path, host_step(make_strategy(2)))
    for core in profiles.read_cores(tmp_path):
        ops = core.lines["XLA Ops"]
        calls = [op for op in ops if op.stats["hlo_category"] == "custom-call"]
        assert len(calls) == STEPS
        assert {call.stats["source"] for call in calls} == {line_of("the host line")}
        waits = [wait for wait in core.lines["Waits"] if wait.name.startswith("host call: ")]
        assert len(waits) == STEPS
        for wait in waits:
            assert wait.stats["source"] == line_of("the host line")
            assert wait.stats["bytes_transferred"] == 2 * 4 * 4  # four floats each way


def test_waits_name_the_core_that_came_last(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    profile(tmp_path, host_step(make_strategy(2)))
    cores = profiles.read_cores(tmp_path)
    meetings = 2 * STEPS
    names = [
        [wait.name for wait in core.lines.get("Waits", []) if wait.name.startswith("all-reduce")]
        for core in cores
    ]
    # Nobody waits for itself, and one of both waits in each meeting, unless they came together.
    assert set(names[0]) <= {"all-reduce: core 1"}
    assert set(names[1]) <= {"all-reduce: core 0"}
    assert 0 < len(names[0]) + len(names[1]) <= meetings


def test_a_jit_compiled_function_is_on_its_core(tmp_path: pathlib.Path) -> None:
    @tf.function(jit_compile=True)
    def square(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, x)

    with tf.device("/device:TPU:0"):
        x = tf.ones([64, 64])
        square(x)
        tf.profiler.experimental.start(str(tmp_path))
        square(x)
        tf.profiler.experimental.stop()
    [core] = profiles.read_cores(tmp_path)
    [module] = core.lines["XLA Modules"]
    assert "square" in module.stats["program"]
    assert any(op.stats.get("tf_op") == "MatMul:MatMul" for op in core.lines["XLA Ops"])


def test_an_error_ends_what_is_shown(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    """A step that fails leaves a whole profile."""
    strategy = make_strategy(2)

    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("on purpose")

    def replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", tf.ones([2]))
        host = tf_tpu_ext.tpu.outside_compilation(
            lambda x: tf.ensure_shape(tf.numpy_function(fail, [x], tf.float32), [2]), total
        )
        return context.all_reduce("SUM", host)

    @tf.function
    def step() -> Any:
        return strategy.run(replica)

    tf.profiler.experimental.start(str(tmp_path))
    with pytest.raises(tf.errors.OpError, match="on purpose"):
        step()
    tf.profiler.experimental.stop()
    for core in profiles.read_cores(tmp_path):
        assert len(core.lines["XLA Modules"]) == 1
        assert any(op.stats["hlo_category"] == "all-reduce" for op in core.lines["XLA Ops"])


def test_keras_profiles_batches(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("tensorboard")
    keras = pytest.importorskip("keras")
    with make_strategy(2).scope():
        model = keras.Sequential([keras.layers.Dense(4)])
        model.compile(optimizer="sgd", loss="mse")
    callback = keras.callbacks.TensorBoard(tmp_path, profile_batch=(2, 3))
    model.fit(np.ones([32, 8]), np.ones([32, 4]), batch_size=8, verbose=0, callbacks=[callback])
    cores = profiles.read_cores(tmp_path)
    assert len(cores) == 2
    for core in cores:
        assert 1 <= len(core.lines["Steps"]) <= 2


_TRAIN = """
@tf.function
def step():
    def replica():
        return tf.reduce_sum(tf.ones([100]))

    return strategy.run(replica)

step()
print("running", flush=True)
while True:
    step()
"""


def test_a_worker_is_profiled_from_outside(tmp_path: pathlib.Path) -> None:
    """The server of a worker takes profiles at the address that programs use."""
    worker = worker_processes.Worker()
    program = subprocess.Popen(
        [sys.executable, "-c", worker_processes.START + _TRAIN, worker.address],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == "running"
        tf.profiler.experimental.client.trace(worker.address, str(tmp_path), duration_ms=500)
    finally:
        program.kill()
        program.communicate()
        worker.end()
    cores = profiles.read_cores(tmp_path)
    assert len(cores) == 2
    for core in cores:
        assert len(core.lines["Steps"]) > 1


def convert_by_xprof(logdir: pathlib.Path) -> dict[str, Any]:
    """What XProf's tools answer; skips if there is no XProf."""
    found = subprocess.run([XPROF_PYTHON, "-c", "import xprof"], capture_output=True)
    if found.returncode != 0:
        pytest.skip("There is no XProf: pip install tf_tpu_ext[profile]")
    profile_file = profiles.profile_file(logdir)
    [module] = {
        module.name
        for module in profiles.read_cores(logdir)[0].lines["XLA Modules"]
        if "shared update" not in module.stats["program"]
    }
    out = logdir / "answers.json"
    converter = str(pathlib.Path(__file__).parent / "xprof_conversion.py")
    done = subprocess.run(
        [XPROF_PYTHON, converter, str(profile_file), module, str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(out.read_text())
    return answers


def test_xprof_answers(strategy: Any, tmp_path: pathlib.Path) -> None:
    """Its tools take the profile for a TPU's, and tell the times that the run had."""
    seconds = profile(tmp_path, training_step(strategy))
    cores = profiles.read_cores(tmp_path)
    answers = convert_by_xprof(tmp_path)

    overview = {
        key: value
        for table in answers["overview_page"]
        for key, value in table.get("p", {}).items()
    }
    assert "TPU" in overview["device_type"]
    assert overview["device_core_count"] == str(len(cores))
    lasted = [step.end - step.begin for core in cores for step in core.lines["Steps"]]
    average = 1e-3 * float(overview["steptime_ms_average"])
    # XProf takes the time of one of the cores for a step's.
    assert 0 < average <= max(lasted) + 1e-5
    assert average <= max(seconds) * 2

    [analysis] = [
        table for table in answers["input_pipeline_analyzer"] if "stepnum" in columns(table)
    ]
    steps = [row["c"][0]["v"] for row in analysis["rows"]]
    assert steps == [str(number) for number in range(STEPS)]

    expected = sum(
        op.end - op.begin
        for core in cores
        for op in core.lines["XLA Ops"]
        if op.stats.get("tf_op") == "product:MatMul"
    )
    products = sum(find_ops(answers["op_profile"]["byProgram"], "dot"))
    np.testing.assert_allclose(products, expected, rtol=0.01)

    names = {
        event["args"]["name"]
        for event in answers["trace_viewer"]["traceEvents"]
        if event.get("name") in ("thread_name", "process_name")
    }
    assert {"Steps", "XLA Modules", "XLA Ops", "Framework Ops"} <= names
    assert any("/device:TPU:0" in name for name in names)

    assert answers["memory_viewer"]["totalBufferAllocationMib"] > 0


def columns(table: dict[str, Any]) -> list[str]:
    return [column["id"] for column in table.get("cols", [])]


def find_ops(node: dict[str, Any], category: str) -> list[float]:
    """Seconds of the op profile's ops of a category."""
    if node["name"] == category:
        return [node["metrics"]["rawTime"] / profiles.PICOSECONDS]
    return [seconds for child in node.get("children", []) for seconds in find_ops(child, category)]
