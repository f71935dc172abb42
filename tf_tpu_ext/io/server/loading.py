"""Finds a pipeline's function and calls it."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def make_dataset(function: str, args: tuple[Any, ...], kwargs: dict[str, Any], legacy: bool) -> Any:
    """Calls the function `FILE.py:NAME` or `package.module:NAME` and returns its dataset.

    Args:
        function: The function's location.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        legacy: Whether `import tensorflow` gives its module TensorFlow 1's names.

    Raises:
        TypeError: It does not return a dataset.
    """
    place, _, name = function.rpartition(":")
    value: Any = _load(place, legacy)
    for part in name.split("."):
        value = getattr(value, part)
    dataset = value(*args, **kwargs)
    if not isinstance(dataset, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        raise TypeError(
            f"{function} returned {type(dataset).__name__}, expected a tf.data.Dataset. Return "
            "one: what leaves the process are the elements of a dataset."
        )
    return dataset


def _load(place: str, legacy: bool) -> types.ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    path = pathlib.Path(place).resolve()
    sys.path.insert(0, str(path.parent))
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    if legacy:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_of_legacy()}
    sys.modules[path.stem] = module
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


class _TensorFlow1(types.ModuleType):
    """`tensorflow` with TensorFlow 1's names, plus today's names that it did not have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(tf.compat.v1, name)
        except AttributeError:
            return getattr(tf, name)


def _import_of_legacy() -> Any:
    view = _TensorFlow1("tensorflow")

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        module = __import__(name, globals, locals, fromlist, level)
        return view if module is tf else module

    return import_
