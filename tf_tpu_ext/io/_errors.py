"""The error that a pipeline raises."""

from __future__ import annotations


class PipelineError(RuntimeError):
    r"""A pipeline failed in its process, or the process died or stalled.

    `dataset` raises it if the pipeline can't be created. While elements are being read, the step
    that needs them fails with a `tf.errors.OpError`, whose message contains all of this one's.

    Example:
        >>> import pathlib, tempfile
        >>> import tf_tpu_ext.io
        >>> pipeline = pathlib.Path(tempfile.mkdtemp()) / "pipeline.py"
        >>> _ = pipeline.write_text("def make_dataset():\n    return missing")
        >>> try:
        ...     tf_tpu_ext.io.dataset(f"{pipeline}:make_dataset")
        ... except tf_tpu_ext.io.PipelineError as error:
        ...     print(str(error).splitlines()[-1])
        NameError: name 'missing' is not defined
    """
