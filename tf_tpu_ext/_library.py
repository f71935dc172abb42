"""Finds the native libraries: where they are, and which TensorFlow each was compiled for.

The module needs nothing but Python's library: `tf-tpu doctor` loads it where the package fails.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pathlib
import runpy
from collections.abc import Iterator

NAME = "libtf_tpu_ext_ops.so"
# What the build writes beside the library.
RECORD = "_built_for.py"
PACKAGE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Library:
    """A library that was built.

    Attributes:
        path: Its file.
        version: The version of TensorFlow that it was compiled for.
    """

    path: pathlib.Path
    version: str

    @property
    def minor(self) -> str:
        """The minor version of TensorFlow into which it can be loaded."""
        return minor_of(self.version)


def minor_of(version: str) -> str:
    """Returns the minor of a version: "2.21" of "2.21.0"."""
    return ".".join(version.split(".")[:2])


def find_all() -> list[Library]:
    """Returns the package's libraries.

    A package folder without any, as in a checkout, takes those of the installed package if that has
    the same version.
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
    """Returns folder and version of each tf_tpu_ext that pip installed, but not this very one."""
    found = []
    for distribution in importlib.metadata.distributions(name="tf_tpu_ext"):
        package = pathlib.Path(str(distribution.locate_file(PACKAGE.name))).resolve()
        if package != PACKAGE and package.is_dir():
            found.append((package, distribution.version))
    return found


def _in_package(package: pathlib.Path) -> Iterator[Library]:
    # A wheel for several minors of TensorFlow has a folder for each.
    for folder in (package, *sorted(package.glob("tensorflow-*"))):
        if (folder / NAME).exists() and (folder / RECORD).exists():
            recorded = runpy.run_path(str(folder / RECORD))["TF_VERSION"]
            yield Library(folder / NAME, str(recorded))


def _own_version() -> str:
    return str(runpy.run_path(str(PACKAGE / "_version.py"))["VERSION"])
