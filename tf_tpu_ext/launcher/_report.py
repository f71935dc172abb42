"""The report of `tf-tpu run`: steps, compilations, clusters."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
import sys
import time
from typing import Any, TextIO

import tf_tpu_ext
from tf_tpu_ext import _workers
from tf_tpu_ext.launcher import _progress


@dataclasses.dataclass(frozen=True)
class Report:
    """The report that `tf-tpu run` prints at the end.

    Attributes:
        cores: Number of virtual cores.
        seconds: Seconds from the beginning to the end of the script.
        training_steps: Number of steps in estimators' `train` calls.
        training_seconds: Seconds spent in these calls, including compilation.
        launches: How many times programs were started; a loop inside a program counts once.
        compilations: Number of compilations, including failed ones.
        compilation_seconds: Seconds spent on compilations.
        clusters: Number of outside compilation clusters in the programs that ran.
        folded_clusters: How many of the clusters were folded.
        host_calls: Number of calls to clusters, over all replicas.
        bytes_to_host: Total size of the clusters' arguments, in bytes.
        bytes_to_device: Total size of their results, in bytes.
        paddable_elements: Number of elements, including padding, of inputs that may be padded.
        padding_elements: How many of them were padding.
        workers: Number of workers that have the cores; 0 if this process has them. If there are
            workers, cores, launches and compilations are theirs, and clusters are not counted.
        messages_between_workers: How many messages the workers have sent each other.
        bytes_between_workers: Total size of these messages, in bytes.
        wait_seconds_between_workers: Total seconds that the workers have waited for messages.
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
    workers: int = 0
    messages_between_workers: int = 0
    bytes_between_workers: int = 0
    wait_seconds_between_workers: float = 0.0

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
        if self.workers:
            lines.append(
                f"tf-tpu: {self.workers} workers sent each other {self.messages_between_workers} "
                f"messages, {self.bytes_between_workers} bytes; they waited "
                f"{self.wait_seconds_between_workers:.1f} s for these"
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


def progress(stream: TextIO, line_seconds: float) -> contextlib.AbstractContextManager[None]:
    """Shows what is happening, here or on the workers, while the body runs."""
    ask = _progress.of_process
    if _workers.known:
        ask = functools.partial(_progress.of_workers, _workers.known)
    return _progress.shown(stream, ask, line_seconds)


class Recorder:
    """Records the data for a `Report`."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def finish(self) -> Report:
        """Returns the report."""
        stats = tf_tpu_ext.compilation_stats()
        transfers = tf_tpu_ext.transfer_stats()
        clusters = transfers.clusters
        # Loaded only if the script has used estimators.
        training: Any = sys.modules.get("tf_tpu_ext.estimator._training_time")
        report = Report(
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
        return with_workers(report) if _workers.known else report


def with_workers(report: Report) -> Report:
    """Returns this process's report, with what its workers have done added."""
    import tensorflow as tf

    try:
        workers = [_workers.describe(address) for address in _workers.known]
    except tf.errors.OpError as error:
        # This may be what has ended the program.
        print(f"tf-tpu: the report lacks the workers: {error.message}", file=sys.stderr)
        return report
    totals = {
        name: sum(worker[name] for worker in workers)
        for name in ("cores", "launches", "compilations", "compilation_seconds")
    }
    return dataclasses.replace(
        report,
        **totals,
        workers=len(workers),
        messages_between_workers=sum(worker["messages"] for worker in workers),
        bytes_between_workers=sum(worker["bytes"] for worker in workers),
        wait_seconds_between_workers=sum(worker["wait_seconds"] for worker in workers),
    )
