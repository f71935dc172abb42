"""Everything that the page shows, as plain data."""

from __future__ import annotations

import datetime
import linecache
import os
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_tpu_ext import _findings as checks
from tf_tpu_ext import _native
from tf_tpu_ext._compilations import Compilation, compilation_stats
from tf_tpu_ext._machine import PaddedInput, machine, transfer_stats
from tf_tpu_ext._page import _pod
from tf_tpu_ext._page._findings import Finding, find
from tf_tpu_ext._page._timeline import MOST_CORES, Host, timeline
from tf_tpu_ext._version import VERSION
from tf_tpu_ext.verdict._asking import asker
from tf_tpu_ext.verdict._records import Verdict

_MOST_CHARTED = 30


def gather(title: str | None) -> dict[str, Any]:
    """Returns the data that the template needs."""
    asker.wait()
    own = compilation_stats().programs
    workers = _pod.workers()
    hosts = [worker.host for worker in workers if worker.host is not None]
    if own or not hosts:
        hosts.insert(0, _this_host(own))
    programs = hosts[0].programs
    transfers = transfer_stats()
    verdicts = asker.verdicts()
    settings = machine()
    cores = sum(worker.described.get("cores", 0) for worker in workers) or settings.cores
    clusters = [("", cluster) for cluster in transfers.clusters]
    padded = [_padded("", each, own) for each in transfers.padded_inputs]
    for worker in workers:
        clusters += [(f"{worker.name}, ", cluster) for cluster in worker.clusters]
        padded += [
            _padded(f"{worker.name}, ", each, worker.programs) for each in worker.padded_inputs
        ]
    findings = find(
        programs, [cluster for _, cluster in clusters], [row["input"] for row in padded], verdicts
    )
    collectives = [*_collectives(_native.json_of("TfTpuExt_Collectives"), "")]
    for worker in workers:
        collectives += _collectives(worker.collectives, f"{worker.name}, ")
    return {
        "title": title or os.path.basename(sys.argv[0]) or "Python",
        "written": datetime.datetime.now().astimezone().isoformat(" ", "seconds"),
        "version": VERSION,
        "cores": cores,
        "workers": workers,
        "most_cores": MOST_CORES,
        "programs": programs,
        "compile_seconds": sum(program.seconds for program in programs),
        "compiled_again": sum(program.compared_with is not None for program in programs),
        "clusters": clusters,
        "padded": padded,
        "padding_waste": _waste([row["input"] for row in padded]),
        "collectives": collectives,
        "variables": _variables(programs),
        "findings": [_with_code(finding) for finding in findings],
        "verdicts": verdicts,
        "checked": {"findings": checks.findings(), "steps": checks.checked_steps()},
        "answer": _answer(programs, findings, verdicts),
        "charts": {
            "timeline": timeline(hosts),
            "compilations": _compilation_bars(programs),
            "memory": _memory_bars(programs),
            "padding": [
                {"input": row["name"], "waste": 100 * row["input"].waste}
                for row in padded[:_MOST_CHARTED]
            ],
            "collectives": _waits(collectives),
            "target": _target_memory_bars(verdicts),
        },
    }


def _padded(host: str, padded: PaddedInput, programs: Iterable[Compilation]) -> dict[str, Any]:
    """Returns a row of the padding table; `host` is a prefix of the input's name."""
    by_id = {program.program_id: program for program in programs}
    return {
        "input": padded,
        "name": host + (padded.name or f"argument {padded.argument}"),
        "program": by_id.get(padded.program_id),
    }


def _waste(padded: Sequence[PaddedInput]) -> float:
    elements = sum(each.elements for each in padded)
    return sum(each.padding for each in padded) / elements if elements else 0.0


def _this_host(programs: Sequence[Compilation]) -> Host:
    return Host(
        programs,
        _native.json_of("TfTpuExt_FirstLaunches"),
        _native.json_of("TfTpuExt_CollectiveMeetings"),
    )


def _answer(
    programs: Sequence[Compilation],
    findings: Sequence[Finding],
    verdicts: Sequence[Verdict],
) -> dict[str, str]:
    """Returns whether the program would run on a TPU, in one word, and why."""
    if not programs:
        return {"word": "unknown", "text": "Nothing was compiled, so nothing can be said."}
    refused = sum(finding.severity == "refused" for finding in findings)
    slow = len(findings) - refused
    also = f" {_count(slow, 'thing')} would be slow there." if slow else ""
    if refused:
        return {"word": "no", "text": f"{_count(refused, 'finding')} would stop it there.{also}"}
    answered = [verdict for verdict in verdicts if verdict.ok]
    missing = len(verdicts) - len(answered)
    if answered:
        also += f" It could not be asked about {_count(missing, 'other')}." if missing else ""
        names = ", ".join(dict.fromkeys(verdict.target for verdict in answered))
        return {
            "word": "yes",
            "text": f"The compiler for {names} takes {_count(len(answered), 'program')}, and they "
            f"fit into its memory.{also}",
        }
    return {
        "word": "probably",
        "text": f"{_count(len(programs), 'program')} compiled, with nothing that a TPU is known to "
        f"refuse.{also} Google's own compiler was not asked: tf-tpu check --target v5e-8 does.",
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _with_code(finding: Finding) -> Mapping[str, Any]:
    return {**vars(finding), "code": code_of(finding.source)}


def code_of(source: str) -> str:
    """Returns the text of the line at `file:line`; empty if it can't be read."""
    file, _, line = source.rpartition(":")
    return linecache.getline(file, int(line)).strip() if file and line.isdigit() else ""


def short_line(source: str) -> str:
    """Returns `file:line`, relative to the working folder if the file is in it."""
    file, _, line = source.rpartition(":")
    try:
        return f"{pathlib.Path(file).relative_to(pathlib.Path.cwd())}:{line}" if file else source
    except ValueError:
        return source


def _compilation_bars(programs: Sequence[Compilation]) -> list[dict[str, Any]]:
    longest = sorted(programs, key=lambda program: -program.seconds)[:_MOST_CHARTED]
    return [
        {"program": _label(program), "part": part, "seconds": seconds}
        for program in longest
        for part, seconds in (
            ("graph to XLA", program.lowering_seconds),
            ("XLA to code", program.building_seconds),
        )
    ]


def _memory_bars(programs: Sequence[Compilation]) -> list[dict[str, Any]]:
    def needed(program: Compilation) -> int:
        return program.argument_bytes + program.result_bytes + program.temporary_bytes

    largest = sorted(programs, key=lambda program: -needed(program))[:_MOST_CHARTED]
    return [
        {"program": _label(program), "part": part, "bytes": size}
        for program in largest
        for part, size in (
            ("arguments", program.argument_bytes),
            ("results", program.result_bytes),
            ("temporaries", program.temporary_bytes),
        )
    ]


def _target_memory_bars(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Returns the parts of a core's memory on the target; what results take over counts once."""
    told = [(verdict, verdict.memory) for verdict in verdicts if verdict.memory is not None]
    return [
        {
            "program": f"{verdict.program_id} {verdict.program}, {verdict.target}",
            "part": part,
            "percent": 100 * size / memory.available,
        }
        for verdict, memory in sorted(told, key=lambda each: each[1].left)[:_MOST_CHARTED]
        for part, size in (
            ("arguments", memory.arguments),
            ("results", memory.results - memory.variables),
            ("temporaries", memory.temporaries),
            ("code", memory.code),
        )
    ]


def _label(program: Compilation) -> str:
    return f"{program.program_id} {program.function}"


def _variables(programs: Iterable[Compilation]) -> list[dict[str, Any]]:
    """Returns all programs' variables, largest first; those with the same name count once."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for program in programs:
        for argument in program.arguments:
            if not argument.is_variable:
                continue
            entry = found.setdefault(
                (argument.name, argument.text),
                {
                    "name": argument.name,
                    "text": argument.text,
                    "bytes": argument.bytes,
                    "functions": [],
                },
            )
            if program.function not in entry["functions"]:
                entry["functions"].append(program.function)
    return sorted(found.values(), key=lambda entry: -entry["bytes"])


def _collectives(records: Sequence[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """Returns the library's records with sums; `host` is a prefix of its cores' names."""
    for record in records:
        cores = record["cores"]
        record["host"] = host
        record["waited_seconds"] = sum(core["waited_seconds"] for core in cores)
        record["slowest"] = max(cores, key=lambda core: core["kept_waiting_seconds"])
    return sorted(records, key=lambda record: -record["waited_seconds"])


def _waits(collectives: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns how long each core waited in collectives, and how long others waited for it."""
    totals: dict[tuple[str, int], list[float]] = {}
    for record in collectives:
        for core in record["cores"]:
            total = totals.setdefault((record["host"], core["core"]), [0.0, 0.0])
            total[0] += core["waited_seconds"]
            total[1] += core["kept_waiting_seconds"]
    return [
        {"core": f"{host}core {core}", "part": part, "milliseconds": 1e3 * seconds}
        for (host, core), total in sorted(totals.items())[:MOST_CORES]
        for part, seconds in zip(("waited", "was waited for"), total, strict=True)
    ]
