"""The implementation of `tf-tpu run`, which runs a script as if on a TPU."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Sequence

from tf_tpu_ext.launcher import _report, _storage
from tf_tpu_ext.patches import _resolver

__all__ = ["launch", "prepare"]


def prepare(legacy: bool, storage: str | None, arguments: Sequence[str]) -> None:
    """Prepares this process for a script that expects a TPU.

    Every TPU name, zone, project or address that the script uses leads to the virtual cores.

    Args:
        legacy: Whether `tensorflow` has the names and behavior of TensorFlow 1, with `tf.contrib`
            and `tf.estimator`.
        storage: A folder in place of Google Cloud Storage: for TensorFlow, `gs://bucket/name` is
            `storage/bucket/name`. None makes such paths an error.
        arguments: The script's command line.

    Raises:
        ImportError: `legacy` needs a package that is not installed.
        RuntimeError: TensorFlow was loaded with its own access to Google Cloud Storage.
        ValueError: An argument is a path in Google Cloud Storage, and `storage` is None.
    """
    _storage.check_arguments(arguments, storage)
    _storage.install(storage)
    _resolver.take_every_tpu_as_local()
    if legacy:
        from tf_tpu_ext.launcher import _legacy

        _legacy.install()


def launch(
    script: str, arguments: Sequence[str] = (), *, report: str | None = None, quiet: bool = False
) -> int:
    """Runs a script as the main program of this process, like `python script arguments...`.

    Args:
        script: The path of the script.
        arguments: Its command line.
        report: A file to which to write a report as JSON, or None.
        quiet: Whether to omit the report on stderr.

    Returns:
        The script's exit code.

    Example:
        >>> import tempfile
        >>> from tf_tpu_ext import launcher
        >>> with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        ...     _ = script.write("import sys; print(sys.argv[1:]); sys.exit(3)")
        ...     script.flush()
        ...     launcher.launch(script.name, ["--tpu=any-name"], quiet=True)
        ['--tpu=any-name']
        3
    """
    recorder = _report.Recorder()
    try:
        return _run(script, list(arguments))
    finally:
        summary = recorder.finish()
        if report is not None:
            summary.write(report)
        if not quiet:
            sys.stdout.flush()
            print(summary.text(), file=sys.stderr, flush=True)


def _run(script: str, arguments: list[str]) -> int:
    path = os.path.abspath(script)
    with open(path, "rb") as file:
        source = file.read()
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    _put_first(os.path.dirname(path))
    sys.argv = [script, *arguments]
    try:
        exec(compile(source, script, "exec"), main.__dict__)
    except SystemExit as end:
        return _code(end)
    except BaseException as error:
        # Leaves out the frames of the launcher.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _put_first(folder: str) -> None:
    """Puts the script's folder first in `sys.path`, in place of the command's own."""
    command = {
        os.path.dirname(os.path.realpath(sys.argv[0])),
        os.path.realpath(sys.argv[0]),
        os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "cli"),
    }
    sys.path[:] = [folder, *(entry for entry in sys.path if os.path.realpath(entry) not in command)]


def _code(end: SystemExit) -> int:
    """Returns the exit code with which Python would end."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
