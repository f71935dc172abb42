"""The modules in which programs look up TensorFlow's public names."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import tensorflow as tf


def public_modules(version: str) -> list[Any]:
    """Returns the modules that programs know as `tf.compat.v1` or `tf.compat.v2`.

    There are up to three: the attribute of `tf.compat`; the module that `import
    tensorflow.compat.v1` returns and substitutes for the attribute; and the generated module, which
    was the attribute before that import.

    Args:
        version: `"v1"` or `"v2"`.
    """
    generated = sys.modules.get(f"tensorflow._api.v2.compat.{version}")
    modules = [
        getattr(tf.compat, version),
        importlib.import_module(f"tensorflow.compat.{version}"),
        *([generated] if generated is not None else []),
    ]
    return list({id(module): module for module in modules}.values())
