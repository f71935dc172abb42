"""A process finds the machine code of an earlier one in the folder of the compilation cache."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

# Trains with convolutions, combined gradients, control flow and a cluster on the host; then pads
# replicas' inputs, and compiles a function of one device. Prints all that came out of it.
PROGRAM = """
import json, sys
import numpy as np
import tensorflow as tf
import tf_tpu_ext

if sys.argv[1:]:
    tf_tpu_ext.configure(share_updates=False)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    kernel = tf.Variable(tf.random.stateless_normal([3, 3, 1, 4], seed=[1, 2]))
    dense = tf.Variable(tf.random.stateless_normal([4, 3], seed=[3, 4]))
images = np.random.default_rng(0).normal(size=(4, 8, 8, 1)).astype(np.float32)
calls = []

def on_host(x):
    calls.append(float(x))
    return np.float32(2 * x)

def replica(images):
    with tf.GradientTape() as tape:
        features = tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME"))
        features = tf.nn.max_pool2d(features, 2, 2, "VALID")
        loss = tf.reduce_sum(tf.reduce_mean(features, [1, 2]) @ dense)
    gradients = tape.gradient(loss, [kernel, dense])
    context = tf.distribute.get_replica_context()
    for variable, gradient in zip([kernel, dense], context.all_reduce("SUM", gradients)):
        variable.assign_sub(0.01 * gradient)
    doubled = tf_tpu_ext.tpu.outside_compilation(
        lambda x: tf.ensure_shape(tf.numpy_function(on_host, [x], tf.float32), []), loss)
    nearer = lambda x: tf.cond(x > 0.0, lambda: x - 1.0, lambda: x + 1.0)
    return tf.while_loop(lambda x: x > -9.0, nearer, [doubled], maximum_iterations=3)[0]

@tf.function
def step(images):
    return strategy.run(replica, args=(images,))

results = []
for _ in range(2):
    results += [value.numpy() for value in strategy.experimental_local_results(step(images))]
results += [kernel.numpy(), dense.numpy()]

@tf.function(input_signature=[tf.TensorSpec([None])] * 2)
def mean(first, second):
    return tf_tpu_ext.tpu.replicate(
        tf.reduce_mean, [[first], [second]], maximum_shapes=[tf.TensorShape([None])])

results += [value.numpy() for (value,) in mean(tf.range(3.0), tf.range(8.0))]

@tf.function(jit_compile=True)
def squares(x):
    return tf.cumsum(x * x)

with tf.device("TPU:0"):
    results.append(squares(tf.range(5.0)).numpy())
print(json.dumps({
    "results": [np.asarray(value).tolist() for value in results],
    "calls": sorted(calls),
    "restored": [program.restored for program in tf_tpu_ext.compilation_stats().programs],
    "cache": tf_tpu_ext.machine().compilation_cache,
}))
"""


@pytest.fixture
def run_program(run_python):
    """Runs the program on two cores with the cache; returns what it printed, and its warnings."""

    def run(folder: pathlib.Path | None, *arguments: str) -> tuple[dict[str, Any], str]:
        env = {"TF_TPU_EXT_CORES": "2", "TF_CPP_MIN_LOG_LEVEL": "1"}
        if folder is not None:
            env["TF_TPU_EXT_COMPILATION_CACHE"] = str(folder)
        done = run_python(PROGRAM, *arguments, env=env)
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


def entries(folder: pathlib.Path) -> dict[str, bytes]:
    assert not list(folder.glob("*.part"))
    return {path.name: path.read_bytes() for path in folder.glob("*.xla")}


def test_the_default_is_in_the_users_cache_folder(run_python, tmp_path):
    code = """
        import json, os
        for name in {"XDG_CACHE_HOME", "TF_TPU_EXT_COMPILATION_CACHE"}:
            if not os.environ.get(name):
                os.environ.pop(name, None)
        import tensorflow as tf
        import tf_tpu_ext

        folder = tf_tpu_ext.machine().compilation_cache
        existed = os.path.exists(folder)
        tf_tpu_ext.tpu.rewrite(tf.square, [tf.constant(3.0)])
        [program] = tf_tpu_ext.compilation_stats().programs
        files = os.listdir(folder) if os.path.exists(folder) else []
        print(json.dumps([folder, existed, program.restored, files]))
    """

    def run(**env: str) -> Any:
        return json.loads(
            run_python(code, env={"HOME": str(tmp_path), "XDG_CACHE_HOME": "", **env}).stdout
        )

    folder, existed, restored, files = run()
    assert folder == str(tmp_path / ".cache" / "tf_tpu_ext" / "programs")
    assert (existed, restored, len(files)) == (False, False, 1)
    assert run() == [folder, True, True, files]
    folder, *_ = run(XDG_CACHE_HOME=str(tmp_path / "caches"))
    assert folder == str(tmp_path / "caches" / "tf_tpu_ext" / "programs")
    # Another user could put code into this one.
    tmp_path.chmod(0o777)
    folder, _, restored, _ = run()
    assert not restored


def test_the_folder_does_not_grow_beyond_its_limit(run_python, tmp_path):
    code = """
        import os, sys
        import tensorflow as tf
        import tf_tpu_ext

        tf_tpu_ext.configure(compilation_cache=sys.argv[1], max_cache_bytes=20_000)
        sizes = []
        for size in range(1, 21):
            tf_tpu_ext.tpu.rewrite(tf.cumsum, [tf.ones([size])])
            sizes.append(sum(file.stat().st_size for file in os.scandir(sys.argv[1])))
        assert len(tf_tpu_ext.compilation_stats().programs) == 20
        print(max(sizes), tf_tpu_ext.machine().max_cache_bytes)
    """
    largest, limit = map(int, run_python(code, str(tmp_path)).stdout.split())
    assert 10_000 < largest <= limit == 20_000


def test_a_second_process_compiles_nothing(run_program, tmp_path):
    folder = tmp_path / "a" / "cache"
    plain, _ = run_program(None)
    assert plain["cache"] is None
    assert len(plain["restored"]) >= 3
    assert not any(plain["restored"])
    first, _ = run_program(folder)
    assert first == {**plain, "cache": str(folder)}
    kept = entries(folder)
    # The training step is two: the replicas' part, and the update that they share.
    assert len(kept) == len(first["restored"]) + 1
    second, warnings = run_program(folder)
    assert all(second["restored"])
    assert second == {**first, "restored": second["restored"]}
    assert entries(folder) == kept
    assert "compilation cache" not in warnings


def test_other_options_are_other_programs(run_program, tmp_path):
    shared, _ = run_program(tmp_path)
    kept = entries(tmp_path)
    own, _ = run_program(tmp_path, "own")
    assert own["results"] == shared["results"]
    assert own["restored"].count(False) == 1
    assert set(kept) < set(entries(tmp_path))


def test_damaged_files_are_told_and_replaced(run_program, tmp_path):
    first, _ = run_program(tmp_path)
    kept = entries(tmp_path)
    names = sorted(kept)
    (tmp_path / names[0]).write_bytes(kept[names[0]][:-100])
    (tmp_path / names[1]).write_bytes(b"")
    second, warnings = run_program(tmp_path)
    assert second["results"] == first["results"]
    assert second["restored"].count(False) in (1, 2)
    for name in names[:2]:
        assert f"{tmp_path / name} is damaged" in warnings
    assert set(entries(tmp_path)) == set(kept)
    third, _ = run_program(tmp_path)
    assert all(third["restored"])


@pytest.mark.parametrize("elements", [6, 1 << 18])  # the second are updated in place
def test_restored_programs_leave_earlier_values_alone(tmp_path, elements):
    tf_tpu_ext.configure(compilation_cache=tmp_path)
    try:
        for restored in (False, True):
            with tf.device("TPU:0"):
                initial = tf.fill([elements], 40.0)
                variable = tf.Variable(initial)

            def add(variable=variable):
                return tf.reduce_sum(variable.assign_add(tf.ones_like(variable)))

            # Each is a program of its own for the process.
            step = tf.function(lambda add=add: tf_tpu_ext.tpu.rewrite(add))
            for total in (41.0, 42.0):
                before = variable.read_value()
                (result,) = step()
                assert float(result) == total * elements
                np.testing.assert_array_equal(before, np.full(elements, total - 1))
            np.testing.assert_array_equal(initial, np.full(elements, 40.0))
            assert tf_tpu_ext.compilation_stats().programs[-1].restored == restored
    finally:
        tf_tpu_ext.configure(compilation_cache="")


def test_a_folder_that_vanishes_costs_only_time(tmp_path):
    folder = tmp_path / "cache"
    tf_tpu_ext.configure(compilation_cache=folder)
    try:
        folder.rmdir()
        folder.touch()
        values = np.arange(7.0, dtype=np.float32)
        (result,) = tf_tpu_ext.tpu.rewrite(lambda x: tf.cumsum(x * 3.0), [values])
        np.testing.assert_allclose(result, np.cumsum(values * 3.0), rtol=1e-6)
    finally:
        tf_tpu_ext.configure(compilation_cache="")
    assert tf_tpu_ext.machine().compilation_cache is None


def test_a_folder_that_cannot_be_is_refused_with_nothing_changed(tmp_path):
    file = tmp_path / "file"
    file.touch()
    before = tf_tpu_ext.machine()
    with pytest.raises(ValueError, match=f"Received: '{file}/in'"):
        tf_tpu_ext.configure(wait_limit_seconds=7, compilation_cache=file / "in")
    assert tf_tpu_ext.machine() == before


def test_other_settings_that_fail_leave_the_cache(tmp_path):
    assert tf.config.list_logical_devices("TPU")
    before = tf_tpu_ext.machine()
    with pytest.raises(RuntimeError, match="already created"):
        tf_tpu_ext.configure(cores=before.cores + 1, compilation_cache=tmp_path)
    assert tf_tpu_ext.machine() == before
