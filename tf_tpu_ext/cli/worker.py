"""`tf-tpu worker`: serves this machine's virtual cores to programs elsewhere."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from . import doctor, script


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
        "--port", type=int, help="where to listen (default: that of TPU_TASK_PORT, else 8470)"
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
    script.find_package()
    try:
        pods = importlib.import_module("tf_tpu_ext.pods")
        name = "localhost" if options.listen in ("127.0.0.1", "::1") else options.listen
        pods.serve(pods.find_place(options.port, name), options.listen)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"tf-tpu worker: {error}", file=sys.stderr)
    return 2
