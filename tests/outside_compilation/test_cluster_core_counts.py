"""Outside compilation on one and two cores: a process has one number of cores."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
FILES = ["test_clusters.py", "test_host_ops.py", "test_promises.py", "test_variables.py"]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_with_cores(strategy, count):
    if count == strategy.num_replicas_in_sync:
        pytest.skip(f"this process has {count} cores")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [str(FOLDER / file) for file in FILES],
        env={**os.environ, "TF_TPU_EXT_CORES": str(count)},
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
