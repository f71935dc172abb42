"""The modules that TensorFlow's public names are looked up in."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import tensorflow as tf


def public_modules(version: str) -> list[Any]:
    """Returns the modules that programs know as `tf.compat.v1` or `tf.compat.v2`.

    There are several: the attribute, what `import tensorflow.compat.v1` gives (and puts in the
    attribute's place), and the generated module, which programs may have kept as the attribute of
    before.

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
