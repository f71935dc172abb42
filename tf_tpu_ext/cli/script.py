"""What subcommands that run a script have in common: their options, and how they start it."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from . import doctor, storage


class RefusedError(Exception):
    """The script can't be started; the message says why."""


def add_arguments(parser: Any) -> None:
    """Adds the options that say what to run, followed by the script's own arguments."""
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


def find_package() -> None:
    """Ensures that `tf_tpu_ext` can be imported."""
    # In a checkout, this file is run by path, and the package is not on Python's path.
    if not any(doctor.is_package_folder(entry) for entry in sys.path):
        sys.path.append(str(doctor.PACKAGE.parent))


def become(options: argparse.Namespace) -> None:
    """Makes `sys.argv` the script's, and leaves the command's own folder out of `sys.path`.

    TensorFlow looks at them when it is imported: its tests for TPUs run if the script is called so.
    """
    command = os.path.realpath(sys.argv[0])
    own = {command, os.path.dirname(command), os.path.dirname(os.path.realpath(__file__))}
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in own]
    # Python knows no file yet either, while it imports a module's packages.
    sys.argv = ["-m" if options.module else options.script, *options.arguments]


def keep_imports() -> None:
    """Spares the garbage collector what imports have created, all of which stays."""
    gc.freeze()


def check_file(options: argparse.Namespace) -> None:
    """Checks that there is a script.

    Raises:
        RefusedError: There is none.
    """
    if not options.module and not pathlib.Path(options.script).is_file():
        raise RefusedError(
            f"there is no file {options.script}. Expected the path of a Python script."
        )


def check_page() -> None:
    """Checks before the script runs that a page can be written after it has ended.

    Raises:
        RefusedError: Jinja2 is not installed.
    """
    page = importlib.import_module("tf_tpu_ext._page")
    try:
        page.check_available()
    except ImportError as error:
        raise RefusedError(str(error)) from error


def load(
    options: argparse.Namespace,
    launcher: str,
    configure: Callable[[Any], None] = lambda launcher: None,
) -> tuple[Any, Any]:
    """Imports the package and finds the script.

    Args:
        options: The options that `add_arguments` has defined.
        launcher: The module that runs the script.
        configure: Called with that module before the script is examined.

    Returns:
        The module and the program to run.

    Raises:
        RefusedError: The package does not load, or the script can't be started.
    """
    find_package()
    become(options)
    try:
        with storage.left_out():
            common = importlib.import_module("tf_tpu_ext.launcher")
            module = importlib.import_module(launcher)
        keep_imports()
    except (ImportError, RuntimeError, ValueError) as error:
        raise RefusedError(f"{error}\nRun `tf-tpu doctor` for more.") from error
    try:
        configure(module)
        common.prepare(options.legacy, options.gs, options.arguments)
        return module, common.find(options.script, module=options.module)
    except (ImportError, RuntimeError, ValueError) as error:
        raise RefusedError(str(error)) from error
