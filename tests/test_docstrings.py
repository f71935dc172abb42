"""Every example in a docstring runs, and every public name has one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import pathlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import tf_tpu_ext
from tf_tpu_ext.contrib import _names

PACKAGE = pathlib.Path(tf_tpu_ext.__file__).parent
WITH_EXAMPLES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text()
]
PUBLIC_MODULES = [
    "tf_tpu_ext",
    "tf_tpu_ext.contrib",
    "tf_tpu_ext.io",
    "tf_tpu_ext.patches",
    "tf_tpu_ext.towers",
    "tf_tpu_ext.tpu",
    "tf_tpu_ext.verdict",
]

# Each function, and each class with its methods, has a process of its own with the names of its
# package, and eight cores, or two if the docstring or that of the package says so.
RUN_EXAMPLES = """
    import doctest, importlib, itertools, os, sys
    import tensorflow as tf
    import tf_tpu_ext

    module = importlib.import_module(sys.argv[1])
    package = importlib.import_module(module.__package__)
    names = {**vars(package), **vars(module), "tf": tf, "tf_tpu_ext": tf_tpu_ext}
    names = {name: value for name, value in names.items() if not name.startswith("__")}

    def run(tests):
        if "two cores" in package.__doc__ + tests[0].docstring:
            tf_tpu_ext.configure(cores=2)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        for test in tests:
            test.globs = {**names, "__name__": "__main__"}
            runner.run(test)
        sys.stdout.flush()
        return runner.summarize(verbose=False).failed

    def owner(test):
        return test.name.removeprefix(module.__name__).split(".")[:2]

    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    failed = []
    for name, group in itertools.groupby(sorted(tests), owner):
        child = os.fork()
        if child == 0:
            os._exit(min(run(list(group)), 1))
        if os.waitpid(child, 0)[1] != 0:
            failed.append(".".join(name))
    sys.exit(f"failed: {failed}" if failed else 0)
"""


def public_names() -> Iterator[tuple[str, Any]]:
    """Gives the classes and functions that the package defines for its users."""
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__module__", "").startswith("tf_tpu_ext"):
                yield f"{module_name}.{name}", value


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_run(request, run_python, module):
    if "estimator" in module and importlib.util.find_spec("tensorflow_estimator") is None:
        pytest.skip("tensorflow-estimator is not installed")
    if module.startswith("tf_tpu_ext.io"):
        request.getfixturevalue("io_environment")
    run_python(RUN_EXAMPLES, module, timeout=300)


def members() -> Iterator[tuple[str, Any]]:
    """Gives the methods and properties that the package defines for its users."""
    for name, value in itertools.chain(public_names(), contrib_names()):
        for owner in inspect.getmro(value) if inspect.isclass(value) else ():
            if not owner.__module__.startswith("tf_tpu_ext"):
                continue
            for member_name, member in vars(owner).items():
                is_member = inspect.isroutine(member) or isinstance(member, property)
                if is_member and not member_name.startswith("_"):
                    yield f"{name}.{member_name}", member


def contrib_names() -> Iterator[tuple[str, Any]]:
    """Gives the functions and classes of `tf.contrib` that the package itself defines."""
    for table in _names.MODULES.values():
        for entry in table.values():
            if isinstance(entry, str) and entry.startswith("tf_tpu_ext.contrib"):
                value = pkgutil.resolve_name(entry)
                if inspect.isroutine(value) or inspect.isclass(value):
                    yield entry, value


@pytest.mark.parametrize("find", [public_names, members, contrib_names])
def test_examples_are_given(find):
    names = dict(find())
    assert names
    without = [name for name, value in names.items() if ">>> " not in (value.__doc__ or "")]
    assert not without


def test_every_name_has_one_place():
    places = [name.rpartition(".")[2] for name, _ in public_names()]
    # The page of the strategy of tf.contrib names it without its module.
    places.remove("TPUStrategy")
    assert len(places) == len(set(places))


def test_names_that_moved_are_found_with_a_warning():
    name = "replicate"
    with pytest.warns(DeprecationWarning, match=r"Write tf_tpu_ext\.tpu\.replicate"):
        assert getattr(tf_tpu_ext, name) is tf_tpu_ext.tpu.replicate
    with pytest.raises(AttributeError, match="no attribute 'replicas'"):
        _ = tf_tpu_ext.replicas
