"""Hosts that serve their cores to programs on other machines: what `tf-tpu worker` runs.

A worker is TensorFlow's own gRPC server, in a process that has virtual cores. See docs/pods.md.
"""

from __future__ import annotations

from tf_tpu_ext.pods._places import DEFAULT_PORT, Place, find_place
from tf_tpu_ext.pods._serving import serve

__all__ = ["DEFAULT_PORT", "Place", "find_place", "serve"]
