"""Every name of the tpu API has its page and documents its arguments."""

from __future__ import annotations

import inspect

import pytest

from tf_tpu_ext import tpu

OWN = [name for name in tpu.__all__ if getattr(tpu, name).__module__.startswith("tf_tpu_ext")]


def test_every_name_is_documented_with_its_page():
    for name in OWN:
        assert "https://" in inspect.getdoc(getattr(tpu, name)), name


@pytest.mark.parametrize("name", [name for name in OWN if inspect.isfunction(getattr(tpu, name))])
def test_every_argument_is_documented(name):
    function = getattr(tpu, name)
    documentation = inspect.getdoc(function)
    for parameter in inspect.signature(function).parameters:
        assert f"{parameter}: " in documentation, parameter


def test_arguments_are_those_of_tensorflow():
    import tensorflow as tf

    for name in OWN:
        theirs = getattr(tf.compat.v1.tpu, name, None)
        if inspect.isfunction(theirs):
            mine = inspect.signature(getattr(tpu, name)).parameters
            assert list(mine) == list(inspect.signature(theirs).parameters), name
