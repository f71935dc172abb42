"""Outside compilation on one and two cores: a process has one number of cores."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
# The files whose programs depend on the number of cores; the others would only repeat themselves.
FILES = ["test_clusters.py", "test_promises.py"]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_with_cores(strategy, count):
    if count == strategy.num_replicas_in_sync:
        pytest.skip(f"this process has {count} cores")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-k", "not session and not eager"]
        + [str(FOLDER / file) for file in FILES],
        env={**os.environ, "TF_TPU_EXT_CORES": str(count)},
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
