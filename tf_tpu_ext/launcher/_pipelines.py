"""Runs a script's functions that need tensorflow-io's native ops in an environment where they load.

A function in a module that imports tensorflow-io is called here first. If a native op can't be
loaded, it is called again in the environment of `tf-tpu io setup`, provided that it returns a
dataset there and that this is sound: importing its module only defines things, and the module still
holds the same values as at import. Otherwise the error says what to move.
"""

from __future__ import annotations

import importlib.machinery
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from tf_tpu_ext.io import _client
from tf_tpu_ext.launcher import _imports
from tf_tpu_ext.patches._libraries import NativeOpsError

LIBRARY = "tensorflow_io"
_MOVE = (
    "Move the pipeline to a function, in a file that does nothing at import but define things, "
    "which returns a tf.data.Dataset and takes arguments that can be pickled; see "
    "docs/tensorflow_io.md."
)
# Modules that have imported tensorflow-io and are not ready yet.
_importing: list[dict[str, Any]] = []


class NotMovableError(NativeOpsError):
    """A function can't be run where tensorflow-io's native ops load."""


class MissingLibrary(types.ModuleType):
    """Stands in for tensorflow-io, or a name in it, where it is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no attribute {name}")
        return MissingLibrary(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise NativeOpsError(f"{self.__name__} can't be called: tensorflow-io is not installed.")


def note_import(name: str, importer: dict[str, Any]) -> None:
    """Notes that a module imports tensorflow-io."""
    if name.split(".")[0] == LIBRARY and not any(importer is one for one in _importing):
        _importing.append(importer)


def wrap_ready(ready: Callable[[dict[str, Any]], bool]) -> None:
    """Wraps the functions of the noted modules that are ready.

    Args:
        ready: Returns whether the module with this namespace has defined its functions.
    """
    if not _importing:
        return  # the case for nearly every import
    namespaces = [one for one in _importing if ready(one)]
    # By identity, because comparing namespaces would compare their contents.
    _importing[:] = [one for one in _importing if not any(one is other for other in namespaces)]
    for namespace in namespaces:
        _wrap_functions(namespace)


def is_imported(namespace: dict[str, Any]) -> bool:
    """Returns whether the import of a module has finished."""
    spec = namespace.get("__spec__")
    return spec is not None and not getattr(spec, "_initializing", False)


def _wrap_functions(namespace: dict[str, Any]) -> None:
    from tensorflow.python.util import tf_decorator

    values = _values(namespace)
    for name in _functions_that_use(namespace):
        function = namespace[name]
        wrapper = _wrapper(function, name, namespace, values)
        namespace[name] = tf_decorator.make_decorator(function, wrapper)


def _wrapper(
    function: Callable[..., Any], name: str, namespace: dict[str, Any], values: dict[str, bytes]
) -> Callable[..., Any]:
    # The program may change to another folder.
    place = f"{os.path.abspath(str(namespace.get('__file__')))}:{name}"

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NotMovableError:
            raise  # from a function that this one has called
        except NativeOpsError as error:
            if _has_graph_tensors(args, kwargs):
                raise  # part of a pipeline whose enclosing function has no such arguments
            problem = (
                _imports.returns_nothing(namespace, name)
                or _changed(namespace, values)
                or _unpicklable(args, kwargs)
                or _imports.side_effect(namespace)
            )
            if problem:
                raise NotMovableError(
                    f"{place} needs native ops of tensorflow-io, which don't load in this "
                    f"process. It can't be run in another one: {problem}. {_MOVE}"
                ) from error
        return _there(place, args, kwargs)

    return call


def _has_graph_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    import tensorflow as tf

    values = tf.nest.flatten([args, kwargs])
    return tf.inside_function() and any(isinstance(value, tf.Tensor) for value in values)


def _there(place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    print(f"tf-tpu: {place} runs where tensorflow-io's native ops load.", file=sys.stderr)
    return _client.start(place, args, kwargs, legacy=True)


def _values(namespace: dict[str, Any]) -> dict[str, bytes]:
    """Returns a module's contents, apart from modules, functions and classes."""
    result = {}
    for name, value in namespace.items():
        if name.startswith("__") or isinstance(value, (types.ModuleType, type)) or callable(value):
            continue
        result[name] = _pickled(value)
    return result


def _changed(namespace: dict[str, Any], before: dict[str, bytes]) -> str:
    now = _values(namespace)
    for name in sorted({*now, *before}):
        if now.get(name) != before.get(name):
            return f"{name} of the module has changed since its import"
    return ""


def _unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    for name, value in [*enumerate(args, 1), *kwargs.items()]:
        if not _pickled(value):
            return f"argument {name} is a {type(value).__name__}, which can't be pickled"
    return ""


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # the value's class may run any code
        return b""


def _functions_that_use(namespace: dict[str, Any]) -> set[str]:
    """Returns a module's functions that use tensorflow-io, directly or through each other."""
    functions = {
        name: value
        for name, value in namespace.items()
        if isinstance(value, types.FunctionType) and value.__globals__ is namespace
    }
    used = {name for name, value in namespace.items() if _is_of_library(value)}
    found: set[str] = set()
    while True:
        more = {
            name
            for name, function in functions.items()
            if name not in found and used & set(_names(function.__code__))
        }
        if not more:
            return found
        found |= more
        used |= more


def _is_of_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else ""
    name = name or getattr(value, "__module__", None) or ""
    return str(name).split(".")[0] == LIBRARY


def _names(code: types.CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
