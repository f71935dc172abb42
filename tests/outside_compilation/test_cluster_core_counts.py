"""Outside compilation on one and two cores: a process has one number of cores."""

from __future__ import annotations

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
# The files whose programs depend on the number of cores; the others would only repeat themselves.
FILES = ["test_clusters.py", "test_promises.py"]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_with_cores(strategy, run_tests_on, count):
    if count == strategy.num_replicas_in_sync:
        pytest.skip(f"this process has {count} cores")
    files = [FOLDER / file for file in FILES]
    run_tests_on(count, files, "-k", "not session and not eager")
