"""The changes to TensorFlow can be applied and undone, and the docs list them all."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import threading
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

from tf_tpu_ext import _native, patches

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "patches.md"
NAMES = tuple(patch.name for patch in patches.PATCHES if patch.group == "tensorflow")
Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


# What a test has changed is restored before the patches are.
pytestmark = pytest.mark.usefixtures("tensorflow_patches", "monkeypatch")


def init_of(resolver: type) -> Any:
    return vars(resolver)["__init__"]


# Applying and undoing.


def test_import_applies_every_patch(run_python):
    out = run_python(
        """
        import tf_tpu_ext
        from tf_tpu_ext import patches
        print(patches.applied())
        """
    ).stdout
    assert out.splitlines()[-1] == str(NAMES)


def test_names_are_unique_and_every_field_is_filled():
    assert len({patch.name for patch in patches.PATCHES}) == len(patches.PATCHES)
    for patch in patches.PATCHES:
        for field in dataclasses.fields(patch):
            assert getattr(patch, field.name), (patch.name, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            patch.name = "other"


def test_applying_twice_changes_nothing():
    assert patches.applied() == NAMES
    init = init_of(Resolver)
    patches.apply()
    assert patches.applied() == NAMES
    assert init_of(Resolver) is init


def test_undo_restores_the_very_objects():
    ours = init_of(Resolver)
    stock = ours.__wrapped__
    patches.undo_all()
    assert patches.applied() == ()
    assert init_of(Resolver) is stock
    assert not hasattr(stock, "__wrapped__")
    patches.undo_all()
    assert init_of(Resolver) is stock
    with pytest.raises(ValueError, match="TPU Name"):
        Resolver()

    patches.apply()
    assert patches.applied() == NAMES
    assert init_of(Resolver).__wrapped__ is stock


def test_undo_keeps_a_change_that_other_code_made_later():
    ours = init_of(Resolver)

    def other(self: Any, *args: Any, **kwargs: Any) -> None:
        ours(self, *args, **kwargs)

    Resolver.__init__ = other
    try:
        with pytest.raises(RuntimeError, match=r"TPUClusterResolver\.__init__ can't be restored"):
            patches.undo_all()
        assert init_of(Resolver) is other
        assert "cluster_resolver" in patches.applied()
    finally:
        Resolver.__init__ = ours
    patches.undo_all()
    assert patches.applied() == ()


def test_undo_takes_away_what_covers_an_inherited_method():
    ours = TPUReplicateContext.ExitResult
    patches.undo_all()
    assert "ExitResult" not in vars(TPUReplicateContext)
    assert TPUReplicateContext.ExitResult is ours.__wrapped__
    patches.apply()
    assert TPUReplicateContext.ExitResult.__wrapped__ is ours.__wrapped__


def test_undo_restores_all_places_of_a_patch_or_none(monkeypatch):
    ours = tf.config.experimental_connect_to_cluster
    monkeypatch.setattr(tf.compat.v1.config, "experimental_connect_to_cluster", print)
    with pytest.raises(RuntimeError, match="experimental_connect_to_cluster can't be restored"):
        patches.undo_all()
    assert "connect_to_cluster" in patches.applied()
    assert tf.config.experimental_connect_to_cluster is ours

    monkeypatch.undo()
    patches.undo_all()
    assert patches.applied() == ()
    for module in (tf.config, tf.compat.v1.config, tf.compat.v2.config):
        assert module.experimental_connect_to_cluster is ours.__wrapped__


def test_threads_may_apply_and_undo_at_once():
    stock = init_of(Resolver).__wrapped__
    start = threading.Barrier(8)
    failures: list[Exception] = []

    def work(apply_first: bool) -> None:
        start.wait()
        try:
            for turn in range(50):
                if (turn % 2 == 0) == apply_first:
                    patches.apply()
                else:
                    patches.undo_all()
                assert patches.applied() in ((), NAMES)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    patches.apply()
    assert init_of(Resolver).__wrapped__ is stock
    patches.undo_all()
    assert init_of(Resolver) is stock


def test_a_patch_that_does_not_fit_is_left_out_with_a_warning(monkeypatch):
    def refuse(changes: Any) -> None:
        del changes
        raise patches.UnavailableError("Expected a loop, got none.")

    patches.undo_all()
    first, *others = patches.PATCHES
    changed = (dataclasses.replace(first, install=refuse), *others)
    monkeypatch.setattr(patches, "PATCHES", changed)
    with pytest.warns(RuntimeWarning) as caught:
        patches.apply()
    assert patches.applied() == NAMES[1:]
    [warning] = caught
    for part in (first.target, first.name, first.reason, "Expected a loop, got none."):
        assert part in str(warning.message)
    assert warning.filename == __file__


def test_the_native_message_reaches_the_user(monkeypatch):
    patches.undo_all()
    monkeypatch.setattr(_native, "text_of", lambda function: "No loaded library calls it.")
    with pytest.warns(RuntimeWarning, match="No loaded library calls it"):
        patches.apply()
    assert patches.applied() == NAMES[:-1]


def test_nothing_changes_beside_a_real_tpu(monkeypatch):
    patches.undo_all()
    stock = init_of(Resolver)
    monkeypatch.setattr(_native, "load", lambda: False)
    patches.apply()
    assert patches.applied() == ()
    assert init_of(Resolver) is stock


# The documentation.


def documented() -> list[dict[str, str]]:
    """Reads the sections of the docs: a heading with the name, then `- Label: text` items."""
    sections = []
    for section in re.split(r"^### ", DOCS.read_text(), flags=re.MULTILINE)[1:]:
        heading, body = section.split("\n", 1)
        fields = {"name": heading.strip().strip("`")}
        body = re.split(r"^## ", body, flags=re.MULTILINE)[0]
        for item in re.split(r"^- ", body, flags=re.MULTILINE)[1:]:
            label, text = item.split(":", 1)
            fields[label.lower()] = " ".join(text.split())
        sections.append(fields)
    return sections


def test_the_docs_list_the_same_patches():
    expected = [
        {
            "name": patch.name,
            "target": f"`{patch.target}`",
            "change": patch.change,
            "reason": patch.reason[0].upper() + patch.reason[1:],
        }
        for patch in patches.PATCHES
    ]
    assert documented() == expected


def test_the_docs_say_how_to_undo():
    assert "patches.undo_all()" in DOCS.read_text()


def test_libraries_that_do_not_load_say_why(tmp_path):
    for name in ("libtensorflow_io.so", "libother.so"):
        (tmp_path / name).write_text("not a library")
    for load in (tf.load_op_library, tf.compat.v1.load_op_library):
        with pytest.raises(NotImplementedError, match=r"0\.37\.1 beside.*tf-tpu io setup"):
            load(str(tmp_path / "libtensorflow_io.so"))
        with pytest.raises(tf.errors.NotFoundError, match="libother"):
            load(str(tmp_path / "libother.so"))
