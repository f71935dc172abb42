"""The report of `tf-tpu run`: steps, compilations, clusters."""

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
    """The report that `tf-tpu run` prints at the end.

    Attributes:
        cores: Number of virtual cores.
        seconds: Seconds from the beginning to the end of the script.
        training_steps: Number of steps in `train` calls of estimators.
        training_seconds: Seconds spent in these calls, compilations included.
        launches: How many times programs were started; a loop inside a program counts once.
        compilations: Number of compilations, failed ones included.
        compilation_seconds: Seconds spent on compilations.
        clusters: Number of outside compilation clusters in the programs that ran.
        folded_clusters: How many of the clusters were folded.
        host_calls: Number of calls of clusters, over all replicas.
        bytes_to_host: Total size of the clusters' arguments, in bytes.
        bytes_to_device: Total size of their results, in bytes.
        paddable_elements: Number of elements, padding included, of inputs that may be padded.
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
        """The fraction of `paddable_elements` that was padding, from 0.0 to 1.0."""
        return self.padding_elements / self.paddable_elements if self.paddable_elements else 0.0

    def text(self) -> str:
        """Returns the report as text."""
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
        fields = {
            **dataclasses.asdict(self),
            "steps_per_second": self.steps_per_second,
            "padding_waste": self.padding_waste,
        }
        pathlib.Path(path).write_text(json.dumps(fields) + "\n")


class Recorder:
    """Records what a `Report` needs."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def finish(self) -> Report:
        """Returns the report."""
        stats = tf_tpu_ext.compilation_stats()
        transfers = tf_tpu_ext.transfer_stats()
        clusters = transfers.clusters
        # Loaded only if the script has used estimators.
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
