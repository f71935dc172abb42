"""tools/build_wheel, tools/matrix and the workflows: what they check and name."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_wheel  # noqa: E402
import environments  # noqa: E402
import matrix  # noqa: E402
import ninja_build  # noqa: E402
import tf_config  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="makes libraries with a compiler"
)


@pytest.fixture
def make_libraries(tmp_path):
    """Makes a library with a C function of a name for each minor of TensorFlow."""

    def make(function: str) -> pathlib.Path:
        for minor in tf_config.MINORS:
            folder = tmp_path / f"tensorflow-{minor}"
            folder.mkdir()
            subprocess.run(
                ["g++", "-shared", "-x", "c++", "-", "-o", folder / ninja_build.LIBRARY],
                input=f'extern "C" void {function}() {{}}',
                text=True,
                check=True,
            )
        return tmp_path

    return make


@needs_compiler
def test_libraries_that_export_our_entry_points(make_libraries):
    build_wheel.check_libraries(make_libraries("TfTpuExt_Function"))


@needs_compiler
def test_library_that_exports_more_is_refused(make_libraries):
    libraries = make_libraries("TF_Function")
    with pytest.raises(RuntimeError, match=r"should export TfTpuExt_\* only.*TF_Function"):
        build_wheel.check_libraries(libraries)


def test_missing_library_is_told(tmp_path):
    with pytest.raises(RuntimeError, match=rf"--only-library {re.escape(tf_config.MINORS[0])}"):
        build_wheel.check_libraries(tmp_path)


def test_sources_are_copied_without_the_library(tmp_path):
    copied = environments.copy_sources(tmp_path / "sources")
    assert (copied / "cc" / "compiler" / "build" / "xla_compiler.cc").exists()
    assert not list(copied.rglob("*.so"))
    assert not (copied / "build").exists()


@pytest.mark.parametrize("tests", [build_wheel.SMOKE_TESTS, matrix.MAIN_PATHS])
def test_tests_that_are_named_exist(tests):
    for name in tests:
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / file).read_text()


def test_a_python_that_a_minor_has_no_wheel_for_is_known(monkeypatch):
    monkeypatch.setitem(tf_config.NEWEST_PYTHON, "2.21", sys.version_info.minor)
    monkeypatch.setitem(tf_config.NEWEST_PYTHON, "2.20", sys.version_info.minor - 1)
    assert matrix.exists("2.21", sys.executable)
    assert not matrix.exists("2.20", sys.executable)
    assert set(tf_config.NEWEST_PYTHON) == set(tf_config.MINORS)


def test_wrong_minor_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["build_wheel", "--only-library", "2.1"])
    with pytest.raises(SystemExit):
        build_wheel.main()
    assert f"'{tf_config.MINORS[0]}'" in capsys.readouterr().err


@pytest.mark.skipif(not WORKFLOWS, reason="a source distribution has no workflows")
def test_workflows_cover_every_minor_and_name_tools_that_exist():
    for workflow in WORKFLOWS:
        text = workflow.read_text()
        named = re.findall(r"tensorflow: \[?((?:\"[\d.]+\"(?:, )?)+)", text)
        minors = {minor for names in named for minor in re.findall(r"[\d.]+", names)}
        assert minors == set(tf_config.MINORS), workflow
        for tool in re.findall(r"(?:tools|\.ci)/\w+(?:\.py)?", text):
            assert (ROOT / tool).exists(), f"{workflow}: {tool}"
