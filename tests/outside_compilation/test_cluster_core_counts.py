"""Outside compilation on one and two cores: a process has one number of cores."""

from __future__ import annotations

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
# The files whose programs depend on the number of cores; the others would only repeat themselves.
FILES = ["test_clusters.py", "test_promises.py"]


@pytest.mark.timeout(900)
def test_with_other_numbers_of_cores(strategy, run_tests_on_other_cores):
    files = [FOLDER / file for file in FILES]
    options = ("-k", "not session and not eager")
    run_tests_on_other_cores(strategy.num_replicas_in_sync, files, *options)
