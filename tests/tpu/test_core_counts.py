"""The tests of the tpu API on one, two and eight cores: a process has one number of cores."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
# The files whose programs depend on the number of cores; the others would only repeat themselves.
FILES = [
    "test_collectives_api.py",
    "test_infeed.py",
    "test_padding_ops.py",
    "test_replicate.py",
    "test_system.py",
]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_with_cores(cores, count):
    if count == cores:
        pytest.skip(f"this process has {cores} cores")
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
