"""`tf-tpu run`: scripts run as Python runs them, on virtual cores, and those of TensorFlow 1."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap

import imported_processes
import pytest
from imported_processes import CLI

from tf_tpu_ext import launcher
from tf_tpu_ext.launcher import _hints, _legacy

needs_estimator = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None
    or importlib.util.find_spec("tf_keras") is None,
    reason="tensorflow-estimator or tf_keras is not installed",
)


@pytest.fixture
def run(tmp_path):
    """Writes a script and runs it by `tf-tpu run`."""

    def run(code, *arguments, options=(), name="script.py", after_tensorflow=True):
        script = [str(tmp_path / name)] if name else []
        if name:
            (tmp_path / name).write_text(textwrap.dedent(code))
        command = ["run", *options, *script, *arguments]
        # The package under test must be found by its own place.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if after_tensorflow:
            return imported_processes.tf_tpu(*command, env=environment, cwd=tmp_path, timeout=200)
        return subprocess.run(
            [sys.executable, str(CLI), *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            cwd=tmp_path,
        )

    return run


def test_script_runs_as_the_main_program(run, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    report = tmp_path / "report.json"
    done = run(
        """
        import pickle
        import sys
        import tensorflow as tf
        import beside


        class Main:
            pass


        assert __name__ == "__main__" and sys.modules["__main__"].Main is Main
        assert isinstance(pickle.loads(pickle.dumps(Main())), Main)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            sys.argv[1], zone="us-central1-b", project="mine"
        )
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)

        @tf.function
        def step():
            def replica():
                tf.compat.v1.tpu.outside_compilation(tf.print, "host", output_stream=sys.stdout)
                return tf.constant(beside.VALUE)
            return strategy.run(replica)

        print(strategy.reduce("SUM", step(), axis=None).numpy(), sys.argv[1:])
        sys.exit(5)
        """,
        "grpc://10.0.0.1:8470",
        "--steps=3",
        options=["--cores", "2", "--report", str(report)],
        after_tensorflow=False,
    )
    assert done.returncode == 5, done.stderr
    assert done.stdout.splitlines()[-1] == "14 ['grpc://10.0.0.1:8470', '--steps=3']"
    assert "tf-tpu: 2 virtual cores" in done.stderr
    written = json.loads(report.read_text())
    assert (written["cores"], written["compilations"], written["launches"]) == (2, 1, 1)
    assert written["clusters"] == 1
    assert written["padding_waste"] == 0
    assert "padding" not in done.stderr
    assert written["training_steps"] == written["steps_per_second"] == 0


def test_padding_is_told(run, tmp_path):
    report = tmp_path / "report.json"
    done = run(
        """
        import tensorflow as tf
        import tf_tpu_ext

        for sizes in [(3, 8), (6, 7)]:
            inputs = [[tf.ones([size, 10]), tf.ones([5])] for size in sizes]
            shapes = [tf.TensorShape([8, 10]), tf.TensorShape([5])]
            sums = tf_tpu_ext.tpu.replicate(
                lambda x, y: tf.reduce_sum(x) + y[0], inputs, maximum_shapes=shapes
            )
            print([float(total[0]) for total in sums])
        """,
        options=["--cores", "2", "--report", str(report)],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[31.0, 81.0]", "[61.0, 71.0]"]
    written = json.loads(report.read_text())
    # Of 2 times 2 inputs of 8 rows, 24 rows were real.
    assert (written["paddable_elements"], written["padding_elements"]) == (320, 80)
    assert written["padding_waste"] == 0.25
    assert "tf-tpu: padding waste: 25.0 %" in done.stderr


def test_error_of_the_script_is_its_own(run):
    done = run("def f():\n    raise KeyError('mine')\nf()\n", options=["--quiet"])
    assert done.returncode == 1
    assert done.stdout == ""
    trace = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert trace[-1] == "KeyError: 'mine'"
    assert [line for line in trace if "launcher" in line] == []
    assert "tf-tpu:" not in done.stderr


def test_module_runs_as_the_main_program(run, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "beside.py").write_text("VALUE = 7\n")
    (package / "__main__.py").write_text(
        "import sys\nimport tf_tpu_ext\nfrom package import train\n"
        "from .beside import VALUE\n"
        "print(__name__, __package__, __spec__.name, VALUE, tf_tpu_ext.machine().cores)\n"
        "print(sys.argv)\nsys.exit(4)\n"
    )
    (package / "train.py").write_text("if __name__ == '__main__':\n    1 / 0\n")
    done = run("", "--x=1", options=["--cores=2", "-m", "package"], name="")
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines() == [
        "__main__ package package.__main__ 7 2",
        str([str(package / "__main__.py"), "--x=1"]),
    ]
    assert "tf-tpu: 2 virtual cores" in done.stderr
    done = run("", options=["-m", "package.train"], name="")
    assert done.returncode == 1
    trace = done.stderr[done.stderr.index("Traceback") :]
    assert "ZeroDivisionError" in trace
    assert "launcher" not in trace


def test_module_that_is_not_there(run):
    done = run("", options=["-m", "none.such"], name="")
    assert done.returncode == 2
    assert "tf-tpu run: the module none.such can't be found: No module named 'none'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "there is no module none. Expected the name"),
        ("email", "there is no module email.__main__. Expected the name"),
        ("sys", "the module sys has no Python code to run"),
    ],
)
def test_module_that_cannot_be_run(monkeypatch, name, words):
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ImportError, match=words):
        launcher.find(name, module=True)


def test_tensorflow_is_imported_by_the_script(run):
    """Its tests for TPUs run if the script that imports it is called so."""
    code = """
        import sys
        from tensorflow.python.distribute import combinations
        print(combinations.TPUCombination.TPU_TEST, sys.argv[1:], any("cli" in p for p in sys.path))
    """
    done = run(code, "--x", name="some_test_tpu.py", after_tensorflow=False)
    assert done.stdout.splitlines() == ["True ['--x'] False"], done.stderr


def test_script_that_is_no_python(run):
    done = run("x = = 1", options=["--quiet"])
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "x = = 1" in done.stderr


def test_crash_of_the_script_keeps_its_message(run):
    done = run("import os\nos.write(2, b'last words')\nos.abort()")
    assert done.returncode == -signal.SIGABRT
    assert "last words" in done.stderr


def test_crash_of_the_import_keeps_its_message(tmp_path):
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").write_text(
        "import os\n"
        "os.write(2, b'Using modular file system for gs\\nCheck failed: 1 == 2\\nlast words')\n"
        "os.abort()\n"
    )
    (tmp_path / "script.py").write_text("")
    done = subprocess.run(
        [sys.executable, str(CLI), "run", str(tmp_path / "script.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == -signal.SIGABRT
    assert "Check failed: 1 == 2\nlast words" in done.stderr
    assert "modular" not in done.stderr


def test_what_keeps_it_from_starting_is_told(run, tmp_path):
    done = run("print('ran')", options=["--cores", "0"])
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert "tf-tpu run: " in done.stderr
    assert "Traceback" not in done.stderr
    done = run("print('ran')", options=["--hosts", "0"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "--hosts is 0" in done.stderr
    done = run("print('ran')", "--data=gs://bucket/train")
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert "gs://bucket/train is in Google Cloud Storage" in done.stderr
    assert "--gs FOLDER" in done.stderr
    command = [sys.executable, str(CLI), "run", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "there is no file" in done.stderr


def test_cloud_storage_is_a_folder(run, tmp_path):
    """Whatever way a path takes to TensorFlow's files."""
    code = """
    import sys
    import numpy as np
    import tensorflow as tf

    print(sys.argv[1])
    tf.io.gfile.makedirs("gs://fresh/deep/down")
    print(tf.io.gfile.isdir("gs://fresh/deep/down"))
    folder = "gs://bucket/new/data"  # nobody has made it, as in the cloud
    with tf.io.TFRecordWriter(f"{folder}/a.tfrecord") as writer:
        writer.write(b"record")
    print(tf.io.gfile.listdir(folder), tf.io.gfile.glob(f"{folder}/*"))
    tf.io.write_file(tf.strings.join(["gs:", "//bucket/", "copy"]), "text")
    print(tf.io.read_file("gs://bucket/copy").numpy(), tf.io.gfile.exists("gs://bucket/none"))
    files = tf.data.Dataset.list_files(f"{folder}/*")
    print(list(files.as_numpy_iterator()))
    print(list(tf.data.TFRecordDataset([f"{folder}/a.tfrecord"]).as_numpy_iterator()))
    tf.io.gfile.copy("gs://bucket/copy", "gs://bucket/other/copy")
    tf.io.gfile.rename("gs://bucket/other/copy", "gs://bucket/moved/copy")
    checkpoint = tf.train.Checkpoint(x=tf.Variable(3.0))
    path = checkpoint.save("gs://bucket/model/ckpt")
    print(path, tf.train.load_variable("gs://bucket/model", "x/.ATTRIBUTES/VARIABLE_VALUE"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=2.0)
        session.run(v.initializer)
        saver = tf.compat.v1.train.Saver()
        print(saver.save(session, "gs://bucket/old/model"))  # the path is fed
        saver.restore(session, "gs://bucket/old/model")
    with tf.summary.create_file_writer("gs://bucket/events").as_default():
        tf.summary.scalar("x", 1.0, step=0)
    tf.io.gfile.rmtree("gs://bucket/events")
    """
    options = ["--gs", "cloud", "--quiet"]
    done = run(code, "--x=gs://bucket/a,gs://bucket/b", options=options, after_tensorflow=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "--x=gs://bucket/a,gs://bucket/b",
        "True",
        "['a.tfrecord'] ['gs://bucket/new/data/a.tfrecord']",
        "b'text' False",
        "[b'gs://bucket/new/data/a.tfrecord']",
        "[b'record']",
        "gs://bucket/model/ckpt-1 3.0",
        "gs://bucket/old/model",
    ]
    assert "modular" not in done.stderr
    bucket = tmp_path / "cloud" / "bucket"
    assert (bucket / "moved" / "copy").read_text() == "text"
    assert (bucket / "model" / "ckpt-1.index").exists()
    assert (bucket / "old" / "model.index").exists()
    assert sorted(path.name for path in bucket.iterdir()) == [
        "copy",
        "model",
        "moved",
        "new",
        "old",
        "other",
    ]


def test_cloud_storage_is_refused(run):
    done = run(
        """
        import tensorflow as tf

        try:
            tf.io.gfile.listdir("gs://bucket/data")
        except tf.errors.NotFoundError:
            pass  # as TensorFlow reads any error there; stderr has the sentence
        for read in (
            lambda: tf.io.read_file(tf.strings.join(["gs:", "//bucket/data"])),
            lambda: tf.io.gfile.exists("gs://bucket/data"),
            lambda: next(iter(tf.data.TFRecordDataset("gs://bucket/data"))),
            lambda: tf.train.Checkpoint().save("gs://bucket/data"),
        ):
            try:
                read()
            except tf.errors.InvalidArgumentError as error:
                print(error.message.partition(", which")[0].rpartition("gs:")[2])
        """
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.endswith(" is in Google Cloud Storage") for line in lines), lines
    assert done.stderr.count("gs://bucket/data is in Google Cloud Storage") == 1
    assert "tf-tpu run --gs FOLDER" in done.stderr


@needs_estimator
def test_script_of_tensorflow_1(run, tmp_path):
    (tmp_path / "model.py").write_text(
        textwrap.dedent(
            """
            import tensorflow as tf

            def logits(x):
                x = tf.contrib.layers.layer_norm(x, begin_norm_axis=-1)
                return tf.layers.dense(x, 2, kernel_initializer=tf.zeros_initializer())
            """
        )
    )
    report = tmp_path / "report.json"
    done = run(
        """
        import inspect
        import numpy as np
        import tensorflow as tf
        from tensorflow.contrib import summary
        import model

        flags = tf.flags
        flags.DEFINE_string("tpu_name", None, "The TPU.")
        flags.DEFINE_string("output", None, "The folder.")

        hosts = []

        def input_fn(params):
            hosts.append(params["context"].current_host)
            x = np.arange(64 * 4, dtype=np.float32).reshape(64, 4) % 7
            dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(64) % 2)).repeat()
            return dataset.apply(
                tf.contrib.data.batch_and_drop_remainder(params["batch_size"])
            ).map(lambda x, y: (x, tf.to_int32(y)))

        def model_fn(features, labels, mode, params):
            logits = model.logits(features)
            loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
            optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.1))
            train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
            return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

        def main(_):
            assert not tf.executing_eagerly() and tf.ones([2]).shape[0].value == 2
            assert np.int is int and summary.scalar and tf.VERSION
            spec = inspect.getargspec(lambda a, b=1, *c, **d: None)
            assert spec == (["a", "b"], "c", "d", (1,)) and spec.keywords == "d"
            resolver = tf.contrib.cluster_resolver.TPUClusterResolver(flags.FLAGS.tpu_name)
            config = tf.contrib.tpu.RunConfig(
                cluster=resolver, model_dir=flags.FLAGS.output,
                tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=5, num_shards=2))
            estimator = tf.contrib.tpu.TPUEstimator(
                model_fn, use_tpu=True, config=config, train_batch_size=8)
            assert isinstance(estimator, tf.estimator.Estimator)
            estimator.train(input_fn, max_steps=10)
            print("trained", estimator.get_variable_value("global_step"), hosts)

        if __name__ == "__main__":
            tf.app.run()
        """,
        "--tpu_name=old",
        f"--output={tmp_path}/out",
        options=["--legacy", "--cores=2", "--hosts=2", "--report", str(report)],
        after_tensorflow=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["trained", "10", "[0,", "1]"]
    written = json.loads(report.read_text())
    assert written["training_steps"] == 10
    assert written["steps_per_second"] > 0
    assert "10 training steps" in done.stderr


@pytest.mark.parametrize(
    ("name", "requirement", "expected"),
    [
        ("toy_of_jax", "jax", True),
        ("toy_of_new_jax", "jax>=0.4 ; python_version >= '3.9'", True),
        ("toy_of_jaxtyping", "jaxtyping", False),
        ("toy_tested_by_jax", "jax ; extra == 'test'", False),
    ],
)
def test_packages_that_need_jax_are_of_today(tmp_path, monkeypatch, name, requirement, expected):
    information = tmp_path / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {requirement}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert _legacy.needs_jax(name) == expected
    assert not _legacy.needs_jax(f"{name}_not_installed")


@needs_estimator
def test_packages_of_today_see_today_s_tensorflow(run):
    done = run(
        """
        import tensorflow as tf
        import tensorflow.compat.v1 as v1
        from tensorflow import flags
        import tf_keras

        assert tf is not v1 and tf.placeholder is v1.placeholder
        assert v1.estimator is tf.estimator and tf.compat.v1 is v1
        from tensorflow.python.estimator import estimator

        assert estimator.Estimator is tf.estimator.Estimator
        assert tf.keras.layers.Dense(1) is not None
        assert isinstance(tf_keras.Sequential([tf_keras.layers.Dense(1)]), tf_keras.Model)
        assert "Session" in dir(tf) and tf.__version__ == v1.__version__
        try:
            tf.no_such_name
        except AttributeError as error:
            print(error)
        """,
        options=["--legacy", "--quiet"],
        after_tensorflow=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no_such_name" in done.stdout


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import tensorflow.compat.v1 as tf\ntf.contrib", "contrib"),
        ("from tensorflow.contrib import tpu", "contrib"),
        ("from tensorflow.compat.v1 import estimator", "estimator"),
        ("import tensorflow as tf\ntf.placeholder(tf.float32)", "placeholder"),
    ],
)
def test_a_script_of_tensorflow_1_is_told_how_to_run(run, code, name):
    done = run(code, options=["--quiet"])
    assert done.returncode == 1
    *_, error, hint = done.stderr.splitlines()
    assert name in error
    assert hint == (
        f"tf-tpu: TensorFlow 2 has no `{name}`. If the script is for TensorFlow 1, run it with "
        "--legacy."
    )


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("module 'tensorflow' has no attribute 'no_such_name'"),
        AttributeError("module 'tensorflow.math' has no attribute 'placeholder'"),
        ImportError("cannot import name 'contrib' from 'tensorflow_models'"),
        ModuleNotFoundError("No module named 'tensorflow_contrib'"),
        ValueError("module 'tensorflow' has no attribute 'placeholder'"),
    ],
)
def test_other_errors_have_no_hint(error):
    assert _hints.hint(error) is None
