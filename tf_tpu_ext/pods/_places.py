"""Finds the hosts of a pod, and which of them this one is."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

# As on Cloud TPUs.
DEFAULT_PORT = 8470
PORT_VARIABLE = "TPU_TASK_PORT"


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a host in a pod.

    Attributes:
        hosts: The addresses of all hosts, `name:port`, in the order of their tasks.
        task: The index of this host among them.
    """

    hosts: tuple[str, ...]
    task: int

    @property
    def port(self) -> int:
        """The port on which this host listens."""
        return int(self.hosts[self.task].rpartition(":")[2])

    def at_port(self, port: int) -> Place:
        """Returns the same place, with this host listening on a different port."""
        hosts = list(self.hosts)
        hosts[self.task] = f"{hosts[self.task].rpartition(':')[0]}:{port}"
        return dataclasses.replace(self, hosts=tuple(hosts))

    @property
    def master(self) -> str:
        """The address that programs pass to `TPUClusterResolver`.

        Example:
            >>> from tf_tpu_ext import pods
            >>> pods.Place(("a:8470", "b:8470"), task=1).master
            'grpc://a:8470,grpc://b:8470'
        """
        return ",".join(f"grpc://{host}" for host in self.hosts)


def find_place(
    port: int | None = None,
    name: str = "localhost",
    environment: Mapping[str, str] = os.environ,
) -> Place:
    """Returns this host's place: from `TF_CONFIG`, from Slurm, or else in a pod of its own.

    Args:
        port: The port on which it listens; None for the one from `TF_CONFIG` or `TPU_TASK_PORT`, or
            8470.
        name: The host's name if neither `TF_CONFIG` nor Slurm gives one.
        environment: Environment variables.

    Raises:
        ValueError: A variable is invalid or contradicts the port.

    Example:
        >>> from tf_tpu_ext import pods
        >>> pods.find_place(environment={"TPU_TASK_PORT": "9000"}).master
        'grpc://localhost:9000'
    """
    if config := environment.get("TF_CONFIG"):
        place = _of_tf_config(config)
        if port not in (None, place.port):
            raise ValueError(
                f"The port is {port}, but in TF_CONFIG this host is {place.hosts[place.task]}. "
                "Leave out one of them."
            )
        return place
    if port is None:
        port = _port_of(environment.get(PORT_VARIABLE, str(DEFAULT_PORT)))
    if "SLURM_STEP_NODELIST" in environment and int(environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        return _of_slurm(environment, port)
    return Place((f"{name}:{port}",), 0)


def _of_tf_config(text: str) -> Place:
    try:
        config = json.loads(text)
        task = config["task"]
        hosts, index = config["cluster"][task["type"]], int(task["index"])
        place = Place(tuple(str(host) for host in hosts), index)
        if index < 0 or not all(0 < int(host.rpartition(":")[2]) < 1 << 16 for host in hosts):
            raise ValueError("a port or the task is out of range")
        place.port  # noqa: B018  (an IndexError if there is no such task)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"TF_CONFIG is {text!r} ({type(error).__name__}: {error}), expected such as "
            '{"cluster": {"worker": ["a:8470", "b:8470"]}, "task": {"type": "worker", "index": 0}}.'
        ) from None
    return place


def _of_slurm(environment: Mapping[str, str], port: int) -> Place:
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm

    try:
        names = slurm.expand_hostlist(environment["SLURM_STEP_NODELIST"])
        counts = slurm.expand_tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
        task = int(environment["SLURM_PROCID"])
        # Tasks on one machine use consecutive ports.
        hosts = [
            f"{name}:{port + offset}"
            for name, count in zip(names, counts, strict=True)
            for offset in range(count)
        ]
        return Place(tuple(hosts), range(len(hosts))[task])
    except (KeyError, ValueError, IndexError) as error:
        given = {name: value for name, value in environment.items() if name.startswith("SLURM_")}
        raise ValueError(
            f"Slurm's variables name no place for this task ({type(error).__name__}: {error}): "
            f"{given}. Start one worker a node by `srun --ntasks-per-node=1 tf-tpu worker`."
        ) from None


def _port_of(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ValueError(f"{PORT_VARIABLE} is {text!r}, expected the number of a port.")
    return int(text)
