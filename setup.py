"""Builds the native library while setuptools builds the package; pyproject.toml has the rest."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
PACKAGE = "tf_tpu_ext"
sys.path.insert(0, str(ROOT / "tools"))

import tf_config  # noqa: E402


@contextlib.contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """The user's terminal, for the progress of minutes: pip shows nothing that a build prints."""
    try:
        terminal = open("/dev/tty", "w")  # noqa: SIM115 (closed below)
    except OSError:
        yield None
        return
    with terminal:
        yield terminal


class BuildWithLibrary(build_py):
    """Puts the op library, and the TensorFlow it was built for, beside the Python files."""

    def run(self) -> None:
        super().run()
        base = ROOT if self.editable_mode else pathlib.Path(self.build_lib)
        out = (base / PACKAGE).resolve()
        if built := os.environ.get(tf_config.BUILT_VARIABLE):
            shutil.copytree(built, out, dirs_exist_ok=True)
            return
        command = [sys.executable, str(ROOT / "tools" / "ninja_build.py"), str(out)]
        with _terminal() as terminal:
            subprocess.run(command, check=True, stdout=terminal)


class Wheel(bdist_wheel):
    """A wheel for any Python 3: the library calls TensorFlow, not Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class NativeDistribution(Distribution):
    """Marks the package as not pure Python for setuptools."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": Wheel},
)
