"""`tf-tpu check`: runs a script and watches its programs, or asks a real TPU's compiler."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from . import script


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "check",
        help="run a script, and tell what its programs do wrong, or what a real TPU's compiler "
        "says of them",
        description="Runs a Python script on virtual cores. Without a target it watches the "
        "script's programs: numbers that are not finite, padding that is read, replicas that drift "
        "apart, races on the host. With one, Google's TPU compiler, which needs no TPU, is asked "
        "about each program. Exit code 0 if nothing is wrong, 1 if something is; that of the "
        "script if it fails.",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="TPU",
        help="a TPU slice such as v5e-8 or v5e:2x4, of any generation from v2 to 7x; may be given "
        "several times, for slices with the same number of cores",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="without a target: another order in which cores call the host (default: 0)",
    )
    parser.add_argument(
        "--compile-only",
        action="store_true",
        help="with a target: don't compute. Programs leave variables as they are and return zeros. "
        "For models that this machine is too small for",
    )
    parser.add_argument("--json", metavar="FILE", help="write what is told as JSON to FILE, too")
    parser.add_argument(
        "--report", metavar="FILE", help="write a page with that and all else to FILE, too"
    )
    script.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the script in this process, prints the results and returns the exit code.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """

    def configure(launcher: Any) -> None:
        if options.target:
            launcher.prepare(options.target, compute=not options.compile_only)
        else:
            launcher.prepare(options.seed)

    launcher = "_verdicts" if options.target else "_watch"
    try:
        if options.compile_only and not options.target:
            raise script.RefusedError("--compile-only needs a target, such as --target v5e-8")
        if not 0 <= options.seed < 2**64:
            raise script.RefusedError(f"--seed must be from 0 to 2**64 - 1, got {options.seed}")
        script.check_file(options)
        told_by, program = script.load(options, f"tf_tpu_ext.launcher.{launcher}", configure)
        if options.report is not None:
            script.check_page()
    except script.RefusedError as error:
        print(f"tf-tpu check: {error}", file=sys.stderr)
        return 2
    check = importlib.import_module("tf_tpu_ext.launcher._check")
    arguments = options.arguments
    return int(
        check.launch(program, arguments, told_by.tell, report=options.json, page=options.report)
    )
