"""`tf-tpu run`: runs an unmodified script as if on a TPU."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
from typing import Any

from . import doctor, script, worker


def add_parser(commands: Any) -> None:
    """Adds the subcommand to those of `tf-tpu`."""
    parser = commands.add_parser(
        "run",
        help="run a script as if on a TPU",
        description="Runs a Python script unmodified. Whatever TPU it names is the virtual cores. "
        "Output and exit code are the script's own; a short report on stderr follows.",
    )
    doctor.add_cores(parser)
    parser.add_argument(
        "--hosts",
        type=int,
        help="number of hosts among which a TPUEstimator's input pipelines divide the cores "
        f"(default: {doctor.HOSTS_VARIABLE}, else 1)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        help="start so many workers on this machine, each with --cores cores, and run the script "
        "as their client, as on a TPU of several hosts",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write a report to FILE, too: a page with a timeline, compilations, memory and more "
        "if its name ends in .html, else the printed one as JSON",
    )
    parser.add_argument(
        "--progress",
        dest="progress_seconds",
        action="store_const",
        const=5.0,
        help="say on stderr while it runs how many steps there were, how fast, and what is "
        "compiled or waited for: in place on a terminal, else in a new line every 5 seconds",
    )
    parser.add_argument(
        "--progress-seconds",
        type=_seconds,
        metavar="SECONDS",
        help="the same, with so many seconds between two lines",
    )
    parser.add_argument("--quiet", action="store_true", help="print no report")
    script.add_arguments(parser)
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        seconds = float(text)
        # Threads can't wait for centuries.
        if 0 < seconds < 1e9:
            return seconds
    raise argparse.ArgumentTypeError(
        f"expected a number of seconds above 0 and below 1e9, got {text!r}"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the script in this process and returns its exit code.

    If it can't start, the reason is printed on stderr and the exit code is 2.
    """
    pod = contextlib.ExitStack()
    # Before TensorFlow is imported, so that this process first waits for the workers when it ends.
    atexit.register(pod.close)
    try:
        script.check_file(options)
        _set_machine(options)
        # They start while this process imports TensorFlow.
        workers = options.workers and pod.enter_context(worker.pod(options.workers, options.cores))
        launcher, program = script.load(options, "tf_tpu_ext.launcher")
        if options.report is not None and launcher.is_page(options.report):
            script.check_page()
        if workers:
            launcher.connect(workers())
            pod.callback(launcher.leave_functions)
    except script.RefusedError as error:
        print(f"tf-tpu run: {error}", file=sys.stderr)
        return 2
    return int(
        launcher.launch(
            program,
            options.arguments,
            report=options.report,
            quiet=options.quiet,
            progress_seconds=options.progress_seconds,
        )
    )


def _set_machine(options: argparse.Namespace) -> None:
    if options.workers is not None and options.workers < 1:
        raise script.RefusedError(f"--workers is {options.workers}, expected at least 1.")
    if options.cores is not None:
        os.environ[doctor.CORES_VARIABLE] = str(options.cores)
    if options.hosts is not None:
        if options.hosts < 1:
            raise script.RefusedError(f"--hosts is {options.hosts}, expected at least 1.")
        os.environ[doctor.HOSTS_VARIABLE] = str(options.hosts)
