"""The changes that patches consist of, which check their targets and can be undone."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, MutableMapping, Sequence
from types import ModuleType
from typing import Any

from tf_tpu_ext.patches import _signatures
from tf_tpu_ext.patches._finders import Finder

Owner = type | ModuleType
_MISSING = object()


class UnavailableError(Exception):
    """A patch does not fit the installed packages.

    Example:
        >>> import warnings
        >>> import tensorflow as tf
        >>> from tf_tpu_ext import patches
        >>> patches.undo("tensorflow_io")
        >>> load, tf.load_op_library = tf.load_op_library, lambda path: load(path)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     patches.apply()
        >>> "expected the parameters (library_filename), got (path)" in str(caught[-1].message)
        True
        >>> tf.load_op_library = load
        >>> patches.apply()
    """


@dataclasses.dataclass(frozen=True)
class _Change:
    """One change that was made.

    Attributes:
        restore: Undoes the change.
        conflict: Returns why the change can't be undone, or None.
    """

    restore: Callable[[], None]
    conflict: Callable[[], str | None] = lambda: None


class Changes:
    """The changes of one patch, which are made and undone together.

    Attributes:
        replaced: The places `(owner, name)` of functions and classes that were replaced.
    """

    def __init__(self) -> None:
        self.replaced: list[tuple[Owner, str]] = []
        self._made: list[_Change] = []

    def wrap(
        self,
        owner: Owner,
        name: str,
        wrapper_of: Callable[[Any], Callable[..., Any]],
        uses: Sequence[str] = (),
    ) -> Callable[..., Any]:
        """Replaces a function or method by a wrapper.

        Args:
            owner: The module or class that has the function, or inherits it.
            name: The name of the function.
            wrapper_of: Takes the stock function and returns the wrapper. The wrapper has the
                signature that the stock function is expected to have, where `*args` and `**kwargs`
                match any parameters.
            uses: Parameters that the wrapper uses by name although its signature lacks them.

        Returns:
            The wrapper.

        Raises:
            UnavailableError: There is no such function, or it has other parameters.
        """
        stock = find(owner, name)
        wrapper = wrapper_of(stock)
        self.check(owner, name, wrapper, uses)
        functools.update_wrapper(wrapper, stock)
        self._replace(owner, name, wrapper)
        return wrapper

    def replace(self, owner: Owner, name: str, replacement: Callable[..., Any]) -> None:
        """Replaces a function, method or class by one that takes the same arguments.

        Raises:
            UnavailableError: There is nothing of that name, or it has other parameters.
        """
        self.check(owner, name, replacement)
        self._replace(owner, name, replacement)

    def put(self, owner: Owner, name: str, value: Any) -> None:
        """Sets an attribute, whether or not it exists."""
        # vars() returns the object itself, which getattr would bind. It does not have inherited
        # attributes: they are restored by deleting ours.
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def restore() -> None:
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        def conflict() -> str | None:
            found = vars(owner).get(name, _MISSING)
            return None if found is value else _conflict(full_name(owner, name), found)

        self._made.append(_Change(restore, conflict))

    def supply(self, owner: Owner, name: str, value: Any) -> None:
        """Sets an attribute if it does not exist."""
        if not hasattr(owner, name):
            self.put(owner, name, value)

    def put_item(self, mapping: MutableMapping[str, Any], key: str, value: Any) -> None:
        """Sets an item of a dictionary, whether or not it exists."""
        before = mapping.get(key, _MISSING)
        mapping[key] = value

        def restore() -> None:
            if before is _MISSING:
                del mapping[key]
            else:
                mapping[key] = before

        def conflict() -> str | None:
            found = mapping.get(key, _MISSING)
            # os.environ returns another string with the same text.
            return None if found is value or found == value else _conflict(repr(key), found)

        self._made.append(_Change(restore, conflict))

    def supply_module(self, name: str, source: str) -> None:
        """Makes the module `source` importable as `name`, if there is no module of that name."""
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            return
        module = importlib.import_module(source)
        parent, _, short = name.rpartition(".")
        owner = importlib.import_module(parent)
        self.put_item(sys.modules, name, module)
        self.put(owner, short, module)

    def add_finder(self, finder: Finder, *, first: bool = False) -> None:
        """Adds a finder to `sys.meta_path`, after all others or before them."""
        sys.meta_path.insert(0 if first else len(sys.meta_path), finder)

        def restore() -> None:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(finder)
            finder.forget_modules()

        self._made.append(_Change(restore))

    def on_undo(self, restore: Callable[[], None]) -> None:
        """Registers how to undo a change that was made by other means."""
        self._made.append(_Change(restore))

    def take_back(self) -> None:
        """Undoes all changes, the latest first.

        Raises:
            RuntimeError: Other code has changed the same place since. Nothing is undone.
        """
        conflicts = [text for change in self._made if (text := change.conflict()) is not None]
        if conflicts:
            raise RuntimeError(" ".join(conflicts))
        while self._made:
            self._made[-1].restore()
            self._made.pop()

    def check(
        self, owner: Owner, name: str, replacement: Callable[..., Any], uses: Sequence[str] = ()
    ) -> Any:
        """Returns the function or class of that name, after checking that `replacement` fits.

        Raises:
            UnavailableError: There is nothing of that name, or it has other parameters.
        """
        found = find(owner, name)
        problem = _signatures.mismatch(found, replacement, uses, method=isinstance(owner, type))
        if problem is not None:
            raise UnavailableError(f"{full_name(owner, name)} does not fit: {problem}.")
        return found

    def _replace(self, owner: Owner, name: str, replacement: Callable[..., Any]) -> None:
        self.put(owner, name, replacement)
        self.replaced.append((owner, name))


def find(owner: Owner, name: str) -> Any:
    """Returns an attribute of a module or class, which may be inherited, without binding it.

    Raises:
        UnavailableError: There is nothing of that name.
    """
    if isinstance(owner, type):
        found = inspect.getattr_static(owner, name, _MISSING)
    else:
        found = getattr(owner, name, _MISSING)
    if found is _MISSING:
        raise UnavailableError(f"{full_name(owner, name)} was expected, and does not exist.")
    return found


def full_name(owner: Owner, name: str) -> str:
    """Returns the name of an attribute, with its module and class."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


def _conflict(place: str, found: Any) -> str:
    got = "nothing" if found is _MISSING else repr(found)
    return (
        f"{place} can't be restored: expected what tf_tpu_ext had put there, got {got}. Undo that "
        "other change first, then call undo_all() again."
    )
