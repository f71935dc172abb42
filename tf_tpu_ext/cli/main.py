"""The command line of `tf-tpu`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import check, doctor, pipelines, run, worker


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand of `tf-tpu`.

    Args:
        arguments: The command line without the program's name; None for the process's own.

    Returns:
        The exit code: the script's, for `run`, and for `check` if the script fails. Otherwise 0 for
        success, 1 if a problem was found, and 2 (also as SystemExit) for an invalid command line.

    Example:
        $ tf-tpu --version
        $ tf-tpu doctor
        $ tf-tpu doctor --json --cores 2
        $ tf-tpu io setup
        $ tf-tpu check --target v5e-8 train.py
        $ tf-tpu worker --cores 4
        $ tf-tpu run --legacy --cores 2 mnist_tpu.py --tpu=any-name --data_dir=mnist
    """
    parser = argparse.ArgumentParser(prog="tf-tpu", description="Virtual TPU cores for TensorFlow.")
    version = f"tf_tpu_ext {doctor.package_version()}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor.add_parser(commands)
    run.add_parser(commands)
    check.add_parser(commands)
    pipelines.add_parser(commands)
    worker.add_parser(commands)
    options = parser.parse_args(arguments)
    return int(options.run(options))
