"""What changes in TensorFlow: by `import tf_tpu_ext`, and while a `merge_fn` is traced."""

from __future__ import annotations

from tf_tpu_ext.patches import (
    _clusters,
    _device_names,
    _embedding,
    _iterators,
    _libraries,
    _ops,
    _options,
    _preemption,
    _resolver,
    _sessions,
    _traces,
    _variables,
    _worker_errors,
)
from tf_tpu_ext.patches._patch import Patch, deferred

PATCHES = (
    Patch(
        name="cluster_resolver",
        group="tensorflow",
        target="tf.distribute.cluster_resolver.TPUClusterResolver.__init__, cluster_spec and "
        "master",
        change="No argument, `''`, `None` and any TPU name resolve to the virtual cores, as "
        "`'local'` does. Addresses, an explicit `service` or `discovery_url`, and the environment "
        "of GKE or Cloud TPU resolve to the same TPU as before. A resolver for the virtual cores "
        "reports its TPU as ready and healthy, and ignores requests for a software version "
        "(`configure_tpu_version`). If the program gives it a name and a job, its cluster has that "
        "job with one host, and in graph mode, the cores are devices of that job in a session with "
        "its master and this cluster.",
        reason="stock TensorFlow asks Google Cloud for a TPU of that name, and fails if there is "
        "none.",
        install=_resolver.install_cluster_resolver,
    ),
    Patch(
        name="connect_to_cluster",
        group="tensorflow",
        target="tf.config.experimental_connect_to_cluster",
        change="With a TPUClusterResolver for the virtual cores, it does nothing in graph mode, as "
        "it always did in eager mode. With one for cores of other processes, this process gets no "
        "cores of its own, watches the workers, tells them where the others listen, and sends "
        "without streaming (`TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE=false`, unless it is set). A "
        "program that reconnects keeps the port on which it listens.",
        reason="programs that build graphs call it too, and stock TensorFlow raises an error "
        "there, although there is nothing to connect to. TPUs of two processes in one program "
        "would be an error. A program would wait forever for a worker that has stopped, see "
        "docs/pods.md. Stock TensorFlow tells workers a new port, on which nobody listens.",
        install=_resolver.install_connect_to_cluster,
    ),
    Patch(
        name="device_names",
        group="tensorflow",
        target="tf.device",
        change="After `connect_to_cluster` with a TPUClusterResolver for the virtual cores, names "
        "of devices of its job's first task, such as `/job:worker/device:CPU:0`, mean devices of "
        "this process, eagerly and in functions.",
        reason="on a cloud, the TPU's host is another process, which programs name by its job. "
        "Stock TensorFlow knows no such device here.",
        install=_device_names.install_device_names,
    ),
    Patch(
        name="watched_sessions",
        group="tensorflow",
        target="tf.compat.v1.Session.__init__, close and what talks to its worker",
        change="The calls of a session whose target is another process run on a separate thread, "
        "and raise UnavailableError if its worker gives no sign of life for `host_limit_seconds`. "
        "If its ConfigProto has a cluster of virtual cores, these are told where the others "
        "listen. Sessions of this process are unchanged.",
        reason="stock TensorFlow waits forever for a worker that has stopped.",
        install=_sessions.install_watched_sessions,
    ),
    Patch(
        name="worker_errors",
        group="tensorflow",
        target="tf.errors.UnavailableError.__init__",
        change="In a program that uses workers, the message names those that give no sign of life. "
        "Without workers it is unchanged.",
        reason="stock TensorFlow's message may say only that a connection was closed.",
        install=_worker_errors.install_worker_errors,
    ),
    Patch(
        name="preemption",
        group="tensorflow",
        target="tf.distribute.experimental.PreemptionCheckpointHandler",
        change="Under a TPUStrategy, SIGTERM asks the handler for a checkpoint: its next check "
        "finds a preemption, it saves, and the program exits with code 42. A SIGTERM handler that "
        "the program had set is called too. Only a PreemptionCheckpointHandler created on the main "
        "thread listens.",
        reason="on a TPU, the host's software sends the preemption notice; here, nothing else "
        "could.",
        install=_preemption.install_preemption,
    ),
    Patch(
        name="all_to_all",
        group="tensorflow",
        target="tensorflow.python.tpu.ops.tpu_ops.all_to_all",
        change="When called eagerly with mismatched shapes, it raises the same ValueError as in a "
        "graph.",
        reason="eager execution skips the op's shape function, and the kernel would raise a "
        "different type of error.",
        install=_ops.install_all_to_all,
    ),
    Patch(
        name="python_functions",
        group="tensorflow",
        target="tensorflow.python.ops.script_ops.FuncRegistry.__call__",
        change="The error of a Python function that this process does not have says which process "
        "that is, and what to do. Calls of functions that it has are unchanged.",
        reason="on a pod, the host's part of a program runs in the workers, which have none of its "
        "Python functions; stock TensorFlow's error names only a number.",
        install=_ops.install_python_functions,
    ),
    Patch(
        name="resource_scatters",
        group="tensorflow",
        target="tf.Variable.scatter_sub, scatter_mul, scatter_div, scatter_min and scatter_max",
        change="Inside a TPU computation, they read the variable, scatter into the value, and "
        "assign the result. Elsewhere they are unchanged.",
        reason="the MLIR bridge supports only `scatter_add` and `scatter_update`.",
        install=_ops.install_resource_scatters,
    ),
    Patch(
        name="outside_compilation",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication.outside_compilation_impl",
        change="In a `tf.function(jit_compile=True)` that has nothing to do with TPUs, "
        "`tf.compat.v1.tpu.outside_compilation` runs its computation on the host, as in a "
        "TPU computation.",
        reason="stock TensorFlow puts the ops into the compiled program, which fails if XLA does "
        "not support one of them.",
        install=_clusters.install_outside_compilation,
    ),
    Patch(
        name="cluster_order",
        group="tensorflow",
        target="tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies.__exit__",
        change="The side effects of outside compilation clusters in a `tf.function` happen in "
        "program order, like those of its other ops.",
        reason="stock TensorFlow orders only ops with side effects that are not compiled, and "
        "leaves out those in clusters.",
        install=_clusters.install_cluster_order,
    ),
    Patch(
        name="cluster_calls",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication`'s contexts and `tf.Operation._set_func_attr",
        change="A `tf.function` that is called in an outside compilation cluster runs on the host "
        "too. With workers, the ops of a cluster have an additional attribute: the Python line "
        "that created them.",
        reason="stock TensorFlow marks the call, but loses the mark when it inlines the function: "
        "strings, prints and Python functions in it fail to compile. It sends functions to workers "
        "without stack traces, but profiles, reports and findings need the line.",
        install=_clusters.install_cluster_calls,
    ),
    Patch(
        name="cluster_captures",
        group="tensorflow",
        target="tensorflow.python.ops.while_v2._WhileBodyGradFuncGraph._capture_helper",
        change="In the gradient of a loop, outside compilation clusters get the values of the "
        "forward iterations from the cores, which store them.",
        reason="stock TensorFlow takes them from a list inside the cluster, but a list can't cross "
        "between host and cores: a custom gradient with a cluster doesn't compile in a loop.",
        install=_clusters.install_cluster_captures,
    ),
    Patch(
        name="cluster_checks",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication.TPUReplicateContext.ExitResult",
        change="Tracing raises an error if an outside compilation cluster uses a variable of TPU "
        "cores, shares a host variable with the rest of the computation, or passes the "
        "cores a value that they can't hold. The graph is not changed.",
        reason="such programs deadlock, read stale values, or fail with an obscure compiler error. "
        "TensorFlow's documentation forbids them, but nothing checks for them.",
        install=_clusters.install_cluster_checks,
    ),
    Patch(
        name="program_options",
        group="tensorflow",
        target="tensorflow.python.tpu.ops.tpu_ops.tpu_replicate_metadata",
        change="Graphs that are traced in `with tf_tpu_ext.Options(...)` store these options: a "
        "TPU computation in its metadata, a `tf.function` in an op that has no effect. Everything "
        "else is unchanged.",
        reason="programs are compiled later, perhaps by another thread, with the process's "
        "options, so `Options` as a context manager would have no effect.",
        install=_options.install_program_options,
    ),
    Patch(
        name="traces",
        group="tensorflow",
        target="tensorflow.python.eager.polymorphic_function.transform.call_concrete_function_callbacks",
        change="Each traced `tf.function` is shown to tf_tpu_ext, which remembers its first line "
        "and what it was traced with. The function is unchanged.",
        reason="a compiled program knows neither its Python line nor the Python values that it was "
        "traced with, so it could not say why it was compiled again.",
        install=_traces.install_traces,
    ),
    Patch(
        name="partitioned_infeed",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_feed._PartitionedInfeedQueue",
        change="The input of a replica with several cores goes to the first core as a whole, and "
        "the program splits it.",
        reason="stock TensorFlow splits it on the host and sends each core its part, which XLA "
        "does not support on a CPU.",
        install=_ops.install_partitioned_infeed,
    ),
    Patch(
        name="embedding_packing",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_embedding_v2_utils._Optimizer"
        "._set_optimization_parameters",
        change="The optimizers of `tf.tpu.experimental.embedding` write "
        "`low_dimensional_packing_status` into the configuration as the number of the enum "
        "value.",
        reason="stock TensorFlow writes a bool, which newer versions of protobuf reject for an "
        "enum, so no TPUEmbedding can be created with them.",
        install=_embedding.install_embedding_packing,
    ),
    Patch(
        name="tensorflow_io",
        group="tensorflow",
        target="tf.load_op_library",
        change="If tensorflow-io's native ops can't be loaded, the error says which versions go "
        "together. All other libraries are loaded as before.",
        reason="stock TensorFlow only names an undefined symbol.",
        install=_libraries.install_tensorflow_io,
    ),
    Patch(
        name="variable_handles",
        group="tensorflow",
        target="tensorflow.python.ops.gen_resource_variable_ops.var_handle_op",
        change="Variables that are created eagerly on virtual cores of this process get their "
        "handles from another op, which takes the variable's name as an input.",
        reason="stock TensorFlow's op has the name as an attribute, and eager execution prepares "
        "an op for each value of its attributes: half a millisecond for each variable on each "
        "core.",
        install=_variables.install_variable_handles,
    ),
    Patch(
        name="dealt_iterators",
        group="tensorflow",
        target="tensorflow.python.distribute.input_lib._SingleWorkerOwnedDatasetIterator",
        change="Under a TPUStrategy, a distributed dataset has one iterator per host, which gives "
        "each of its cores the next element in turn. Order, end, buffer sizes and devices are the "
        "same, but a program takes an element from the host.",
        reason="stock TensorFlow has a pipeline with threads for each core, to copy elements to "
        "its memory early: with 8 cores, making them takes half a second, in each epoch of `fit`.",
        install=_iterators.install_dealt_iterators,
    ),
    Patch(
        name="autotune_loop",
        group="tensorflow",
        target="tensorflow::data::model::Model::OptimizeLoop",
        change="The background loop that tunes a `tf.data` pipeline ends as soon as its iterator "
        "is deleted. It tunes the same parameters, with the same algorithms, at the same pace.",
        reason="deleting an iterator may take up to a minute: TensorFlow's loop can miss the "
        "cancellation and keep sleeping, and an iterator over 8 devices has 9 such loops.",
        install=_libraries.install_autotune_loop,
    ),
    Patch(
        name="host_ops",
        group="towers",
        target="tensorflow.python.framework.func_graph.FuncGraph._create_op_internal",
        change="While a `merge_fn` is traced, ops that only a host can run (printing, calling "
        "Python, writing) are created so that they run once per step.",
        reason="every core runs the program, and stock TensorFlow would print once per core.",
        install=deferred("tf_tpu_ext.towers._host_ops", "install_hook"),
    ),
)
