"""What a resolver of the virtual cores answers where a program asks for its Cloud TPU."""

from __future__ import annotations

import logging

from tf_tpu_ext._machine import machine

_log = logging.getLogger("tf_tpu_ext")


class VirtualTpuClient:
    """Answers as `tensorflow.python.tpu.client.client.Client` does for a TPU that is ready.

    Attached to every TPUClusterResolver of the virtual cores: programs ask it, as
    `resolver._cloud_tpu_client`, to wait for the TPU or to choose its software. There is nothing
    to wait for, and the software is the TensorFlow of this process.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """Returns the name that the program gave its TPU; 'local' where it gave none."""
        return self._name

    def api_available(self) -> bool:
        """Returns False: there is no Cloud TPU API to ask."""
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
        """Returns the version of this process' TensorFlow, which is what the cores run."""
        import tensorflow as tf

        return str(tf.__version__)

    def accelerator_type(self) -> str:
        """Returns the type as Cloud TPU writes it: the number of cores follows the generation."""
        return f"v2-{machine().cores}"

    def get_local_ip(self) -> str:
        return "127.0.0.1"

    def network_endpoints(self) -> list[dict[str, str]]:
        """Returns no endpoint: the cores are in this process and are not reached by a network."""
        return []

    def wait_for_healthy(self, timeout_s: float = 1200, interval: float = 30) -> None:
        """Returns at once, since virtual cores are never away."""
        del timeout_s, interval

    def configure_tpu_version(self, version: str, restart_type: str = "always") -> None:
        """Keeps the TensorFlow of this process, and logs that another was asked for."""
        del restart_type
        if version != self.runtime_version():
            _log.info(
                "TensorFlow %s was asked for on TPU %r; virtual cores run TensorFlow %s, that of "
                "this process.",
                version,
                self._name,
                self.runtime_version(),
            )

    def enter(self) -> None:
        """What the resolver's `with` calls first."""

    def exit(self, *exception: object) -> None:
        """What the resolver's `with` calls last."""
