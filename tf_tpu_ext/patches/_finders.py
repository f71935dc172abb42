"""Finders for modules under names for which there is no file."""

from __future__ import annotations

import abc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and creates a package and its modules.

    Args:
        root: The full name of the package.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    @abc.abstractmethod
    def is_package(self, fullname: str) -> bool | None:
        """Returns whether a module under the root is a package, or None if it does not exist."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module, or None if this finder does not have it."""
        del path, target
        if not self._covers(fullname):
            return None
        is_package = self.is_package(fullname)
        if is_package is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing, since `create_module` returns a complete module."""
        del module

    def forget_modules(self) -> None:
        """Removes the modules of this finder from `sys.modules` and their parents."""
        for name, module in list(sys.modules.items()):
            if not self._covers(name) or module.__spec__ is None:
                continue
            if module.__spec__.loader is not self:
                continue
            del sys.modules[name]
            parent, _, short = name.rpartition(".")
            owner = sys.modules.get(parent)
            if owner is not None and vars(owner).get(short) is module:
                delattr(owner, short)

    def _covers(self, fullname: str) -> bool:
        return fullname == self._root or fullname.startswith(self._root + ".")


class Alias(Finder):
    """Finds a package and its modules under another name.

    Args:
        root: The other name.
        package: The name of the package.
    """

    def __init__(self, root: str, package: str) -> None:
        super().__init__(root)
        self._package = package

    def is_package(self, fullname: str) -> bool | None:
        """Returns whether the module of that name in the package is itself a package."""
        found = importlib.util.find_spec(self._name_in_package(fullname))
        return None if found is None else found.submodule_search_locations is not None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns a module with the attributes of the one in the package."""
        return _AliasModule(spec.name, self._name_in_package(spec.name))

    def _name_in_package(self, fullname: str) -> str:
        return self._package + fullname[len(self._root) :]


class _AliasModule(types.ModuleType):
    """A module with the attributes of another, which is imported on first use."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(name)
        self._other = other

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [public for public in dir(self) if not public.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(name)
        module = importlib.import_module(self._other)
        try:
            return getattr(module, name)
        except AttributeError:
            if importlib.util.find_spec(f"{self._other}.{name}") is None:
                raise
        return importlib.import_module(f"{self._other}.{name}")

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self._other))
