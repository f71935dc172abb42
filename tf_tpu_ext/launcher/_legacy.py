"""Gives a script the TensorFlow 1 that it was written for.

`import tensorflow as tf` has the names of TensorFlow 1 in the script and in what it imports, except
in packages that belong to TensorFlow and are written for version 2.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_tpu_ext import patches
from tf_tpu_ext.patches._changes import Changes

# Packages that know TensorFlow 2: by the beginnings of their names, where they are installed.
_FAMILY = ("tensorflow", "tensorboard", "keras", "tf_keras", "tf_tpu_ext", "tf_slim", "jax")
# NumPy has dropped these since.
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
    """`tensorflow` with the names of TensorFlow 1, and those of today where it had none."""

    def __init__(self, tensorflow: types.ModuleType, names: types.ModuleType) -> None:
        super().__init__(tensorflow.__name__, tensorflow.__doc__)
        self.__path__ = tensorflow.__path__
        self.__file__ = tensorflow.__file__
        self.__spec__ = tensorflow.__spec__
        self._tensorflow = tensorflow
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name == "compat":
            # `import tensorflow.compat.v1 as tf` goes this way, to where estimators are.
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
    """Makes it so for all that is imported from now on.

    Raises:
        ImportError: tensorflow-estimator or tf_keras is not installed.
    """
    if importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            "TensorFlow 1's tf.layers and tf.keras need the package tf_keras, which is not "
            "installed. Run: pip install 'tf_tpu_ext[estimator]'"
        )
    patches.apply("legacy")
    import tensorflow as tf

    import tf_tpu_ext.contrib
    import tf_tpu_ext.estimator

    tf_tpu_ext.estimator.install()
    tf_tpu_ext.contrib.install()
    tf.compat.v1.disable_v2_behavior()


def use_legacy_keras(changes: Changes) -> None:
    """Chooses Keras 2; Keras reads the variable when it is first used."""
    changes.put_item(os.environ, "TF_USE_LEGACY_KERAS", "1")


def replace_import(changes: Changes) -> None:
    """Lets `import tensorflow` give the names of TensorFlow 1 where they are wanted."""
    tensorflow = importlib.import_module("tensorflow")
    # `import tensorflow.compat.v1` gives another module than the attribute.
    view = TensorFlow1(tensorflow, importlib.import_module("tensorflow.compat.v1"))
    changes.wrap(builtins, "__import__", functools.partial(_import_of, tensorflow, view))


def _import_of(
    tensorflow: types.ModuleType, view: types.ModuleType, stock: Callable[..., Any]
) -> Callable[..., Any]:
    installed = tuple(
        os.path.join(os.path.realpath(sysconfig.get_path(name)), "")
        for name in ("purelib", "platlib", "stdlib")
    )

    def is_for_today(importer: Mapping[str, Any] | None) -> bool:
        if importer is None:
            return False
        if not os.path.realpath(importer.get("__file__") or "").startswith(installed):
            return _top_level(importer) == "tf_tpu_ext"
        return _top_level(importer).startswith(_FAMILY)

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = stock(name, globals, locals, fromlist or (), level)
        return view if module is tensorflow and not is_for_today(globals) else module

    return import_


def _top_level(importer: Mapping[str, Any]) -> str:
    return str(importer.get("__name__") or "").split(".")[0]


def supply_numpy_names(changes: Changes) -> None:
    """Gives NumPy the names again that it has dropped."""
    import numpy as np

    missing = {name: value for name, value in _NUMPY_NAMES.items() if not _has(np, name)}
    missing.update(
        (name, getattr(np, today)) for name, today in _NUMPY_ALIASES.items() if not _has(np, name)
    )
    for name, value in missing.items():
        changes.put(np, name, value)


def _has(module: types.ModuleType, name: str) -> bool:
    import warnings

    with warnings.catch_warnings():
        # NumPy 1 warns of names that NumPy 2 has under another meaning.
        warnings.simplefilter("ignore")
        return hasattr(module, name)
