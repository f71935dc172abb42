"""Where in a pod a host is: by option, by TF_CONFIG, by Slurm."""

from __future__ import annotations

import json

import pytest

from tf_tpu_ext import pods

SLURM = {
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1",
}


def config(**changes):
    cluster = {"worker": ["a:8470", "b:8471"]}
    whole = {"cluster": cluster, "task": {"type": "worker", "index": 1}, **changes}
    return {"TF_CONFIG": json.dumps(whole)}


@pytest.mark.parametrize(
    ("port", "environment", "hosts", "task"),
    [
        (None, {}, ("localhost:8470",), 0),
        (None, {"TPU_TASK_PORT": "9000"}, ("localhost:9000",), 0),
        (9001, {"TPU_TASK_PORT": "9000"}, ("localhost:9001",), 0),
        (None, config(), ("a:8470", "b:8471"), 1),
        (8471, config(), ("a:8470", "b:8471"), 1),
        (None, SLURM, ("node1:8470", "node2:8470"), 1),
        (9002, SLURM, ("node1:9002", "node2:9002"), 1),
        (
            None,
            {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_PROCID": "3"},
            ("node1:8470", "node1:8471", "node2:8470", "node2:8471"),
            3,
        ),
        # One task, as an interactive shell has it, makes no pod.
        (None, {**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, ("localhost:8470",), 0),
    ],
)
def test_places(port, environment, hosts, task):
    place = pods.find_place(port, environment=environment)
    assert (place.hosts, place.task) == (hosts, task)
    assert f":{place.port}" in hosts[task]
    assert place.master == ",".join(f"grpc://{host}" for host in hosts)


@pytest.mark.parametrize(
    ("port", "environment", "words"),
    [
        (None, {"TPU_TASK_PORT": "http"}, "TPU_TASK_PORT is 'http', expected the number of a port"),
        (None, {"TPU_TASK_PORT": "65536"}, "expected the number of a port"),
        (None, {"TF_CONFIG": "{"}, "TF_CONFIG is '{'"),
        (None, config(task={"type": "worker", "index": 2}), "expected such as"),
        (None, config(task={"type": "worker", "index": -1}), "expected such as"),
        (None, config(task={"type": "chief", "index": 0}), "'chief'"),
        (None, config(cluster={"worker": ["a", "b"]}), "expected such as"),
        (8470, config(), "in TF_CONFIG this host is b:8471"),
        (None, {**SLURM, "SLURM_PROCID": "2"}, "srun --ntasks-per-node=1 tf-tpu worker"),
    ],
)
def test_wrong_variables(port, environment, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the words are compared below)
        pods.find_place(port, environment=environment)
    assert words in str(error.value)
