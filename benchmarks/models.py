"""Milliseconds of a step of common models trained with Keras' `fit`, compared with peers.

ResNet50, EfficientNetB0 and a U-Net with 64 x 64 inputs, and a BERT of 4 layers with dropout, in
float32 and in bfloat16, run on n virtual cores (`ours`), under MirroredStrategy on n logical CPUs
(`mirrored`), and as a plain function on the CPU without and with `jit_compile=True` (`plain`,
`jit_compile`), all with the same global batch. Each has its own process, and they take turns.

    pip install '.[cpu,bench]'
    python benchmarks/models.py [--models bert ...] [--replicas 1 2 8] [--peers ours plain ...]
                                [--rounds 5] [--json FILE]

All start with the same weights and data, and none is timed before its first loss is close to the
others' and the loss has moved: dropout and batch normalization differ with the number of replicas.
Prints what steps.py prints, and which targets are met. `--smoke` is a short run with tiny sizes
that only shows that everything works.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib

import step_report
import steps
from keras_models import models
from model_worker import PEERS
from step_report import Target

LOSS_TOLERANCE = 0.5


def targets(names: list[str]) -> list[Target]:
    """Returns what ours must reach with each model."""
    every = []
    for name in names:
        every += [Target(name, n, "ms", "plain", limit) for n, limit in ((1, 1), (2, 0.7), (8, 1))]
        every += [Target(name, n, "ms", "mirrored", 0.6) for n in (2, 8)]
        every += [
            Target(name, n, measure, "plain", limit)
            for n in (1, 2, 8)
            for measure, limit in (("first_step_seconds", 1.0), ("peak_mb", 1.1))
        ]
    return every


def losses_agree(losses: list[float], expected: list[float]) -> bool:
    """Whether the first loss is close to the expected one, and all are finite."""
    close = math.isclose(losses[0], expected[0], rel_tol=LOSS_TOLERANCE)
    return close and all(map(math.isfinite, losses))


def parse() -> argparse.Namespace:
    names = list(models(smoke=True))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--replicas", nargs="+", type=int, metavar="N")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.replicas = arguments.replicas or ([2] if arguments.smoke else [1, 2, 8])
    arguments.rounds = arguments.rounds or (2 if arguments.smoke else 5)
    return arguments


def main() -> None:
    arguments = parse()
    every = models(arguments.smoke)
    pool = steps.Pool(arguments.smoke, "model_worker.py")
    results = []
    try:
        for name in arguments.models:
            seconds = 0.01 if arguments.smoke else 1.0
            results += steps.measure(pool, every[name], arguments, seconds, losses_agree)
    finally:
        pool.close()
        checked = step_report.check_targets(results, targets(arguments.models))
        step_report.show_targets(checked, arguments.smoke)
        if arguments.json:
            report = {"results": results, "targets": checked}
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
