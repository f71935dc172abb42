"""Fresh virtual environments, each with one TensorFlow."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What belongs to a checkout but not to its sources.
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".hypothesis", "*.so", "_built_for.py", "__pycache__", ".*_cache"
)


def run(*command: object, cwd: pathlib.Path = ROOT, env: Mapping[str, str] | None = None) -> None:
    """Prints a command and runs it.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    words = [str(word) for word in command]
    print("+", *words, flush=True)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=cwd, env={**inherited, **(env or {})}, check=True)


def make(
    folder: pathlib.Path, requirements: Sequence[str], *options: str, python: str = sys.executable
) -> pathlib.Path:
    """Makes a virtual environment, installs what is required, and returns its Python."""
    run(python, "-m", "venv", "--clear", folder)
    found = folder / "bin" / "python"
    run(found, "-m", "pip", "install", "-q", *options, *requirements)
    return found


def copy_sources(folder: pathlib.Path) -> pathlib.Path:
    """Copies the checkout without its library, so that its tests take the installed package."""

    def left_out(parent: str, names: list[str]) -> set[str]:
        at_top = {"build", "dist"} if pathlib.Path(parent) == ROOT else set()
        return _LEFT_OUT(parent, names) | (at_top & set(names))

    return pathlib.Path(shutil.copytree(ROOT, folder, ignore=left_out, dirs_exist_ok=True))
