"""The TPU compiler is asked about real programs, as this package's own tests and examples have."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from verdicts import PYTEST, needs_libtpu, own_cache, tf_tpu_check  # noqa: F401

import tf_tpu_ext
from tf_tpu_ext.verdict import Answer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from step_programs import programs  # noqa: E402
from step_tensorflow import make_step  # noqa: E402

pytestmark = needs_libtpu
SMOKE = programs(smoke=True)


@pytest.mark.parametrize("name", SMOKE)
def test_steps_of_the_benchmarks(make_strategy, name):
    program = SMOKE[name]
    with tf_tpu_ext.compile_for("v3-8") as checked:
        step, read = make_step(program, make_strategy(2), dense=True)
        read(step())
    [verdict] = [verdict for verdict in checked.verdicts() if "step" in verdict.program]
    assert verdict.ok, verdict
    assert verdict.num_replicas == 2
    weights = sum(array.nbytes for array in program.weights().values())
    assert verdict.memory.variables >= weights
    assert verdict.cost.collectives >= (1 if weights else 0)


# Tests of this package whose programs a TPU has to take: they run under the pytest plugin.
OWN_TESTS = [
    "tests/tpu/test_maximum_shapes.py",
    "tests/outside_compilation/test_clusters.py",
    # Of the ways to start a program one is enough: the compiler sees the same.
    *("-k", "not session and not eager"),
]
OWN_TESTS_OF_ESTIMATORS = [
    "tests/estimator/test_estimator_hooks.py",
    "tests/estimator/test_estimator_embedding.py",
]


def test_programs_of_own_tests():
    _check_own_tests(OWN_TESTS, at_least=50)


def test_programs_of_estimators():
    _needs_estimator()
    _check_own_tests(OWN_TESTS_OF_ESTIMATORS, at_least=20)


def _needs_estimator():
    # It can't be imported without what the tests of estimators supply.
    if not importlib.util.find_spec("tensorflow_estimator"):
        pytest.skip("tensorflow-estimator is not installed")


def _check_own_tests(paths, at_least):
    done = subprocess.run(
        [
            *(*PYTEST, "-q", "-x", "-p", "no:cacheprovider", "--tpu-target=v3-8", *paths),
        ],
        env=dict(os.environ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    [(good, all_of_them)] = re.findall(r"(\d+) of (\d+) compile and fit", done.stdout)
    assert good == all_of_them
    assert int(good) >= at_least, done.stdout[-2000:]


EXAMPLES = {
    "keras_digits": ["--epochs=1"],
    "encoder_pretraining": ["--epochs=1"],
    "host_in_the_loop": ["--steps=2"],
    "estimator_digits": ["--steps=2"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(tmp_path, name):
    if name.startswith("estimator"):
        _needs_estimator()
    _check_example(tmp_path, name, *EXAMPLES[name])


def test_example_that_reads_by_tensorflow_io(io_environment, tmp_path):
    _check_example(tmp_path, "spoken_digits", "--epochs=1")


def _check_example(folder, name, *arguments):
    report = folder / "verdicts.json"
    done = tf_tpu_check(
        folder,
        *("--target", "v3-8", "--compile-only", "--json", str(report)),
        *(str(ROOT / "examples" / f"{name}.py"), *arguments),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = json.loads(report.read_text())
    assert verdicts
    assert all(verdict["ok"] for verdict in verdicts), done.stderr
    lines = [buffer["source"] for verdict in verdicts for buffer in verdict["largest"]]
    assert any(f"{name}.py:" in line for line in lines), done.stderr


def test_several_cores_per_replica_with_ops_placed_one_by_one():
    with tf_tpu_ext.compile_for("v3-8") as checked:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=[1, 1, 1, 2], num_replicas=4
        )

        def computation(x):
            with tf.device(tf.compat.v1.tpu.core(0)):
                y = x * 2.0
            with tf.device(tf.compat.v1.tpu.core(1)):
                return y + 1.0

        tf_tpu_ext.tpu.replicate(computation, [[tf.ones([8])]] * 4, device_assignment=assignment)
    [verdict] = checked.verdicts()
    assert verdict.num_cores_per_replica == 2
    # The compiler of libtpu takes no such program; those of older TPU software did.
    assert verdict.answer is Answer.REFUSED, verdict
    assert "use_spmd_for_xla_partitioning=True" in verdict.advice
