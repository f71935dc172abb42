"""What a run did: steps, compilations, clusters."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time
from typing import Any

import tf_tpu_ext


@dataclasses.dataclass(frozen=True)
class Report:
    """What `tf-tpu run` tells at the end.

    Attributes:
        cores: Number of virtual cores.
        seconds: Time from the script's first line to its last.
        training_steps: Steps of `train` calls of estimators; 0 if there were none.
        training_seconds: Time within these calls, compilations included.
        launches: How often programs were started; a loop within a program counts once.
        compilations: Number of programs that were compiled, failed ones included.
        compilation_seconds: Time spent in that.
        clusters: Number of outside compilation clusters in the computations that were run.
        folded_clusters: How many of them the programs called by themselves.
        host_calls: How often programs called clusters, of all replicas.
        bytes_to_host: Bytes of the clusters' arguments.
        bytes_to_device: Bytes of their results.
        paddable_elements: Elements of inputs that may be padded, padding included.
        padding_elements: How many of them were padding.
    """

    cores: int
    seconds: float
    training_steps: int
    training_seconds: float
    launches: int
    compilations: int
    compilation_seconds: float
    clusters: int
    folded_clusters: int
    host_calls: int
    bytes_to_host: int
    bytes_to_device: int
    paddable_elements: int
    padding_elements: int

    @property
    def steps_per_second(self) -> float:
        """Training steps per second; 0 if there were none."""
        return self.training_steps / self.training_seconds if self.training_seconds else 0.0

    @property
    def padding_waste(self) -> float:
        """The share of padding in inputs that may be padded, from 0 to 1."""
        return self.padding_elements / self.paddable_elements if self.paddable_elements else 0.0

    def text(self) -> str:
        """Returns the report for people."""
        lines = [f"tf-tpu: {self.cores} virtual cores, {self.seconds:.1f} s"]
        if self.training_steps:
            lines.append(
                f"tf-tpu: {self.training_steps} training steps, {self.steps_per_second:.1f} steps/s"
            )
        lines.append(
            f"tf-tpu: {self.compilations} compilations in {self.compilation_seconds:.1f} s, "
            f"{self.launches} launches"
        )
        if self.clusters:
            lines.append(
                f"tf-tpu: {self.clusters} outside compilation clusters, {self.host_calls} calls, "
                f"{self.bytes_to_host} bytes to the host, {self.bytes_to_device} bytes back"
            )
        if self.padding_elements:
            lines.append(f"tf-tpu: padding waste: {100 * self.padding_waste:.1f} %")
        return "\n".join(lines)

    def write(self, path: str) -> None:
        """Writes the report as one JSON object."""
        told = {
            **dataclasses.asdict(self),
            "steps_per_second": self.steps_per_second,
            "padding_waste": self.padding_waste,
        }
        pathlib.Path(path).write_text(json.dumps(told) + "\n")


class Recorder:
    """Watches the process for a `Report`."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def finish(self) -> Report:
        """Returns the report."""
        stats = tf_tpu_ext.compilation_stats()
        transfers = tf_tpu_ext.transfer_stats()
        clusters = transfers.clusters
        # It is there if the script has used estimators.
        training: Any = sys.modules.get("tf_tpu_ext.estimator._training_time")
        return Report(
            cores=tf_tpu_ext.machine().cores,
            seconds=time.monotonic() - self._start,
            training_steps=training.totals.steps if training else 0,
            training_seconds=training.totals.seconds if training else 0.0,
            launches=stats.hits + sum(not program.error for program in stats.programs),
            compilations=stats.compilations,
            compilation_seconds=stats.seconds,
            clusters=len(clusters),
            folded_clusters=sum(cluster.folded for cluster in clusters),
            host_calls=sum(cluster.calls for cluster in clusters),
            bytes_to_host=sum(cluster.bytes_to_host for cluster in clusters),
            bytes_to_device=sum(cluster.bytes_to_device for cluster in clusters),
            paddable_elements=transfers.paddable_elements,
            padding_elements=transfers.padding_elements,
        )
