"""The time that the compiler expects, and the instructions whose time it does not know."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from tf_tpu_ext.verdict._places import Places

# Custom calls that move nothing: halves of 64 bits, or parts of a whole, that are already where
# they belong.
_MOVE_NOTHING = frozenset({"ConcatBitcast", "X64Combine", "X64SplitHigh", "X64SplitLow"})
# The compiler knows the time of these.
_TIMED = frozenset({"AssumeGatherIndicesInBound", "TopK"})
_MOST_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Time:
    """The expected time of one run.

    Attributes:
        seconds: The time of the instructions whose time is known; None if no time is known.
        untimed: Number of instructions whose time is unknown.
        named: Descriptions of some of them, with op and Python line.
    """

    seconds: float | None
    untimed: int
    named: tuple[str, ...]


def time_of(told: float, optimized: Any) -> Time:
    """Returns the time that the compiler's sum stands for.

    XLA's cost analysis adds -1 s, in float32, for each custom call that it knows nothing about.

    Args:
        told: The compiler's `optimal_seconds`.
        optimized: The compiler's module, an `HloModuleProto`.
    """
    unknown = max(0, math.ceil(-told))
    known = told + unknown
    rounding = 1.2e-7 * unknown
    calls = list(_custom_calls(optimized)) if unknown else []
    free = sum(call.custom_call_target in _MOVE_NOTHING for _, call in calls)
    others = [
        (computation, call)
        for computation, call in calls
        if call.custom_call_target not in _MOVE_NOTHING | _TIMED
    ]
    places = Places(optimized)
    named = dict.fromkeys(_name(places, *other) for other in others)
    return Time(
        seconds=known if known > rounding else None,
        # Calls in a computation that is called twice count twice.
        untimed=max(0, unknown - free) if others else 0,
        named=tuple(named)[:_MOST_NAMED],
    )


def _custom_calls(module: Any) -> Iterator[tuple[Any, Any]]:
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "custom-call":
                yield computation, instruction


def _name(places: Places, computation: Any, call: Any) -> str:
    op, source = places.of(computation, call)
    return f"{call.custom_call_target}, {op}" + (f" at {source}" if source else "")
