"""Modules under names that they had, or that others look for."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any


class _Stand(types.ModuleType):
    """A module whose attributes are those of the one in the other place."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(name)
        self._place = place

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = importlib.import_module(self._place)
        try:
            return getattr(module, name)
        except AttributeError:
            if importlib.util.find_spec(f"{self._place}.{name}") is None:
                raise
        return importlib.import_module(f"{self._place}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a package, and all in it, in another place.

    Args:
        wanted: The name that is looked for.
        place: The package that has it.
    """

    def __init__(self, wanted: str, place: str) -> None:
        self.wanted = wanted
        self._place = place

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns how to make the stand-in; None for other names, and what is in no place."""
        del path, target
        if fullname != self.wanted and not fullname.startswith(self.wanted + "."):
            return None
        found = importlib.util.find_spec(self._place_of(fullname))
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns the stand-in."""
        return _Stand(spec.name, self._place_of(spec.name))

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""
        del module

    def _place_of(self, fullname: str) -> str:
        return self._place + fullname[len(self.wanted) :]


def add(wanted: str, place: str) -> None:
    """Makes the package `place` be found as `wanted`, too; may be called again.

    A package that has the name by itself keeps it.
    """
    known = {finder.wanted for finder in sys.meta_path if isinstance(finder, Finder)}
    if wanted not in known:
        # The last to be asked.
        sys.meta_path.append(Finder(wanted, place))
