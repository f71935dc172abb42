"""What the tests of verdicts share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import imported_processes
import pytest

import tf_tpu_ext

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed")
# An installed package has told pytest of its plugin, a checkout has not.
_KNOWN = importlib.metadata.entry_points(group="pytest11", name="tf_tpu_ext")
PYTEST = (sys.executable, "-m", "pytest", *(() if _KNOWN else ("-p", "tf_tpu_pytest")))


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of a file have a cache of their own, and processes that they start the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def compiled_only() -> Iterator[None]:
    """Programs do nothing: they would take too much time or memory here."""
    tf_tpu_ext.configure(compute=False)
    yield
    tf_tpu_ext.configure(compute=True)


def tf_tpu_check(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `tf-tpu check` in a folder."""
    return imported_processes.tf_tpu("check", *arguments, cwd=folder, timeout=280)
