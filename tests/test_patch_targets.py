"""Patches check their targets, and leave everything as it came when they are undone."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tf_tpu_ext import patches

HAS_ESTIMATOR = importlib.util.find_spec("tensorflow_estimator") is not None
needs_estimator = pytest.mark.skipif(
    not HAS_ESTIMATOR, reason="tensorflow-estimator is not installed"
)
GROUPS = [
    group
    for group in dict.fromkeys(patch.group for patch in patches.PATCHES)
    if HAS_ESTIMATOR or not group.startswith("estimator")
]
NAMES = [patch.name for patch in patches.PATCHES if patch.group in GROUPS]
# What patches need besides what they replace; a module ends in a colon.
NEEDED = {
    "connect_to_cluster": ["tensorflow.python.eager.remote:_LOCAL_MASTERS"],
    "embedding_parameters": ["tf_tpu_ext.estimator._supplied.tpu_embedding:AdagradParameters"],
    "export_names": ["tensorflow.python.util.tf_export:API_ATTRS"],
    "moved_names": ["tensorflow.python.ops.variable_scope:"],
    "outside_compilation": [
        "tensorflow.python.tpu.tpu_replication:_enclosing_tpu_context_and_graph"
    ],
    "program_options": [
        "tensorflow.python.eager.polymorphic_function.transform:FUNC_GRAPH_TRANSFORMS"
    ],
    "run_endings": [
        "tensorflow_estimator.python.estimator.tpu.error_handling:_IGNORED_ERRORS",
        "tensorflow_estimator.python.estimator.tpu.error_handling:ErrorRendezvous.raise_errors",
        "tensorflow_estimator.python.estimator.tpu.tpu_estimator:"
        "_OpQueueContext.send_next_batch_signal",
    ],
}
# They only add modules and names, or ask the native library (see test_patches.py).
WITHOUT_TARGET = {
    "autotune_loop",
    "contrib_modules",
    "estimator_modules",
    "estimator_places",
    "getargspec",
    "keras_layers",
    "legacy_keras",
    "moved_modules",
    "numpy_names",
    "tf_estimator",
}

PLACES = """
    import json, sys
    import tf_tpu_ext
    from tf_tpu_ext import patches

    def place(owner, name):
        if isinstance(owner, type):
            return f"{owner.__module__}:{owner.__qualname__}.{name}"
        return f"{owner.__name__}:{name}"

    for group in json.loads(sys.argv[1]):
        patches.apply(group)
    replaced = {name: changes.replaced for name, changes in patches._applied.items()}
    print(json.dumps({name: [place(*p) for p in found] for name, found in replaced.items()}))
"""

# Takes each place of a patch away, and then gives it another signature.
BREAK = """
    import contextlib, importlib, json, sys, warnings
    import numpy, tensorflow

    name, group, places, needed = json.loads(sys.argv[1])

    @contextlib.contextmanager
    def broken(place, change):
        module, _, path = place.partition(":")
        if not path:
            stock, sys.modules[module] = sys.modules[module], None
            yield
            sys.modules[module] = stock
            return
        # The module that the attribute tf.compat.v1 is has the name of another one.
        tf = tensorflow
        public = {found.__name__: found for found in (tf, tf.compat.v1, tf.compat.v2)}
        owner = public.get(module) or importlib.import_module(module)
        *outer, attribute = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        owners = owner.__mro__ if isinstance(owner, type) else [owner]
        # Python's own classes can't be changed.
        owners = [o for o in owners if getattr(o, "__module__", None) != "builtins"]
        owners = [o for o in owners if attribute in vars(o)]
        stock = [vars(o)[attribute] for o in owners]

        def changed(*, other):
            raise AssertionError("A function that does not fit was called.")

        def changed_import(*args, other=None):
            return stock[0](*args)

        if change:
            new = changed_import if attribute == "__import__" else changed
            setattr(owners[0], attribute, new)
        else:
            for o in owners:
                delattr(o, attribute)
        yield
        for o, value in zip(owners, stock):
            setattr(o, attribute, value)

    @contextlib.contextmanager
    def left_out(place):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        from tf_tpu_ext import patches
        found = [w for w in caught if str(w.message).startswith("tf_tpu_ext left")]
        assert len(found) == 1, (place, found)
        [warning] = found
        assert warning.category is RuntimeWarning
        [patch] = [patch for patch in patches.PATCHES if patch.name == name]
        for part in (patch.target, repr(name), patch.reason):
            assert part in str(warning.message), warning.message
        names = {p.name for p in patches.PATCHES if p.group == group}
        assert names.intersection(patches.applied()) == names - {name}

    if group == "tensorflow":
        with broken(places[0], change=False), left_out(places[0]):
            import tf_tpu_ext
    import tf_tpu_ext
    from tf_tpu_ext import patches

    patches.apply(group)
    for place in [*places, *needed]:
        for change in (False, True):
            # tf.compat.v1 imports again what was deleted; without __import__ nothing is imported.
            lasting = ".compat.v1" in place or place == "builtins:__import__"
            if lasting and not change or place in needed and change:
                continue
            patches.undo_all()
            with broken(place, change):
                with left_out(place):
                    patches.apply(group)
                patches.undo_all()
    patches.apply(group)
    assert name in patches.applied()
"""

# What modules and classes have, and where other things are that patches change.
SNAPSHOT = """
    import builtins, os, sys, types
    import numpy
    import tensorflow as tf
    import tensorflow.compat.v1, tensorflow.compat.v2

    PACKAGES = ["tensorflow", "numpy", "builtins"]

    def snapshot():
        def in_packages(name):
            return name.split(".")[0] in PACKAGES

        found = {
            "sys.modules": {k: v for k, v in sys.modules.items() if in_packages(k)},
            "sys.meta_path": dict(enumerate(sys.meta_path)),
            "os.environ": dict(os.environ),
            "tf_export": dict(sys.modules["tensorflow.python.util.tf_export"].API_ATTRS),
        }
        for name, module in found["sys.modules"].items():
            found[name] = dict(vars(module))
            for key, value in found[name].items():
                if isinstance(value, type) and value.__module__ == name:
                    found.setdefault(f"{name}:{key}", dict(vars(value)))
        return found

    def is_same(old, new):
        return old is new or isinstance(old, str) and old == new

    def differences(before):
        after = snapshot()
        return {
            f"{space}.{name}": (values.get(name), after[space].get(name))
            for space, values in before.items()
            for name in values.keys() | after.get(space, {}).keys()
            if space in after and not is_same(values.get(name), after[space].get(name))
        }

    def is_ours(value):
        if isinstance(value, types.ModuleType):
            # Not by getattr, which makes lazy modules load.
            return "tf_tpu_ext" in str(vars(value).get("__name__"))
        code = getattr(value, "__code__", None)
        texts = [getattr(value, "__name__", ""), getattr(value, "__module__", "")]
        return any("tf_tpu_ext" in str(x) for x in (*texts, code and code.co_filename))
"""


@pytest.fixture(scope="module")
def places(run_python) -> dict[str, list[str]]:
    """The places that each patch replaces, as `module:Class.attribute`."""
    out = run_python(PLACES, json.dumps(GROUPS)).stdout
    found: dict[str, list[str]] = json.loads(out.splitlines()[-1])
    return found


def test_every_patch_has_a_target_or_adds_something(places):
    assert sorted(places) == sorted(NAMES)
    without = {name for name in NAMES if not places[name] and name not in NEEDED}
    assert without == WITHOUT_TARGET.intersection(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_TARGET])
def test_a_patch_without_its_target_is_left_out(run_python, places, name):
    [group] = [patch.group for patch in patches.PATCHES if patch.name == name]
    run_python(BREAK, json.dumps([name, group, places[name], NEEDED.get(name, [])]))


def test_undo_all_leaves_tensorflow_as_it_came(run_python):
    run_python(
        SNAPSHOT
        + """
    import importlib, json
    groups = json.loads(sys.argv[1])
    import tf_tpu_ext
    from tf_tpu_ext import patches

    # What stock modules change in one another when they are first imported is not ours.
    for name in ("tensorflow.python.tpu.tpu_feed", "tf_keras", "tf_slim"):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    patches.undo_all()
    if "estimator" in groups:
        patches.apply("estimator")
        patches.apply("estimator_names")
        patches.undo_all()
    before = snapshot()
    assert not any(is_ours(value) for space in before.values() for value in space.values()), [
        (space, key) for space in before for key, value in before[space].items() if is_ours(value)
    ]
    for _ in range(2):
        for group in groups:
            patches.apply(group)
        changed = differences(before).keys()
        for place in (
            "builtins.__import__",
            "os.environ.TF_USE_LEGACY_KERAS",
            "sys.modules.tensorflow.contrib",
            "tensorflow.contrib",
            "tensorflow.python.framework.func_graph:FuncGraph._create_op_internal",
            "tensorflow.python.ops.while_v2:_WhileBodyGradFuncGraph._capture_helper",
        ):
            assert place in changed, place
        patches.undo_all()
        assert patches.applied() == ()
        left = {
            place: (old, new)
            for place, (old, new) in differences(before).items()
            if old is not None or is_ours(new) or not isinstance(new, types.ModuleType)
        }
        assert not left, left
    """,
        json.dumps(GROUPS),
    )


@needs_estimator
def test_undo_all_leaves_tensorflow_estimator_as_it_came(run_python):
    run_python(
        SNAPSHOT
        + """
    import tf_tpu_ext.estimator as te
    from tf_tpu_ext import patches
    from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_context, tpu_estimator

    te.install()
    patches.undo_all()
    for owner in (te.Estimator, tpu_estimator._ModelFnWrapper, tpu_context._InternalTPUContext):
        assert not any(map(is_ours, vars(owner).values())), owner
    for name in ("_OpQueueContext", "_OpSignalOnceQueueContext", "InstallSignalHandlerHook"):
        assert not is_ours(getattr(tpu_estimator, name)), name
    assert not is_ours(error_handling.ErrorRendezvous)
    assert "tensorflow.python.tpu.tpu_embedding" not in sys.modules

    PACKAGES.append("tensorflow_estimator")
    before = snapshot()
    te.install()
    changed = differences(before).keys()
    for place in (
        "sys.modules.tensorflow.python.tpu.tpu_embedding",
        "tensorflow.estimator",
        "tensorflow_estimator.python.estimator.estimator:Estimator.train",
        "tensorflow_estimator.python.estimator.tpu.tpu_estimator._OpQueueContext",
    ):
        assert place in changed, place
    patches.undo_all()
    assert not differences(before), differences(before)
    """
    )


@needs_estimator
@pytest.mark.parametrize("group", ["estimator", "estimator_names"])
def test_a_group_of_estimators_may_be_applied_first(run_python, group):
    run_python(
        """
        import sys
        from tf_tpu_ext import patches

        patches.apply(sys.argv[1])
        assert "tensorflow.python.tpu.tpu_embedding" in sys.modules
        patches.undo_all()
        assert "tensorflow.python.tpu.tpu_embedding" not in sys.modules
        """,
        group,
    )
