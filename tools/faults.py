"""Steps from several threads with faults, cancellations and Ctrl-C, counted exactly.

    tools/faults --steps 100000 --seed 1

Every step adds one to variables of all replicas. One in a thousand hits a fault at a random point
in the runtime (cc/base/fault_points.h), some are cancelled, and the main thread is interrupted as
if by Ctrl-C. A step that returned must have counted once on every replica; one that failed, not at
all. The exit code is 1 if a count or an error is wrong, and 3, with all stacks, if a step hangs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

# Python puts this folder first, unless PYTHONSAFEPATH is set.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000, help="of all threads together")
    parser.add_argument("--seed", type=int, help="of what is random; which step meets it is not")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--faults", type=float, default=0.001, help="share of steps with a fault")
    arguments = parser.parse_args()
    os.environ["TF_TPU_EXT_CORES"] = str(arguments.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Programs are compiled, whatever ran before.
    os.environ["TF_TPU_EXT_COMPILATION_CACHE"] = ""
    seed = time.time_ns() % (1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.steps} steps", flush=True)

    from faulting import campaign

    return campaign.run(
        steps=arguments.steps, seed=seed, threads=arguments.threads, faults=arguments.faults
    )


if __name__ == "__main__":
    sys.exit(main())
