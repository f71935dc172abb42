"""What the package adds to process startup, in processor time.

Each number is the processor time that a process takes after it has imported TensorFlow, over all
its threads and including its exit: the processes are forks of one that has done so, because that
import takes seconds, which vary more than the difference to be measured. The programs take turns.

Example:
    $ python benchmarks/startup.py --rounds 21
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import traceback

_IMPORT = "import tf_tpu_ext"
_OP = "\nwith tf.device('/{}:0'):\n    assert float(tf.constant(1.0) + 1.0) == 2.0"
_PROGRAM = "\nassert float(tf_tpu_ext.tpu.rewrite(lambda x: x + 1.0, [1.0])[0]) == 2.0"

PROGRAMS = {
    "nothing": "",
    "import tf_tpu_ext": _IMPORT,
    "first op, on the CPU": _IMPORT + _OP.format("CPU"),
    "first op, on a core": _IMPORT + _OP.format("TPU"),
    "first program": _IMPORT + _PROGRAM,
}
# What is measured: a program, the one it is compared with, and how much more it may take.
DIFFERENCES = {
    "import tf_tpu_ext": ("nothing", 0.3),
    "first op, on a core": ("first op, on the CPU", 0.2),
    "first program": ("first op, on the CPU", None),
}


def processor_seconds(code: str) -> float:
    """Runs a program in a copy of this process and returns the processor time that it took.

    Raises:
        RuntimeError: The program failed.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            exec(code, {"tf": sys.modules["tensorflow"]})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        # Exits like any other process, with what the libraries do then.
        sys.exit(0)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise RuntimeError(f"exit code {os.waitstatus_to_exitcode(status)} of:\n{code}")
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int) -> list[dict[str, float]]:
    """Returns the seconds of every program in every round."""
    import tensorflow as tf

    assert tf.__version__
    # A copy does not visit frozen objects, which would copy their memory.
    gc.freeze()
    for code in PROGRAMS.values():
        processor_seconds(code)
    return [
        {name: processor_seconds(code) for name, code in PROGRAMS.items()} for _ in range(rounds)
    ]


def main() -> None:
    """Prints a line for each program, and one for each difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Whatever ran before, nothing is loaded from the cache.
    os.environ["TF_TPU_EXT_COMPILATION_CACHE"] = ""
    # The first copy leaves compiled Python modules behind, as an installation does.
    sys.dont_write_bytecode = False
    rounds = measure(options.rounds)
    added = {
        name: [seconds[name] - seconds[base] for seconds in rounds]
        for name, (base, _) in DIFFERENCES.items()
    }
    if options.json:
        print(json.dumps({"rounds": rounds, "added": added}))
        return
    for name in PROGRAMS:
        times = [seconds[name] for seconds in rounds]
        print(f"{name:22} {statistics.median(times):6.3f} s [{min(times):.3f} to {max(times):.3f}]")
    for name, (base, limit) in DIFFERENCES.items():
        goal = f", and may take {limit}" if limit is not None else ""
        median = statistics.median(added[name])
        print(f"{name!r} takes {median:.3f} s more than {base!r}{goal}")


if __name__ == "__main__":
    main()
