"""`tf.contrib`: installed on request, and what is missing says what to use."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import contrib
from tf_tpu_ext.contrib import _names
from tf_tpu_ext.contrib.hparams import HParams, parse_values

v1 = tf.compat.v1


@pytest.fixture
def installed():
    contrib.install()
    return tf.contrib


@pytest.fixture
def no_slim(monkeypatch):
    """Hides tf_slim, which may be installed: some modules of contrib take further names from it."""

    def loaded() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == "tf_slim"]

    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    # Python finds no module where there is None.
    monkeypatch.setitem(sys.modules, "tf_slim", None)
    yield
    for name in loaded():
        del sys.modules[name]


def found() -> list[tuple[str, str]]:
    return [
        (module, name)
        for module, table in _names.MODULES.items()
        for name, entry in table.items()
        # Of the packages for estimators and Keras 2, which need not be there.
        if isinstance(entry, str) and "estimator" not in entry and "tf_keras" not in entry
    ]


def missing() -> list[tuple[str, str]]:
    return [
        (module, name)
        for module, table in _names.MODULES.items()
        for name, entry in table.items()
        if isinstance(entry, _names.Missing)
    ]


def test_not_there_unless_asked_for(run_python):
    run_python(
        """
        import tensorflow as tf
        import tf_tpu_ext
        from tf_tpu_ext import contrib

        assert not hasattr(tf, "contrib") and not hasattr(tf.compat.v1, "contrib")
        try:
            import tensorflow.contrib
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError
        contrib.install()
        contrib.install()
        import tensorflow.contrib
        assert tf.contrib is tf.compat.v1.contrib is tensorflow.contrib
        assert tf.get_tower_context is tf_tpu_ext.towers.get_tower_context
        """
    )


@pytest.mark.parametrize(("module", "name"), found())
def test_every_name_is_there(installed, module, name):
    del installed
    imported = importlib.import_module("tensorflow.contrib." + module)
    assert getattr(imported, name) is getattr(imported, name)
    assert name in dir(imported)
    assert name in imported.__all__


@pytest.mark.parametrize(("module", "name"), missing())
def test_what_is_missing_names_a_replacement(installed, no_slim, module, name):
    del installed, no_slim
    imported = importlib.import_module("tensorflow.contrib." + module)
    with pytest.raises(AttributeError, match="is not supported by tf_tpu_ext") as error:
        getattr(imported, name)
    assert _names.MODULES[module][name].instead in str(error.value)
    with pytest.raises(ImportError):
        exec(f"from tensorflow.contrib.{module} import {name}")


@pytest.mark.parametrize("module", sorted(_names.GONE))
def test_modules_that_are_gone(installed, module):
    instead = _names.GONE[module].instead
    with pytest.raises(AttributeError) as error:
        getattr(installed, module)
    assert instead in str(error.value)
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module(f"tensorflow.contrib.{module}.anything")
    assert instead in str(error.value)


def test_packages_that_live_on(installed, no_slim, monkeypatch, tmp_path):
    """Any installed tf_slim is used; where there is none, the error names it."""
    del no_slim
    for name in ("slim", "layers.python.layers.layers"):
        monkeypatch.delitem(sys.modules, f"tensorflow.contrib.{name}", raising=False)
    for statement in (
        "from tensorflow.contrib import slim",
        "import tensorflow.contrib.slim.nets",
        "from tensorflow.contrib.framework import model_variable",
    ):
        with pytest.raises(ModuleNotFoundError, match=r"needs the package tf_slim.*pip install"):
            exec(statement)
    monkeypatch.delitem(sys.modules, "tf_slim")
    (tmp_path / "tf_slim" / "nets").mkdir(parents=True)
    (tmp_path / "tf_slim" / "__init__.py").write_text("model_variable = 'variable'\n")
    (tmp_path / "tf_slim" / "nets" / "__init__.py").write_text("")
    (tmp_path / "tf_slim" / "nets" / "tiny.py").write_text("SIZE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    from tensorflow.contrib.framework import model_variable
    from tensorflow.contrib.slim.nets import tiny
    from tensorflow.contrib.slim.python.slim.nets.tiny import SIZE

    assert model_variable == installed.slim.model_variable == "variable"
    assert tiny.SIZE == installed.slim.nets.tiny.SIZE == SIZE == 3
    del installed.framework.model_variable
    for name in [name for name in sys.modules if name.startswith("tensorflow.contrib.slim")]:
        del sys.modules[name]


def test_private_names_that_moved(installed):
    del installed
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import array_ops, control_flow_ops

    assert isinstance(tf.constant(1), ops.Tensor)
    assert array_ops.stack([1, 2]).numpy().tolist() == [1, 2]
    assert int(control_flow_ops.cond(tf.constant(True), lambda: 3, lambda: 4)) == 3

    class Doubled:
        def __init__(self, value):
            self.value = value

    ops.register_tensor_conversion_function(
        Doubled, lambda value, dtype=None, name=None, as_ref=False: tf.constant(2 * value.value)
    )
    assert int(tf.add(Doubled(3), 1)) == 7


def test_tpu_names_that_moved(installed):
    """Those of TensorFlow 1.15's tensorflow.python.tpu and tensorflow.contrib.tpu.python.tpu."""
    from tensorflow.contrib.tpu.python.tpu import device_assignment, tpu_function, training_loop
    from tensorflow.python.tpu import async_checkpoint, tpu, tpu_strategy_util

    assert device_assignment.DeviceAssignment is installed.tpu.DeviceAssignment
    assert training_loop.while_loop is installed.tpu.while_loop
    assert tpu_function.get_tpu_context() is not None
    assert issubclass(async_checkpoint.AsyncCheckpointSaverHook, tf.compat.v1.train.SessionRunHook)
    assert tpu_strategy_util.initialize_tpu_system is tf.tpu.experimental.initialize_tpu_system
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outside = tf.compat.v1.tpu.rewrite(
            lambda x: tpu.outside_compilation(lambda y: tf.strings.length(tf.as_string(y)), x),
            [tf.constant(123)],
        )
        session.run(tf.compat.v1.tpu.initialize_system())
        assert session.run(outside)[0] == 3
    from tensorflow.contrib.tpu.proto import compilation_result_pb2
    from tensorflow.contrib.tpu.python.ops import tpu_ops

    assert compilation_result_pb2.CompilationResultProto(status_code=3).status_code == 3
    assert tpu_ops.tpu_ordinal_selector is not None
    with pytest.raises(AttributeError, match="Build and compile the Keras model"):
        _ = importlib.import_module("tensorflow.contrib.tpu.python.tpu.keras_support").tpu_model


def test_modules_that_moved(installed):
    del installed
    from tensorflow.python.distribute import distribution_strategy_context
    from tensorflow.python.training import training_ops

    variable = tf.Variable([1.0, 2.0])
    training_ops.resource_apply_gradient_descent(variable.handle, 0.5, [2.0, 2.0])
    assert variable.numpy().tolist() == [0.0, 1.0]
    assert distribution_strategy_context.get_strategy() is tf.distribute.get_strategy()


def test_hooks_stay_and_monitors_are_refused(installed):
    hook = tf.compat.v1.train.StopAtStepHook(1)
    replace = installed.learn.monitors.replace_monitors_with_hooks
    assert replace([hook], None) == [hook]
    assert replace(None, None) == []
    with pytest.raises(
        TypeError, match=r"monitors of tf\.contrib\.learn are not supported.* got 3"
    ):
        replace([hook, 3], None)


def test_small_helpers_of_graphs(installed):
    assert int(installed.util.constant_value(tf.constant(3))) == 3
    assert installed.nn.nth_element(tf.constant([5.0, 1.0, 3.0]), 1).numpy() == 3.0

    @installed.framework.deprecated("2020-01-01", "Use another.")
    def old():
        return 4

    assert old() == 4


def test_misspelled_names(installed):
    with pytest.raises(AttributeError, match="Did you mean replicate"):
        _ = installed.tpu.replicat


def test_the_towers_are_ours(installed):
    assert installed.distribute.TPUStrategy is tf_tpu_ext.TPUStrategy
    assert installed.distribute.python.tpu_strategy.TPUStrategy is tf_tpu_ext.TPUStrategy
    assert installed.tpu.replicate is tf_tpu_ext.tpu.replicate
    resolver = installed.cluster_resolver.TPUClusterResolver("any-name")
    assert resolver.get_master() == resolver.master() in ("", "local")
    assert "tensorflow.contrib.tpu" in sys.modules


def test_single_loss_step(installed, two):
    def loss_fn(context, x):
        del context
        return (weight * x - 6.0) ** 2

    def dataset_fn():
        return tf.data.Dataset.from_tensors(2.0).repeat()

    with tf.Graph().as_default(), v1.Session() as session, two.scope():
        weight = v1.get_variable("w", initializer=1.0)
        step = installed.distribute.StandardSingleLossStep(
            dataset_fn, loss_fn, v1.train.GradientDescentOptimizer(0.1), two, iterations_per_step=2
        )
        initialize = v1.global_variables_initializer
        session.run(two.initialize())
        monitor = installed.distribute.Monitor(step, session)
        monitor.run_steps(3)
        expected = 1.0
        for _ in range(6):
            expected -= 0.1 * 2 * 2 * (2 * expected - 6)
        np.testing.assert_allclose(session.run(weight), expected, rtol=1e-5)
        assert initialize is v1.global_variables_initializer
    with pytest.raises(ValueError, match="Pass the session"):
        installed.distribute.Monitor(lambda: None, session=object())


def test_summaries(installed, tmp_path):
    writer = installed.summary.create_file_writer(str(tmp_path), flush_millis=10)
    with writer.as_default(), installed.summary.always_record_summaries():
        installed.summary.scalar("loss", 5.0, step=tf.constant(3, tf.int64))
        installed.summary.flush()
    [file] = tmp_path.iterdir()
    tags = [value.tag for e in v1.train.summary_iterator(str(file)) for value in e.summary.value]
    assert tags == ["loss"]


def test_summaries_are_flushed_by_their_resource(installed, tmp_path):
    """As copies of TPUEstimator in programs do."""
    from tensorflow.python.ops import summary_ops_v2

    with tf.Graph().as_default(), v1.Session() as session:
        writer = installed.summary.create_file_writer(str(tmp_path))
        with writer.as_default(), installed.summary.always_record_summaries():
            written = installed.summary.scalar("loss", 5.0, step=tf.constant(3, tf.int64))
        [start] = installed.summary.summary_writer_initializer_op()
        flushed = [
            flush(start.inputs[0]) for flush in (installed.summary.flush, summary_ops_v2.flush)
        ]
        session.run(start)
        session.run(written)
        [file] = tmp_path.iterdir()
        before = file.stat().st_size
        session.run(flushed)
        assert file.stat().st_size > before
    with pytest.raises(ValueError, match="Invalid argument to flush"):
        summary_ops_v2.flush(3)


def test_data(installed):
    dataset = tf.data.Dataset.range(7)
    assert len(list(dataset.apply(installed.data.batch_and_drop_remainder(3)))) == 2
    padded = dataset.map(lambda x: tf.fill([x], x)).apply(
        installed.data.padded_batch_and_drop_remainder(2, [None])
    )
    assert [x.shape[1] for x in padded] == [1, 3, 5]
    checked = dataset.batch(7).apply(installed.data.assert_element_shape([7]))
    assert checked.element_spec.shape == [7]
    mapped = dataset.apply(installed.data.map_and_batch(lambda x: x * 2, 7))
    assert next(iter(mapped)).numpy().tolist() == [0, 2, 4, 6, 8, 10, 12]


def test_layers_and_framework(installed):
    weights = tf.constant([[1.0, -2.0], [3.0, -4.0]])
    layers = installed.layers
    assert layers.l1_regularizer(0.5)(weights) == 5
    assert layers.l2_regularizer(0.5)(weights) == 7.5
    assert layers.l1_l2_regularizer(0.5, 0.5)(weights) == 12.5
    assert layers.flatten(tf.zeros([2, 3, 4])).shape == [2, 12]
    limit = np.sqrt(6 / (30 + 20))
    drawn = layers.xavier_initializer(seed=1)([30, 20]).numpy()
    assert 0.8 * limit < abs(drawn).max() <= limit
    scaled = layers.variance_scaling_initializer(seed=1)([300, 200]).numpy()
    np.testing.assert_allclose(scaled.var(), 2 / 300, rtol=0.05)
    with pytest.raises(ValueError, match="'FAN_IN', 'FAN_OUT' or"):
        layers.variance_scaling_initializer(mode="IN")
    with pytest.raises(ValueError, match="not negative"):
        layers.l2_regularizer(-1.0)
    with tf.Graph().as_default():
        with v1.variable_scope("a"):
            first = v1.get_variable("weights", [2])
        v1.get_variable("other", [2], trainable=False)
        framework = installed.framework
        assert framework.get_variables("a") == [first]
        assert framework.get_variables(suffix="weights") == [first]
        assert framework.get_trainable_variables() == [first]
        assert framework.get_or_create_global_step() is framework.get_global_step()


class TestHParams:
    def test_values(self):
        hparams = HParams(rate=0.1, units=[8, 4], name="model", flag=False, count=3, none=None)
        assert hparams.values()["units"] == [8, 4]
        assert "rate" in hparams
        assert "other" not in hparams
        assert hparams.get("other", 5) == 5
        hparams.rate = 0.2
        assert hparams.get("rate") == 0.2
        hparams.add_hparam("late", (1, 2))
        assert hparams.late == [1, 2]
        hparams.del_hparam("late")
        assert sorted(hparams.keys()) == ["count", "flag", "name", "none", "rate", "units"]
        assert repr(hparams).startswith("HParams(count=3, flag=False, name='model'")

    def test_parse(self):
        hparams = HParams(rate=0.1, units=[8, 4], name="model", flag=False, count=3)
        hparams.parse("rate=1e-3, units=[1,2,3],name='a b',flag=true,count=7")
        assert hparams.values() == {
            "rate": 1e-3,
            "units": [1, 2, 3],
            "name": "a b",
            "flag": True,
            "count": 7,
        }
        assert hparams.parse("units[1]=9,rate=2").units == [1, 9, 3]
        assert isinstance(hparams.rate, float)
        assert hparams.parse_json(hparams.to_json()).count == 7
        assert parse_values("a=1,b=2", {"a": int}, ignore_unknown=True) == {"a": 1}

    def test_errors(self):
        hparams = HParams(rate=0.1, count=3, units=[1])
        with pytest.raises(ValueError, match="expected int, the type of 3"):
            hparams.parse("count=0.5")
        with pytest.raises(ValueError, match="expected int, the type of 3"):
            hparams.set_hparam("count", True)
        unset = HParams(later=None)
        unset.add_hparam("later", 3)
        assert unset.later == 3
        with pytest.raises(ValueError, match="is taken"):
            hparams.add_hparam("rate", 1)
        with pytest.raises(ValueError, match="is taken"):
            HParams(parse=1)
        with pytest.raises(KeyError, match="expected one of"):
            hparams.set_hparam("other", 1)
        with pytest.raises(AttributeError, match="expected one of"):
            _ = hparams.other
        with pytest.raises(ValueError, match="is unknown, expected one of"):
            hparams.parse("other=1")
        with pytest.raises(ValueError, match="can't be parsed"):
            hparams.parse("rate:1")


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_norm(installed, axis):
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(2, 3, 4)).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        layers = installed.layers
        y = layers.layer_norm(
            tf.constant(x), begin_norm_axis=axis, outputs_collections="outputs", scope="norm"
        )
        plain = layers.layer_norm(tf.constant(x), center=False, scale=False, begin_norm_axis=axis)
        doubled = layers.layer_norm(
            tf.constant(x),
            activation_fn=lambda t: 2 * t,
            begin_norm_axis=axis,
            scope="norm",
            reuse=True,
        )
        assert [v.name for v in v1.global_variables()] == ["norm/beta:0", "norm/gamma:0"]
        assert v1.get_collection("outputs") == [y]
        session.run(v1.global_variables_initializer())
        found = session.run([y, plain, doubled / 2])
        with pytest.raises(ValueError, match="begin_norm_axis=3"):
            layers.layer_norm(tf.constant(x), begin_norm_axis=3)
        with pytest.raises(ValueError, match="needs a known size"):
            layers.layer_norm(v1.placeholder(tf.float32, [2, None]))
    axes = tuple(range(axis % 3, 3))
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    for y in found:
        np.testing.assert_allclose(y, expected, atol=1e-5)


def test_images_are_moved(installed):
    image = np.arange(12, dtype=np.float32).reshape(3, 4)
    moved = installed.image.translate(image, [1, -1])
    np.testing.assert_array_equal(moved, [[0, 4, 5, 6], [0, 8, 9, 10], [0, 0, 0, 0]])
    square = np.arange(9, dtype=np.uint8).reshape(3, 3)
    turned = installed.image.rotate(np.stack([square, square])[..., np.newaxis], [0, np.pi / 2])
    np.testing.assert_array_equal(turned[0, ..., 0], square)
    np.testing.assert_array_equal(turned[1, ..., 0], np.rot90(square))
    right, down = [1, 0, -1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, -1, 0, 0]
    both = installed.image.compose_transforms(right, down)
    np.testing.assert_array_equal(both, [[1, 0, -1, 0, 1, -1, 0, 0]])
    np.testing.assert_array_equal(
        installed.image.transform(image, both[0]), [[0, 0, 0, 0], [0, 0, 1, 2], [0, 4, 5, 6]]
    )
    with pytest.raises(ValueError, match="rank 2, 3 or 4"):
        installed.image.translate([1.0], [1, 1])


@pytest.mark.parametrize("nesterov", [False, True])
def test_layer_wise_rates(installed, nesterov):
    start = {"kernel": [3.0, 4.0], "bias": [1.0, 1.0], "zero": [0.0, 0.0]}
    gradient = np.array([0.6, 0.8])
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, initializer=value) for name, value in start.items()
        }
        optimizer = installed.opt.LARSOptimizer(
            0.5, 0.9, weight_decay=0.1, eeta=0.01, skip_list=["bias"], use_nesterov=nesterov
        )
        pairs = [(tf.constant(gradient, tf.float32), each) for each in variables.values()]
        step = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(step)
        reached = session.run(variables)
    for name, value in start.items():
        weight, velocity = np.array(value), np.zeros(2)
        for _ in range(2):
            rate, decay, norm = 0.5, 0.0 if name == "bias" else 0.1, np.linalg.norm(weight)
            if decay and norm:
                rate *= 0.01 * norm / (1 + 0.1 * norm)
            slope = gradient + decay * weight
            velocity = 0.9 * velocity + slope
            weight = weight - rate * (slope + 0.9 * velocity if nesterov else velocity)
        np.testing.assert_allclose(reached[name], weight, rtol=1e-5)


def test_gradients_are_clipped_by_their_global_norm(installed):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.get_variable("x", initializer=[0.0, 0.0])
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        clipped = installed.estimator.clip_gradients_by_norm(lambda: optimizer, 1.0)()
        step = clipped.minimize(tf.reduce_sum(x * [3.0, 4.0]))
        session.run(v1.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run(x), [-0.6, -0.8], rtol=1e-6)
