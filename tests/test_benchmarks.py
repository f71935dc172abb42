"""The benchmark of training steps runs, checks that peers agree, and reports what it says."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
PROGRAMS = ("mlp", "embedding")
PEERS = ("ours", "mirrored", "plain", "jit_compile")
# The benchmarks import each other from their folder.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def run_benchmark(name, *options):
    """Runs a benchmark to its end, which has to be a good one."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *map(str, options)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "report.json"
    run_benchmark("steps.py", "--smoke", "--json", path, "--programs", *PROGRAMS, "--peers", *PEERS)
    return json.loads(path.read_text())


def test_every_peer_is_timed_with_the_same_losses(report):
    results = {(result["program"], result["peer"]): result for result in report["results"]}
    assert set(results) == {(program, peer) for program in PROGRAMS for peer in PEERS}
    for (program, _), result in results.items():
        assert "error" not in result, result
        assert result["replicas"] == 2
        assert 0 < result["low_ms"] <= result["ms"] <= result["high_ms"]
        assert result["first_step_seconds"] * 1e3 > result["ms"]
        assert result["peak_mb"] > result["added_mb"]
        losses = results[program, "plain"]["losses"]
        assert result["losses"] == pytest.approx(losses, rel=1e-3)
        assert losses[-1] < losses[0]


def test_report_has_ratios_bounds_and_targets(report):
    ratios = {(r["program"], r["peer"]): r["ratio"] for r in report["ratios"]}
    assert set(ratios) == {
        (program, peer)
        for program in PROGRAMS
        for peer in ("mirrored", "plain", "jit_compile", "one device")
    }
    times = {(r["program"], r["peer"]): r["ms"] for r in report["results"]}
    quickest = min(times["mlp", "plain"], times["mlp", "jit_compile"])
    assert ratios["mlp", "one device"] == pytest.approx(times["mlp", "ours"] / quickest)
    assert report["machine"]["gigaflops"] > 0
    assert report["machine"]["gigabytes"] > 0
    assert set(report["work"]) == set(PROGRAMS)
    targets = {(t["program"], t["peer"]): t for t in report["targets"] if t["measure"] == "ms"}
    target = targets["mlp", "mirrored"]
    assert target["value"] == pytest.approx(ratios["mlp", "mirrored"])
    assert target["met"] == (target["value"] <= target["limit"])


def test_who_computes_something_else_is_not_timed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import steps

    class Idle:
        def __init__(self, peer):
            self.peer = peer

    entrants = [steps.Entrant(Idle(peer), "mlp", 2) for peer in PEERS]
    for entrant, losses in zip(
        entrants, ([2.0, 1.0], [2.0, 1.0005], [2.0, 1.1], [2.0, 2.0]), strict=True
    ):
        entrant.result["losses"] = losses
    steps.check_losses(entrants)
    assert [entrant.failed for entrant in entrants] == [False, False, True, True]
    assert "[2.0, 1.1]" in entrants[2].result["error"]
    assert "[2.0, 1.0]" in entrants[2].result["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "ours", "--programs", "none"], "invalid choice: 'none'"),
        (["--replicas", "3"], "can't be split by [3]"),
        (["--rounds", "-1"], "must be positive"),
    ],
)
def test_wrong_arguments(arguments, message):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "steps.py"), *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_models_are_trained_by_every_peer(tmp_path):
    path = tmp_path / "report.json"
    run_benchmark(
        "models.py",
        "--smoke",
        "--json",
        path,
        "--models",
        "unet",
        "--peers",
        "ours",
        "mirrored",
        "plain",
    )
    report = json.loads(path.read_text())
    results = {result["peer"]: result for result in report["results"]}
    assert set(results) == {"ours", "mirrored", "plain"}
    for result in results.values():
        assert "error" not in result, result
        assert 0 < result["low_ms"] <= result["ms"] <= result["high_ms"]
        assert result["losses"][0] == pytest.approx(results["plain"]["losses"][0], rel=0.5)
    targets = {(t["measure"], t["peer"]): t["value"] for t in report["targets"]}
    expected = results["ours"]["ms"] / results["plain"]["ms"]
    assert targets["ms", "plain"] == pytest.approx(expected)


def test_options_times_all():
    done = run_benchmark("options.py", "--smoke", "--programs", "mlp")
    [name, usual, one, tpu, ratio, *others] = done.stdout.splitlines()[-1].split()
    assert (name, one) == ("mlp", "1.00")
    assert float(ratio) == pytest.approx(float(tpu) / float(usual), rel=0.05)
    assert len(others) == 4  # "check" and "profile"


def test_startup_tells_what_each_program_adds():
    done = run_benchmark("startup.py", "--rounds", "2", "--json")
    report = json.loads(done.stdout)
    assert len(report["rounds"]) == 2
    for name, base in (
        ("import tf_tpu_ext", "nothing"),
        ("first op, on a core", "first op, on the CPU"),
        ("first program", "first op, on the CPU"),
    ):
        expected = [seconds[name] - seconds[base] for seconds in report["rounds"]]
        assert report["added"][name] == pytest.approx(expected)
    # The library is loaded, and a program is compiled.
    assert all(seconds > 0 for seconds in report["added"]["import tf_tpu_ext"])


def test_pods_times_every_row_with_the_same_values(tmp_path):
    path = tmp_path / "report.json"
    run_benchmark("pods.py", "--smoke", "--json", path, "--rounds", "1")
    report = json.loads(path.read_text())
    results = {(result["row"], result["peer"]): result for result in report["results"]}
    rows = ("empty", "all_reduce", "mlp", "transformer", "gradients")
    peers = ("ours", "multi_worker", "jax", "remote")
    assert set(results) == {(row, peer) for row in rows for peer in peers}
    for (row, peer), result in results.items():
        if "missing" in result:
            assert peer == "jax" or (peer == "remote" and row != "empty"), result
            continue
        assert result["processes"] == 2
        assert 0 < result["low_ms"] <= result["ms"] <= result["high_ms"]
        ours = results[row, "ours"]
        assert result["values"] == pytest.approx(ours["values"], rel=1e-4)
        assert result["ratio"] == pytest.approx(ours["ms"] / result["ms"])


def test_pods_ends_the_processes_of_a_peer_that_fails(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    import pods
    import steps

    team = pods.Team("multi_worker", 2, smoke=True)
    try:
        team.wait_for_start()
        # The other process would wait for this one.
        team._members[1].kill()
        for _ in range(2):
            with pytest.raises(steps.WorkerError, match="ended in 'all_reduce' with code"):
                team.steps("all_reduce", 1)
        assert [member._process.wait(30) for member in team._members] == [-9, -9]
    finally:
        team.close()


def test_distributed_datasets_are_timed_for_every_peer(tmp_path):
    path = tmp_path / "report.json"
    done = run_benchmark(
        "distributed_datasets.py", "--json", path, "--replicas", "2", "--rounds", "1"
    )
    rows = json.loads(path.read_text())["2"]
    assert set(rows) == {"iterator", "in function", "eager"}
    for times in rows.values():
        assert set(times) == {"ours", "stock", "plain"}
        assert all(ms > 0 for ms in times.values())
        assert f"{times['ours']:9.3f}{times['stock']:9.3f}{times['plain']:9.3f}" in done.stdout
