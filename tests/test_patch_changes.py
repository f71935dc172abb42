"""The changes of a patch are made as a whole, beside those of others, where signatures fit."""

from __future__ import annotations

import re
import types
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from tf_tpu_ext import patches
from tf_tpu_ext.patches import _signatures
from tf_tpu_ext.patches._changes import Changes
from tf_tpu_ext.towers import _host_ops

# The changes of one patch.


@pytest.mark.parametrize(
    "error", [patches.UnavailableError("too old"), KeyError("gone"), KeyboardInterrupt()]
)
def test_a_failure_half_way_takes_back_what_was_done(monkeypatch, error):
    module: Any = types.ModuleType("module")
    stock = module.present = lambda x: x
    items: dict[str, Any] = {}

    def install(changes: Changes) -> None:
        changes.wrap(module, "present", lambda stock: lambda x: stock(x) + 1)
        changes.put(module, "added", 1)
        changes.put_item(items, "key", 1)
        assert module.present(1) == 2
        raise error

    patch = patches.Patch("ours", "tensorflow", "its target", "change", "its reason", install)
    monkeypatch.setattr(patches, "PATCHES", (patch,))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            patches.apply()
    else:
        with pytest.warns(RuntimeWarning, match=rf"its target.*{error.args[0]}.*its reason"):
            patches.apply()
    assert "ours" not in patches.applied()
    assert module.present is stock
    assert not hasattr(module, "added")
    assert items == {}


def test_a_conflict_keeps_one_patch_and_undoes_the_others(tensorflow_patches):
    del tensorflow_patches
    ours = tf.load_op_library
    tf.load_op_library = print
    try:
        with pytest.raises(RuntimeError, match="load_op_library can't be restored"):
            patches.undo_all()
        assert patches.applied() == ("tensorflow_io",)
    finally:
        tf.load_op_library = ours
    patches.undo_all()
    assert patches.applied() == ()


# The hook of a merge_fn.


def test_the_hook_of_merge_fn_keeps_what_others_put_there_before():
    stock = FuncGraph._create_op_internal
    made: list[str] = []

    def other(self: Any, op_type: str, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(op_type)
        return stock(self, op_type, inputs, *args, **kwargs)

    FuncGraph._create_op_internal = other
    try:
        with _host_ops._hook, FuncGraph("graph").as_default():
            tf.constant(1)
        assert FuncGraph._create_op_internal is other
        assert made == ["Const"]
    finally:
        FuncGraph._create_op_internal = stock


def test_the_hook_of_merge_fn_keeps_what_others_put_there_meanwhile():
    stock = FuncGraph._create_op_internal
    with _host_ops._hook:
        ours = FuncGraph._create_op_internal

        def other(*args: Any, **kwargs: Any) -> Any:
            return ours(*args, **kwargs)

        FuncGraph._create_op_internal = other
    try:
        assert FuncGraph._create_op_internal is other
        assert "host_ops" in patches.applied()
        with _host_ops._hook, FuncGraph("graph").as_default():
            # It is not wrapped again.
            assert FuncGraph._create_op_internal is other
            tf.constant(1)
    finally:
        FuncGraph._create_op_internal = ours
        patches.undo("host_ops")
    assert FuncGraph._create_op_internal is stock


# Signatures.


@pytest.mark.parametrize(
    ("found", "replacement", "problem"),
    [
        (lambda x, y: 0, lambda x, y: 0, None),
        (lambda x, y=2: 0, lambda x, *args, **kwargs: 0, None),
        (lambda x, y=2, *, z: 0, lambda x, *args, **kwargs: 0, None),
        (lambda *args, **kwargs: 0, lambda x, *, y: 0, None),
        (lambda x: 0, lambda x, y: 0, r"expected the parameters \(x, y\), got \(x\)"),
        (lambda x, y: 0, lambda x: 0, r"expected the parameters \(x\), got \(x, y\)"),
        (lambda y, x: 0, lambda x, y: 0, r"expected the parameters \(x, y\), got \(y, x\)"),
        (lambda x, *, z: 0, lambda x: 0, r"got \(x, \*, z\)"),
        (lambda x: 0, lambda x, *, z: 0, r"expected the parameters \(x, \*, z\)"),
        (lambda z, y: 0, lambda x, *args, **kwargs: 0, r"got \(z, y\)"),
        (3, lambda x: 0, r"expected a function with the parameters \(x\), got 3"),
    ],
)
def test_signatures(found, replacement, problem):
    got = _signatures.mismatch(found, replacement)
    assert (got is None) if problem is None else re.search(problem, got or "")


def test_parameters_that_are_used_must_be_there():
    assert _signatures.mismatch(lambda x, y: 0, lambda *args: 0, ("y",)) is None
    problem = _signatures.mismatch(lambda x, z: 0, lambda *args: 0, ("y", "x"))
    assert problem == "expected the parameters y among (x, z)"


def test_the_first_parameter_of_a_method_has_any_name():
    assert _signatures.mismatch(lambda self, x: 0, lambda queue, x: 0, method=True) is None
    assert _signatures.mismatch(lambda self, x: 0, lambda queue, y: 0, method=True)
