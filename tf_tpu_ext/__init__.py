"""Virtual TPU cores: runs unmodified TensorFlow programs for TPUs on a machine without a TPU.

A program only has to import this package before TensorFlow's first operation:

    >>> import tf_tpu_ext
    >>> import tensorflow as tf
    >>> resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    >>> _ = tf.tpu.experimental.initialize_tpu_system(resolver)
    >>> strategy = tf.distribute.TPUStrategy(resolver)
    >>> strategy.num_replicas_in_sync
    8

Each name lives in one module:

| Module | Contents |
|---|---|
| `tf_tpu_ext` | the machine's settings and statistics, and `tf.contrib`'s strategy |
| `tf_tpu_ext.tpu` | the functions of `tf.compat.v1.tpu`, which also work eagerly |
| `tf_tpu_ext.towers` | what belongs to that strategy: tower contexts, datasets, and so on |
| `tf_tpu_ext.contrib` | `install()` for programs that import `tf.contrib` |
| `tf_tpu_ext.io` | tensorflow-io pipelines, run under the TensorFlow version they were built for |
| `tf_tpu_ext.verdict` | what a real TPU's compiler says about programs: the records of `verdicts` |
| `tf_tpu_ext.patches` | every change to TensorFlow's Python, and how to undo it |
| `tf_tpu_ext.estimator` | TPUEstimator; needs `pip install 'tf_tpu_ext[estimator]'` |
"""

from __future__ import annotations

import warnings
from typing import Any

from tf_tpu_ext import _native, patches

if _native.load():
    from tf_tpu_ext import _forks, _machine

    _machine.configure_from_environment()
    patches.apply()
    _forks.watch()

from tf_tpu_ext import contrib, io, towers, tpu, verdict
from tf_tpu_ext._compilations import (
    Argument,
    Change,
    Compilation,
    CompilationStats,
    compilation_stats,
)
from tf_tpu_ext._findings import Finding, findings
from tf_tpu_ext._machine import (
    Cluster,
    Machine,
    PaddedInput,
    TransferStats,
    configure,
    is_virtual,
    machine,
    transfer_stats,
)
from tf_tpu_ext._options import Options
from tf_tpu_ext._page import report
from tf_tpu_ext._version import VERSION
from tf_tpu_ext.towers import TPUStrategy
from tf_tpu_ext.verdict import compile_for, verdicts
from tf_tpu_ext.verdict._records import Verdict

__version__ = VERSION

__all__ = [
    "Argument",
    "Change",
    "Cluster",
    "Compilation",
    "CompilationStats",
    "Finding",
    "Machine",
    "Options",
    "PaddedInput",
    "TPUStrategy",
    "TransferStats",
    "Verdict",
    "compilation_stats",
    "compile_for",
    "configure",
    "contrib",
    "findings",
    "io",
    "is_virtual",
    "machine",
    "patches",
    "report",
    "towers",
    "tpu",
    "transfer_stats",
    "verdict",
    "verdicts",
]


def __getattr__(name: str) -> Any:
    """Looks up a name that has moved to `tpu` or `towers`, and warns."""
    for module in (tpu, towers):
        if name in module.__all__:
            warnings.warn(
                f"tf_tpu_ext.{name} is deprecated. Write {module.__name__}.{name}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
