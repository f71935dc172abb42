"""Every change that the package makes to TensorFlow, each with its reason and its way back.

`import tf_tpu_ext` applies them; `undo_all` gives TensorFlow back as it was.
docs/patches.md shows the same list to users.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable

from tf_tpu_ext import _native
from tf_tpu_ext.patches import (
    _clusters,
    _embedding,
    _libraries,
    _ops,
    _options,
    _resolver,
)
from tf_tpu_ext.patches._attributes import UnavailableError, Undo
from tf_tpu_ext.patches._resolver import take_every_tpu_as_local

__all__ = [
    "PATCHES",
    "Patch",
    "UnavailableError",
    "applied",
    "apply_all",
    "take_every_tpu_as_local",
    "undo_all",
]

_lock = threading.RLock()
_undo_by_name: dict[str, Undo] = {}


@dataclasses.dataclass(frozen=True)
class Patch:
    """One change to TensorFlow.

    Attributes:
        name: What `applied` calls it.
        target: What changes, by its full name in TensorFlow.
        change: What is different afterwards.
        reason: Why programs need it.
        install: Makes the change and returns the function that takes it back. Raises
            `UnavailableError`, having changed nothing, where TensorFlow is not built as expected.
    """

    name: str
    target: str
    change: str
    reason: str
    install: Callable[[], Undo] = dataclasses.field(repr=False)


def apply_all() -> None:
    """Applies every patch that is not applied yet.

    Does nothing where the package stepped aside for a real TPU. Any thread may call it, and call it
    again. A patch that does not fit is left out with a RuntimeWarning; the others still apply.

    Raises:
        ImportError: The native library can't be loaded.
        RuntimeError: The native library was asked for too late.

    Example:
        >>> import tf_tpu_ext
        >>> from tf_tpu_ext import patches
        >>> patches.apply_all()
        >>> "cluster_resolver" in patches.applied()
        True
    """
    with _lock:
        if not _native.load():
            return
        for patch in PATCHES:
            if patch.name in _undo_by_name:
                continue
            try:
                _undo_by_name[patch.name] = patch.install()
            except UnavailableError as error:
                warnings.warn(
                    f"tf_tpu_ext left {patch.target} of TensorFlow as it is: {error} Without the "
                    f"patch {patch.name!r}: {patch.reason}",
                    RuntimeWarning,
                    stacklevel=2,
                )


def undo_all() -> None:
    """Takes every applied patch back, the latest first, so that TensorFlow is as it came.

    Any thread may call it, and call it again. Iterators and resolvers made before keep what they
    were made with.

    Raises:
        RuntimeError: Other code has replaced what a patch had put in place. That patch and those
            applied before it stay.
    """
    with _lock:
        while _undo_by_name:
            name = next(reversed(_undo_by_name))
            _undo_by_name[name]()
            del _undo_by_name[name]


def applied() -> tuple[str, ...]:
    """Returns the names of the patches in force, in the order of their application."""
    with _lock:
        return tuple(_undo_by_name)


PATCHES = (
    Patch(
        name="cluster_resolver",
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
        target="tf.config.experimental_connect_to_cluster",
        change="With a TPUClusterResolver of the virtual cores it does nothing in graph mode "
        "either; in eager mode it never did anything.",
        reason="programs that build graphs call it too, and stock TensorFlow refuses it there even "
        "where there is nothing to connect to.",
        install=_resolver.install_connect_to_cluster,
    ),
    Patch(
        name="all_to_all",
        target="tensorflow.python.tpu.ops.tpu_ops.all_to_all",
        change="Called eagerly with shapes that do not fit, it raises the ValueError that it "
        "raises in a graph.",
        reason="eager execution leaves the op's shape function out, and the error of a kernel is "
        "not a ValueError: the same mistake would have two types.",
        install=_ops.install_all_to_all,
    ),
    Patch(
        name="resource_scatters",
        target="tf.Variable.scatter_sub, scatter_mul, scatter_div, scatter_min and scatter_max",
        change="Inside a TPU computation they read the variable, scatter into its value, and "
        "assign that. Everywhere else they are as before.",
        reason="the MLIR bridge takes apart `scatter_add` and `scatter_update` only, and refuses "
        "the others.",
        install=_ops.install_resource_scatters,
    ),
    Patch(
        name="outside_compilation",
        target="tensorflow.python.tpu.tpu_replication.outside_compilation_impl",
        change="`tf.compat.v1.tpu.outside_compilation` in a `tf.function(jit_compile=True)` that "
        "has nothing to do with TPUs runs the computation on the host, as in a TPU computation.",
        reason="stock TensorFlow puts the ops into the compiled program, which then fails if XLA "
        "does not support one of them.",
        install=_clusters.install_outside_compilation,
    ),
    Patch(
        name="cluster_order",
        target="tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies.__exit__",
        change="The outside compilation clusters of a `tf.function` have their effects in the "
        "order of the program, as all other ops of a `tf.function` have.",
        reason="stock TensorFlow orders the ops with effects that are not compiled, and leaves "
        "those of clusters out.",
        install=_clusters.install_cluster_order,
    ),
    Patch(
        name="cluster_calls",
        target="tensorflow.python.tpu.tpu_replication`'s contexts and `tf.Operation._set_func_attr",
        change="A tf.function that is called in an outside compilation cluster runs on the host "
        "with it.",
        reason="stock TensorFlow marks the call and forgets the mark when it puts the function's "
        "body in its place: strings, prints and Python functions in it fail to compile.",
        install=_clusters.install_cluster_calls,
    ),
    Patch(
        name="cluster_captures",
        target="tensorflow.python.ops.while_v2._WhileBodyGradFuncGraph._capture_helper",
        change="In the gradient of a loop an outside compilation cluster gets the values of the "
        "forward iterations from the cores, where they were kept.",
        reason="stock TensorFlow takes them out of their list within the cluster, and a list can't "
        "cross: a custom gradient with a cluster doesn't compile in a loop.",
        install=_clusters.install_cluster_captures,
    ),
    Patch(
        name="cluster_checks",
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
        target="tensorflow.python.tpu.tpu_feed._PartitionedInfeedQueue",
        change="The input of a replica of several cores goes whole to the first of them, and the "
        "program splits it over all.",
        reason="stock TensorFlow cuts it up on the host and sends every core its part; XLA takes "
        "no such parts on CPU.",
        install=_ops.install_partitioned_infeed,
    ),
    Patch(
        name="embedding_packing",
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
        target="tf.load_op_library",
        change="Where the native ops of tensorflow-io can't be loaded, the error says which "
        "versions go together. All other libraries are loaded as before.",
        reason="stock TensorFlow names an undefined symbol.",
        install=_libraries.install_tensorflow_io,
    ),
    Patch(
        name="autotune_loop",
        target="tensorflow::data::model::Model::OptimizeLoop",
        change="The background loop that tunes a `tf.data` pipeline ends the moment its iterator "
        "is deleted. It tunes the same parameters, by the same algorithms, at the same pace.",
        reason="deleting an iterator may take up to a minute: TensorFlow's loop can miss the "
        "cancellation and sleep on, and an iterator over 8 cores has 9 such loops.",
        install=_libraries.install_autotune_loop,
    ),
)
