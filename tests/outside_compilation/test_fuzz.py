"""Random programs with clusters do what plain TensorFlow does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "fuzz.py"


@pytest.mark.timeout(900)
def test_random_programs():
    run = subprocess.run(
        [
            *(sys.executable, str(TOOL), "programs"),
            *("--examples", "30", "--cores", "2", "--seed", "7"),
        ],
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr[-3000:]}"
    assert "programs agree" in run.stdout
