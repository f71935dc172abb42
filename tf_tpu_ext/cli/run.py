"""`tf-tpu run`: runs an unmodified script as if on a TPU."""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import sys
from typing import Any

from . import doctor, storage


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "run",
        help="run a script as if on a TPU",
        description="Runs a Python script unmodified. Whatever TPU it names is the virtual cores. "
        "Output and exit code are the script's own; a short report on stderr follows.",
    )
    parser.add_argument(
        "--cores", type=int, help=f"number of cores (default: {doctor.CORES_VARIABLE}, else 8)"
    )
    parser.add_argument(
        "--hosts",
        type=int,
        help="number of hosts among which a TPUEstimator's input pipelines divide the cores "
        f"(default: {doctor.HOSTS_VARIABLE}, else 1)",
    )
    parser.add_argument(
        "--legacy",
        action="store_true",
        help="the script is of TensorFlow 1: `tensorflow` has its names and behavior, tf.contrib "
        "and tf.estimator",
    )
    parser.add_argument(
        "--gs",
        metavar="FOLDER",
        help="gs://bucket/name is FOLDER/bucket/name (default: such paths are refused)",
    )
    parser.add_argument("--report", metavar="FILE", help="write the report as JSON to FILE, too")
    parser.add_argument("--quiet", action="store_true", help="print no report")
    parser.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="SCRIPT is the name of a module, as for python -m",
    )
    parser.add_argument("script", metavar="SCRIPT", help="the Python file to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the script in this process and returns its exit code.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """
    if not options.module and not pathlib.Path(options.script).is_file():
        return _refuse(f"there is no file {options.script}. Expected the path of a Python script.")
    if options.cores is not None:
        os.environ[doctor.CORES_VARIABLE] = str(options.cores)
    if options.hosts is not None:
        if options.hosts < 1:
            return _refuse(f"--hosts is {options.hosts}, expected at least 1.")
        os.environ[doctor.HOSTS_VARIABLE] = str(options.hosts)
    # A checkout, which runs this file by its path, is not on Python's path.
    if not any(doctor.is_package_folder(entry) for entry in sys.path):
        sys.path.append(str(doctor.PACKAGE.parent))
    try:
        with storage.left_out():
            launcher = importlib.import_module("tf_tpu_ext.launcher")
    except (ImportError, RuntimeError, ValueError) as error:
        return _refuse(f"{error}\nRun `tf-tpu doctor` for more.")
    try:
        launcher.prepare(options.legacy, options.gs, options.arguments)
        program = launcher.find(options.script, module=options.module)
    except (ImportError, RuntimeError, ValueError) as error:
        return _refuse(str(error))
    return int(
        launcher.launch(program, options.arguments, report=options.report, quiet=options.quiet)
    )


def _refuse(problem: str) -> int:
    print(f"tf-tpu run: {problem}", file=sys.stderr)
    return 2
