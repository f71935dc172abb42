"""Turns the compiler's answer into a verdict."""

from __future__ import annotations

import re
from typing import Any

from tf_tpu_ext.verdict import _advice, _buffers
from tf_tpu_ext.verdict._collectives import collectives
from tf_tpu_ext.verdict._places import Places
from tf_tpu_ext.verdict._records import Answer, Buffer, Cost, Memory
from tf_tpu_ext.verdict._targets import Target
from tf_tpu_ext.verdict._times import time_of

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
_INSTRUCTION = re.compile(r"%([\w.-]+)")
_SUSPECTED = re.compile(r"Suspected Python Code Location:\s+(\S.*:\d+)")


def judge(
    answer: dict[str, Any], asked: Any, optimized: Any | None, target: Target
) -> dict[str, Any]:
    """Returns the fields of a verdict that follow from the answer.

    Args:
        answer: The compiler's answer, as `Compiler.ask` returns it.
        asked: The module in the question, an `HloModuleProto`.
        optimized: The module in the answer, or None if there is none.
        target: The target whose compiler has answered.
    """
    fields: dict[str, Any] = {}
    if answer["error"]:
        out = answer.get("code") == _OUT_OF_MEMORY
        fields["answer"] = Answer.OUT_OF_MEMORY if out else Answer.REFUSED
        fields["error"] = answer["error"].strip()
        fields["op"], fields["source"] = _named(answer["error"], asked)
        fields["advice"] = _advice.on_compiler_error(answer["error"])
        # The compiler names no tensors, so these are the program's, before any compiler pass.
        fields["largest"] = _buffers.largest(_buffers.buffers(asked)) if out else ()
        return fields
    assert optimized is not None
    memory = _memory(answer, optimized)
    fits = memory.left >= 0
    fields["answer"] = Answer.FITS if fits else Answer.OUT_OF_MEMORY
    if not fits:
        fields["error"] = (
            f"The program compiles, but needs {memory.needed} bytes of a core's memory, which has "
            f"{memory.available}."
        )
        fields["advice"] = _advice.SMALLER
    buffers: list[Buffer] = _buffers.buffers(optimized)
    fields["memory"] = memory
    fields["cost"] = _cost(answer["costs"], optimized, target)
    fields["largest"] = _buffers.largest(buffers)
    fields["padded"] = _buffers.most_padded(buffers)
    return fields


def _memory(answer: dict[str, Any], optimized: Any) -> Memory:
    told = answer["memory"]
    return Memory(
        arguments=told["argument"],
        variables=told["alias"],
        results=told["output"],
        temporaries=told["temp"],
        code=told["generated_code"],
        available=answer["devices"]["device_memory_bytes_limit"],
        padding=_buffers.padding_at_rest(optimized),
    )


def _cost(costs: dict[str, float | None], optimized: Any, target: Target) -> Cost:
    generation = target.generation
    flops = max(0.0, costs.get("flops") or 0.0)
    accessed = max(0.0, costs.get("bytes accessed") or 0.0)
    time = time_of(costs.get("optimal_seconds") or 0.0, optimized)
    found = collectives(optimized, target.cores)
    times = {
        "compute": flops / generation.flops,
        "memory": accessed / generation.bandwidth,
        "interconnect": found.sent / generation.interconnect,
    }
    padding = _buffers.padding_moved(optimized)
    return Cost(
        flops=flops,
        bytes_accessed=accessed,
        seconds=time.seconds,
        collective_bytes=found.bytes,
        collectives=found.number,
        peak_share=(
            flops / time.seconds / generation.flops if time.seconds and not time.untimed else None
        ),
        bound=max(times, key=lambda name: times[name]),
        padding_bytes=padding,
        padding_seconds=padding / generation.bandwidth,
        untimed=time.untimed,
        untimed_calls=time.named,
    )


def _named(error: str, asked: Any) -> tuple[str, str]:
    """Returns the op and Python line of the instruction that an error names; empty if none."""
    names = set(_INSTRUCTION.findall(error))
    places = Places(asked)
    suspected = _SUSPECTED.search(error)
    at_line: list[str] = []
    for computation in asked.computations:
        for instruction in computation.instructions:
            place = places.of(computation, instruction)
            if instruction.name in names:
                return place
            if suspected and place[1] == suspected[1]:
                # Of several ops on the line, choose the one whose instruction the error mentions.
                spoken_of = instruction.opcode in error.lower()
                at_line.insert(0 if spoken_of else len(at_line), place[0])
    if suspected:
        return at_line[0] if at_line else "", suspected[1]
    match = re.search(r'op_name="([^"]+)"', error)
    line = re.search(r'source_file="([^"]+)" source_line=(\d+)', error)
    return match[1] if match else "", f"{line[1]}:{line[2]}" if line else ""
