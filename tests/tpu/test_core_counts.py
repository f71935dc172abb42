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
    "test_tensorflow_kernels.py",
]
# Programs of one core: XLA's, random ones, and one that runs in a process of its own.
LEFT_OUT = ("[xla-", "test_any", "test_gradient_through", "test_without_onednn")


@pytest.mark.timeout(900)
def test_with_other_numbers_of_cores(cores, run_tests_on_other_cores):
    options = ("-k", " and ".join(f"not {name}" for name in LEFT_OUT))
    run_tests_on_other_cores(cores, [FOLDER / file for file in FILES], *options)
