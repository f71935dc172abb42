"""`findings`: what the checks have found in watched programs."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from tf_tpu_ext import _graph_lines, _native
from tf_tpu_ext._compilations import Argument, compilation_stats

Kind = Literal["nan", "infinity", "unwritten", "replicas-differ", "race"]

_ON_A_TPU: Mapping[str, str] = {
    "nan": "A TPU computes NaN as well, says nothing, and keeps it in what is updated with it.",
    "infinity": "A TPU computes the same infinity, says nothing, and NaN follows as a rule. "
    "bfloat16 has the range of float32, so it changes nothing here.",
    "unwritten": "On a TPU the padding holds zeros where `replicate` has padded an input, and "
    "elsewhere what earlier programs left there: the result is wrong, and may change from run to "
    "run.",
    "replicas-differ": "A TPU keeps a copy for each core and never compares them: training goes on "
    "with models that drift apart, and a checkpoint saves the copy of the first replica.",
    "race": "The hosts of a TPU run these calls whenever the cores make them: the result depends "
    "on which comes last.",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A problem in a watched program, as first seen.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.Options(check=True):
        ...     _ = tf_tpu_ext.tpu.rewrite(tf.math.reciprocal, [tf.zeros([3])])
        >>> found = tf_tpu_ext.findings()[-1]
        >>> print(found.kind, found.instruction, found.replica)
        infinity divide f32[3] 0

    Attributes:
        kind: `"nan"` or `"infinity"` for an op that produces such numbers from finite ones, which
            then leave the program; `"unwritten"` for an op that reads padding or uninitialized
            memory; `"replicas-differ"` for a mirrored variable whose values are no longer the same
            on all replicas; `"race"` for a host variable that replicas use in no defined order.
        program: The program's name; for a race, the computation's.
        step: The run of the program, starting at 1; 0 for a race that is found before any run.
        replica: The replica; 0 if several are affected.
        op: The TensorFlow op where the problem begins; empty if that is an input of the program.
        source: The Python line that made the op, as `file:line`; empty if unknown.
        instruction: The XLA instruction of the op, with its type and shape, such as `log f32[4,8]`.
        argument: The input that brings the value in; empty if an op produces it.
        arrives: Where the value ends up: the name of a variable, `a result`, or `the host`.
        other_op: The last op before the value arrives there, or the other op of a race.
        other_source: The Python line of that op.
        count: The number of steps and replicas in which it was seen.
    """

    kind: Kind
    program: str
    step: int
    replica: int
    op: str
    source: str
    instruction: str
    argument: str
    arrives: str
    other_op: str
    other_source: str
    count: int

    @property
    def message(self) -> str:
        """What is wrong and where, in words.

        Example:
            >>> where = ("Assign", "a.py:7", "", "", "", "Read", "a.py:9")
            >>> found = Finding("race", "step", 0, 0, *where, count=1)
            >>> print(found.message.split(": ")[1])
            Assign (a.py:7) writes it while Read (a.py:9) of another replica uses it, and nothing \
says which comes first.
        """
        where = f"step {self.step} of {self.program}"
        begins = _named(self.op, self.source)
        if self.kind == "race":
            other = _named(self.other_op, self.other_source)
            same = (self.op, self.source) == (self.other_op, self.other_source)
            uses = (
                f"{begins} writes it in each of them"
                if same
                else f"{begins} writes it while {other} of another replica uses it"
            )
            return (
                f"Replicas of {self.program} use a variable of the host at the same time: {uses}, "
                "and nothing says which comes first."
            )
        if self.kind == "replicas-differ":
            if not self.op:
                return (
                    f"The variable {self.arrives} was not the same on all replicas before {where}."
                )
            because = f", which gets {self.argument} that differs" if self.argument else ""
            through = (
                ""
                if self.other_op == self.op
                else f" The variable gets it through {_named(self.other_op, self.other_source)}."
            )
            return (
                f"The variable {self.arrives} is no longer the same on all replicas after {where}. "
                f"The first op with different values is {begins}{because}.{through}"
            )
        number = {"nan": "NaN", "infinity": "infinity"}.get(self.kind, "")
        if not self.op:
            verb = "brings" if number else "brings what nobody has written"
            text = f"{self.argument} {verb} {number}".rstrip() + f" into {where}"
        elif number:
            text = (
                f"{begins} makes {number} of finite numbers: {self.instruction} "
                f"in replica {self.replica}, {where}"
            )
        else:
            text = (
                f"{begins} reads padding, or memory that nobody has written: {self.instruction} "
                f"in replica {self.replica}, {where}"
            )
        return f"{text}. It arrives in {self.arrives}."

    @property
    def on_a_tpu(self) -> str:
        """What a TPU would do.

        Example:
            >>> where = ("Log", "a.py:7", "log f32[8]", "", "a result", "", "")
            >>> print(Finding("nan", "step", 1, 0, *where, count=1).on_a_tpu)
            A TPU computes NaN as well, says nothing, and keeps it in what is updated with it.
        """
        return _ON_A_TPU[self.kind]


def findings() -> tuple[Finding, ...]:
    """Returns what the checks have found so far in programs that were traced with `check=True`.

    `tf-tpu check SCRIPT` shows them for a script; see docs/check.md.

    Returns:
        The findings in the order in which they were first seen, one for each place.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.Options(check=True):
        ...     _ = tf_tpu_ext.tpu.rewrite(tf.math.log, [tf.constant([1.0, -1.0])])
        >>> found = tf_tpu_ext.findings()[-1]
        >>> print(found.kind, found.op, found.step, found.arrives)
        nan Log 1 a result
    """
    arguments = {each.program_id: each.arguments for each in compilation_stats().programs}
    found: list[Finding] = []
    differ: set[str] = set()
    for fields in _native.json_of("TfTpuExt_Findings"):
        finding = _finding(fields, arguments.get(fields["program_id"], ()))
        if finding.kind == "replicas-differ":
            # A variable that differs after one step also differs before the next one.
            if not finding.op and finding.arrives in differ:
                continue
            differ.add(finding.arrives)
        found.append(finding)
    return tuple(found)


def checked_steps() -> int:
    """Returns how many steps of watched programs have run."""
    call = _native.library().TfTpuExt_CheckedSteps
    call.restype = ctypes.c_int64
    return int(call())


def to_text(found: Sequence[Finding], steps: int) -> str:
    """Returns the findings as text for people to read."""
    lines = [f"{len(found)} finding{'' if len(found) == 1 else 's'} in {steps} checked steps"]
    for number, finding in enumerate(found, 1):
        lines += ["", f"{number}. {finding.message}", f"   {finding.on_a_tpu}"]
        if finding.count > 1:
            lines.append(f"   Seen {finding.count} times.")
    return "\n".join(lines)


def to_json(found: Sequence[Finding]) -> str:
    """Returns the findings as a JSON array, including `message` and `on_a_tpu`."""
    return json.dumps(
        [
            {**dataclasses.asdict(each), "message": each.message, "on_a_tpu": each.on_a_tpu}
            for each in found
        ],
        indent=1,
    )


def _named(op: str, source: str) -> str:
    return f"{op} ({source})" if source else op


def _finding(fields: Mapping[str, Any], arguments: Sequence[Argument]) -> Finding:
    brought = fields["argument"] >= 0
    # A parameter is not an op.
    begins_outside = brought and fields["instruction"].startswith(("parameter", "set-dimension"))
    same = {name: fields[name] for name in _same_names()}
    # Graphs of sessions have no source lines.
    lines = {
        name: fields[name] or _graph_lines.lines.find(fields[op])
        for op, name in (("op", "source"), ("other_op", "other_source"))
    }
    return Finding(
        **{**same, **lines, "op": "" if begins_outside else fields["op"]},
        argument=_name_of(fields["argument"], arguments) if brought else "",
        arrives=_arrives(fields, arguments),
    )


def _same_names() -> Iterator[str]:
    for field in dataclasses.fields(Finding):
        if field.name not in ("argument", "arrives"):
            yield field.name


def _arrives(fields: Mapping[str, Any], arguments: Sequence[Argument]) -> str:
    if fields["variable"] >= 0:
        return _name_of(fields["variable"], arguments)
    return "a result" if fields["result"] >= 0 else "the host"


def _name_of(argument: int, arguments: Sequence[Argument]) -> str:
    if argument < len(arguments) and arguments[argument].name:
        name = arguments[argument].name
        return f"'{name}'" if arguments[argument].is_variable else f"input '{name}'"
    return f"argument {argument}"
