"""The process that runs trials: `python -m fuzzing.worker KIND ONLY SEED FIRST END`.

Prints a message, as JSON in a line, before and after each of them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from fuzzing import trials


def main() -> None:
    kind, only = sys.argv[1:3]
    seed, first, end = map(int, sys.argv[3:])
    faulthandler.enable()
    # What a trial prints must not look like a message.
    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def send(**message: Any) -> None:
        messages.write(json.dumps(message) + "\n")

    tried: trials.Trials
    if kind == "ops":
        from fuzzing import ops

        tried = ops.OpTrials(only, seed)
    else:
        from fuzzing import graphs

        tried = graphs.GraphTrials(only, seed)
    for number in range(first, end):
        send(begin=number, description=tried.describe(number))
        send(end=number, outcome=tried.run(number))
        if (number + 1) % trials.HEALTH_CHECK_TRIALS == 0 or number + 1 == end:
            try:
                tried.check_health()
            except Exception as error:
                send(unusable=f"{type(error).__name__}: {error}")
                sys.exit(1)
    messages.close()
    # Not through Python's end: what a trial has left waiting must not decide how this ends.
    os._exit(0)


if __name__ == "__main__":
    main()
