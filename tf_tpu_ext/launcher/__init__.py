"""The implementation of `tf-tpu run`, which runs a script as if on a TPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from tf_tpu_ext import _page, _workers
from tf_tpu_ext.launcher import _program, _report, _storage
from tf_tpu_ext.launcher._program import Program, find
from tf_tpu_ext.patches import _resolver

__all__ = ["Program", "connect", "find", "is_page", "launch", "leave_functions", "prepare"]


def prepare(legacy: bool, storage: str | None, arguments: Sequence[str]) -> None:
    """Prepares this process for a script that expects a TPU.

    Every TPU name, zone, project or address that the script uses leads to the virtual cores.

    Args:
        legacy: Whether `tensorflow` has TensorFlow 1's names and behavior, with `tf.contrib` and
            `tf.estimator`.
        storage: A folder that replaces Google Cloud Storage: TensorFlow sees `gs://bucket/name` as
            `storage/bucket/name`. None makes such paths an error.
        arguments: The script's command line.

    Raises:
        ImportError: `legacy` needs a package that is not installed.
        RuntimeError: TensorFlow was loaded with its own access to Google Cloud Storage.
        ValueError: An argument is a path in Google Cloud Storage, and `storage` is None.
    """
    _storage.check_arguments(arguments, storage)
    _storage.install(storage)
    _resolver.take_every_tpu_as("local")
    if legacy:
        from tf_tpu_ext.launcher import _legacy

        _legacy.install()


def connect(master: str) -> None:
    """Makes the script use the cores of other processes as its TPU.

    Call it after `prepare`.

    Args:
        master: Their addresses, as `TPUClusterResolver` takes them: `"grpc://a:8470,grpc://b:8470"`.

    Raises:
        RuntimeError: TensorFlow has already created this process's virtual cores.
    """
    _resolver.take_every_tpu_as(master)
    _workers.known[:] = [address.removeprefix("grpc://") for address in master.split(",")]


def leave_functions() -> None:
    """Leaves traced functions where they are, to be called before the workers end.

    When Python ends, TensorFlow would take each of them back from workers that are no more, and
    complain.
    """
    from tensorflow.python.eager.polymorphic_function import atomic_function

    # What TensorFlow expects of a module that has been unloaded.
    atomic_function.RUNTIME_FUNCTION_REFS = None


def is_page(report: str) -> bool:
    """Returns whether the report file should be a page.

    Example:
        >>> from tf_tpu_ext import launcher
        >>> launcher.is_page("out.html"), launcher.is_page("out.json")
        (True, False)
    """
    return report.lower().endswith((".html", ".htm"))


def launch(
    program: Program,
    arguments: Sequence[str] = (),
    *,
    report: str | None = None,
    quiet: bool = False,
    progress_seconds: float | None = None,
) -> int:
    """Runs a program as the main program of this process, like `python script arguments...`.

    Args:
        program: The result of `find`.
        arguments: The program's command line.
        report: The file for the report, or None. The report is a page if the name ends in `.html`
            (see `tf_tpu_ext.report`) and JSON otherwise.
        quiet: Whether to omit the report on stderr.
        progress_seconds: If given, stderr shows, while the program runs, how many steps it has
            done, how fast, and what is being compiled or waited for: on a terminal in place,
            elsewhere in a new line after each such time.

    Returns:
        The program's exit code.

    Example:
        >>> import tempfile
        >>> from tf_tpu_ext import launcher
        >>> with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        ...     _ = script.write("import sys; print(sys.argv[1:]); sys.exit(3)")
        ...     script.flush()
        ...     launcher.launch(launcher.find(script.name), ["--tpu=any-name"], quiet=True)
        ['--tpu=any-name']
        3
    """
    recorder = _report.Recorder()
    try:
        with contextlib.ExitStack() as shown:
            if progress_seconds is not None:
                shown.enter_context(_report.progress(sys.stderr, progress_seconds))
            return _program.run(program, list(arguments))
    finally:
        summary = recorder.finish()
        if report is not None and is_page(report):
            _page.report(report, title=program.name)
        elif report is not None:
            summary.write(report)
        if not quiet:
            sys.stdout.flush()
            print(summary.text(), file=sys.stderr, flush=True)
