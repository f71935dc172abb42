"""The source distribution: complete, buildable, and its tests can be collected."""

from __future__ import annotations

import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a checkout has besides its sources.
LEFT_OUT = (
    ".git*",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "*.so",
    "_built_for.py",
)
LEFT_OUT_AT_TOP = ("build", "dist")
BUILD = "import build_backend, sys; build_backend.build_sdist(sys.argv[1])"
# The build reads every file of C++, and refuses includes that are not there.
PLAN = """
import pathlib, build_file
targets = build_file.read_build(pathlib.Path.cwd())
assert not list(build_file.misplaced_includes(pathlib.Path.cwd(), targets))
assert not list(build_file.stale_unity_files(pathlib.Path.cwd(), targets))
print(len({file for target in targets.values() for file in (*target.srcs, *target.textual_hdrs)}))
"""


def run_python(*arguments: str, cwd: pathlib.Path, path: pathlib.Path | None = None) -> str:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(path), *environment.get("PYTHONPATH", "").split(os.pathsep)]
        )
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources(folder: pathlib.Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in files}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy, for setuptools writes into the folder that it builds."""
    folder = tmp_path_factory.mktemp("checkout") / "tf_tpu_ext"

    def left_out(parent: str, names: list[str]) -> set[str]:
        patterns = LEFT_OUT + (LEFT_OUT_AT_TOP if pathlib.Path(parent) == ROOT else ())
        return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}

    shutil.copytree(ROOT, folder, ignore=left_out)
    return folder


@pytest.fixture(scope="module")
def unpacked(checkout: pathlib.Path) -> pathlib.Path:
    before = sources(checkout)
    dist = checkout.parent / "dist"
    run_python("-c", BUILD, str(dist), cwd=checkout, path=checkout / "tools")
    (archive,) = dist.iterdir()
    with tarfile.open(archive) as file:
        # Python before 3.11.4 has no filters; its extractall takes no such argument.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(dist)
    archive.unlink()
    (folder,) = dist.iterdir()
    missing = before - sources(folder)
    assert not missing
    return folder


def test_it_plans_the_build_of_the_whole_library(unpacked):
    count = run_python("-c", PLAN, cwd=unpacked, path=unpacked / "tools")
    assert int(count) == len(list((ROOT / "cc").rglob("*.cc")))


def test_its_tests_are_collected(unpacked):
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    found = run_python(*command, cwd=unpacked)
    assert "error" not in found.splitlines()[-1]
    assert "tests/test_strategy.py" in found
