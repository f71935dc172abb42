"""`tf-tpu check`: runs a script, and asks the compiler of a real TPU about its programs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from . import script


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
        "--compile-only",
        action="store_true",
        help="don't compute: programs leave variables as they are and return zeros. For models "
        "that this machine is too small for",
    )
    parser.add_argument("--json", metavar="FILE", help="write the verdicts as JSON to FILE, too")
    script.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the script in this process, prints the verdicts and returns the exit code.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """

    def configure(check: Any) -> None:
        check.prepare(options.target, compute=not options.compile_only)

    try:
        script.check_file(options)
        check, program = script.load(options, "tf_tpu_ext.launcher._check", configure)
    except script.RefusedError as error:
        print(f"tf-tpu check: {error}", file=sys.stderr)
        return 2
    return int(check.launch(program, options.arguments, report=options.json))
