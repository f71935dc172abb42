"""TensorFlow's server in this process, for programs whose graphs name the TPU's job.

A session without a target names its devices `/job:localhost/...`, whatever job the program asked
for. A session with a server's target and a cluster uses the cluster's names, if the server has a
different name for itself, as Cloud TPU servers do.
"""

from __future__ import annotations

import threading
from typing import Any

_JOB = "tpu_worker"
_lock = threading.Lock()
# TensorFlow can't stop a server: it exists as long as the process lives.
_servers: list[Any] = []


def target() -> str:
    """Returns the target of the server, starting it if necessary.

    It listens on the loopback interface, like every server that TensorFlow starts in this process
    from then on.

    Raises:
        RuntimeError: The server can't be restricted to the loopback interface.
    """
    import tensorflow as tf

    # Its package imports TensorFlow, and this module is imported before TensorFlow.
    from tf_tpu_ext.io.server import listening

    with _lock:
        if not _servers:
            listening.install()
            _servers.append(
                tf.distribute.Server({_JOB: [f"{listening.LOOPBACK}:0"]}, job_name=_JOB)
            )
            listening.check()
        return str(_servers[0].target)
