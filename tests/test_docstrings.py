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
from verdicts import HAS_LIBTPU

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

# Each module has a copy of the process, and of that one each function, and each class with its
# methods, with the names of its package, and eight cores, or two if the docstring or that of the
# package says so.
RUN_EXAMPLES = """
    import doctest, importlib, itertools, os, sys
    import tensorflow as tf
    import tf_tpu_ext

    def run(package, names, tests):
        if "two cores" in package.__doc__ + tests[0].docstring:
            tf_tpu_ext.configure(cores=2)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        for test in tests:
            test.globs = {**names, "__name__": "__main__"}
            runner.run(test)
        return runner.summarize(verbose=False).failed

    def fails(function, *arguments):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            # What it raises ends the process, too.
            failed = function(*arguments)
            sys.stdout.flush()
            os._exit(min(failed, 1))
        return os.waitpid(child, 0)[1] != 0

    def run_module(name):
        module = importlib.import_module(name)
        package = importlib.import_module(module.__package__)
        names = {**vars(package), **vars(module), "tf": tf, "tf_tpu_ext": tf_tpu_ext}
        names = {name: value for name, value in names.items() if not name.startswith("__")}

        def owner(test):
            return test.name.removeprefix(module.__name__).split(".")[:2]

        tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
        failed = 0
        for owned, group in itertools.groupby(sorted(tests), owner):
            if fails(run, package, names, list(group)):
                print("failed:", name + ".".join(owned))
                failed += 1
        return failed

    sys.exit(any([fails(run_module, name) for name in sys.argv[1:]]))
"""


def public_names() -> Iterator[tuple[str, Any]]:
    """Gives the classes and functions that the package defines for its users."""
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__module__", "").startswith("tf_tpu_ext"):
                yield f"{module_name}.{name}", value


def part_of(module: str) -> str:
    """The subpackage of a module, or the package."""
    name = ".".join(module.split(".")[:2])
    return name if (PACKAGE.parent / name.replace(".", "/")).is_dir() else PACKAGE.name


@pytest.mark.parametrize("part", dict.fromkeys(map(part_of, WITH_EXAMPLES)))
def test_examples_run(request, run_python, part):
    modules = [module for module in WITH_EXAMPLES if part_of(module) == part]
    if "estimator" in part and importlib.util.find_spec("tensorflow_estimator") is None:
        pytest.skip("tensorflow-estimator is not installed")
    if "verdict" in part and not HAS_LIBTPU:
        pytest.skip("libtpu is not installed")
    if part == "tf_tpu_ext.io":
        request.getfixturevalue("io_environment")
    run_python(RUN_EXAMPLES, *modules, timeout=280)


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
    """Gives the public functions and classes of `tf.contrib` that the package itself defines."""
    for table in _names.MODULES.values():
        for name, entry in table.items():
            ours = isinstance(entry, str) and entry.startswith("tf_tpu_ext.contrib")
            if ours and not name.startswith("_"):
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
