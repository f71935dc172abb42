"""Creates, finds and checks the environment in which tensorflow-io's native ops load.

This file imports only Python's standard library, because `tf-tpu` loads it by path.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO

# The packages to install. setuptools has the pkg_resources that tensorflow-io imports; this
# TensorFlow was built for NumPy 1.
REQUIREMENTS = (
    "tensorflow-cpu==2.17.1",
    "tensorflow-io==0.37.1",
    "setuptools<81",
    "numpy==1.26.4",
)
# The minor versions of Python 3 that these packages have wheels for.
PYTHON_MINORS = (12, 11, 10, 9)
FOLDER_VARIABLE = "TF_TPU_EXT_IO_FOLDER"
COMMAND = "tf-tpu io setup"

_MARK = "tf_tpu_ext_io.json"
_CHECK_SECONDS = 180.0
_CHECK = """
import json
import tensorflow as tf
import tensorflow_io as tfio

matches, _ = tfio.experimental.text.re2_full_match(["tpu"], "(t)(.*)")
assert bool(matches.numpy().all()), "a native op gave a wrong result"
print("\\n" + json.dumps({"tensorflow": tf.__version__, "tensorflow-io": tfio.__version__}))
"""


class MissingEnvironmentError(RuntimeError):
    """There is no environment in which tensorflow-io's native ops load.

    Example:
        >>> import tf_tpu_ext.io
        >>> try:
        ...     tf_tpu_ext.io.dataset("pipeline.py:make_dataset", python="/missing/python")
        ... except tf_tpu_ext.io.MissingEnvironmentError as error:
        ...     print(error)
        There is no Python at /missing/python. ...
    """


class SetupError(RuntimeError):
    """The environment can't be created."""


def folder() -> pathlib.Path:
    """Returns the folder where the environment is, or would be."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return pathlib.Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share")
    return pathlib.Path(data).expanduser() / "tf_tpu_ext" / "io"


def find() -> pathlib.Path | None:
    """Returns the environment's interpreter, or None if none has the required package versions."""
    home = folder()
    try:
        mark = json.loads((home / _MARK).read_text())
    except (OSError, ValueError):
        return None
    python = home / "bin" / "python"
    if mark.get("requirements") != list(REQUIREMENTS) or not python.exists():
        return None
    return python


def interpreter(chosen: str | None) -> pathlib.Path:
    """Returns the interpreter that runs pipelines.

    Args:
        chosen: The interpreter of an environment of the user's own, or None.

    Raises:
        MissingEnvironmentError: There is none.
    """
    if chosen is not None:
        found = shutil.which(chosen)
        if found is None:
            raise MissingEnvironmentError(
                f"There is no Python at {chosen}. Expected the interpreter of an environment with "
                f"TensorFlow 2.16 or 2.17 and tensorflow-io; `{COMMAND}` makes one, which is used "
                "if python= is left out."
            )
        return pathlib.Path(found)
    python = find()
    if python is None:
        raise MissingEnvironmentError(
            "tensorflow-io's native ops need TensorFlow 2.17, in an environment of their own, and "
            f"there is none in {folder()}. Run: {COMMAND}"
        )
    return python


def variables(own: bool) -> dict[str, str]:
    """Returns the environment variables for the other environment's processes.

    Args:
        own: Whether it is the environment that `make` creates, which must not see the user's
            packages.
    """
    result = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    if own:
        result["PYTHONNOUSERSITE"] = "1"
        # It has only Keras 3.
        result.pop("TF_USE_LEGACY_KERAS", None)
    # Paths that other programs put there may have packages for this interpreter.
    paths = [path for path in result.pop("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [path for path in paths if not _has_packages(path)]
    if paths:
        result["PYTHONPATH"] = os.pathsep.join(paths)
    for name in ("PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
        result.pop(name, None)
    # gRPC would use a proxy for the loopback interface.
    result["no_grpc_proxy"] = "127.0.0.1"
    return result


def _has_packages(path: str) -> bool:
    return any(os.path.isdir(os.path.join(path, name)) for name in ("numpy", "tensorflow"))


def make(python: str | None, show: Callable[[str], None]) -> pathlib.Path:
    """Creates the environment, replacing an existing one.

    Args:
        python: The interpreter to create it with, or None to find one.
        show: Shows a line of progress.

    Returns:
        The environment's interpreter.

    Raises:
        SetupError: It can't be created.
    """
    base = _base(python)
    home = folder()
    with _lock(home, show) as waited:
        made = find()
        if waited and made is not None:
            return made
        show(f"1/3  a virtual environment of {base} in {home}")
        _clear(home)
        _run([base, "-m", "venv", str(home)], show)
        made = home / "bin" / "python"
        show(f"2/3  {', '.join(REQUIREMENTS)} (about a minute)")
        _run([str(made), "-m", "pip", "install", "--progress-bar", "off", *REQUIREMENTS], show)
        show("3/3  a native op of tensorflow-io")
        problem = check(made)
        if problem:
            raise SetupError(f"The environment in {home} does not work:\n{problem}")
        (home / _MARK).write_text(json.dumps({"requirements": list(REQUIREMENTS)}))
    return made


def check(python: pathlib.Path, timeout: float = _CHECK_SECONDS) -> str:
    """Calls a native op in an environment; returns what is wrong, or '' if it works."""
    try:
        done = subprocess.run(
            # Modules in the current folder don't belong to this environment.
            [str(python), "-I", "-c", _CHECK],
            env=variables(own=True),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return f"a native op of tensorflow-io had not run after {timeout:g} s"
    except OSError as error:
        return f"{python} can't be run: {error}"
    if done.returncode == 0:
        return ""
    return "\n".join(done.stderr.splitlines()[-15:]) or f"exit code {done.returncode}"


def _clear(home: pathlib.Path) -> None:
    """Leaves an empty folder, with a marker file that allows it to be cleared again."""
    if home.exists() and any(home.iterdir()) and not (home / _MARK).exists():
        raise SetupError(
            f"{home} has files that are not of this environment. Empty it, or set "
            f"{FOLDER_VARIABLE} to another folder."
        )
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / _MARK).write_text("{}")


def _base(python: str | None) -> str:
    """Returns a Python interpreter that the packages support."""
    expected = f"Python 3.{PYTHON_MINORS[-1]} to 3.{PYTHON_MINORS[0]}"
    candidates = [python] if python else [sys.executable, *_installed()]
    found = []
    for candidate in candidates:
        version = _version(candidate)
        if version is not None and version in [(3, minor) for minor in PYTHON_MINORS]:
            return candidate
        found.append(f"{candidate} ({'.'.join(map(str, version)) if version else 'does not run'})")
    raise SetupError(
        f"tensorflow-io needs {expected}, found {', '.join(found)}. Install one, and name it: "
        f"{COMMAND} --python PATH"
    )


def _installed() -> list[str]:
    paths = (shutil.which(f"python3.{minor}") for minor in PYTHON_MINORS)
    return [path for path in paths if path is not None]


def _version(python: str) -> tuple[int, ...] | None:
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def _run(command: list[str], show: Callable[[str], None]) -> None:
    """Runs a command and shows its progress in collecting and installing packages."""
    lines: list[str] = []
    with subprocess.Popen(
        command,
        env=variables(own=True),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith(("Collecting", "Installing", "Successfully")):
                    show(f"     {line.rstrip()[:90]}")
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        last = "\n".join(lines[-15:])
        raise SetupError(f"{' '.join(command)}\nended with exit code {process.returncode}:\n{last}")


@contextlib.contextmanager
def _lock(home: pathlib.Path, show: Callable[[str], None]) -> Iterator[bool]:
    """Lets one process at a time create the environment; yields whether this one had to wait."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / f"{home.name}.lock", "w") as file:
        waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            show("     waiting for another process that makes the environment")
            _wait_for(file)
        yield waited


def _wait_for(file: IO[str]) -> None:
    end = time.monotonic() + 600
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise SetupError(
                    "Another process has been making the environment for ten minutes. End it, and "
                    f"run {COMMAND} again."
                ) from None
            time.sleep(0.2)
