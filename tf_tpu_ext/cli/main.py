"""The command line of `tf-tpu`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import doctor


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand of `tf-tpu`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit code: 0 for success, 1 for a problem that was found, and 2, by way of SystemExit,
        for a wrong command line.

    Example:
        $ tf-tpu doctor
        $ tf-tpu doctor --json --cores 2
    """
    parser = argparse.ArgumentParser(prog="tf-tpu", description="Virtual TPU cores for TensorFlow.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor.add_parser(commands)
    options = parser.parse_args(arguments)
    run = options.run
    return int(run(options))
