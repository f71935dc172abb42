"""Compares random TPU programs that have clusters with plain TensorFlow.

Ends with exit code 1 and the smallest program that differs, if there is one.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time

# TensorFlow keeps compiled code until the process ends, and Linux allows 65,530 mappings.
PROGRAMS_OF_A_PROCESS = 1000
FUZZ = pathlib.Path(__file__).resolve().parent.parent / "fuzz.py"


def run_in_parts(arguments: argparse.Namespace, seed: int) -> int:
    """Runs programs in one process after another. Returns the exit code of the first that fails."""
    options = ["--cores", str(arguments.cores)]
    options += ["--ordered"] if arguments.ordered else []
    options += ["--kinds", *arguments.kinds] if arguments.kinds else []
    for part, first in enumerate(range(0, arguments.examples, PROGRAMS_OF_A_PROCESS)):
        examples = min(PROGRAMS_OF_A_PROCESS, arguments.examples - first)
        command = [sys.executable, str(FUZZ), "programs", "--examples", str(examples)]
        done = subprocess.run([*command, "--seed", str(seed + part), *options], check=False)
        if done.returncode != 0:
            return done.returncode
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Runs `tools/fuzz programs`; returns its exit code."""
    seed = time.time_ns() % (1 << 32) if arguments.seed is None else arguments.seed
    if arguments.examples > PROGRAMS_OF_A_PROCESS:
        return run_in_parts(arguments, seed)
    os.environ["TF_TPU_EXT_CORES"] = str(arguments.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    import hypothesis
    import tensorflow as tf

    from fuzzing import cluster_programs

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    kinds = arguments.kinds or cluster_programs.CLUSTER_KINDS
    tried = 0
    start = time.monotonic()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=arguments.examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cluster_programs.programs(kinds), hypothesis.strategies.integers(0, 99))
    def compare(program: cluster_programs.Program, start_values: int) -> None:
        nonlocal tried
        tried += 1
        if tried % 100 == 0:
            print(f"{tried} programs, {time.monotonic() - start:.0f} s", flush=True)
        cluster_programs.check(strategy, program, start_values, ordered=arguments.ordered)

    print(f"seed {seed}, {arguments.examples} programs on {arguments.cores} cores", flush=True)
    try:
        compare()
    except Exception as error:
        print(f"after {tried} programs: {error}", file=sys.stderr)
        return 1
    print(f"{tried} programs agree, in {time.monotonic() - start:.0f} s")
    return 0
