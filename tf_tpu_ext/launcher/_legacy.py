"""Makes `import tensorflow` give a script TensorFlow 1's names and behavior.

This applies to the script and the modules that it imports, except for packages that are written for
version 2: those that belong to TensorFlow, and those that need JAX.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from tf_tpu_ext import patches
from tf_tpu_ext.contrib import _names
from tf_tpu_ext.io import _environment
from tf_tpu_ext.launcher import _pipelines
from tf_tpu_ext.patches._changes import Changes

# Name prefixes of installed packages that are written for TensorFlow 2.
_FAMILY = ("tensorflow", "tensorboard", "keras", "tf_keras", "tf_tpu_ext", "tf_slim", "jax")
_JAX = re.compile(r"jax(?![\w.-])")
# Names that NumPy has dropped.
_NUMPY_NAMES: dict[str, Any] = {
    "bool": bool,
    "complex": complex,
    "float": float,
    "int": int,
    "object": object,
    "str": str,
    "unicode": str,
}
_NUMPY_ALIASES = {
    "complex_": "complex128",
    "float_": "float64",
    "string_": "bytes_",
    "unicode_": "str_",
}


class TensorFlow1(types.ModuleType):
    """`tensorflow` with TensorFlow 1's names, plus current names that it did not have."""

    def __init__(self, tensorflow: types.ModuleType, names: types.ModuleType) -> None:
        super().__init__(tensorflow.__name__, tensorflow.__doc__)
        self.__path__ = tensorflow.__path__
        self.__file__ = tensorflow.__file__
        self.__spec__ = tensorflow.__spec__
        self._tensorflow = tensorflow
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name == "compat":
            # `import tensorflow.compat.v1 as tf` uses this and needs the one with estimators.
            return self._tensorflow.compat
        try:
            return getattr(self._names, name)
        except AttributeError:
            if name.startswith("__") and name != "__version__":
                raise
        return getattr(self._tensorflow, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._names), *dir(self._tensorflow)})


def install() -> None:
    """Switches TensorFlow to version 1 for everything imported from now on.

    Raises:
        ImportError: tensorflow-estimator or tf_keras is not installed.
    """
    if importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            "TensorFlow 1's tf.layers and tf.keras need the package tf_keras, which is not "
            f"installed. {_names.NEEDS['tf_keras']}"
        )
    patches.apply("legacy")
    import tensorflow as tf

    import tf_tpu_ext.contrib
    import tf_tpu_ext.estimator

    tf_tpu_ext.estimator.install()
    tf_tpu_ext.contrib.install()
    tf.compat.v1.disable_v2_behavior()


def use_legacy_keras(changes: Changes) -> None:
    """Selects Keras 2 through a variable that TensorFlow reads when Keras is first used."""
    changes.put_item(os.environ, "TF_USE_LEGACY_KERAS", "1")


def replace_import(changes: Changes) -> None:
    """Makes `import tensorflow` return TensorFlow 1's names in code written for it."""
    tensorflow = importlib.import_module("tensorflow")
    # `import tensorflow.compat.v1` returns a different module from the attribute.
    view = TensorFlow1(tensorflow, importlib.import_module("tensorflow.compat.v1"))
    if importlib.util.find_spec(_pipelines.LIBRARY) is None and _environment.find() is not None:
        library = _pipelines.MissingLibrary(_pipelines.LIBRARY)
        changes.put_item(sys.modules, _pipelines.LIBRARY, library)
    changes.wrap(builtins, "__import__", functools.partial(_import_of, tensorflow, view))


def _import_of(
    tensorflow: types.ModuleType, view: types.ModuleType, stock: Callable[..., Any]
) -> Callable[..., Any]:
    def folders(*names: str) -> tuple[str, ...]:
        paths = (os.path.realpath(sysconfig.get_path(name)) for name in names)
        return tuple(os.path.join(path, "") for path in paths)

    packages = folders("purelib", "platlib")
    installed = (*packages, *folders("stdlib"))

    def is_for_today(importer: Mapping[str, Any] | None) -> bool:
        if importer is None:
            return False
        file, package = os.path.realpath(importer.get("__file__") or ""), _top_level(importer)
        if not file.startswith(installed):
            return package == "tf_tpu_ext"
        if package.startswith(_FAMILY):
            return True
        # Python's own modules are asked about while metadata is read.
        return file.startswith(packages) and needs_jax(package)

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = stock(name, globals, locals, fromlist or (), level)
        _pipelines.wrap_ready(_pipelines.is_imported)
        if isinstance(globals, dict) and not is_for_today(globals):
            _pipelines.note_import(name, globals)
        return view if module is tensorflow and not is_for_today(globals) else module

    return import_


@functools.cache
def needs_jax(package: str) -> bool:
    """Returns whether an installed package is for JAX too, which is younger than TensorFlow 1."""
    try:
        requirements = metadata.requires(package) or ()
    except metadata.PackageNotFoundError:
        return False
    return any(_JAX.match(one) and "extra ==" not in one for one in requirements)


def _top_level(importer: Mapping[str, Any]) -> str:
    return str(importer.get("__name__") or "").split(".")[0]


def supply_numpy_names(changes: Changes) -> None:
    """Restores names that NumPy has dropped."""
    import numpy as np

    missing = {name: value for name, value in _NUMPY_NAMES.items() if not _has(np, name)}
    missing.update(
        (name, getattr(np, today)) for name, today in _NUMPY_ALIASES.items() if not _has(np, name)
    )
    for name, value in missing.items():
        changes.put(np, name, value)


class ArgSpec(NamedTuple):
    """What `inspect.getargspec` returned."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def supply_getargspec(changes: Changes) -> None:
    """Restores `inspect.getargspec`, which Python 3.11 has dropped."""

    def getargspec(func: Callable[..., Any]) -> ArgSpec:
        spec = inspect.getfullargspec(func)
        if spec.kwonlyargs or spec.annotations:
            # The original did the same.
            raise ValueError(
                "Function has keyword-only parameters or annotations, use "
                "inspect.signature() API which can support them"
            )
        return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)

    changes.supply(inspect, "getargspec", getargspec)


def _has(module: types.ModuleType, name: str) -> bool:
    import warnings

    with warnings.catch_warnings():
        # NumPy 1 warns about names that have another meaning in NumPy 2.
        warnings.simplefilter("ignore")
        return hasattr(module, name)
