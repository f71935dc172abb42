"""docs/towers.md names every member, and the examples of docstrings run."""

from __future__ import annotations

import pathlib
import re

from tf_tpu_ext.towers import _members, strategy

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "towers.md"


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
