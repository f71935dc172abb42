"""`tf-tpu check`: runs a script, and asks the compiler of a real TPU about its programs."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
from typing import Any

from . import doctor, storage


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "check",
        help="run a script, and tell what a real TPU's compiler says of its programs",
        description="Runs a Python script on virtual cores and asks Google's TPU compiler, which "
        "needs no TPU, about each program. Exit code 0 if all compile and fit, 1 if not; that of "
        "the script if it fails.",
    )
    parser.add_argument(
        "--target",
        action="append",
        required=True,
        metavar="TPU",
        help="a TPU slice such as v5e-8 or v5e:2x4, of any generation from v2 to 7x; may be given "
        "several times, for slices with the same number of cores",
    )
    parser.add_argument(
        "--legacy", action="store_true", help="the script is of TensorFlow 1, as for tf-tpu run"
    )
    parser.add_argument("--gs", metavar="FOLDER", help="as for tf-tpu run")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts as JSON to FILE, too")
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
    """Runs the script in this process, prints the verdicts and returns the exit code.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """
    if not options.module and not pathlib.Path(options.script).is_file():
        return _refuse(f"there is no file {options.script}. Expected the path of a Python script.")
    # A checkout, which runs this file by its path, is not on Python's path.
    if not any(doctor.is_package_folder(entry) for entry in sys.path):
        sys.path.append(str(doctor.PACKAGE.parent))
    try:
        with storage.left_out():
            launcher = importlib.import_module("tf_tpu_ext.launcher")
            check = importlib.import_module("tf_tpu_ext.launcher._check")
        check.prepare(options.target)
        launcher.prepare(options.legacy, options.gs, options.arguments)
        program = launcher.find(options.script, module=options.module)
    except (ImportError, RuntimeError, ValueError) as error:
        return _refuse(str(error))
    return int(check.launch(program, options.arguments, report=options.json))


def _refuse(problem: str) -> int:
    print(f"tf-tpu check: {problem}", file=sys.stderr)
    return 2
