"""The hooks of `pytest --tpu-target`; the plugin itself is tf_tpu_pytest.py."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

import tf_tpu_ext
from tf_tpu_ext.verdict import _compiler, _table
from tf_tpu_ext.verdict._records import Verdict


def start(targets: Sequence[str]) -> Verdicts:
    """Has every program checked from now on.

    Raises:
        pytest.UsageError: There is no such TPU, or its compiler is not installed.
    """
    try:
        _compiler.find_plugin()
        tf_tpu_ext.configure(target=targets)
    except (_compiler.UnavailableError, RuntimeError, ValueError) as error:
        raise pytest.UsageError(f"--tpu-target: {error}") from error
    return Verdicts(", ".join(targets))


class Verdicts:
    """The hooks that report which test compiled a program that a TPU would not run."""

    def __init__(self, targets: str) -> None:
        """Begins without programs."""
        self._targets = targets
        self._told = 0
        self._good = 0
        # The programs that were compiled outside tests.
        self._failed: list[Verdict] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Fails the test because of programs that it, or a fixture before it, has compiled."""
        yield
        self._fail()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Reports the programs of a test that failed by itself, and of its teardown."""
        yield
        self._fail()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails the run because of programs compiled outside tests."""
        self._failed = self._news()
        if self._failed and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints how many programs were compiled, and which of those outside tests failed."""
        terminalreporter.section(f"programs on {self._targets}")
        if not self._told:
            # With xdist, its workers compile the programs.
            terminalreporter.line("no program was compiled for a TPU in this process")
            return
        terminalreporter.line(f"{self._good} of {self._told} compile and fit")
        if self._failed:
            terminalreporter.line("outside of tests:")
            terminalreporter.line(_table.to_text(self._failed))

    def _fail(self) -> None:
        failed = self._news()
        if failed:
            names = ", ".join(
                f"{verdict.program} on {verdict.target}: {verdict.answer.value}"
                for verdict in failed
            )
            pytest.fail(f"{names}\n{_table.to_text(failed)}", pytrace=False)

    def _news(self) -> list[Verdict]:
        """Returns the programs since the last call that a TPU would not run."""
        news = tf_tpu_ext.verdicts()[self._told :]
        self._told += len(news)
        failed = [verdict for verdict in news if not verdict.ok]
        self._good += len(news) - len(failed)
        return failed
