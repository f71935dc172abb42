"""Runs the tests on each minor of TensorFlow and each Python, in fresh virtual environments.

The newest TensorFlow gets the whole suite, the others the main paths: strategies, replicate,
outside compilation, towers, estimators and Keras. Without --wheel, pip compiles the package for
each minor.

Examples:
    tools/matrix --wheel dist/tf_tpu_ext-0.1.0-py3-none-manylinux_2_34_x86_64.whl
    tools/matrix --minors 2.20 --pythons python3.12 --suite whole
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_backend  # noqa: E402
import environments  # noqa: E402
import tf_config  # noqa: E402

PYTHONS = tuple(f"python3.{minor}" for minor in range(10, 14))
MAIN_PATHS = (
    "tests/estimator",
    "tests/outside_compilation",
    "tests/test_keras.py",
    "tests/test_native.py",
    "tests/test_patch_targets.py",
    "tests/test_strategy.py",
    "tests/towers",
    "tests/tpu",
)


def run_tests(
    work: pathlib.Path, minor: str, python: str, wheel: pathlib.Path | None, suite: str
) -> None:
    """Installs the package beside a TensorFlow, and runs the tests.

    Raises:
        subprocess.CalledProcessError: Something could not be installed, or a test failed.
    """
    folder = work / f"{minor}-{python}"
    tensorflow = f"tensorflow-cpu=={minor}.*"
    own = environments.make(folder / "venv", [tensorflow], python=python)
    sources = environments.copy_sources(folder / "sources")
    package = sources if wheel is None else wheel.resolve()
    environments.run(
        *(own, "-m", "pip", "install", "-q", f"{package}[test,estimator]", tensorflow),
        env={build_backend.VARIABLE: minor},
    )
    environments.run(own, "-m", "pip", "install", "-q", "--no-deps", f"tf_keras=={minor}.*")
    tests = ("tests",) if suite == "whole" else MAIN_PATHS
    command = ["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *tests]
    environments.run(own, *command, cwd=sources)


def main() -> None:
    """Prints a line for each combination; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minors", nargs="+", choices=tf_config.MINORS, default=tf_config.MINORS)
    found = [python for python in PYTHONS if shutil.which(python)]
    parser.add_argument("--pythons", nargs="+", default=found, help=f"default: {' '.join(found)}")
    parser.add_argument("--wheel", type=pathlib.Path, help="what to install; default: this source")
    parser.add_argument(
        "--suite",
        choices=("whole", "main"),
        help="all tests, or those of the main paths; default: all on the newest TensorFlow",
    )
    options = parser.parse_args()
    if not options.pythons:
        sys.exit(f"Expected one of {', '.join(PYTHONS)} on PATH, found none. Name one: --pythons")
    lines, failed = [], False
    for minor, python in itertools.product(options.minors, options.pythons):
        suite = options.suite or ("whole" if minor == tf_config.MINORS[-1] else "main")
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            try:
                run_tests(pathlib.Path(work), minor, python, options.wheel, suite)
                result = "passed"
            except subprocess.CalledProcessError as error:
                result = f"FAILED: {' '.join(error.cmd[:6])}"
                failed = True
        minutes = (time.monotonic() - start) / 60
        lines.append(f"TensorFlow {minor}  {python}  {suite:6}{minutes:5.1f} min  {result}")
        print(lines[-1], flush=True)
    print("\n".join(["", *lines]))
    sys.exit(failed)


if __name__ == "__main__":
    main()
