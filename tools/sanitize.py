"""Runs the C++ tests and a replicated training step under AddressSanitizer and ThreadSanitizer.

Examples:
    tools/sanitize                    # both; exit code 1 if there is a report
    tools/sanitize address            # one of them
    tools/sanitize thread --only step # only the training step: "tests", "step"

Needs g++ with its sanitizer libraries, and gtest. TensorFlow itself is not instrumented: a report
is about our code, or about TensorFlow's headers compiled into it.
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
PARTS = ("tests", "step")
# The beginning of a sanitizer's report. gtest and Python can hide the exit code.
REPORTS = ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "FATAL: ThreadSanitizer")


def runtime_library(name: str) -> str:
    """Returns the path of a library of the compiler's."""
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not pathlib.Path(found).is_absolute():
        sys.exit(f"{compiler} has no {name}. Install its sanitizer libraries.")
    return os.path.realpath(found)


def build_order_library(folder: pathlib.Path) -> str:
    """Builds a library that shows TensorFlow's locks to ThreadSanitizer; returns its path."""
    library = folder / "thread_order.so"
    options = [option for option in tf_config.COPTS if option != "-O2"]
    subprocess.run(
        [
            os.environ.get("CXX", "g++"),
            *options,
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


def environment(sanitizer: str, folder: pathlib.Path, log: pathlib.Path) -> dict[str, str]:
    """Returns the environment in which an instrumented library works in a plain program."""
    if sanitizer == "address":
        # Python and TensorFlow never free what they keep for good.
        # libstdc++ must be loaded when ASan looks for the functions of C++ exceptions.
        return {
            "LD_PRELOAD": f"{runtime_library('libasan.so')} {runtime_library('libstdc++.so')}",
            # Templates compiled here replace TensorFlow's copies, and pair with its deletes.
            "ASAN_OPTIONS": (
                f"detect_leaks=0:new_delete_type_mismatch=0:log_path={log}:exitcode=66"
            ),
        }
    order = build_order_library(folder)
    suppressions = SOURCES / "thread.supp"
    return {
        "LD_PRELOAD": f"{runtime_library('libtsan.so')} {order}",
        "TSAN_OPTIONS": (
            f"suppressions={suppressions}:ignore_noninstrumented_modules=1:"
            f"history_size=4:log_path={log}:exitcode=66"
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


def stage_package(package: pathlib.Path) -> pathlib.Path:
    """Copies our Python below `package`, for a library of its own; returns the copy."""
    copy = package / "tf_tpu_ext"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "tf_tpu_ext", copy, ignore=ignored)
    return copy


def reports(folder: pathlib.Path) -> list[str]:
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_text(errors="replace")
        if any(start in text for start in REPORTS):
            found.append(text)
    return found


def sanitize(sanitizer: str, parts: list[str]) -> bool:
    """Builds and runs with one sanitizer. Returns whether everything passed without a report."""
    folder = ninja_build.link_tree(tf_config.find_tensorflow(), sanitizer)
    package = folder / "package"
    ninja_build.build(
        stage_package(package), tests="" if "tests" in parts else None, sanitize=sanitizer
    )
    logs = folder / "reports"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    variables = environment(sanitizer, folder, logs / "report")
    passed = True
    if "tests" in parts:
        passed = ninja_build.run_tests(folder, "", variables) and passed
    if "step" in parts:
        passed = run_step(package, variables) and passed
    found = reports(logs)
    for text in found:
        print(text, flush=True)
    print(f"{sanitizer}: {len(found)} processes with reports", flush=True)
    return passed and not found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizers", nargs="*", metavar="SANITIZER", help="address, thread")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    chosen = arguments.sanitizers or list(ninja_build.SANITIZERS)
    unknown = sorted(set(chosen) - set(ninja_build.SANITIZERS))
    if unknown:
        parser.error(f"expected address or thread, got {', '.join(unknown)}")
    failed = []
    for sanitizer in chosen:
        start = time.monotonic()
        try:
            clean = sanitize(sanitizer, arguments.only)
        except (RuntimeError, ValueError) as error:
            sys.exit(str(error))
        except subprocess.SubprocessError as error:
            print(error, flush=True)
            clean = False
        if not clean:
            failed.append(sanitizer)
        print(f"--- {sanitizer} sanitizer: {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        sys.exit(f"not clean: {', '.join(failed)}")


if __name__ == "__main__":
    main()
