"""`tf-tpu worker`: serves this machine's virtual cores to programs elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import doctor, script

_FOR_PROGRAMS = re.compile(r"for programs: TPUClusterResolver\('(.*)'\)")
# How long a worker may take to end by itself.
_PATIENCE_SECONDS = 10
_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGINT)


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "worker",
        help="serve this machine's cores to programs, as a TPU worker does",
        description="Serves the virtual cores of this machine until SIGTERM. Where it is in a pod "
        "comes from TF_CONFIG or from Slurm, if they are set. Prints what programs connect to.",
    )
    doctor.add_cores(parser)
    parser.add_argument(
        "--port",
        type=int,
        help="where to listen, 0 for any free port (default: that of TPU_TASK_PORT, else 8470)",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address of this machine on which to listen (default: %(default)s). There is no "
        "password: whoever can connect can run programs as you",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until a signal ends the process.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """
    if options.cores is not None:
        os.environ[doctor.CORES_VARIABLE] = str(options.cores)
    # Before anything starts threads, so that they block these signals, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    script.find_package()
    try:
        pods = importlib.import_module("tf_tpu_ext.pods")
        script.keep_imports()
        name = "localhost" if options.listen in ("127.0.0.1", "::1") else options.listen
        pods.serve(pods.find_place(options.port, name), _ENDING, options.listen)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"tf-tpu worker: {error}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def pod(workers: int, cores: int | None) -> Iterator[Callable[[], str]]:
    """Runs workers on this machine and ends them afterwards.

    They end with this process even if it is killed.

    Args:
        workers: Number of workers.
        cores: Number of cores per worker, or None for the default.

    Yields:
        A function that waits until all workers serve, and returns the addresses that programs
        connect to. It raises `script.RefusedError` if a worker can't start, for a reason that it
        has printed.
    """
    command = [sys.executable, str(pathlib.Path(__file__).parent), "worker", "--port=0"]
    if cores is not None:
        command.append(f"--cores={cores}")
    # The addresses are decided here, not by a cluster's environment variables.
    names = ("TF_CONFIG", "SLURM_STEP_NODELIST")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    with contextlib.ExitStack() as running:
        processes = []
        for _ in range(workers):
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=_die_too
            )
            running.callback(_end, process)
            processes.append(process)
        yield lambda: ",".join(_address(process) for process in processes)


def _die_too() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _FOR_PROGRAMS.search(line):
            # What programs print there is passed on.
            threading.Thread(
                target=shutil.copyfileobj, args=(process.stdout, sys.stdout), daemon=True
            ).start()
            return found[1]
    raise script.RefusedError(f"a worker ended with exit code {process.wait()} before it served.")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
