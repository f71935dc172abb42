"""The page of `tf_tpu_ext.report` and of `tf-tpu run --report out.html`: what it says."""

from __future__ import annotations

import html
import json
import pathlib
import re
import sys

import imported_processes
import pytest
from report_pages import PROGRAM, write_page
from verdicts import needs_libtpu, own_cache, tf_tpu_check  # noqa: F401

import tf_tpu_ext
from tf_tpu_ext import _page, _workers
from tf_tpu_ext._compilations import Argument, Change, Compilation
from tf_tpu_ext._machine import Cluster, PaddedInput
from tf_tpu_ext._page import _findings, _timeline
from tf_tpu_ext.verdict._records import Answer, Note, Verdict

pytest.importorskip("jinja2")


@pytest.fixture(scope="module", params=[1, 2, 8])
def page(request, tmp_path_factory):
    """The page of a real program, with the number of its cores."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, request.param)
    return request.param, path.read_text()


@pytest.fixture(scope="module")
def checked_page(tmp_path_factory):
    """The page of the program with a target of two cores."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, 2, "v2:1x1")
    return path.read_text()


def facts_of(text):
    return json.loads(re.search(r'id="facts">(.*?)</script>', text, re.DOTALL)[1])


def section_of(text, name):
    """Returns the text of a section, without tags."""
    section = re.search(rf'<section id="{name}".*?</section>', text, re.DOTALL)[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())


def line_of(remark):
    lines = PROGRAM.read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.endswith(f"# {remark}"))


def test_needs_no_network(page):
    _, text = page
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", text)
    assert "@import" not in text
    assert "url(" not in re.search(r"<style>.*?</style>", text, re.DOTALL)[0]


def test_names_are_escaped(page):
    _, text = page
    assert "<h1>&lt;All&gt; &amp; everything</h1>" in text


def test_compilations(page):
    _, text = page
    said = section_of(text, "compilations")
    assert "images: float32[8,32] → float32[4,32]" in said
    assert "rate: 0.1 → 0.01" in said
    assert "compared with program" in said
    assert "dense/kernel: float32[32,16]" in said
    assert re.search(r"report_program\.py:\d+", said)


def test_timeline(page):
    cores, text = page
    timeline = facts_of(text)["timeline"]
    assert timeline["lanes"] == ["compiler", *(f"core {core}" for core in range(cores))]
    steps = [step for step in timeline["steps"] if step["name"] == "train_step"]
    assert len(steps) == 5
    runs = [
        bar for bar in timeline["bars"] if bar["kind"] == "run" and "train_step" in bar["label"]
    ]
    assert len(runs) == 5 * cores
    for bar in timeline["bars"]:
        assert 0 <= bar["x1"] <= bar["x2"]
    # What is compiled for a step is compiled before it.
    compiled = [bar for bar in timeline["bars"] if bar["kind"] == "compile"]
    assert min(bar["x1"] for bar in compiled) == 0
    assert compiled[0]["x2"] <= steps[0]["x1"]


def test_who_waited_for_whom(page):
    cores, text = page
    said = section_of(text, "collectives")
    bars = facts_of(text)["timeline"]["bars"]
    waits = [bar for bar in bars if bar["kind"] == "wait"]
    if cores == 1:
        assert not waits
        return
    assert "all-reduce" in said
    assert re.search(r"core \d: last in \d of \d", said)
    for bar in waits:
        awaited = re.search(r"waits for (core \d)", bar["label"])[1]
        assert awaited in {f"core {core}" for core in range(cores)} - {bar["lane"]}
    by_core = facts_of(text)["collectives"]
    total = {
        part: sum(row["milliseconds"] for row in by_core if row["part"] == part)
        for part in ("waited", "was waited for")
    }
    assert total["waited"] == pytest.approx(total["was waited for"])


def test_padding(page):
    _, text = page
    # 3 and 5 of 16 elements.
    assert "75.0 %" in section_of(text, "padding")
    assert [row["waste"] for row in facts_of(text)["padding"]] == [75.0]


def test_host(page):
    cores, text = page
    said = section_of(text, "host")
    assert f"report_program.py:{line_of('in a loop')}" in said
    assert f" {5 * 2 * cores} " in said
    assert "directly (folded)" in said


def test_memory(page):
    _, text = page
    said = section_of(text, "memory")
    assert "dense/kernel float32[32,16] 2.0 kB train_step" in said
    assert "By variable: 2.0 kB on each core" in said


def test_verdict(page):
    _, text = page
    said = section_of(text, "verdict")
    assert "No. 1 finding would stop it there." in said
    assert "broken does not compile" in said
    assert f"report_program.py:{line_of('strings')}" in said
    assert f"report_program.py:{line_of('float64')} doubled" in said
    assert "Use float32." in said
    assert f"report_program.py:{line_of('in a loop')} total" in said
    assert "train_step was compiled 3 times" in said


@needs_libtpu
def test_answers_of_the_compiler(checked_page):
    said = section_of(checked_page, "target")
    assert re.search(r"(\d+) of (\d+) programs compile and fit", said).groups() == ("6", "7")
    articles = re.findall(r"<article.*?</article>", checked_page, re.DOTALL)
    texts = [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", each)).split()) for each in articles]
    step = next(text for text in texts if "train_step" in text)
    assert step.startswith("fits ")
    assert "2 replicas of 1 core" in step
    # The kernel is 32 x 16 float32: 2 KiB, and padding.
    assert re.search(r"variables that are updated 8\.0 KiB results", step)
    assert re.search(r"temporaries [\d.]+ \w+ code [\d.]+ MiB left of 7\.\d GiB 7\.\d GiB", step)
    assert re.search(r"collectives \d+ of [\d.]+ KiB", step)
    assert re.search(rf"emulated: float64 \d+ \S+ \S+py:{line_of('float64')} ", step)
    assert re.search(rf"host call in a loop \d+ \S+ \S+py:{line_of('in a loop')} ", step)
    padded = next(text for text in texts if f"py:{line_of('padding')} " in text)
    assert "f32[1024,3] 16.0 KiB 4.0 KiB 25 % argument 0 of add" in padded
    assert re.search(r"one run reads and writes [\d.]+ KiB of it, in [\d.]+ us or more", padded)
    kernels = next(text for text in texts if "does not know the time of" in text)
    assert "QrDecomposition" in kernels
    assert "expected time over " in kernels
    refused = next(text for text in texts if text.startswith("refused "))
    assert f"FFT {PROGRAM.name}:{line_of('refused')}" in refused
    assert "Unexpected operand type for FFT" in refused
    assert "Instead: A TPU emulates complex128" in refused
    bars = facts_of(checked_page)["target"]
    assert {bar["part"] for bar in bars} == {"arguments", "results", "temporaries", "code"}
    assert all(0 <= bar["percent"] < 100 for bar in bars)
    assert "No. 2 findings would stop it there." in section_of(checked_page, "verdict")


def test_without_a_target_there_are_no_answers(page):
    _, text = page
    assert 'id="target"' not in text
    assert '"#target"' not in text


@needs_libtpu
def test_compile_for_and_then_a_report(run_python, tmp_path):
    path = tmp_path / "report.html"
    run_python(
        """
        import sys
        import tensorflow as tf
        import tf_tpu_ext
        with tf_tpu_ext.compile_for("v5e-8"):
            tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([8, 128])])
        tf_tpu_ext.tpu.rewrite(lambda x: x * 3.0, [tf.ones([8, 128])])
        tf_tpu_ext.report(sys.argv[1])
        """,
        str(path),
    )
    assert "1 of 1 programs compile and fit" in section_of(path.read_text(), "target")


@needs_libtpu
def test_command_that_checks_writes_a_page(tmp_path):
    code = (
        "import tensorflow as tf\n"
        "import tf_tpu_ext\n"
        "tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([2])])\n"
    )
    (tmp_path / "script.py").write_text(code)
    done = tf_tpu_check(tmp_path, "--target", "v5e-8", "--report", "out.html", "script.py")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.html").read_text()
    assert "<h1>script.py</h1>" in text
    assert "1 of 1 programs compile and fit" in section_of(text, "target")
    assert "script.py:3" in section_of(text, "target")


@needs_libtpu
def test_command_that_checks_refuses_before_the_script_runs(tmp_path):
    (tmp_path / "jinja2.py").write_text("raise ImportError('no jinja2')\n")
    (tmp_path / "script.py").write_text("print('ran')\n")
    done = tf_tpu_check(tmp_path, "--target", "v5e-8", "--report", "out.html", "script.py")
    assert done.returncode == 2
    assert "pip install 'tf_tpu_ext[report]'" in done.stderr
    assert "ran" not in done.stdout


def test_the_workers_of_a_pod(tmp_path):
    code = """
import tensorflow as tf
import tf_tpu_ext
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="any")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    kernel = tf.Variable(tf.ones([32, 16]), name="kernel")

@tf.function
def train_step(x):
    def on_core(x):
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce("MEAN", tf.reduce_mean(tf.matmul(x, kernel)))
        kernel.assign_sub(mean * context.all_reduce("SUM", kernel))
        return tf_tpu_ext.tpu.outside_compilation(tf.square, mean)
    return strategy.run(on_core, args=(x,))

for size in (8, 8, 4):
    train_step(tf.ones([size, 32]))
"""
    done = run_command(tmp_path, code, "out.html", "--workers=2")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.html").read_text()
    assert "<p>4 virtual TPU cores" in text
    said = section_of(text, "workers")
    for worker in (0, 1):
        assert re.search(
            rf"worker {worker} localhost:\d+ 2 3 2 [\d.]+ m?s [1-9]\d* [\d.]+ kB", said
        )
        assert re.search(rf"worker {worker} 1 train_step script\.py:\d+ .* [\d.]+ m?s 1 ", said)
    assert "x: float32[8,32] \u2192 float32[4,32]" in section_of(text, "compilations")
    assert "kernel float32[32,16]" in section_of(text, "memory")
    facts = facts_of(text)
    lanes = [f"worker {core // 2}, core {core}" for core in range(4)]
    lanes[2:2] = ["worker 1, compiler"]
    assert facts["timeline"]["lanes"] == ["worker 0, compiler", *lanes]
    runs = [bar for bar in facts["timeline"]["bars"] if bar["kind"] == "run"]
    assert len(runs) == 3 * 4
    assert [step["name"] for step in facts["timeline"]["steps"]] == ["train_step"] * 3
    # Both have the same clock, and a step needs all cores.
    for step in facts["timeline"]["steps"]:
        of_step = [bar for bar in runs if bar["label"].endswith(f"step {step['number']}")]
        assert {bar["lane"] for bar in of_step} == {lane for lane in lanes if "core" in lane}
        assert max(bar["x1"] for bar in of_step) < min(bar["x2"] for bar in of_step) + 100
    assert {row["core"] for row in facts["collectives"]} == {x for x in lanes if "core" in x}
    assert "worker 1, all-reduce 2 " in section_of(text, "collectives")
    # On each of two cores, three times, 4 bytes.
    for worker in (0, 1):
        assert re.search(
            rf"worker {worker}, script\.py:\d+ return \S+\(tf\.square, mean\) 6 24 B 24 B ",
            section_of(text, "host"),
        ), section_of(text, "host")


def test_a_worker_that_is_lost(monkeypatch, tmp_path):
    monkeypatch.setattr(_workers, "known", ["localhost:1"])
    monkeypatch.setattr(_workers, "_CHECK_SECONDS", 0.2)
    tf_tpu_ext.report(tmp_path / "report.html")
    said = section_of((tmp_path / "report.html").read_text(), "workers")
    assert "not asked There is no worker at localhost:1" in said


def test_a_process_that_compiled_nothing(run_python, tmp_path):
    path = tmp_path / "empty.html"
    run_python("import sys, tf_tpu_ext; tf_tpu_ext.report(sys.argv[1])", str(path))
    text = path.read_text()
    assert "Nothing was compiled" in section_of(text, "verdict")
    for name in ("timeline", "compilations", "padding", "host", "collectives", "memory"):
        assert section_of(text, name)


def test_without_jinja2(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'tf_tpu_ext\[report\]'"):
        tf_tpu_ext.report(tmp_path / "report.html")


def test_scripts_come_with_their_licenses():
    vendor = pathlib.Path(_page.__file__).parent / "vendor"
    for script in vendor.glob("*.js"):
        license = vendor / f"{script.name.split('.')[0]}.LICENSE"
        assert "Permission to use, copy, modify" in license.read_text(), script


def run_command(tmp_path, code, report, *options):
    script = tmp_path / "script.py"
    script.write_text(code)
    command = ["run", "--cores=2", f"--report={report}", *options, script]
    return imported_processes.tf_tpu(*command, cwd=tmp_path, timeout=200)


def test_command_writes_a_page_or_json(tmp_path):
    code = (
        "import tensorflow as tf\n"
        "import tf_tpu_ext\n"
        "tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([2])])\n"
        "raise SystemExit(3)\n"
    )
    page = run_command(tmp_path, code, "out.html")
    assert page.returncode == 3, page.stderr
    text = (tmp_path / "out.html").read_text()
    assert "<h1>script.py</h1>" in text
    assert "script.py:3" in section_of(text, "compilations")
    assert "1 compilations" in page.stderr
    assert run_command(tmp_path, code, "out.json").returncode == 3
    assert json.loads((tmp_path / "out.json").read_text())["compilations"] == 1


def test_command_refuses_before_the_script_runs(tmp_path):
    (tmp_path / "jinja2.py").write_text("raise ImportError('no jinja2')\n")
    done = run_command(tmp_path, "print('ran')\n", "out.html")
    assert done.returncode == 2
    assert "pip install 'tf_tpu_ext[report]'" in done.stderr
    assert "ran" not in done.stdout


def program(**fields):
    values = {
        "program_id": 1,
        "name": "__inference_step_1",
        "argument_shapes": "",
        "num_replicas": 1,
        "num_cores_per_replica": 1,
        "stacked_replicas": 1,
        "lowering_seconds": 0.5,
        "building_seconds": 0.5,
        "restored": False,
        "tensorflow_kernels": 0,
        "program_bytes": 0,
        "hits": 0,
        "error": "",
        "function": "step",
        "source": "train.py:7",
    }
    return Compilation(**{**values, **fields})


def test_findings_on_errors_come_first():
    slow = program(arguments=(Argument("x", "float64", "[2]", "", 16, False, False),))
    strings = program(error="INVALID_ARGUMENT: op AsString takes DT_STRING")
    first, second = _findings.find([slow, strings], [], [], [])
    assert (first.severity, first.source) == ("refused", "train.py:7")
    assert "no strings" in first.advice
    assert second.severity == "slow"
    assert "float32" in second.advice


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ((Change("x", "float32[2]", "float32[3]"),), "drop_remainder"),
        ((Change("rate", "0.1", "0.2"),), "tf.constant"),
        ((Change("name", "'a[0]'", "'a[1]'"),), "tf.constant"),
        ((), "Make the tf.function once"),
    ],
)
def test_findings_on_compilations(changes, advice):
    again = [
        program(program_id=number, compared_with=1, changes=changes, compiled_again_because="x")
        for number in (2, 3)
    ]
    assert _findings.find([program(), again[0]], [], [], []) == []
    [finding] = _findings.find([program(), *again], [], [], [])
    assert finding.what == "step was compiled 3 times"
    assert advice in finding.advice


def test_findings_on_one_line_are_one():
    notes = tuple(
        Note("small product", f"f32[{n}] x f32[{n}]", n, "MatMul", "train.py:9")
        for n in range(1, 7)
    )
    [finding] = _findings.find([program(notes=notes)], [], [], [])
    assert finding.count == 21
    assert finding.detail.count(" x ") == 4
    assert ", ..." in finding.detail


def test_findings_on_the_host_and_padding():
    clusters = [
        Cluster("0", "train.py:3", "", 8, 4, 4, 0.0, 0.25),
        Cluster("1", "train.py:4", "it writes a variable", 8, 4, 4, 0.0, 0.25),
        Cluster("2", "train.py:5", "", 0, 0, 0, 0.0, 0.0),
    ]
    padded = [PaddedInput(1, 0, "words", 100, 60), PaddedInput(1, 1, "ids", 100, 10)]
    found = _findings.find([program()], clusters, padded, [])
    assert [finding.source for finding in found] == ["train.py:3", "train.py:4", "train.py:7"]
    assert "called directly; cores waited 250.0 ms" in found[0].detail
    assert "it writes a variable" in found[1].detail
    assert found[2].what == "60 % of input words is padding"


def test_findings_of_a_target():
    verdict = Verdict(
        "v5e-8", "step", 1, "[2]", 8, 1, Answer.OUT_OF_MEMORY, "too large", advice="Smaller."
    )
    [finding] = _findings.find([program()], [], [], [verdict])
    assert (finding.severity, finding.advice) == ("refused", "Smaller.")
    assert "v5e-8" in finding.what


def test_timeline_of_shared_runs_and_waits():
    launches = [
        {
            "program_id": 1,
            "run_id": 4,
            "begin": 10.0,
            "end": 10.5,
            "runs": [{"cores": [0, 1], "begin": 10.1, "end": 10.4}],
        },
        {"program_id": 1, "run_id": 5, "begin": 11.0, "end": None, "runs": []},
    ]
    meetings = [
        {
            "name": "all-reduce",
            "run_id": 4,
            "arrivals": [{"core": 0, "time": 10.2}, {"core": 1, "time": 10.3}],
        },
        {"name": "all-reduce", "run_id": 9, "arrivals": [{"core": 0, "time": 9.0}]},
    ]
    drawn = _timeline.timeline([_timeline.Host([program(started=8.0)], launches, meetings)])
    assert drawn["lanes"] == ["compiler", "core 0", "core 1"]
    assert [step["number"] for step in drawn["steps"]] == [1]
    kinds = [(bar["lane"], bar["kind"], bar["x1"], bar["x2"]) for bar in drawn["bars"]]
    assert kinds == [
        ("compiler", "compile", 0.0, 1000.0),
        ("core 0", "run", 2100.0, 2400.0),
        ("core 1", "run", 2100.0, 2400.0),
        ("core 0", "wait", 2200.0, 2300.0),
        ("core 0", "update", 2400.0, 2500.0),
        ("core 1", "update", 2400.0, 2500.0),
    ]
    assert "waits for core 1" in drawn["bars"][3]["label"]
    assert "one run for 2 cores" in drawn["bars"][1]["label"]
