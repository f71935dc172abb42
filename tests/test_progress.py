"""`tf-tpu run --progress`: steps, their rate, and what is waited for."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time

import imported_processes
import pytest
from imported_processes import CLI

import tf_tpu_ext
from tf_tpu_ext.launcher._progress import Compiling, Line, Now, of_process, together

SCRIPT = """
import sys
import time
import tensorflow as tf
import tf_tpu_ext
from tf_tpu_ext import _faults

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="any")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)


@tf.function
def train_step():
    return strategy.run(lambda: tf.reduce_sum(tf.ones([8, 8])))


if sys.argv[1] != "0":
    _faults.arm("compilation", stall_seconds=float(sys.argv[1]))
train_step()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    train_step()
    time.sleep(0.05)
time.sleep(float(sys.argv[3]))
"""


# The host of the last core takes its time, and the others wait in the sum.
LATE_SCRIPT = """
import tensorflow as tf
import tf_tpu_ext

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="any")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)


def late(x):
    end = tf.timestamp() + tf.where(x > 2.5, tf.constant(4.0, tf.float64), 0.0)
    return tf.while_loop(lambda y: tf.timestamp() < end, lambda y: [y], [x])[0]


@tf.function
def train_step():
    def replica():
        context = tf.distribute.get_replica_context()
        x = tf.cast(context.replica_id_in_sync_group, tf.float32)
        return context.all_reduce("SUM", tf_tpu_ext.tpu.outside_compilation(late, x))

    return strategy.run(replica)


train_step()
"""


def test_line_tells_the_rate_of_the_last_seconds():
    line = Line()
    assert line.text(Now(0), 100.0) == "tf-tpu: 0 steps, 0.0 steps/s"
    assert line.text(Now(50), 105.0) == "tf-tpu: 50 steps, 10.0 steps/s"
    assert line.text(Now(100), 110.0) == "tf-tpu: 100 steps, 10.0 steps/s"
    # The first seconds count no more.
    assert line.text(Now(300), 115.0) == "tf-tpu: 300 steps, 25.0 steps/s"
    assert line.text(Now(500), 120.0) == "tf-tpu: 500 steps, 40.0 steps/s"


def test_line_tells_what_is_waited_for():
    line = Line()
    assert line.text(Now(3, 7, "train"), 0.0) == "tf-tpu: 3 steps, 0.0 steps/s"
    assert line.text(Now(3, 7, "train"), 2.0).endswith(", train runs, for 2 s")
    waits = "cores [0] are ready and wait for cores [1]."
    assert line.text(Now(3, 7, "train", waits), 4.0).endswith(
        ", train: cores [0] are ready and wait for cores [1], for 4 s"
    )
    # Another launch.
    assert line.text(Now(4, 8, "train"), 5.0).endswith(" steps/s")
    assert line.text(Now(5), 6.0).endswith(" steps/s")
    assert line.text(Now(5), 9.0).endswith(
        ", no program has run for 3 s: the script or its input is at work"
    )
    compiling = (Compiling("train (12 instructions)", 3.4),)
    assert line.text(Now(5, compiling=compiling), 12.0).endswith(
        ", compiling train (12 instructions) for 3 s"
    )


def test_workers_tell_who_waits_for_whom():
    train = (Compiling("train (12 instructions)", 3.0),)
    told = [
        Now(4, 9, "train", "cores [0] wait in all-reduce.", (Compiling(train[0].what, 2.0),)),
        Now(3, 8, "evaluate", "cores [0] are ready and wait for cores [1]; "),
        Now(4, compiling=train),
    ]
    assert together(told) == Now(
        4,
        8,
        "evaluate",
        "worker 0: cores [0] wait in all-reduce; "
        "worker 1: cores [0] are ready and wait for cores [1]",
        train,
    )
    assert together([Now(2), Now(3)]) == Now(3)


def test_steps_are_launches_that_have_ended():
    import tensorflow as tf

    before = of_process().steps
    for _ in range(3):
        tf_tpu_ext.tpu.rewrite(lambda x: x * 5.0, [tf.ones([2])])
    assert of_process() == Now(before + 3)


def test_launch_that_goes_on_is_named(make_strategy):
    import tensorflow as tf

    strategy = make_strategy(2)
    go, seen = threading.Event(), []

    def wait(x):
        seen.append(of_process())
        go.wait(20)
        return x

    @tf.function
    def step(x):
        def replica(x):
            return tf_tpu_ext.tpu.outside_compilation(
                lambda y: tf.ensure_shape(tf.numpy_function(wait, [y], tf.float32), []), x * 2.0
            )

        return strategy.run(replica, args=(x,))

    thread = threading.Thread(target=step, args=(tf.constant(1.0),))
    thread.start()
    while thread.is_alive() and len(seen) < 2:
        time.sleep(0.01)
    now = of_process()
    go.set()
    thread.join()
    assert "step" in now.program
    assert now.run_id > 0
    assert (of_process().run_id, of_process().steps) == (0, now.steps + 1)


def run(folder, *arguments, options=("--progress-seconds=0.5",), script=SCRIPT):
    (folder / "train.py").write_text(script)
    command = ["run", "--cores=2", *options, "train.py", *arguments]
    return imported_processes.tf_tpu(*command, cwd=folder, timeout=200)


def test_command_writes_a_line_every_few_seconds(tmp_path):
    done = run(tmp_path, "1.5", "1.5", "0")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "steps/s" in line]
    # More would be too often, whatever else takes time.
    assert 4 <= len(lines) <= 60, done.stderr
    assert any(
        re.search(r"compiling \S*train_step\S* \(\d+ instructions\) for \d s", x) for x in lines
    )
    steps = [int(re.match(r"tf-tpu: (\d+) steps, [\d.]+ steps/s", line)[1]) for line in lines]
    assert steps == sorted(steps)
    assert "\r" not in done.stderr
    assert "virtual cores" in done.stderr


def test_command_writes_in_place_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    written = []

    def read():
        try:
            while data := os.read(ours, 4096):
                written.append(data)
        except OSError:
            pass  # the other end is closed

    reader = threading.Thread(target=read)
    reader.start()
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, str(CLI), "run", "--cores=2", "--progress", "train.py"]
    done = subprocess.run([*command, "0", "3", "2"], cwd=tmp_path, stderr=theirs, timeout=200)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = b"".join(written).decode()
    assert done.returncode == 0, text
    drawn = re.findall(r"\r\x1b\[K(tf-tpu: (\d+) steps, ([\d.]+) steps/s[^\r\n]*)", text)
    assert len(drawn) >= 4, text
    # A step sleeps for 50 ms.
    steps = [int(number) for _, number, _ in drawn]
    assert steps == sorted(steps)
    assert 5 < steps[-1] <= 60
    assert any(0 < float(rate) <= 20 for _, _, rate in drawn)
    assert "no program has run for" in drawn[-1][0]
    # The line is gone before the report.
    assert re.search(r"\r\x1b\[K(?:\r?\n)?tf-tpu: 2 virtual cores", text), text


# Says what would write a line, sooner or later.
THREADS_SCRIPT = """
import threading
print([thread.name for thread in threading.enumerate()])
"""


@pytest.mark.parametrize("options", [(), ("--progress",), ("--progress-seconds=1e8",)])
def test_only_the_options_start_a_writer(tmp_path, options):
    done = run(tmp_path, options=options, script=THREADS_SCRIPT)
    assert done.returncode == 0, done.stderr
    assert ("tpu_progress" in done.stdout) == bool(options)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e99", "soon"])
def test_impossible_intervals_are_refused(tmp_path, seconds):
    done = run(tmp_path, options=(f"--progress-seconds={seconds}",), script=THREADS_SCRIPT)
    assert done.returncode == 2
    assert f"expected a number of seconds above 0 and below 1e9, got '{seconds}'" in done.stderr


@pytest.mark.parametrize("workers", [2])
def test_workers_are_asked(tmp_path, workers):
    options = ("--progress-seconds=0.5", f"--workers={workers}")
    done = run(tmp_path, "0", "2", "0", options=options)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "steps/s" in line]
    assert lines, done.stderr
    assert any(not line.startswith("tf-tpu: 0 steps") for line in lines), done.stderr


def test_workers_tell_what_they_wait_for(tmp_path):
    done = run(
        tmp_path,
        options=("--progress-seconds=0.5", "--workers=2"),
        script=LATE_SCRIPT,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"train_step\S*: worker 0: .*all-reduce.*, for \d+ s", done.stderr), (
        done.stderr
    )
