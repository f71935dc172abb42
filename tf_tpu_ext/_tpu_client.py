"""The Cloud TPU client of a resolver for the virtual cores."""

from __future__ import annotations

import logging

from tf_tpu_ext._machine import machine

_log = logging.getLogger("tf_tpu_ext")


class VirtualTpuClient:
    """Behaves like `tensorflow.python.tpu.client.client.Client` for a TPU that is ready.

    It is the `_cloud_tpu_client` of every TPUClusterResolver for the virtual cores.
    Programs use it to wait for the TPU, or to choose its TensorFlow version. Here the TPU is always
    ready, and its version is that of this process.
    """

    def __init__(self, name: str, job: str | None = None) -> None:
        self._name = name
        # The job name by which the program's graphs know the TPU, if the program has chosen one.
        self.job = job

    def name(self) -> str:
        """Returns the TPU name that the program gave, or 'local' if it gave none."""
        return self._name

    def api_available(self) -> bool:
        """Returns False, since there is no Cloud TPU API."""
        return False

    def state(self) -> str:
        return "READY"

    def health(self) -> str:
        return "HEALTHY"

    def symptoms(self) -> list[dict[str, str]]:
        return []

    def recoverable(self) -> bool:
        return True

    def runtime_version(self) -> str:
        """Returns the version of TensorFlow in this process, which the cores run."""
        import tensorflow as tf

        return str(tf.__version__)

    def accelerator_type(self) -> str:
        """Returns the type in the format of Cloud TPU: the generation, then the number of cores."""
        return f"v2-{machine().cores}"

    def get_local_ip(self) -> str:
        return "127.0.0.1"

    def network_endpoints(self) -> list[dict[str, str]]:
        """Returns no endpoints, since the cores are in this process."""
        return []

    def wait_for_healthy(self, timeout_s: float = 1200, interval: float = 30) -> None:
        """Returns immediately, since virtual cores are always ready."""
        del timeout_s, interval

    def configure_tpu_version(self, version: str, restart_type: str = "always") -> None:
        """Logs that another version was requested. The version does not change."""
        del restart_type
        if version != self.runtime_version():
            _log.info(
                "TensorFlow %s was requested for TPU %r; virtual cores run TensorFlow %s, the "
                "version of this process.",
                version,
                self._name,
                self.runtime_version(),
            )

    def enter(self) -> None:
        """Does nothing. The resolver calls it at the beginning of its `with` block."""

    def exit(self, *exception: object) -> None:
        """Does nothing. The resolver calls it at the end of its `with` block."""
