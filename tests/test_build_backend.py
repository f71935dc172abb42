"""tools/build_backend.py: which TensorFlow the library is compiled against."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_backend  # noqa: E402
import tf_config  # noqa: E402

NEWEST = f"tensorflow-cpu=={tf_config.MINORS[-1]}.*"


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(build_backend.VARIABLE, raising=False)


@pytest.fixture
def packages(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of the packages next to which tf_tpu_ext will be installed, empty at first."""
    monkeypatch.setattr(tf_config, "outer_folders", lambda: [str(tmp_path)])
    return tmp_path


def _install(folder: pathlib.Path, name: str, version: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "top_level.txt").write_text("tensorflow\n")
    (folder / "tensorflow").mkdir(exist_ok=True)
    (folder / "tensorflow" / "__init__.py").touch()


def test_the_installed_one_is_used() -> None:
    assert build_backend.tensorflow_requirements() == []


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
@pytest.mark.parametrize("minor", tf_config.MINORS)
def test_each_that_is_supported(
    packages: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, minor: str
) -> None:
    _install(packages, name, f"{minor}.3")
    assert build_backend.tensorflow_requirements() == []
    # What an isolated build sees.
    monkeypatch.setattr(sys, "path", [])
    found = tf_config.find_tensorflow()
    assert (found.root, found.version) == (packages / "tensorflow", f"{minor}.3")


def test_the_newest_if_there_is_none_that_is_supported(packages: pathlib.Path) -> None:
    assert build_backend.tensorflow_requirements() == [NEWEST]
    _install(packages, "tensorflow", "2.16.1")
    assert build_backend.tensorflow_requirements() == [NEWEST]


def test_the_one_of_the_environment_variable(
    packages: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = tf_config.MINORS[0]
    _install(packages, "tensorflow", tf.__version__)
    monkeypatch.setenv(build_backend.VARIABLE, oldest)
    wanted = [] if tf_config.minor_of(tf.__version__) == oldest else [f"tensorflow-cpu=={oldest}.*"]
    assert build_backend.tensorflow_requirements() == wanted
    monkeypatch.setenv(build_backend.VARIABLE, "2.1")
    with pytest.raises(ValueError, match=r"must be one of 2\.19, 2\.20, 2\.21\. Received: '2\.1'"):
        build_backend.tensorflow_requirements()


def test_both_kinds_of_build_ask_for_it(packages: pathlib.Path) -> None:
    assert NEWEST in build_backend.get_requires_for_build_wheel()
    assert NEWEST in build_backend.get_requires_for_build_editable()


def test_a_wheel_of_libraries_that_are_built_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tf_config.BUILT_VARIABLE, "libraries")
    required = build_backend.get_requires_for_build_wheel()
    assert not [name for name in required if name.startswith("tensorflow")]


def test_only_the_extra_cpu_brings_tensorflow() -> None:
    """Nothing replaces the installed TensorFlow unasked; tf_keras asks for one, too."""
    section = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    extras = dict(re.findall(r"^(\w+) = \[(.*?)\]", section.partition("\n\n")[0], re.M | re.S))
    brings = re.compile(r"\"(tensorflow|tensorflow-cpu|tensorflow-io|tf_keras)[^\w-]")
    assert [name for name, needed in extras.items() if brings.search(needed)] == ["cpu"]


def test_the_extra_takes_every_minor() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    first, last = tf_config.MINORS[0], tf_config.MINORS[-1]
    after = f"2.{int(last.split('.')[1]) + 1}"
    assert f'"tensorflow-cpu>={first},<{after}"' in text


def test_another_tensorflow_is_refused(
    packages: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(packages, "tensorflow", "2.17.0")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(
        RuntimeError, match=r"compiles against TensorFlow 2\.19, 2\.20, 2\.21; found 2"
    ):
        tf_config.find_tensorflow()


def test_two_versions_in_one_folder_are_refused(
    packages: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(packages, "tensorflow", "2.20.0")
    _install(packages, "tensorflow-cpu", "2.21.0")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(RuntimeError, match="Expected one TensorFlow"):
        tf_config.find_tensorflow()
