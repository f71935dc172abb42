"""Lays out programs: their environments, their sources and their data."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Mapping
from importlib import metadata

import environments

from published.program import Environment, Program, Repository

# What `pip install 'tf_tpu_ext[estimator,legacy]'` brings, but TensorFlow's own package name.
_ALONE = ("tensorflow-estimator==2.15.0", "tf_keras=={minor}.*", "tf-slim")


class LayoutError(Exception):
    """Something that the user has to bring is missing."""


def environment(work: pathlib.Path, wanted: Environment) -> pathlib.Path:
    """Makes a virtual environment unless it is there as wanted, and returns its Python."""
    folder = work / "environments" / wanted.name
    python = folder / "bin" / "python"
    version = metadata.version("tensorflow_cpu")
    minor = version.rpartition(".")[0]
    alone = [one.format(minor=minor) for one in (*_ALONE, *wanted.alone)]
    content = "\n".join([version, *wanted.packages, "--no-deps", *alone])
    made = folder / "made"
    if made.exists() and made.read_text() == content:
        return python
    environments.make(folder, [f"tensorflow-cpu=={version}", *wanted.packages])
    environments.run(python, "-m", "pip", "install", "-q", "--no-deps", *alone)
    # The package of this checkout, with the library that was built into it.
    command = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = subprocess.run([python, "-c", command], capture_output=True, text=True, check=True)
    (pathlib.Path(where.stdout.strip()) / "tf_tpu_ext.pth").write_text(f"{environments.ROOT}\n")
    if wanted.finish is not None:
        module, name = wanted.finish.__module__, wanted.finish.__name__
        command = f"from {module} import {name}; {name}()"
        environments.run(python, "-c", command, cwd=environments.ROOT / "tools")
    made.write_text(content)
    return python


def source(sources: pathlib.Path | None, repository: Repository) -> pathlib.Path:
    """Returns the clone of a repository.

    Raises:
        LayoutError: It is not there.
    """
    folder = None if sources is None else sources / repository.folder
    if folder is None or not folder.is_dir():
        place = folder or f"FOLDER/{repository.folder}"
        raise LayoutError(
            f"needs a clone of {repository.name} in {place}. Run: git clone "
            f"https://github.com/{repository.name} {place} && git -C {place} checkout "
            f"{repository.commit}, and give tools/programs --sources {sources or 'FOLDER'}"
        )
    return folder.resolve()


def data(work: pathlib.Path, program: Program, python: pathlib.Path) -> pathlib.Path:
    """Makes the data of a program by its own Python unless it is there; returns its folder."""
    folder = work / "data" / program.name
    made = folder / "made"
    folder.mkdir(parents=True, exist_ok=True)
    if program.prepare is not None and not made.exists():
        tool = environments.ROOT / "tools" / "programs.py"
        environments.run(python, tool, program.name, "--prepare", folder)
        made.touch()
    return folder.resolve()


def variables(
    program: Program, clones: list[pathlib.Path], folder: pathlib.Path
) -> Mapping[str, str]:
    """Returns the environment variables of a program with its data in a folder."""
    values = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {name: value.format(data=folder) for name, value in program.variables}
    values.update({"TF_CPP_MIN_LOG_LEVEL": "2", **own})
    places = {"data": folder, **({"source": clones[0]} if clones else {})}
    if program.path:
        path = [one.format(**places) for one in program.path]
        values["PYTHONPATH"] = os.pathsep.join(path)
    return values
