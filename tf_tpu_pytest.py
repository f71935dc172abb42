"""The pytest plugin: `pytest --tpu-target=v5e-8` asks a real TPU's compiler about every program.

A module beside the package and not in it: pytest imports it in each of its runs, and importing
anything of tf_tpu_ext imports TensorFlow.
"""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option, which alone changes nothing.

    Example:
        $ pytest --tpu-target=v5e-8 tests/
    """
    parser.getgroup("tf_tpu_ext").addoption(
        "--tpu-target",
        action="append",
        default=[],
        metavar="TPU",
        help="ask the compiler of a real TPU, such as v5e-8, about every program that a test "
        "compiles; the test fails if one does not compile or fit. May be given several times, for "
        "TPUs with the same number of cores (see docs/verdict.md of tf_tpu_ext)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Makes the virtual TPU the target, before a conftest.py may run an operation.

    Raises:
        pytest.UsageError: There is no such TPU, or its compiler is not installed.

    Example:
        $ pytest --tpu-target=v5e:2x4
    """
    targets: Any = early_config.known_args_namespace.tpu_target
    if targets:
        from tf_tpu_ext.verdict import _pytest

        early_config.pluginmanager.register(_pytest.start(targets), "tf_tpu_ext_verdicts")
