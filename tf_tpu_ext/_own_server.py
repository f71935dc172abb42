"""TensorFlow's server in this process, for programs whose graphs name the TPU's job.

A session without a target calls its devices `/job:localhost/...`, whatever job the program has
asked for. One with the target of a server and a cluster calls them as the cluster does, if the
server has another name for itself, as those of Cloud TPUs have.
"""

from __future__ import annotations

import threading
from typing import Any

_JOB = "tpu_worker"
_lock = threading.Lock()
# TensorFlow can't stop a server: it is there as long as the process lives.
_servers: list[Any] = []


def target() -> str:
    """Returns the target of the server, which this starts if necessary.

    It listens on the loopback interface, as every server that TensorFlow starts in this process
    from then on.

    Raises:
        RuntimeError: The server can't be kept to the loopback interface.
    """
    import tensorflow as tf

    # Its package imports TensorFlow, and this module is imported before.
    from tf_tpu_ext.io.server import listening

    with _lock:
        if not _servers:
            listening.install()
            _servers.append(
                tf.distribute.Server({_JOB: [f"{listening.LOOPBACK}:0"]}, job_name=_JOB)
            )
            listening.check()
        return str(_servers[0].target)
