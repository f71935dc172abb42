"""Finds the native libraries: where they are, and which TensorFlow each was compiled for.

This module needs only Python's standard library: `tf-tpu doctor` loads it where the package fails.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pathlib
import runpy
from collections.abc import Iterator

NAME = "libtf_tpu_ext_ops.so"
# The file that the build writes next to the library.
RECORD = "_built_for.py"
PACKAGE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Library:
    """A native library that has been built.

    Attributes:
        path: The library's file.
        version: The version of TensorFlow that it was compiled for.
    """

    path: pathlib.Path
    version: str

    @property
    def minor(self) -> str:
        """The minor version of TensorFlow into which it can be loaded."""
        return minor_of(self.version)


def minor_of(version: str) -> str:
    """Returns the minor version of a version: "2.21" for "2.21.0"."""
    return ".".join(version.split(".")[:2])


def find_all() -> list[Library]:
    """Returns the package's libraries.

    If the package folder has none, as in a checkout, the libraries of the installed package are
    used if it has the same version.
    """
    own = list(_in_package(PACKAGE))
    if own:
        return own
    version = _own_version()
    return [
        library
        for package, installed in installed_packages()
        if installed == version
        for library in _in_package(package)
    ]


def installed_packages() -> list[tuple[pathlib.Path, str]]:
    """Returns the folder and version of each pip-installed tf_tpu_ext other than this one."""
    found = []
    for distribution in importlib.metadata.distributions(name="tf_tpu_ext"):
        package = pathlib.Path(str(distribution.locate_file(PACKAGE.name))).resolve()
        if package != PACKAGE and package.is_dir():
            found.append((package, distribution.version))
    return found


def _in_package(package: pathlib.Path) -> Iterator[Library]:
    # A wheel for several minor versions of TensorFlow has a folder for each.
    for folder in (package, *sorted(package.glob("tensorflow-*"))):
        if (folder / NAME).exists() and (folder / RECORD).exists():
            recorded = runpy.run_path(str(folder / RECORD))["TF_VERSION"]
            yield Library(folder / NAME, str(recorded))


def _own_version() -> str:
    return str(runpy.run_path(str(PACKAGE / "_version.py"))["VERSION"])
