"""The patches that `tf_tpu_ext.estimator` applies to TensorFlow and tensorflow-estimator."""

from __future__ import annotations

from tf_tpu_ext.patches._patch import Patch, deferred

PATCHES = (
    Patch(
        name="estimator_modules",
        group="estimator",
        target="tensorflow.python.distribute.estimator_training`, and `session_support`, "
        "`tpu_embedding` and `tpu_embedding_gradient` of `tensorflow.python.tpu",
        change="If TensorFlow does not have them, `import` finds tf_tpu_ext's modules in their "
        "place.",
        reason="the package tensorflow-estimator imports them, and TensorFlow has removed them.",
        install=deferred("tf_tpu_ext.estimator._install", "supply_modules"),
    ),
    Patch(
        name="embedding_parameters",
        group="estimator",
        target="tf.compat.v1.tpu.experimental",
        change="It has `AdagradParameters`, `AdamParameters`, `FtrlParameters` and "
        "`StochasticGradientDescentParameters` again.",
        reason="TPUEstimator's embeddings are configured with them, and TensorFlow has removed "
        "them.",
        install=deferred("tf_tpu_ext.estimator._install", "supply_parameters"),
    ),
    Patch(
        name="export_names",
        group="estimator",
        target="tensorflow.python.util.tf_export.API_ATTRS",
        change="It knows the API `estimator`.",
        reason="the package tensorflow-estimator exports its symbols under that name.",
        install=deferred("tf_tpu_ext.estimator._install", "supply_export_names"),
    ),
    Patch(
        name="run_endings",
        group="estimator",
        target="tensorflow_estimator.python.estimator.tpu.error_handling.ErrorRendezvous`, and "
        "`_OpQueueContext`, `_OpSignalOnceQueueContext` and `InstallSignalHandlerHook` of "
        "`tpu_estimator",
        change="After an error, a TPUEstimator run ends promptly, raises the cause, and leaves no "
        "threads behind. Ctrl-C raises a KeyboardInterrupt.",
        reason="stock TPUEstimator waits five seconds after an error and leaves its threads "
        "behind; Ctrl-C kills the process.",
        install=deferred("tf_tpu_ext.estimator._endings", "install"),
    ),
    Patch(
        name="training_time",
        group="estimator",
        target="tensorflow_estimator.python.estimator.estimator.Estimator.train",
        change="It adds its steps and time to the totals in the report of `tf-tpu run`.",
        reason="nothing else counts the steps of a program.",
        install=deferred("tf_tpu_ext.estimator._training_time", "install"),
    ),
    Patch(
        name="graph_text",
        group="estimator",
        target="tensorflow.python.training.training_util.write_graph",
        change="It writes graphs as text without `float_format`.",
        reason="TensorFlow before 2.21 passes that argument, which protobuf 7 has removed and "
        "protobuf 6 warns about: TPUEstimator's first checkpoint would fail.",
        install=deferred("tf_tpu_ext.estimator._graph_text", "install"),
    ),
    Patch(
        name="estimator_steps",
        group="estimator",
        target="tensorflow_estimator.python.estimator.tpu.tpu_estimator._ModelFnWrapper",
        change="A step dequeues its input from the infeed even if the model does not use it. The "
        "evaluation loss is the mean over all replicas.",
        reason="otherwise the host would wait forever for room in the infeed, and "
        "tensorflow-estimator would report the loss of the first replica, which has seen only part "
        "of the data.",
        install=deferred("tf_tpu_ext.estimator._steps", "install"),
    ),
    Patch(
        name="input_hosts",
        group="estimator",
        target="tensorflow_estimator.python.estimator.tpu.tpu_context._InternalTPUContext`, and "
        "`generate_broadcast_enqueue_ops_fn` of `tpu_estimator",
        change="Input pipelines can run as if on several hosts, see `set_input_hosts`.",
        reason="a pod slice has several hosts; the virtual cores have one.",
        install=deferred("tf_tpu_ext.estimator._hosts", "install"),
    ),
    Patch(
        name="tf_estimator",
        group="estimator_names",
        target="tf.estimator` and `tf.compat.v1.estimator",
        change="They are the API of tensorflow-estimator.",
        reason="programs use these names, and TensorFlow has removed them.",
        install=deferred("tf_tpu_ext.estimator._install", "set_public_names"),
    ),
    Patch(
        name="estimator_places",
        group="estimator_names",
        target="sys.meta_path",
        change="`import tensorflow.python.estimator` finds the modules of "
        "`tensorflow_estimator.python.estimator`, and `tpu_config`, `tpu_context`, "
        "`tpu_estimator`, `error_handling` and `util` of `tensorflow.python.tpu` are those of its "
        "package `tpu`.",
        reason="programs import private modules from where they were in TensorFlow.",
        install=deferred("tf_tpu_ext.estimator._install", "find_private_modules"),
    ),
)
