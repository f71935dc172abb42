"""What changes in TensorFlow: by `import tf_tpu_ext`, and while a `merge_fn` is traced."""

from __future__ import annotations

from tf_tpu_ext.patches import _clusters, _embedding, _libraries, _ops, _options, _resolver
from tf_tpu_ext.patches._patch import Patch, deferred

PATCHES = (
    Patch(
        name="cluster_resolver",
        group="tensorflow",
        target="tf.distribute.cluster_resolver.TPUClusterResolver.__init__",
        change="No argument, `''`, `None` or the name of a TPU finds the virtual cores, as "
        "`'local'` does. Addresses, a given `service` or `discovery_url`, and the environment of "
        "GKE or Cloud TPU lead where they always led. A resolver of the virtual cores answers that "
        "its TPU is ready and healthy where a program waits for it or chooses its software "
        "(`configure_tpu_version`, which changes nothing).",
        reason="stock TensorFlow asks Google Cloud for the TPU of that name, and fails where there "
        "is none.",
        install=_resolver.install_cluster_resolver,
    ),
    Patch(
        name="connect_to_cluster",
        group="tensorflow",
        target="tf.config.experimental_connect_to_cluster",
        change="With a TPUClusterResolver of the virtual cores it does nothing in graph mode "
        "either; in eager mode it never did anything.",
        reason="programs that build graphs call it too, and stock TensorFlow refuses it there even "
        "where there is nothing to connect to.",
        install=_resolver.install_connect_to_cluster,
    ),
    Patch(
        name="all_to_all",
        group="tensorflow",
        target="tensorflow.python.tpu.ops.tpu_ops.all_to_all",
        change="Called eagerly with shapes that do not fit, it raises the ValueError that it "
        "raises in a graph.",
        reason="eager execution leaves the op's shape function out, and the error of a kernel is "
        "not a ValueError: the same mistake would have two types.",
        install=_ops.install_all_to_all,
    ),
    Patch(
        name="resource_scatters",
        group="tensorflow",
        target="tf.Variable.scatter_sub, scatter_mul, scatter_div, scatter_min and scatter_max",
        change="Inside a TPU computation they read the variable, scatter into its value, and "
        "assign that. Everywhere else they are as before.",
        reason="the MLIR bridge takes apart `scatter_add` and `scatter_update` only, and refuses "
        "the others.",
        install=_ops.install_resource_scatters,
    ),
    Patch(
        name="outside_compilation",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication.outside_compilation_impl",
        change="`tf.compat.v1.tpu.outside_compilation` in a `tf.function(jit_compile=True)` that "
        "has nothing to do with TPUs runs the computation on the host, as in a TPU computation.",
        reason="stock TensorFlow puts the ops into the compiled program, which then fails if XLA "
        "does not support one of them.",
        install=_clusters.install_outside_compilation,
    ),
    Patch(
        name="cluster_order",
        group="tensorflow",
        target="tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies.__exit__",
        change="The outside compilation clusters of a `tf.function` have their effects in the "
        "order of the program, as all other ops of a `tf.function` have.",
        reason="stock TensorFlow orders the ops with effects that are not compiled, and leaves "
        "those of clusters out.",
        install=_clusters.install_cluster_order,
    ),
    Patch(
        name="cluster_calls",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication`'s contexts and `tf.Operation._set_func_attr",
        change="A tf.function that is called in an outside compilation cluster runs on the host "
        "with it.",
        reason="stock TensorFlow marks the call and forgets the mark when it puts the function's "
        "body in its place: strings, prints and Python functions in it fail to compile.",
        install=_clusters.install_cluster_calls,
    ),
    Patch(
        name="cluster_captures",
        group="tensorflow",
        target="tensorflow.python.ops.while_v2._WhileBodyGradFuncGraph._capture_helper",
        change="In the gradient of a loop an outside compilation cluster gets the values of the "
        "forward iterations from the cores, where they were kept.",
        reason="stock TensorFlow takes them out of their list within the cluster, and a list can't "
        "cross: a custom gradient with a cluster doesn't compile in a loop.",
        install=_clusters.install_cluster_captures,
    ),
    Patch(
        name="cluster_checks",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_replication.TPUReplicateContext.ExitResult",
        change="A traced computation is refused if an outside compilation cluster uses a variable "
        "of TPU cores, shares a host variable with the rest of the computation, or gives the cores "
        "what they can't hold. The graph stays what it was.",
        reason="such programs deadlock, see old values, or fail with the compiler's words; "
        "TensorFlow's documentation forbids them and nothing checks.",
        install=_clusters.install_cluster_checks,
    ),
    Patch(
        name="program_options",
        group="tensorflow",
        target="tensorflow.python.tpu.ops.tpu_ops.tpu_replicate_metadata",
        change="What is traced in `with tf_tpu_ext.Options(...)` carries those options in its "
        "graph: a TPU computation in its metadata, a `tf.function` in an op that does nothing. All "
        "else is as before.",
        reason="programs are compiled later, perhaps by another thread, by the options of the "
        "process: `Options` as a context would have no effect.",
        install=_options.install_program_options,
    ),
    Patch(
        name="partitioned_infeed",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_feed._PartitionedInfeedQueue",
        change="The input of a replica of several cores goes whole to the first of them, and the "
        "program splits it over all.",
        reason="stock TensorFlow cuts it up on the host and sends every core its part; XLA takes "
        "no such parts on CPU.",
        install=_ops.install_partitioned_infeed,
    ),
    Patch(
        name="embedding_packing",
        group="tensorflow",
        target="tensorflow.python.tpu.tpu_embedding_v2_utils._Optimizer"
        "._set_optimization_parameters",
        change="The optimizers of `tf.tpu.experimental.embedding` write their "
        "`low_dimensional_packing_status` into the configuration as the number that it stands for.",
        reason="stock TensorFlow writes a bool, which newer versions of protobuf refuse for an "
        "enum: no TPUEmbedding can be built with them.",
        install=_embedding.install_embedding_packing,
    ),
    Patch(
        name="tensorflow_io",
        group="tensorflow",
        target="tf.load_op_library",
        change="Where the native ops of tensorflow-io can't be loaded, the error says which "
        "versions go together. All other libraries are loaded as before.",
        reason="stock TensorFlow names an undefined symbol.",
        install=_libraries.install_tensorflow_io,
    ),
    Patch(
        name="autotune_loop",
        group="tensorflow",
        target="tensorflow::data::model::Model::OptimizeLoop",
        change="The background loop that tunes a `tf.data` pipeline ends the moment its iterator "
        "is deleted. It tunes the same parameters, by the same algorithms, at the same pace.",
        reason="deleting an iterator may take up to a minute: TensorFlow's loop can miss the "
        "cancellation and sleep on, and an iterator over 8 cores has 9 such loops.",
        install=_libraries.install_autotune_loop,
    ),
    Patch(
        name="host_ops",
        group="towers",
        target="tensorflow.python.framework.func_graph.FuncGraph._create_op_internal",
        change="While a `merge_fn` of a tower is traced, ops that only a host can run (printing, "
        "calling Python, writing) are made so that they run once a step.",
        reason="every core runs the program, and stock TensorFlow would print once for each.",
        install=deferred("tf_tpu_ext.towers._host_ops", "install_hook"),
    ),
)
