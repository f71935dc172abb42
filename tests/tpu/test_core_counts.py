"""The tests of the tpu API on one, two and eight cores: a process has one number of cores."""

from __future__ import annotations

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
# The files whose programs depend on the number of cores; the others would only repeat themselves.
FILES = [
    "test_collectives_api.py",
    "test_infeed.py",
    "test_padding_ops.py",
    "test_replicate.py",
    "test_system.py",
    # The others of this file are programs of one core.
    "test_tensorflow_kernels.py::test_on_all_cores",
    "test_tensorflow_kernels.py::test_programs_split_over_cores",
]
# How a program is started is no matter of the number of cores, nor how a core computes padded ops.
LEFT_OUT = ("_run_eagerly", "_run_in_session", "test_real_elements_only")


@pytest.mark.timeout(900)
def test_with_other_numbers_of_cores(cores, run_tests_on_other_cores):
    options = ("-k", " and ".join(f"not {name}" for name in LEFT_OUT))
    run_tests_on_other_cores(cores, [FOLDER / file for file in FILES], *options)
