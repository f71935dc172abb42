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


def _install(folder: pathlib.Path, name: str, version: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_installed_one() -> None:
    minor = tf_config.minor_of(tf.__version__)
    assert build_backend.tensorflow_requirement() == f"tensorflow-cpu=={minor}.*"


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
@pytest.mark.parametrize("minor", tf_config.MINORS)
def test_each_that_is_supported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, minor: str
) -> None:
    _install(tmp_path, name, f"{minor}.3")
    monkeypatch.setattr(build_backend.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    assert build_backend.tensorflow_requirement() == f"tensorflow-cpu=={minor}.*"


def test_the_newest_if_there_is_none_that_is_supported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_backend.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    assert build_backend.tensorflow_requirement() == NEWEST
    _install(tmp_path, "tensorflow", "2.16.1")
    assert build_backend.tensorflow_requirement() == NEWEST


def test_the_one_of_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build_backend.VARIABLE, tf_config.MINORS[0])
    assert build_backend.tensorflow_requirement() == f"tensorflow-cpu=={tf_config.MINORS[0]}.*"
    monkeypatch.setenv(build_backend.VARIABLE, "2.1")
    with pytest.raises(ValueError, match=r"must be one of 2\.19, 2\.20, 2\.21\. Received: '2\.1'"):
        build_backend.tensorflow_requirement()


def test_both_kinds_of_build_ask_for_it() -> None:
    expected = build_backend.tensorflow_requirement()
    assert expected in build_backend.get_requires_for_build_wheel()
    assert expected in build_backend.get_requires_for_build_editable()


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


def test_another_tensorflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tf_config.importlib.metadata,
        "packages_distributions",
        lambda: {"tensorflow": ["tensorflow"]},
    )
    monkeypatch.setattr(tf_config.importlib.metadata, "version", lambda name: "2.17.0")
    with pytest.raises(
        RuntimeError, match=r"compiles against TensorFlow 2\.19, 2\.20, 2\.21; found 2"
    ):
        tf_config.find_tensorflow()
