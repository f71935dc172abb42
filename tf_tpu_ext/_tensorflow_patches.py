"""Every change that the package makes to TensorFlow, each with its reason and its way back.

`import tf_tpu_ext` applies them; `undo_all` gives TensorFlow back as it was.
docs/tensorflow_patches.md shows the same list to users.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import inspect
import itertools
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tf_tpu_ext import _native
from tf_tpu_ext._tpu_client import VirtualTpuClient

Undo = Callable[[], None]

# Where one of these is set, a cloud has told the program which TPU is its own.
_CLOUD_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG", "TPU_API_DISCOVERY_URL")

_log = logging.getLogger("tf_tpu_ext")
_lock = threading.RLock()
_undo_by_name: dict[str, Undo] = {}
_every_tpu_is_local = False


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


class UnavailableError(Exception):
    """A patch does not fit the TensorFlow of this process."""


def apply_all() -> None:
    """Applies every patch that is not applied yet.

    Does nothing where the package stepped aside for a real TPU. Any thread may call it, and call it
    again. A patch that does not fit is left out with a RuntimeWarning; the others still apply.

    Raises:
        ImportError: The native library can't be loaded.
        RuntimeError: The native library was asked for too late.

    Example:
        >>> import tf_tpu_ext
        >>> from tf_tpu_ext import _tensorflow_patches
        >>> _tensorflow_patches.apply_all()
        >>> "cluster_resolver" in _tensorflow_patches.applied()
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


def take_every_tpu_as_local() -> None:
    """Makes any name or address of a TPU, also one from a cloud's environment, the virtual cores.

    For the launcher: a script that it runs has no other TPU.
    """
    global _every_tpu_is_local
    _every_tpu_is_local = True


def applied() -> tuple[str, ...]:
    """Returns the names of the patches in force, in the order of their application."""
    with _lock:
        return tuple(_undo_by_name)


def _replace_attributes(replacements: Sequence[tuple[type | ModuleType, str, object]]) -> Undo:
    """Puts objects in the places `(owner, name)`; undoing restores all or, on an error, none."""
    # vars() gives the object itself, where getattr would bind it. What a class inherits is not
    # there, and is restored by taking ours away.
    stock = [vars(owner).get(name) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)

    def undo() -> None:
        for owner, name, replacement in replacements:
            found = vars(owner).get(name)
            if found is not replacement:
                raise RuntimeError(
                    f"{_full_name(owner)}.{name} can't be restored: expected what tf_tpu_ext had "
                    f"put there, got {found!r}. Undo that other change first, then call "
                    "undo_all() again."
                )
        for (owner, name, _), original in zip(replacements, stock, strict=True):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    return undo


def _full_name(owner: type | ModuleType) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__qualname__}"


def _name_of_tpu(tpu: Any) -> Any:
    """Returns the one name in what a TPUClusterResolver was given, or the environment's."""
    if isinstance(tpu, (list, tuple)) and len(tpu) == 1:
        tpu = tpu[0]
    if isinstance(tpu, bytes):
        tpu = tpu.decode()
    return os.environ.get("TPU_NAME", "") if tpu is None or tpu == "" else tpu


def _names_this_machine(tpu: Any, service: Any, discovery_url: Any) -> bool:
    """Whether the arguments of a TPUClusterResolver mean the virtual cores of this machine.

    They do unless they lead to a machine elsewhere (an address, a Cloud API of the caller's own, a
    cloud's environment) or are such as TensorFlow refuses, which then says so itself.
    """
    name = _name_of_tpu(tpu)
    if name == "local" or _every_tpu_is_local:
        return True
    if service is not None or discovery_url is not None:
        return False
    if any(os.environ.get(variable) for variable in _CLOUD_VARIABLES):
        return False
    # A name has neither; 'grpc://host:port' and 'host:port' do.
    return isinstance(name, str) and "/" not in name and ":" not in name


def _install_cluster_resolver() -> Undo:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    stock = vars(resolver)["__init__"]
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def init(*args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            # TensorFlow's own complaint names its own function.
            stock(*args, **kwargs)
            raise
        bound.apply_defaults()
        given = bound.arguments
        tpu = given["tpu"]
        if not _names_this_machine(tpu, given["service"], given["discovery_url"]):
            stock(*bound.args, **bound.kwargs)
            return
        _log.debug("TPU %r is the virtual cores of this machine", tpu)
        given["tpu"] = "local"
        if not given["coordinator_address"]:
            # A coordinator is the way to a remote TPU, and TensorFlow can't make one locally.
            given["coordinator_name"] = None
        stock(*bound.args, **bound.kwargs)
        given["self"]._cloud_tpu_client = VirtualTpuClient(str(_name_of_tpu(tpu) or "local"))

    return _replace_attributes([(resolver, "__init__", init)])


def _install_connect_to_cluster() -> Undo:
    import tensorflow as tf
    from tensorflow.python.eager import remote

    stock = remote.connect_to_cluster

    @functools.wraps(stock)
    def connect_to_cluster(cluster_spec_or_resolver: Any, *args: Any, **kwargs: Any) -> None:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver
        if (
            isinstance(cluster_spec_or_resolver, resolver)
            and cluster_spec_or_resolver.master() in remote._LOCAL_MASTERS
        ):
            return
        stock(cluster_spec_or_resolver, *args, **kwargs)

    modules = (tf.config, tf.compat.v1.config, tf.compat.v2.config)
    return _replace_attributes(
        [
            (remote, "connect_to_cluster", connect_to_cluster),
            *((m, "experimental_connect_to_cluster", connect_to_cluster) for m in modules),
        ]
    )


def _install_all_to_all() -> Undo:
    import tensorflow as tf
    from tensorflow.python.tpu.ops import tpu_ops

    stock = tpu_ops.all_to_all
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def all_to_all(*args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return stock(*args, **kwargs)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            # TensorFlow's own complaint names its own function.
            stock(*args, **kwargs)
            raise
        given["x"] = tf.convert_to_tensor(given["x"])
        if given.get("group_assignment") is not None:
            given["group_assignment"] = np.asarray(given["group_assignment"])
        with tf.Graph().as_default():
            # A graph runs the op's shape function, which eager execution leaves out.
            x = tf.compat.v1.placeholder(given["x"].dtype, given["x"].shape)
            checked = stock(**{**given, "x": x})
            given["group_assignment"] = tf.get_static_value(checked.op.inputs[1])
        return stock(**given)

    return _replace_attributes([(tpu_ops, "all_to_all", all_to_all)])


def _builds_tpu_computation() -> bool:
    """Whether an op made now would be part of a TPU computation, and not of its host's part."""
    import tensorflow as tf
    from tensorflow.python.tpu import tpu_replication

    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if isinstance(context, tpu_replication.OutsideCompilationV2Context):
                return False
            if isinstance(context, tpu_replication.TPUReplicateContext):
                return not context._outside_compilation_cluster
            context = context.outer_context
        # Loops, branches and functions have graphs of their own.
        graph = getattr(graph, "outer_graph", None)
    return False


def _install_resource_scatters() -> Undo:
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops as generated

    raw = tf.raw_ops

    def scatter_by(op: Callable[..., Any]) -> Callable[..., Any]:
        return lambda old, indices, updates: op(
            tensor=old, indices=indices[..., tf.newaxis], updates=updates
        )

    def combine_by(op: Callable[..., Any]) -> Callable[..., Any]:
        # Rows that no index names are combined with 1.
        return lambda old, indices, updates: op(
            x=old,
            y=raw.UnsortedSegmentProd(
                data=updates, segment_ids=indices, num_segments=tf.shape(old)[0]
            ),
        )

    def replace(stock: Callable[..., Any], new_value: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def scatter(resource: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
            if not _builds_tpu_computation():
                return stock(resource, indices, updates, name)
            with tf.name_scope(name or stock.__name__):
                indices, updates = tf.convert_to_tensor(indices), tf.convert_to_tensor(updates)
                old = raw.ReadVariableOp(resource=resource, dtype=updates.dtype)
                # The op also takes one number for all elements.
                shape = tf.concat([tf.shape(indices), tf.shape(old)[1:]], axis=0)
                value = new_value(old, indices, tf.broadcast_to(updates, shape))
                return raw.AssignVariableOp(resource=resource, value=value)

        return scatter

    new_values = {
        "sub": scatter_by(raw.TensorScatterSub),
        "min": scatter_by(raw.TensorScatterMin),
        "max": scatter_by(raw.TensorScatterMax),
        "mul": combine_by(raw.Mul),
        "div": combine_by(raw.Div),
    }
    names = [(f"resource_scatter_{name}", new_value) for name, new_value in new_values.items()]
    return _replace_attributes(
        [(generated, name, replace(vars(generated)[name], value)) for name, value in names]
    )


def _install_outside_compilation() -> Undo:
    from tensorflow.python.framework import func_graph, ops
    from tensorflow.python.tpu import tpu_replication

    stock = tpu_replication.outside_compilation_impl
    cluster_numbers = itertools.count()

    def in_replicated_computation() -> bool:
        try:
            tpu_replication._enclosing_tpu_context_and_graph()
        except ValueError:
            return False
        return True

    @functools.wraps(stock)
    def outside_compilation_impl(
        is_map: bool, computation: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        in_function = isinstance(ops.get_default_graph(), func_graph.FuncGraph)
        if not in_function or in_replicated_computation():
            return stock(is_map, computation, *args, **kwargs)
        # A compiled function may call this one and inline it: names must not repeat. Where nothing
        # is compiled, the mark means nothing.
        context = tpu_replication.OutsideCompilationV2Context(
            f"function_{next(cluster_numbers)}", is_map_outside_compilation=is_map
        )
        context.Enter()
        try:
            return computation(*args, **kwargs)
        finally:
            context.Exit()

    return _replace_attributes(
        [(tpu_replication, "outside_compilation_impl", outside_compilation_impl)]
    )


def _install_cluster_order() -> Undo:
    from tensorflow.python.framework import auto_control_deps

    from tf_tpu_ext.tpu import _cluster_order

    dependencies = auto_control_deps.AutomaticControlDependencies
    stock = vars(dependencies)["__exit__"]

    @functools.wraps(stock)
    def exit_and_chain(self: Any, *args: Any) -> Any:
        # Eagerly there is no graph, and all is in order.
        graph = getattr(self, "_graph", None)
        if graph is not None and graph.building_function:
            operations = graph.get_operations()[self._n_operations :]
            _cluster_order.chain_effects(graph, operations)
        return stock(self, *args)

    return _replace_attributes([(dependencies, "__exit__", exit_and_chain)])


def _install_cluster_calls() -> Undo:
    import tensorflow as tf
    from tensorflow.python.tpu.tpu_replication import (
        OutsideCompilationV2Context,
        TPUReplicateContext,
    )

    from tf_tpu_ext.tpu import _cluster_functions

    def replacement(stock: Callable[..., None], op_of: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(stock)
        def then_mark(*args: Any, **kwargs: Any) -> None:
            stock(*args, **kwargs)
            _cluster_functions.mark_called_function(op_of(*args))

        return then_mark

    # The first marks the ops of a v1 graph, the second those of a tf.function. Gradients give a
    # call another function later.
    places: list[tuple[type, str, Callable[..., Any]]] = [
        (TPUReplicateContext, "AddOp", lambda _, op: op),
        (OutsideCompilationV2Context, "_set_outside_compilation_attributes", lambda _, op: op),
        (tf.Operation, "_set_func_attr", lambda op, *_: op),
    ]
    return _replace_attributes(
        [(owner, name, replacement(vars(owner)[name], op_of)) for owner, name, op_of in places]
    )


def _install_cluster_captures() -> Undo:
    from tensorflow.python.ops import while_v2
    from tensorflow.python.tpu.tpu_replication import OutsideCompilationV2Context

    body = while_v2._WhileBodyGradFuncGraph
    stock = vars(body)["_capture_helper"]

    @functools.wraps(stock)
    def capture_helper(self: Any, *args: Any, **kwargs: Any) -> Any:
        context = self._get_control_flow_context()
        if not isinstance(context, OutsideCompilationV2Context):
            return stock(self, *args, **kwargs)
        self._set_control_flow_context(context.outer_context)
        try:
            return stock(self, *args, **kwargs)
        finally:
            self._set_control_flow_context(context)

    return _replace_attributes([(body, "_capture_helper", capture_helper)])


def _install_cluster_checks() -> Undo:
    from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

    from tf_tpu_ext.tpu import _cluster_checks

    # Called once, when a computation has been traced. A function around the trace itself would show
    # in the user's tracebacks.
    stock = TPUReplicateContext.ExitResult

    @functools.wraps(stock)
    def exit_result(self: Any, result: Any) -> None:
        stock(self, result)
        _cluster_checks.check(self)

    return _replace_attributes([(TPUReplicateContext, "ExitResult", exit_result)])


def _install_tensorflow_io() -> Undo:
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    stock = load_library.load_op_library

    @functools.wraps(stock)
    def load_op_library(library_filename: Any) -> Any:
        name = os.path.basename(os.fsdecode(library_filename))
        try:
            return stock(library_filename)
        except (tf.errors.OpError, OSError) as error:
            if not name.startswith("libtensorflow_io"):
                raise
            # The error that tensorflow-io passes on as it is, and survives while it is imported.
            raise NotImplementedError(
                f"The native ops of tensorflow-io don't load in TensorFlow {tf.__version__}: they "
                "were built for another version. Its parts in Python work. Expected tensorflow-io "
                "0.37.1 beside TensorFlow 2.16 or 2.17; see docs/estimator.md. Read the files with "
                "tf.data, or in outside compilation with tf.py_function."
            ) from error

    modules = (tf, tf.compat.v1, tf.compat.v2)
    return _replace_attributes(
        [
            (load_library, "load_op_library", load_op_library),
            *((module, "load_op_library", load_op_library) for module in modules),
        ]
    )


def _install_partitioned_infeed() -> Undo:
    from tensorflow.python.tpu import tpu_feed

    from tf_tpu_ext.tpu import _partitioned_infeed

    queue = tpu_feed._PartitionedInfeedQueue
    return _replace_attributes(
        [
            (queue, "generate_enqueue_ops", _partitioned_infeed.enqueue_ops),
            (queue, "generate_dequeue_op", _partitioned_infeed.dequeue_op),
        ]
    )


def _call_native(name: str) -> str | None:
    """Calls a function of the native library that returns the text of an error or null."""
    function = getattr(_native.library(), name)
    function.restype = ctypes.c_char_p
    message: bytes | None = function()
    return None if message is None else message.decode()


def _install_autotune_loop() -> Undo:
    problem = _call_native("TfTpuExt_ReplaceAutotuneLoop")
    if problem is not None:
        raise UnavailableError(problem)

    def undo() -> None:
        problem = _call_native("TfTpuExt_RestoreAutotuneLoop")
        if problem is not None:
            raise RuntimeError(f"TensorFlow's autotuning loop can't be restored: {problem}")

    return undo


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
        install=_install_cluster_resolver,
    ),
    Patch(
        name="connect_to_cluster",
        target="tf.config.experimental_connect_to_cluster",
        change="With a TPUClusterResolver of the virtual cores it does nothing in graph mode "
        "either; in eager mode it never did anything.",
        reason="programs that build graphs call it too, and stock TensorFlow refuses it there even "
        "where there is nothing to connect to.",
        install=_install_connect_to_cluster,
    ),
    Patch(
        name="all_to_all",
        target="tensorflow.python.tpu.ops.tpu_ops.all_to_all",
        change="Called eagerly with shapes that do not fit, it raises the ValueError that it "
        "raises in a graph.",
        reason="eager execution leaves the op's shape function out, and the error of a kernel is "
        "not a ValueError: the same mistake would have two types.",
        install=_install_all_to_all,
    ),
    Patch(
        name="resource_scatters",
        target="tf.Variable.scatter_sub, scatter_mul, scatter_div, scatter_min and scatter_max",
        change="Inside a TPU computation they read the variable, scatter into its value, and "
        "assign that. Everywhere else they are as before.",
        reason="the MLIR bridge takes apart `scatter_add` and `scatter_update` only, and refuses "
        "the others.",
        install=_install_resource_scatters,
    ),
    Patch(
        name="outside_compilation",
        target="tensorflow.python.tpu.tpu_replication.outside_compilation_impl",
        change="`tf.compat.v1.tpu.outside_compilation` in a `tf.function(jit_compile=True)` that "
        "has nothing to do with TPUs runs the computation on the host, as in a TPU computation.",
        reason="stock TensorFlow puts the ops into the compiled program, which then fails if XLA "
        "does not support one of them.",
        install=_install_outside_compilation,
    ),
    Patch(
        name="cluster_order",
        target="tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies.__exit__",
        change="The outside compilation clusters of a `tf.function` have their effects in the "
        "order of the program, as all other ops of a `tf.function` have.",
        reason="stock TensorFlow orders the ops with effects that are not compiled, and leaves "
        "those of clusters out.",
        install=_install_cluster_order,
    ),
    Patch(
        name="cluster_calls",
        target="tensorflow.python.tpu.tpu_replication`'s contexts and `tf.Operation._set_func_attr",
        change="A tf.function that is called in an outside compilation cluster runs on the host "
        "with it.",
        reason="stock TensorFlow marks the call and forgets the mark when it puts the function's "
        "body in its place: strings, prints and Python functions in it fail to compile.",
        install=_install_cluster_calls,
    ),
    Patch(
        name="cluster_captures",
        target="tensorflow.python.ops.while_v2._WhileBodyGradFuncGraph._capture_helper",
        change="In the gradient of a loop an outside compilation cluster gets the values of the "
        "forward iterations from the cores, where they were kept.",
        reason="stock TensorFlow takes them out of their list within the cluster, and a list can't "
        "cross: a custom gradient with a cluster doesn't compile in a loop.",
        install=_install_cluster_captures,
    ),
    Patch(
        name="cluster_checks",
        target="tensorflow.python.tpu.tpu_replication.TPUReplicateContext.ExitResult",
        change="A traced computation is refused if an outside compilation cluster uses a variable "
        "of TPU cores, shares a host variable with the rest of the computation, or gives the cores "
        "what they can't hold. The graph stays what it was.",
        reason="such programs deadlock, see old values, or fail with the compiler's words; "
        "TensorFlow's documentation forbids them and nothing checks.",
        install=_install_cluster_checks,
    ),
    Patch(
        name="partitioned_infeed",
        target="tensorflow.python.tpu.tpu_feed._PartitionedInfeedQueue",
        change="The input of a replica of several cores goes whole to the first of them, and the "
        "program splits it over all.",
        reason="stock TensorFlow cuts it up on the host and sends every core its part; XLA takes "
        "no such parts on CPU.",
        install=_install_partitioned_infeed,
    ),
    Patch(
        name="tensorflow_io",
        target="tf.load_op_library",
        change="Where the native ops of tensorflow-io can't be loaded, the error says which "
        "versions go together. All other libraries are loaded as before.",
        reason="stock TensorFlow names an undefined symbol.",
        install=_install_tensorflow_io,
    ),
    Patch(
        name="autotune_loop",
        target="tensorflow::data::model::Model::OptimizeLoop",
        change="The background loop that tunes a `tf.data` pipeline ends the moment its iterator "
        "is deleted. It tunes the same parameters, by the same algorithms, at the same pace.",
        reason="deleting an iterator may take up to a minute: TensorFlow's loop can miss the "
        "cancellation and sleep on, and an iterator over 8 cores has 9 such loops.",
        install=_install_autotune_loop,
    ),
)
