"""`tf-tpu io`: the environment in which tensorflow-io pipelines run."""

from __future__ import annotations

import argparse
import functools
import sys
from typing import Any

from . import doctor


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "io",
        help="the environment in which pipelines of tensorflow-io run",
        description="tensorflow-io's native ops load in TensorFlow 2.16 and 2.17 only. "
        "`tf_tpu_ext.io.dataset` runs pipelines in an environment of their own.",
    )
    variable = doctor.pipelines_environment().FOLDER_VARIABLE
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    setup = actions.add_parser(
        "setup",
        help="make the environment",
        description="Makes a virtual environment with tensorflow-io and its TensorFlow, from "
        f"PyPI, in {variable}, or in your data folder. Takes about a minute.",
    )
    setup.add_argument("--python", metavar="PATH", help="the Python (3.9 to 3.12) to make it with")
    setup.set_defaults(run=run_setup)
    where = actions.add_parser(
        "python",
        help="print the environment's interpreter",
        description="Prints the path of the environment's interpreter. The exit code is 1 if there "
        "is no environment.",
    )
    where.set_defaults(run=run_python)


def run_setup(options: argparse.Namespace) -> int:
    """Creates the environment and returns the exit code."""
    module = doctor.pipelines_environment()
    try:
        made = module.make(options.python, functools.partial(print, flush=True))
    except (module.SetupError, OSError) as error:
        print(f"tf-tpu io setup: {error}", file=sys.stderr)
        return 1
    print(f"Ready: tf_tpu_ext.io.dataset runs pipelines with {made}")
    return 0


def run_python(options: argparse.Namespace) -> int:
    """Prints the path of the environment's interpreter and returns the exit code."""
    del options
    module = doctor.pipelines_environment()
    try:
        print(module.interpreter(None))
    except module.MissingEnvironmentError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
