"""Feeds this TensorFlow from tensorflow-io pipelines, whose native ops need TensorFlow 2.17.

A pipeline is a function in a separate file that returns a `tf.data.Dataset`. `dataset` runs it in a
process of another environment, which the command `tf-tpu io setup` creates once, and returns a
dataset with the same elements. See docs/tensorflow_io.md.
"""

from __future__ import annotations

from tf_tpu_ext.io._client import dataset
from tf_tpu_ext.io._environment import MissingEnvironmentError
from tf_tpu_ext.io._errors import PipelineError

__all__ = ["MissingEnvironmentError", "PipelineError", "dataset"]
