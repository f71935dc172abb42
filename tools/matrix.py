"""Runs the tests on each minor version of TensorFlow and Python, in fresh virtual environments.

The newest TensorFlow gets the whole suite, the others the main paths: strategies, replicate,
outside compilation, towers, estimators, Keras, `tf-tpu check` and pods, with a file or two each.
The whole suite has the C++ tests too, which need clang++.
Without --wheel, pip compiles the package for each minor version; with --quick, clang++ does so
without optimization, in an eighth of the time.

Examples:
    tools/matrix --wheel dist/tf_tpu_ext-0.1.0-py3-none-manylinux_2_34_x86_64.whl
    tools/matrix --minors 2.20 --pythons python3.12 --suite whole
    tools/matrix --quick --minors 2.19 2.20 --pythons python3.11
    tools/matrix --quick --minors 2.20 --suite smoke  # a few tests on each Python
"""

from __future__ import annotations

import argparse
import dataclasses
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
import build_wheel  # noqa: E402
import environments  # noqa: E402
import tf_config  # noqa: E402

PYTHONS = tuple(f"python3.{minor}" for minor in range(10, 14))
# The files that cover each main path once.
MAIN_PATHS = (
    "tests/check/test_host_effects.py",
    "tests/estimator/test_tpu_estimator.py",
    "tests/outside_compilation/test_clusters.py",
    "tests/outside_compilation/test_control_flow.py",
    "tests/pods/test_pods.py::test_collectives",
    "tests/pods/test_pods.py::test_outside_compilation_runs_on_the_host_of_its_replica",
    "tests/test_collectives.py",
    "tests/test_compilation_cache.py::test_a_second_process_compiles_nothing",
    "tests/test_compilation_cache.py::test_restored_programs_leave_earlier_values_alone",
    "tests/test_keras.py::test_callbacks",
    "tests/test_keras.py::test_dataset",
    "tests/test_keras.py::test_equals_plain_cpu[dense]",
    "tests/test_keras.py::test_legacy_keras",
    "tests/test_native.py",
    "tests/test_patch_targets.py::test_every_patch_has_a_target_or_adds_something",
    "tests/test_patch_targets.py::test_undo_all_leaves_tensorflow_as_it_came",
    "tests/test_patch_targets.py::test_undo_all_leaves_tensorflow_estimator_as_it_came",
    "tests/test_strategy.py",
    "tests/towers/test_tower_calls.py",
    "tests/towers/test_reductions.py",
    "tests/tpu/test_maximum_shapes.py",
    "tests/tpu/test_padding_ops.py::test_real_elements_only",
    "tests/tpu/test_replicate.py",
)
SUITES: dict[str, tuple[str, ...]] = {
    "whole": ("tests",),
    "main": MAIN_PATHS,
    "smoke": build_wheel.SMOKE_TESTS,
}


@dataclasses.dataclass(frozen=True)
class Package:
    """What is installed: a wheel, or otherwise this source.

    Attributes:
        wheel: The wheel.
        quick: Whether the source's library is compiled without optimization, by clang++.
    """

    wheel: pathlib.Path | None = None
    quick: bool = False


def runs(python: str) -> bool:
    """Returns whether there is such a Python; behind a pyenv shim, there may be none."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "--version"], capture_output=True).returncode == 0


def exists(minor: str, python: str) -> bool:
    """Returns whether TensorFlow has a wheel of the minor version for that Python."""
    command = [python, "-c", "import sys; print(sys.version_info.minor)"]
    version = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return version <= tf_config.NEWEST_PYTHON[minor]


def build_quickly(python: pathlib.Path, sources: pathlib.Path, minor: str) -> dict[str, str]:
    """Compiles the library; returns the variables that make pip use it."""
    environments.run(python, "-m", "pip", "install", "-q", "ninja")
    libraries = sources.parent / "libraries"
    build = sources / "tools" / "ninja_build.py"
    environments.run(python, build, "--quick", libraries / f"tensorflow-{minor}")
    return {tf_config.BUILT_VARIABLE: str(libraries)}


def run_native_tests(python: pathlib.Path, sources: pathlib.Path) -> None:
    """Compiles the C++ tests by clang++, and runs them."""
    environments.run(python, "-m", "pip", "install", "-q", "ninja")
    build = sources / "tools" / "ninja_build.py"
    environments.run(python, build, "--quick", "--no-install", "--run-tests")


def run_tests(work: pathlib.Path, minor: str, python: str, package: Package, suite: str) -> None:
    """Installs the package with a TensorFlow, and runs the tests.

    Raises:
        subprocess.CalledProcessError: Something could not be installed, or a test failed.
    """
    folder = work / minor
    tensorflow = f"tensorflow-cpu=={minor}.*"
    own = environments.make(folder / "venv", [tensorflow], python=python)
    sources = environments.copy_sources(folder / "sources")
    installed = sources if package.wheel is None else package.wheel.resolve()
    variables = {build_backend.VARIABLE: minor}
    if package.quick:
        variables |= build_quickly(own, sources, minor)
    environments.run(
        *(own, "-m", "pip", "install", "-q", f"{installed}[test,estimator]", tensorflow),
        env=variables,
    )
    environments.run(own, "-m", "pip", "install", "-q", "--no-deps", f"tf_keras=={minor}.*")
    command = ["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *SUITES[suite]]
    environments.run(own, *command, cwd=sources)
    if suite == "whole":
        run_native_tests(own, sources)


def main() -> None:
    """Prints a line for each combination; the exit code is 1 if any failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minors", nargs="+", choices=tf_config.MINORS, default=tf_config.MINORS)
    found = [python for python in PYTHONS if runs(python)]
    parser.add_argument("--pythons", nargs="+", default=found, help=f"default: {' '.join(found)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wheel", type=pathlib.Path, help="what to install; default: this source")
    what.add_argument("--quick", action="store_true", help="compile without optimization")
    parser.add_argument(
        "--suite",
        choices=sorted(SUITES),
        help="all tests, those of the main paths, or a few; default: all on the newest TensorFlow",
    )
    options = parser.parse_args()
    if not options.pythons:
        sys.exit(f"Expected one of {', '.join(PYTHONS)} on PATH, found none. Name one: --pythons")
    if unknown := [python for python in options.pythons if not runs(python)]:
        sys.exit(f"Expected Pythons on PATH, or their paths. Can't run: {', '.join(unknown)}")
    package = Package(options.wheel, options.quick)
    lines, failed = [], False
    for minor, python in itertools.product(options.minors, options.pythons):
        if not exists(minor, python):
            lines.append(f"TensorFlow {minor}  {python}  has no wheel")
            print(lines[-1], flush=True)
            continue
        suite = options.suite or ("whole" if minor == tf_config.MINORS[-1] else "main")
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            try:
                run_tests(pathlib.Path(work), minor, python, package, suite)
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
