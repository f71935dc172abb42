"""`dataset`: a pipeline from another environment as a dataset in this one."""

from __future__ import annotations

import pickle
from typing import Any

import tensorflow as tf

from tf_tpu_ext.io import _environment, _reading
from tf_tpu_ext.io._processes import Processes

# The protocol that the oldest Python version in the other environment can read.
_PICKLE = 4


def dataset(
    function: str,
    *args: Any,
    python: str | None = None,
    readers: int = 1,
    processes: int = 1,
    processing_mode: Any = None,
    **kwargs: Any,
) -> Any:
    """Runs a pipeline where tensorflow-io's native ops load, and returns its elements here.

    The function is called in a new process, under TensorFlow 2.17 from the environment that
    `tf-tpu io setup` has created. It returns a `tf.data.Dataset`, whose elements are passed to this
    process in shared memory while the next ones are being read. Errors from the function and its
    elements arrive with their tracebacks. The process ends with the dataset or the program.

    Args:
        function: The function: `FILE.py:NAME`, with a path, or `package.module:NAME`.
        *args: The function's positional arguments. They are pickled.
        python: The interpreter of another environment, with TensorFlow 2.16 or 2.17 and
            tensorflow-io.
        readers: How many iterations of the dataset read at the same time. A single reader preserves
            the order of the elements.
        processes: How many processes the readers are divided among.
        processing_mode: What the readers read, in tf.data service terms. With `"parallel_epochs"`
            or the `tf.data.experimental.service.ShardingPolicy` `OFF`, each reads the whole
            dataset. With `"distributed_epoch"` or the policy `DYNAMIC`, `FILE`, `DATA`,
            `FILE_OR_DATA` or `HINT`, each reads a part. The default is `"parallel_epochs"` for one
            reader and `"distributed_epoch"` for more.
        **kwargs: The function's keyword arguments, with names other than those above.

    Returns:
        A `tf.data.Dataset` with the element spec of the function's dataset.

    Raises:
        MissingEnvironmentError: There is no environment, or no such interpreter.
        PipelineError: The function raised an error, which the message contains, or was not ready
            within the wait limit.
        ValueError: An argument is invalid.

    Example:
        >>> import pathlib, tempfile
        >>> import tf_tpu_ext.io
        >>> pipeline = pathlib.Path(tempfile.mkdtemp()) / "pipeline.py"
        >>> _ = pipeline.write_text('''
        ... import tensorflow as tf
        ... import tensorflow_io as tfio
        ...
        ... def make_dataset(words):
        ...     words = tf.data.Dataset.from_tensor_slices(words)
        ...     return words.map(lambda word: tfio.experimental.text.re2_full_match(word, "t.*")[0])
        ... ''')
        >>> matches = tf_tpu_ext.io.dataset(f"{pipeline}:make_dataset", ["tpu", "cpu"])
        >>> [bool(match) for match in matches]
        [True, False]
    """
    return start(
        function,
        args,
        kwargs,
        python=python,
        readers=readers,
        processes=processes,
        processing_mode=processing_mode,
    )


def start(
    function: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    python: str | None = None,
    readers: int = 1,
    processes: int = 1,
    processing_mode: Any = None,
    legacy: bool = False,
) -> Any:
    """Does what `dataset` does, and also supports TensorFlow 1 modules."""
    place, colon, name = function.rpartition(":")
    if not (place and colon and name):
        raise ValueError(
            f"function is {function!r}, expected FILE.py:NAME or package.module:NAME, for example "
            "'pipeline.py:make_dataset'."
        )
    if not 1 <= processes <= readers:
        raise ValueError(
            f"readers is {readers} and processes is {processes}, expected at least one process, "
            "and a reader for each."
        )
    if processing_mode is None:
        processing_mode = "parallel_epochs" if readers == 1 else "distributed_epoch"
    _check_mode(processing_mode)
    interpreter = _environment.interpreter(python)
    started = Processes(
        str(interpreter),
        _environment.variables(own=python is None),
        function,
        pickle.dumps((args, kwargs), protocol=_PICKLE),
        legacy,
        [readers // processes + (number < readers % processes) for number in range(processes)],
        getattr(processing_mode, "name", processing_mode),
    )
    started.start()
    return _reading.dataset_of(_reading.Source(started), legacy)


def _check_mode(mode: Any) -> None:
    """Checks a processing mode.

    Raises:
        ValueError: tf.data service has no such mode.
    """
    names = ("parallel_epochs", "distributed_epoch")
    policies = tf.data.experimental.service.ShardingPolicy
    if mode not in names and not isinstance(mode, policies):
        raise ValueError(
            f"processing_mode is {mode!r}, expected one of {names} or a "
            "tf.data.experimental.service.ShardingPolicy."
        )
