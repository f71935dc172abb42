"""`tf-tpu doctor`: checks the installation and runs a step on every virtual core.

TensorFlow is imported only in separate processes, because it may fail to load or crash.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
PROBES = pathlib.Path(__file__).resolve().parent / "probes.py"
DEFAULT_TIMEOUT_SECONDS = 300.0
CORES_VARIABLE = "TF_TPU_EXT_CORES"
HOSTS_VARIABLE = "TF_TPU_EXT_HOSTS"

OK, NOTE, FAILED = "ok", "note", "failed"

_INDENT = " " * 30
_REPORT = "Run `tf-tpu doctor --json` and report its output with the messages above it."


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: What was checked.
        status: "ok", "note" (unusual, but not broken) or "failed".
        found: What was found, or the error.
        advice: What to do about a failure or note; empty if nothing.
    """

    name: str
    status: str
    found: str
    advice: str = ""


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "doctor",
        help="examine the installation and run a step on every core",
        description="Prints versions, the virtual machine, and whether a replicated step runs. "
        "The exit code is 0 if all is well and 1 if not; each failing line says what to do.",
    )
    parser.add_argument(
        "workers",
        nargs="?",
        metavar="grpc://HOST:PORT,...",
        help="examine these workers, and a step over the cores of all of them, in place of the "
        "cores of this process",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_cores(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="time for each process that is examined (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def add_cores(parser: Any) -> None:
    """Adds the option that sets the number of cores."""
    parser.add_argument(
        "--cores", type=int, help=f"number of cores (default: {CORES_VARIABLE}, else 8)"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the checks, prints the report and returns the exit code."""
    environment = dict(os.environ)
    if options.cores is not None:
        environment[CORES_VARIABLE] = str(options.cores)
    checks: list[Check] = []
    for check in examine(environment, options.timeout, options.workers):
        checks.append(check)
        if not options.json:
            print(render(check), flush=True)
    healthy = all(check.status != FAILED for check in checks)
    if options.json:
        print(json.dumps({"ok": healthy, "checks": [dataclasses.asdict(c) for c in checks]}))
    else:
        failures = sum(check.status == FAILED for check in checks)
        print("All is well." if healthy else f"{failures} of {len(checks)} checks failed.")
    return 0 if healthy else 1


def render(check: Check) -> str:
    """Returns a check as text."""
    first, *rest = check.found.splitlines() or [""]
    status = check.status.upper() if check.status == FAILED else check.status
    lines = [f"{status:8}{check.name:22}{first}"]
    lines += [_INDENT + line for line in rest]
    if check.advice:
        lines.append(f"{_INDENT}-> {check.advice}")
    return "\n".join(lines)


def examine(
    environment: dict[str, str], timeout: float, workers: str | None = None
) -> Iterator[Check]:
    """Yields all checks as they are made.

    Args:
        environment: The environment variables for the processes that run the checks.
        timeout: How many seconds such a process may take.
        workers: The addresses of the workers to examine, or None for this machine's cores.
    """
    yield from versions()
    if workers is not None:
        yield from _probe("workers", environment, timeout, workers)
        return
    yield tpu(environment)
    yield from _probe("machine", environment, timeout)
    yield from tensorflow_io(environment, timeout)
    yield pipelines(timeout)


def versions() -> Iterator[Check]:
    """Yields the versions of Python and of relevant packages, without importing any."""
    yield Check("Python", OK, f"{platform.python_version()} ({sys.executable})")
    yield Check("tf_tpu_ext", OK, f"{package_version()} in {PACKAGE}")
    found = _tensorflow_distributions()
    if found:
        built = built_for()
        suffix = f"; tf_tpu_ext was built for {' and '.join(built)}" if built else ""
        yield Check("TensorFlow", OK, ", ".join(found) + suffix)
    elif importlib.util.find_spec("tensorflow") is not None:
        yield Check("TensorFlow", OK, "a build that pip does not know")
    else:
        yield Check("TensorFlow", FAILED, "not installed", _install_tensorflow())
    for name in ("numpy", "keras", "tf_keras"):
        version = _version(name)
        yield Check(name, OK if version else NOTE, version or "not installed")


def tpu(environment: dict[str, str]) -> Check:
    """Reports whether there is a TPU, what can drive it, and what programs get."""
    module = _module("_real_tpu")
    try:
        choice = module.choose(asked=environment.get(module.VARIABLE))
    except ValueError as error:
        return Check("TPU", FAILED, str(error))
    gets = {"virtual": "virtual cores", "real": "TensorFlow's own TPU support", "none": "no TPU"}
    status = {"virtual": OK, "real": NOTE, "none": FAILED}[choice.tpu]
    return Check("TPU", status, f"{choice.because}: programs get {gets[choice.tpu]}", choice.advice)


def is_package_folder(entry: str) -> bool:
    """Returns whether the package can be imported from this entry in Python's path."""
    return (pathlib.Path(entry or ".") / PACKAGE.name / "__init__.py").exists()


def package_version() -> str:
    """Returns the version of the package."""
    return str(_module("_version").VERSION)


def built_for() -> list[str]:
    """Returns the TensorFlow versions that there are libraries for; none before a build."""
    return [library.version for library in _module("_library").find_all()]


def pipelines_environment() -> Any:
    """Returns the module that manages the environment of `tf_tpu_ext.io`."""
    return _module("io/_environment")


def _module(name: str) -> Any:
    """Returns one of the package's self-contained modules without importing the package."""
    spec = importlib.util.spec_from_file_location(f"_tf_tpu{name}", PACKAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensorflow_io(environment: dict[str, str], timeout: float) -> Iterator[Check]:
    """Reports whether tensorflow-io, an optional companion, can run a native op."""
    version = _version("tensorflow-io")
    if version is None:
        yield Check("tensorflow-io", NOTE, "not installed (optional)")
        return
    for check in _probe("tensorflow_io", environment, timeout):
        status = NOTE if check.status == FAILED else check.status
        yield dataclasses.replace(check, status=status, found=f"{version}: {check.found}")


def pipelines(timeout: float) -> Check:
    """Reports whether the optional environment of `tf_tpu_ext.io.dataset` works."""
    environment = pipelines_environment()
    python = environment.find()
    if python is None:
        found = f"no environment in {environment.folder()} (optional)"
        return Check("io.dataset", NOTE, found, f"To make it, run: {environment.COMMAND}")
    problem = environment.check(python, timeout)
    if problem:
        last = problem.splitlines()[-1]
        return Check("io.dataset", FAILED, last, f"Make it again: {environment.COMMAND}")
    return Check("io.dataset", OK, f"a native op of tensorflow-io runs by {python}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tensorflow_distributions() -> list[str]:
    names = importlib.metadata.packages_distributions().get("tensorflow", [])
    return [f"{name} {_version(name)}" for name in dict.fromkeys(names)]


def _install_tensorflow() -> str:
    built = built_for()
    if not built:
        return f"In {PACKAGE.parent}, run: pip install '.[cpu]'"
    minor = ".".join(max(built).split(".")[:2])
    return f"Run: pip install 'tensorflow-cpu=={minor}.*'"


def _probe(
    name: str, environment: dict[str, str], timeout: float, *arguments: str
) -> Iterator[Check]:
    """Yields the checks of a probe, which runs in its own process; a failure if that ends early."""
    command = [sys.executable, str(PROBES), name, str(PACKAGE.parent), *arguments]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout
        )
        output, errors, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as expired:
        output, errors, code = _text(expired.stdout), _text(expired.stderr), None
    finished = False
    for line in output.splitlines():
        # Libraries print to stdout, too.
        if not line.startswith("{"):
            continue
        printed = json.loads(line)
        if printed == {"finished": True}:
            finished = True
        else:
            yield Check(**printed)
    if finished:
        return
    ending = _ending(code, timeout)
    last_words = "\n".join(errors.splitlines()[-15:])
    yield Check(name, FAILED, f"{ending}\n{last_words}".strip(), _REPORT)


def _ending(code: int | None, timeout: float) -> str:
    if code is None:
        return f"the process had not ended after {timeout:g} s"
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended early, with exit code {code}"


def _text(output: str | bytes | None) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else output.decode(errors="replace")
