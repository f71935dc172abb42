"""Runs tests and a replicated training step under sanitizers.

Examples:
    tools/sanitize                    # both; exit code 1 if there is a report
    tools/sanitize address            # AddressSanitizer with UndefinedBehaviorSanitizer
    tools/sanitize thread --only step # ThreadSanitizer, only the training step
    tools/sanitize thread --only python --tests tests/test_waits.py

The parts are "tests", the C++ tests; "step", a training step; and "python", tests of the Python
package. Needs clang++ with its sanitizer libraries, llvm-symbolizer, and gtest. TensorFlow itself
is not instrumented: a report is about our code, or about TensorFlow's headers compiled into it.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import ninja_build  # noqa: E402
import tf_config  # noqa: E402

SOURCES = ROOT / "tools" / "sanitizers"
STEP_TIMEOUT_SECONDS = 900
PYTHON_TIMEOUT_SECONDS = 3600
PARTS = ("tests", "step", "python")
# The package's modules beside the folder tf_tpu_ext: the command and the pytest plugin.
MODULES = ("tf_tpu_command.py", "tf_tpu_pytest.py")
# Together, they use every native part, with threads, errors and cancellation.
PYTHON_TESTS = (
    "tests/tpu/test_replicate.py::TestInputs",
    "tests/tpu/test_replicate.py::test_random_ops_draw_different_numbers",
    "tests/test_collectives.py",
    "tests/test_infeed_outfeed.py",
    "tests/test_embedding_ops.py",
    "tests/test_failures.py",
    "tests/outside_compilation/test_host_ops.py",
)
# What identifies a sanitizer's report. gtest and Python can hide the exit code.
REPORTS = (
    "ERROR: AddressSanitizer: ",
    "WARNING: ThreadSanitizer: ",
    "ERROR: ThreadSanitizer: ",
    "FATAL: ThreadSanitizer: ",
    "runtime error: ",
)


def runtime_library(name: str) -> str:
    """Returns the path of one of the compiler's libraries."""
    compiler = ninja_build.clang()
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not pathlib.Path(found).is_absolute():
        raise RuntimeError(f"{compiler} has no {name}. Install its sanitizer libraries.")
    return os.path.realpath(found)


def build_order_library(folder: pathlib.Path) -> str:
    """Builds a library that shows TensorFlow's locks to ThreadSanitizer; returns its path."""
    library = folder / "thread_order.so"
    left_out = tf_config.GCC_ONLY | {"-O2"}
    subprocess.run(
        [
            ninja_build.clang(),
            *(option for option in tf_config.COPTS if option not in left_out),
            "-O1",
            "-fPIC",
            "-shared",
            str(SOURCES / "thread_order.cc"),
            "-o",
            str(library),
        ],
        cwd=folder,
        check=True,
    )
    return str(library)


def symbolizer() -> str:
    """Returns the llvm-symbolizer next to the compiler: without it, a report names no lines."""
    compiler = pathlib.Path(os.path.realpath(str(shutil.which(ninja_build.clang()))))
    found = compiler.with_name("llvm-symbolizer")
    if not found.exists():
        raise RuntimeError(f"{found} is missing. Install LLVM's tools of the compiler's version.")
    return str(found)


def environment(sanitizer: str, folder: pathlib.Path, log: pathlib.Path) -> dict[str, str]:
    """Returns the environment in which an instrumented library works in a plain program."""
    # Tests ask for more memory than there is. That must fail as it does without a sanitizer.
    common = (
        f"log_path={log}:exitcode=66:external_symbolizer_path={symbolizer()}"
        ":allocator_may_return_null=1"
    )
    if sanitizer == "address":
        runtime = runtime_library("libclang_rt.asan-x86_64.so")
        return {
            # The functions for C++ exceptions must be present when the runtime looks for them.
            "LD_PRELOAD": f"{runtime} {runtime_library('libstdc++.so.6')}",
            # Python and TensorFlow never free what they keep forever. Templates compiled here
            # replace TensorFlow's copies, and pair with its deletes.
            "ASAN_OPTIONS": f"detect_leaks=0:new_delete_type_mismatch=0:{common}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:{common}",
        }
    order = build_order_library(folder)
    return {
        "LD_PRELOAD": f"{runtime_library('libclang_rt.tsan-x86_64.so')} {order}",
        # Its deadlock detector deadlocks itself while it looks up the names in a report.
        "TSAN_OPTIONS": (
            f"suppressions={SOURCES / 'thread.supp'}:ignore_noninstrumented_modules=1:"
            f"detect_deadlocks=0:history_size=4:{common}"
        ),
    }


def run_step(package: pathlib.Path, variables: Mapping[str, str]) -> bool:
    """Runs the training step with the library of `package`. Returns whether it passed."""
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "sanitize_step.py")],
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": str(package),
            "TF_CPP_MIN_LOG_LEVEL": "1",
        },
        timeout=STEP_TIMEOUT_SECONDS,
    )
    if run.returncode:
        print(f"the training step ended with exit code {run.returncode}", flush=True)
    return run.returncode == 0


def run_python(package: pathlib.Path, tests: list[str], variables: Mapping[str, str]) -> bool:
    """Runs tests of the Python package with the library of `package`; whether they passed."""
    # The runtimes' own threads and checks make everything slower, so time limits are longer.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    jobs = str(ninja_build.default_jobs())
    run = subprocess.run(
        [*command, "--timeout=900", "-n", jobs, "--dist", "worksteal", *tests],
        cwd=ROOT,
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": str(package),
            "TF_CPP_MIN_LOG_LEVEL": "1",
        },
        timeout=PYTHON_TIMEOUT_SECONDS,
    )
    return run.returncode == 0


def stage_package(package: pathlib.Path) -> pathlib.Path:
    """Copies our Python code below `package`, for its own library; returns the copy."""
    copy = package / "tf_tpu_ext"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "tf_tpu_ext", copy, ignore=ignored)
    for module in MODULES:
        shutil.copy(ROOT / module, package)
    return copy


def reports(folder: pathlib.Path) -> list[str]:
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_text(errors="replace")
        if any(start in text for start in REPORTS):
            found.append(text)
    return found


def headline(report: str) -> str:
    """Returns the line of a report that says what is wrong."""
    return next(line for line in report.splitlines() if any(start in line for start in REPORTS))


def sanitize(sanitizer: str, parts: list[str], tests: list[str]) -> list[str]:
    """Builds and runs with one sanitizer. Returns what failed, and a line of each report."""
    folder = ninja_build.link_tree(tf_config.find_tensorflow(), sanitizer)
    package = folder / "package"
    ninja_build.build(stage_package(package), tests="tests" in parts, sanitize=sanitizer)
    logs = folder / "reports"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    variables = environment(sanitizer, folder, logs / "report")
    failed = []
    if "tests" in parts and not ninja_build.run_tests(folder, "", variables):
        failed.append("C++ tests")
    if "step" in parts and not run_step(package, variables):
        failed.append("the training step")
    if "python" in parts and not run_python(package, tests, variables):
        failed.append("Python tests")
    found = reports(logs)
    for text in found:
        print(text, flush=True)
    print(f"{sanitizer}: {len(found)} processes with reports", flush=True)
    return failed + [headline(text) for text in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizers", nargs="*", metavar="SANITIZER", help="address, thread")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--tests", nargs="+", default=list(PYTHON_TESTS), help="what pytest runs as `python`"
    )
    arguments = parser.parse_args()
    chosen = arguments.sanitizers or list(ninja_build.SANITIZERS)
    unknown = sorted(set(chosen) - set(ninja_build.SANITIZERS))
    if unknown:
        parser.error(f"expected address or thread, got {', '.join(unknown)}")
    problems = []
    for sanitizer in chosen:
        start = time.monotonic()
        try:
            found = sanitize(sanitizer, arguments.only, arguments.tests)
        except (RuntimeError, ValueError) as error:
            sys.exit(str(error))
        except subprocess.SubprocessError as error:
            found = [str(error)]
        problems += [f"{sanitizer}: {problem}" for problem in found]
        print(f"--- {sanitizer} sanitizer: {time.monotonic() - start:.0f} s", flush=True)
    if problems:
        # Repeated here, for those who read only the end of a long log.
        sys.exit("\n".join(["not clean:", *problems]))


if __name__ == "__main__":
    main()
