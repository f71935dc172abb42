"""What patches are made of: changes that check what they find, and know the way back."""

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
    """A patch does not fit what is installed.

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
        restore: Takes it back.
        conflict: Returns why it can't be taken back, or None.
    """

    restore: Callable[[], None]
    conflict: Callable[[], str | None] = lambda: None


class Changes:
    """The changes of one patch, which are all in force or all taken back.

    Attributes:
        replaced: The places `(owner, name)` of what was replaced after a check.
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
        """Replaces a function or method by a function around it.

        Args:
            owner: The module or class that has it, itself or from a base class.
            name: Its name there.
            wrapper_of: Takes the stock function and returns the new one, with the signature that
                the stock function is expected to have; `*args` and `**kwargs` leave parts open.
            uses: Parameters that are used by name but are not in the new function's signature.

        Returns:
            The new function.

        Raises:
            UnavailableError: There is no such function, or it takes other arguments.
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
            UnavailableError: There is none of that name, or it takes other arguments.
        """
        self.check(owner, name, replacement)
        self._replace(owner, name, replacement)

    def put(self, owner: Owner, name: str, value: Any) -> None:
        """Sets an attribute, whether or not there is one."""
        # vars() gives the object itself, where getattr would bind it. What a class inherits is not
        # there, and is restored by taking ours away.
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
        """Sets an attribute where there is none."""
        if not hasattr(owner, name):
            self.put(owner, name, value)

    def put_item(self, mapping: MutableMapping[str, Any], key: str, value: Any) -> None:
        """Sets an item of a dictionary, whether or not there is one."""
        before = mapping.get(key, _MISSING)
        mapping[key] = value

        def restore() -> None:
            if before is _MISSING:
                del mapping[key]
            else:
                mapping[key] = before

        def conflict() -> str | None:
            found = mapping.get(key, _MISSING)
            # os.environ gives another string of the same text.
            return None if found is value or found == value else _conflict(repr(key), found)

        self._made.append(_Change(restore, conflict))

    def supply_module(self, name: str, source: str) -> None:
        """Makes the module `source` importable as `name`, where there is none of that name."""
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            return
        module = importlib.import_module(source)
        parent, _, short = name.rpartition(".")
        owner = importlib.import_module(parent)
        self.put_item(sys.modules, name, module)
        self.put(owner, short, module)

    def add_finder(self, finder: Finder, *, first: bool = False) -> None:
        """Lets `import` ask a finder, after all others or before them."""
        sys.meta_path.insert(0 if first else len(sys.meta_path), finder)

        def restore() -> None:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(finder)
            finder.forget_modules()

        self._made.append(_Change(restore))

    def on_undo(self, restore: Callable[[], None]) -> None:
        """Keeps the way back of a change that was made otherwise."""
        self._made.append(_Change(restore))

    def take_back(self) -> None:
        """Takes all changes back, the latest first.

        Raises:
            RuntimeError: Other code has made a change in the same place since. Nothing is taken
                back then.
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
        """Returns what `replacement` could take the place of.

        Raises:
            UnavailableError: There is nothing of that name, or it takes other arguments.
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
    """Returns what a module or a class has under a name, itself or from a base class.

    Raises:
        UnavailableError: It has nothing of that name.
    """
    if isinstance(owner, type):
        found = inspect.getattr_static(owner, name, _MISSING)
    else:
        found = getattr(owner, name, _MISSING)
    if found is _MISSING:
        raise UnavailableError(f"{full_name(owner, name)} was expected, and there is none.")
    return found


def full_name(owner: Owner, name: str) -> str:
    """Returns the name of an attribute with that of its module and class."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


def _conflict(place: str, found: Any) -> str:
    got = "nothing" if found is _MISSING else repr(found)
    return (
        f"{place} can't be restored: expected what tf_tpu_ext had put there, got {got}. Undo that "
        "other change first, then call undo_all() again."
    )
