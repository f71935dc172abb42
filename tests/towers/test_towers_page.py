"""The programs of docs/towers.md run, and the steps of a migration come to the same."""

from __future__ import annotations

import pathlib
import re

import pytest

from tf_tpu_ext.towers import _members, strategy

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "towers.md"
PROGRAM = re.compile(r"(?:<!-- migration: ([^\n]*) -->\n)?```python\n(.*?)```", re.DOTALL)
PROGRAMS = [
    (name or str(i), code) for i, (name, code) in enumerate(PROGRAM.findall(PAGE.read_text()))
]
EXPECTED = {
    "0": "[10, 11]",
    "1": "<class 'tf_tpu_ext.towers.strategy.TPUStrategy'>",
    # 1 + (3 - 1) * (1 - 0.6**5)
    "contrib": "weight 2.84448",
    "towers": "weight 2.84448",
    "tensorflow 2": "weight 2.84448",
    "estimator": "loss 0.74417",
    "keras": "loss 0.74417",
}


@pytest.mark.parametrize(("name", "code"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_program(run_python, tmp_path, name, code):
    # Autograph reads the source of functions.
    program = tmp_path / "program.py"
    program.write_text(code)
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    printed = run_python(run, str(program), env={"TF_TPU_EXT_CORES": "2"}).stdout.strip()
    assert printed.split("\n")[-1] == EXPECTED[name]


def test_every_member_is_in_the_table():
    text = PAGE.read_text()
    members = set(vars(strategy.TPUStrategy)) | set(vars(_members.Members))
    for name in members:
        if not name.startswith("_") and name not in ("steps_per_run", "is_single_tower"):
            assert re.search(rf"\b{name}\b", text), name


RUN_EXAMPLES = """
    import doctest, importlib, sys
    import tensorflow as tf
    import tf_tpu_ext

    failures = 0
    for name in sys.argv[1:]:
        module, _, attribute = name.rpartition(".")
        owner = importlib.import_module(module)
        names = {**vars(owner), "tf": tf, "tf_tpu_ext": tf_tpu_ext}
        [test] = doctest.DocTestFinder(recurse=False).find(getattr(owner, attribute), globs=names)
        assert test.examples, name
        failures += doctest.DocTestRunner().run(test).failed
    sys.exit(failures)
"""


def test_examples_of_docstrings(run_python):
    run_python(
        RUN_EXAMPLES,
        "tf_tpu_ext.towers.TPUStrategy",
        "tf_tpu_ext.towers.TowerContext",
        "tf_tpu_ext.towers.get_tower_context",
        "tf_tpu_ext.towers.MultiStepContext",
        "tf_tpu_ext.contrib.install",
        "tf_tpu_ext.contrib.step_fn.StandardSingleLossStep",
        "tf_tpu_ext.contrib.hparams.HParams",
        env={"TF_TPU_EXT_CORES": "2"},
    )
