"""The modules of `tensorflow.contrib`, which take their names from the tables in `_names`."""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import importlib.util
import types
from typing import Any

from tf_tpu_ext.contrib import _names
from tf_tpu_ext.patches._finders import Finder

ROOT = "tensorflow.contrib"
_GUIDE = "https://www.tensorflow.org/guide/migrate"


class ContribModule(types.ModuleType):
    """A module that looks up its attributes in a table on first use."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} of TensorFlow 1, by tf_tpu_ext.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        within = self.__name__[len(ROOT) :].lstrip(".")
        full = f"{within}.{name}".lstrip(".")
        entry = _names.MODULES.get(within, {}).get(name)
        package = _package_of(within)
        if isinstance(entry, str):
            value = _resolve(entry, full)
        elif package is not None and _has(package, name):
            value = getattr(importlib.import_module(package), name)
        elif _is_module(full):
            return importlib.import_module(f"{ROOT}.{full}")
        else:
            raise AttributeError(_missing(full, entry))
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        within = self.__name__[len(ROOT) :].lstrip(".")
        prefix = f"{within}." if within else ""
        modules = {
            name[len(prefix) :].split(".")[0]
            for name in _names.MODULES
            if name.startswith(prefix) and name != within
        }
        found = {
            name
            for name, entry in _names.MODULES.get(within, {}).items()
            if not isinstance(entry, _names.Missing)
        }
        package = _package_of(within)
        if package is not None and _installed(package):
            found.update(n for n in dir(importlib.import_module(package)) if n[0] != "_")
        return sorted(modules | found)


class ContribFinder(Finder):
    """Finds `tensorflow.contrib` and its modules."""

    def __init__(self) -> None:
        super().__init__(ROOT)

    def is_package(self, fullname: str) -> bool:
        """Returns True: every contrib module has an attribute `__path__`.

        Raises:
            ModuleNotFoundError: contrib has no such module.
        """
        within = fullname[len(ROOT) :].lstrip(".")
        if not _is_module(within):
            parent, _, name = within.rpartition(".")
            entry = _names.MODULES.get(parent, {}).get(name)
            # Python hides the message of an error that carries the module's name.
            raise ModuleNotFoundError(_missing(within, entry))
        return True

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns the empty module."""
        return ContribModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Sets the names that `from ... import *` imports."""
        module.__all__ = [name for name in dir(module) if not name.startswith("_")]  # type: ignore[attr-defined]


def _package_of(within: str) -> str | None:
    """Returns the package that a contrib module has become, whether installed or not."""
    for name in sorted(_names.WHOLE_PACKAGES, key=len, reverse=True):
        if within == name or within.startswith(name + "."):
            return _names.WHOLE_PACKAGES[name] + within[len(name) :]
    return _names.PACKAGES.get(within)


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _has(package: str, name: str) -> bool:
    return _installed(package) and hasattr(importlib.import_module(package), name)


def _is_module(within: str) -> bool:
    if within in _names.MODULES:
        return True
    if any(name.startswith(within + ".") for name in _names.WHOLE_PACKAGES):
        # The parent of a module that has become a package.
        package = _package_of(within)
        return package is not None and _installed(package.partition(".")[0])
    package = _package_of(within)
    return package is not None and _installed(package)


def _resolve(entry: str, full: str) -> Any:
    module, _, attribute = entry.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise AttributeError(
            f"tf.contrib.{full} needs {entry.replace(':', '.')}, which can't be imported: {error}. "
            f"{_names.NEEDS.get(module.split('.')[0], f'See {_GUIDE}.')}"
        ) from error
    return value


def _missing(full: str, entry: _names.Missing | str | None) -> str:
    if isinstance(entry, _names.Missing):
        return f"tf.contrib.{full} is not supported by tf_tpu_ext. {entry.instead}"
    top = full.partition(".")[0]
    package = _package_of(full) or _package_of(full.rpartition(".")[0])
    if package is not None and not _installed(package.partition(".")[0]):
        needed = package.partition(".")[0]
        return f"tf.contrib.{full} needs the package {needed}. {_names.NEEDS[needed]}"
    known = _names.GONE.get(top)
    if known is not None:
        return f"tf.contrib.{full} is not supported by tf_tpu_ext. {known.instead}"
    within = full.rpartition(".")[0]
    near = difflib.get_close_matches(full.rpartition(".")[2], _names.MODULES.get(within, {}), 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"tf.contrib.{full} is not supported by tf_tpu_ext, which supplies what TPU programs "
        f"commonly import.{hint} See {_GUIDE} for its replacement in TensorFlow 2."
    )
