"""Processes that are forked after TensorFlow has started."""

from __future__ import annotations

from typing import Any


def test_functions_in_a_child_are_an_error(run_python: Any) -> None:
    done = run_python(
        """
        import importlib
        import os
        import warnings

        import tensorflow as tf
        import tf_tpu_ext

        # Python's own, of a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)

        def two():
            return tf.constant(1.0) + 1.0

        @tf.function
        def step():
            return strategy.run(two)

        step()
        child = os.fork()
        if child == 0:
            importlib.reload(tf_tpu_ext)
            try:
                step()
            except RuntimeError as error:
                print(error, flush=True)
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        # The parent goes on.
        print(os.waitstatus_to_exitcode(status), float(step().values[0]))
        """,
        env={"TF_TPU_EXT_CORES": "2"},
    )
    assert "was forked after TensorFlow had started" in done.stdout
    assert done.stdout.endswith("0 2.0\n")


def test_a_child_may_start_tensorflow_itself(run_python: Any) -> None:
    done = run_python(
        """
        import os
        import warnings

        import tensorflow as tf
        import tf_tpu_ext

        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            print(float(tf.function(lambda: tf.constant(1.0) + 1.0)()), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        """,
        env={"TF_TPU_EXT_CORES": "2"},
    )
    assert done.stdout == "2.0\n0\n"
